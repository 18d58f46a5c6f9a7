/* Reads the records of one partition of a Fetch response in place, into objects with the methods of confluent-kafka's
 * Message.
 *
 * The reference implementation in received.py is the specification: same arguments, same result for every input, and a
 * test compares both. The records of a batch become objects in one call for many of them. A record keeps the memory of
 * its batch, the response or the decompressed batch, and copies its key, value or headers when they are read.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <structmember.h>

#include "../../protocol/_crc32c.h"
#include "../../protocol/_records.h"

enum {
    LENGTH_AT = 8,
    EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    LAST_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35,
    PRODUCER_ID_AT = 43,
    COUNT_AT = 57,
    HEADER_SIZE = 61,
    LOG_OVERHEAD = 12,
    CODEC_MASK = 7,
    APPEND_TIME = 8,
    TRANSACTIONAL = 0x10,
    CONTROL = 0x20,
};

static int32_t get32(const uint8_t *at)
{
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static int64_t get64(const uint8_t *at)
{
    return (int64_t)((uint64_t)(uint32_t)get32(at) << 32 | (uint32_t)get32(at + 4));
}

static PyObject *owned(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

/* -- the memory of records ----------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Py_buffer view; /* `obj` is NULL where there is none */
    PyObject *topic;
    int partition;
} received_memory;

static PyTypeObject *memory_type;

static void dealloc_memory(PyObject *object)
{
    received_memory *self = (received_memory *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->view.obj != NULL)
        PyBuffer_Release(&self->view);
    Py_XDECREF(self->topic);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyType_Slot slots_of_memory[] = {
    {Py_tp_doc, "The bytes of a response or of a decompressed batch."},
    {Py_tp_dealloc, dealloc_memory},
    {0, NULL},
};

static PyType_Spec spec_of_memory = {
    "odradek.streams.clients._received.ReceivedMemory", sizeof(received_memory), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots_of_memory,
};

static received_memory *memory_of(PyObject *data, PyObject *topic, int partition)
{
    received_memory *made = PyObject_New(received_memory, memory_type);
    if (made == NULL)
        return NULL;
    made->view.obj = NULL;
    made->topic = owned(topic);
    made->partition = partition;
    if (PyObject_GetBuffer(data, &made->view, PyBUF_SIMPLE) < 0)
        Py_CLEAR(made);
    return made;
}

/* -- one record ---------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    received_memory *memory;
    const uint8_t *key, *value, *end; /* the headers are between the value and the end */
    int64_t offset, timestamp;
    int32_t key_length, value_length, timestamp_type;
} received_record;

static PyTypeObject *record_type;

static void dealloc_record(PyObject *object)
{
    received_record *self = (received_record *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_DECREF(self->memory);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *bytes_of(const uint8_t *at, int32_t length)
{
    if (length < 0)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)at, length);
}

static PyObject *text_of(const uint8_t *at, int32_t length)
{
    if (length < 0)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8((const char *)at, length, "replace");
}

static const uint8_t *start_of(cursor after, int32_t length) { return after.at - (length > 0 ? length : 0); }

static PyObject *headers_of(const received_record *self)
{
    cursor from = {self->value + (self->value_length > 0 ? self->value_length : 0), self->end}, checked = from;
    int32_t count, length;
    if (from.at < from.end && *from.at == 0)
        Py_RETURN_NONE;
    if (skip_headers(&checked) != SOUND) { /* only where the memory has changed since read_record */
        PyErr_SetString(PyExc_ValueError, "the headers are malformed");
        return NULL;
    }
    read_int32(&from, RECORD_SIZE, &count);
    PyObject *list = count > 0 ? PyList_New(count) : owned(Py_None);
    for (int32_t index = 0; list != NULL && index < count; index++) {
        skip_bytes(&from, &length);
        PyObject *name = text_of(start_of(from, length), length);
        skip_bytes(&from, &length);
        PyObject *value = bytes_of(start_of(from, length), length);
        PyObject *pair = name == NULL || value == NULL ? NULL : PyTuple_Pack(2, name, value);
        Py_XDECREF(name);
        Py_XDECREF(value);
        if (pair == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, index, pair);
    }
    return list;
}

#define RECORD(object) ((received_record *)(object))
static PyObject *record_headers(PyObject *self, PyObject *Py_UNUSED(none)) { return headers_of(RECORD(self)); }
static PyObject *record_topic(PyObject *self, PyObject *Py_UNUSED(none)) { return owned(RECORD(self)->memory->topic); }
static PyObject *record_error(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(none)) { Py_RETURN_NONE; }

static PyObject *record_key(PyObject *self, PyObject *Py_UNUSED(none))
{
    return bytes_of(RECORD(self)->key, RECORD(self)->key_length);
}

static PyObject *record_value(PyObject *self, PyObject *Py_UNUSED(none))
{
    return bytes_of(RECORD(self)->value, RECORD(self)->value_length);
}

static PyObject *record_partition(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyLong_FromLong(RECORD(self)->memory->partition);
}

static PyObject *record_offset(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyLong_FromLongLong(RECORD(self)->offset);
}

static PyObject *record_timestamp(PyObject *object, PyObject *Py_UNUSED(none))
{
    PyObject *pair = PyTuple_New(2);
    PyObject *type = PyLong_FromLong(RECORD(object)->timestamp_type);
    PyObject *time = PyLong_FromLongLong(RECORD(object)->timestamp);
    if (pair == NULL || type == NULL || time == NULL) {
        Py_XDECREF(pair);
        Py_XDECREF(type);
        Py_XDECREF(time);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, type);
    PyTuple_SetItem(pair, 1, time);
    return pair;
}

/* -- the rows of a task -------------------------------------------------------------------------------------------- */

enum { ROW_SIZE = 6 };

typedef struct {
    PyObject_HEAD
    PyObject *list, *row; /* `row` is used again where no other reference to it is left */
    Py_ssize_t at;
    int key_text, value_text;
} record_rows;

static PyTypeObject *rows_type;

static void dealloc_rows(PyObject *object)
{
    record_rows *self = (record_rows *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->list);
    Py_XDECREF(self->row);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Fill a row that only this iterator has a reference to. */
static int fill_row(PyObject *row, PyObject *object, int key_text, int value_text)
{
    const received_record *read = RECORD(object);
    PyObject *parts[ROW_SIZE] = {
        owned(object),
        PyLong_FromLongLong(read->offset),
        PyLong_FromLongLong(read->timestamp),
        headers_of(read),
        (key_text ? text_of : bytes_of)(read->key, read->key_length),
        (value_text ? text_of : bytes_of)(read->value, read->value_length),
    };
    int failed = 0;
    for (int index = 0; index < ROW_SIZE; index++) {
        failed |= parts[index] == NULL;
        if (PyTuple_SetItem(row, index, parts[index]) < 0)
            failed = 1;
    }
    return failed ? -1 : 0;
}

static PyObject *next_row(PyObject *object)
{
    record_rows *self = (record_rows *)object;
    if (self->at >= PyList_Size(self->list))
        return NULL;
    PyObject *record = PyList_GetItem(self->list, self->at++);
    if (Py_TYPE(record) != record_type) {
        PyErr_SetString(PyExc_TypeError, "rows are made of received records");
        return NULL;
    }
    if (self->row == NULL || Py_REFCNT(self->row) != 1) {
        Py_CLEAR(self->row);
        self->row = PyTuple_New(ROW_SIZE);
        if (self->row == NULL)
            return NULL;
    }
    if (fill_row(self->row, record, self->key_text, self->value_text) < 0) {
        Py_CLEAR(self->row); /* an item may be NULL */
        return NULL;
    }
    return owned(self->row);
}

static PyObject *this_iterator(PyObject *self) { return owned(self); }

static PyType_Slot slots_of_rows[] = {
    {Py_tp_doc, "Rows of records; see received.py."},
    {Py_tp_dealloc, dealloc_rows},
    {Py_tp_iter, this_iterator},
    {Py_tp_iternext, next_row},
    {0, NULL},
};

static PyType_Spec spec_of_rows = {
    "odradek.streams.clients._received.RecordRows", sizeof(record_rows), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots_of_rows,
};

static PyObject *rows(PyObject *Py_UNUSED(type), PyObject *arguments)
{
    PyObject *list;
    int key_text, value_text;
    if (!PyArg_ParseTuple(arguments, "Opp", &list, &key_text, &value_text))
        return NULL;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "rows are made of a list of records");
        return NULL;
    }
    record_rows *made = PyObject_New(record_rows, rows_type);
    if (made == NULL)
        return NULL;
    made->list = owned(list);
    made->row = NULL;
    made->at = 0;
    made->key_text = key_text;
    made->value_text = value_text;
    return (PyObject *)made;
}

static PyMethodDef record_methods[] = {
    {"key", record_key, METH_NOARGS, "The key, or None."},
    {"value", record_value, METH_NOARGS, "The value, or None."},
    {"headers", record_headers, METH_NOARGS, "A list of names and values, or None."},
    {"topic", record_topic, METH_NOARGS, "The topic."},
    {"partition", record_partition, METH_NOARGS, "The partition."},
    {"offset", record_offset, METH_NOARGS, "The offset."},
    {"timestamp", record_timestamp, METH_NOARGS, "The type of the timestamp, and the timestamp in ms."},
    {"error", record_error, METH_NOARGS, "None: this is a record."},
    {"rows", rows, METH_VARARGS | METH_STATIC, "Rows of records: (record, offset, timestamp, headers, key, value)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots_of_record[] = {
    {Py_tp_doc, "A record; see received.py."},
    {Py_tp_dealloc, dealloc_record},
    {Py_tp_methods, record_methods},
    {0, NULL},
};

static PyType_Spec spec_of_record = {
    "odradek.streams.clients._received.ReceivedRecord", sizeof(received_record), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots_of_record,
};

/* -- the records of a partition ------------------------------------------------------------------------------------ */

typedef struct {
    int64_t first_offset, producer_id;
} aborted_transaction;

typedef struct {
    PyObject_HEAD
    received_memory *response, *inflated; /* `inflated` is NULL where the batch is not compressed */
    const uint8_t *at, *end;
    cursor payload;
    int32_t left;
    int64_t base_offset, last_offset, base_timestamp, max_timestamp;
    int timestamp_type;
    long long start, position, next_offset;
    int leader_epoch;
    aborted_transaction *aborted;
    Py_ssize_t aborted_count, aborted_begun;
    int64_t *aborting; /* the producers whose transaction is being skipped */
    Py_ssize_t aborting_count;
    PyObject *topic, *inflate;
    int partition;
} received_records;

static void dealloc(PyObject *object)
{
    received_records *self = (received_records *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->response);
    Py_XDECREF(self->inflated);
    free(self->aborted);
    free(self->aborting);
    Py_XDECREF(self->topic);
    Py_XDECREF(self->inflate);
    freefunc deallocate = (freefunc)PyType_GetSlot(type, Py_tp_free);
    deallocate(object);
    Py_DECREF(type);
}

/* The size of the whole batch at `at`, or 0 where it is not completely there. */
static int64_t batch_size(const received_records *self, const uint8_t *at)
{
    if (self->end - at < HEADER_SIZE)
        return 0;
    int64_t size = LOG_OVERHEAD + (int64_t)get32(at + LENGTH_AT);
    return size < HEADER_SIZE || size > self->end - at ? 0 : size;
}

static int take_aborted(received_records *self, PyObject *aborted)
{
    Py_ssize_t count = PySequence_Size(aborted);
    if (count < 0)
        return -1;
    if (count == 0)
        return 0;
    self->aborted = malloc((size_t)count * sizeof *self->aborted);
    self->aborting = malloc((size_t)count * sizeof *self->aborting);
    if (self->aborted == NULL || self->aborting == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *pair = PySequence_GetItem(aborted, index);
        long long first_offset, producer_id;
        int failed = pair == NULL || !PyArg_ParseTuple(pair, "LL", &first_offset, &producer_id);
        Py_XDECREF(pair);
        if (failed)
            return -1;
        self->aborted[index] = (aborted_transaction){first_offset, producer_id};
    }
    self->aborted_count = count;
    return 0;
}

static int init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    received_records *self = (received_records *)object;
    PyObject *data, *topic, *aborted, *inflate;
    if (self->topic != NULL || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "ReceivedRecords takes six positional arguments, once");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "OUiLOO", &data, &topic, &self->partition, &self->start, &aborted, &inflate))
        return -1;
    self->response = memory_of(data, topic, self->partition);
    if (self->response == NULL)
        return -1;
    self->topic = owned(topic);
    self->inflate = owned(inflate);
    self->at = self->response->view.buf;
    self->end = self->at + self->response->view.len;
    self->position = self->next_offset = self->start;
    self->last_offset = self->start - 1;
    self->leader_epoch = -1;
    int64_t size;
    for (const uint8_t *at = self->at; (size = batch_size(self, at)) > 0; at += size) {
        self->next_offset = get64(at) + get32(at + LAST_DELTA_AT) + 1;
        self->leader_epoch = get32(at + EPOCH_AT);
    }
    if (self->next_offset < self->start)
        self->next_offset = self->start;
    return take_aborted(self, aborted);
}

/* Whether the records of a batch belong to an aborted transaction. A marker ends the transaction of its producer. */
static int is_aborted(received_records *self, int64_t producer_id, int attributes)
{
    while (self->aborted_begun < self->aborted_count &&
           self->aborted[self->aborted_begun].first_offset <= self->last_offset)
        self->aborting[self->aborting_count++] = self->aborted[self->aborted_begun++].producer_id;
    if (!(attributes & (TRANSACTIONAL | CONTROL)))
        return 0;
    for (Py_ssize_t index = 0; index < self->aborting_count; index++) {
        if (self->aborting[index] != producer_id)
            continue;
        if (attributes & CONTROL)
            self->aborting[index] = self->aborting[--self->aborting_count];
        return 1;
    }
    return 0;
}

static int malformed(received_records *self, const char *reason)
{
    PyErr_Format(PyExc_ValueError, "batch at offset %lld: %s", (long long)self->base_offset, reason);
    return -1;
}

static int decompress(received_records *self, int codec)
{
    PyObject *payload = PyMemoryView_FromMemory((char *)self->payload.at, self->payload.end - self->payload.at, PyBUF_READ);
    PyObject *inflated = payload == NULL ? NULL : PyObject_CallFunction(self->inflate, "iO", codec, payload);
    Py_XDECREF(payload);
    if (inflated == NULL)
        return -1;
    self->inflated = memory_of(inflated, self->topic, self->partition);
    Py_DECREF(inflated);
    if (self->inflated == NULL)
        return -1;
    self->payload = (cursor){self->inflated->view.buf, (uint8_t *)self->inflated->view.buf + self->inflated->view.len};
    return 0;
}

/* 1: the next batch with records is begun; 0: there is none; -1: with an exception. */
static int begin_batch(received_records *self)
{
    int64_t size;
    if (self->position <= self->last_offset)
        self->position = self->last_offset + 1; /* compaction has removed the last records of the last batch */
    while ((size = batch_size(self, self->at)) > 0) {
        const uint8_t *at = self->at;
        self->base_offset = get64(at);
        if (at[MAGIC_AT] != 2)
            return malformed(self, "its magic is not 2");
        if (crc32c(at + ATTRIBUTES_AT, (size_t)size - ATTRIBUTES_AT) != (uint32_t)get32(at + CRC_AT))
            return malformed(self, "its checksum does not match");
        int attributes = at[ATTRIBUTES_AT + 1];
        self->last_offset = self->base_offset + get32(at + LAST_DELTA_AT);
        self->at = at + size;
        int aborted = is_aborted(self, get64(at + PRODUCER_ID_AT), attributes);
        if (aborted || attributes & CONTROL || self->last_offset < self->start) {
            if (self->last_offset >= self->position)
                self->position = self->last_offset + 1;
            continue;
        }
        self->base_timestamp = get64(at + BASE_TIMESTAMP_AT);
        self->max_timestamp = get64(at + MAX_TIMESTAMP_AT);
        self->timestamp_type = attributes & APPEND_TIME ? 2 : 1;
        self->payload = (cursor){at + HEADER_SIZE, at + size};
        Py_CLEAR(self->inflated);
        if (attributes & CODEC_MASK && decompress(self, attributes & CODEC_MASK) < 0)
            return -1;
        self->left = get32(at + COUNT_AT);
        if (self->left < 0)
            return malformed(self, "its record count is negative");
        return 1;
    }
    if (self->position < self->next_offset)
        self->position = self->next_offset;
    return 0;
}

static PyObject *record_of(const received_records *self, const record *read)
{
    received_record *made = PyObject_New(received_record, record_type);
    if (made == NULL)
        return NULL;
    cursor rest = {read->key + (read->key_length > 0 ? read->key_length : 0), read->end};
    received_memory *memory = self->inflated == NULL ? self->response : self->inflated;
    made->memory = (received_memory *)owned((PyObject *)memory);
    made->key = read->key;
    made->key_length = read->key_length;
    skip_bytes(&rest, &made->value_length);
    made->value = start_of(rest, made->value_length);
    made->end = read->end;
    made->offset = self->base_offset + read->offset_delta;
    made->timestamp_type = self->timestamp_type;
    made->timestamp = self->timestamp_type == 2
                          ? self->max_timestamp
                          : (int64_t)((uint64_t)self->base_timestamp + (uint64_t)read->timestamp_delta);
    return (PyObject *)made;
}

/* Add the rest of a batch to `list`, up to `most` records in it. */
static int add_records(received_records *self, PyObject *list, Py_ssize_t most)
{
    while (self->left > 0 && PyList_Size(list) < most) {
        record read;
        if (read_record(&self->payload, &read) != SOUND)
            return malformed(self, "one of its records is malformed");
        self->left--;
        int64_t offset = self->base_offset + read.offset_delta;
        if (offset < self->position)
            continue;
        PyObject *made = record_of(self, &read);
        int failed = made == NULL ? -1 : PyList_Append(list, made);
        Py_XDECREF(made);
        if (failed < 0)
            return -1;
        self->position = offset + 1;
    }
    return 0;
}

static PyObject *take(PyObject *object, PyObject *number)
{
    received_records *self = (received_records *)object;
    Py_ssize_t most = PyLong_AsSsize_t(number);
    PyObject *list = most == -1 && PyErr_Occurred() ? NULL : PyList_New(0);
    while (list != NULL && PyList_Size(list) < most) {
        int found = self->left > 0 ? 1 : begin_batch(self);
        if (found == 0)
            break;
        if (found < 0 || add_records(self, list, most) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"take", take, METH_O, "The next records, so many at the most."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"position", T_LONGLONG, offsetof(received_records, position), READONLY, "The offset of the next record."},
    {"next_offset", T_LONGLONG, offsetof(received_records, next_offset), READONLY, "The offset behind all batches."},
    {"leader_epoch", T_INT, offsetof(received_records, leader_epoch), READONLY, "That of the last batch, or -1."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The records of a partition in a response; see received.py."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, init},
    {Py_tp_dealloc, dealloc},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    "odradek.streams.clients._received.ReceivedRecords", sizeof(received_records), 0, Py_TPFLAGS_DEFAULT, slots,
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_received", "See received.py.", -1, NULL};

PyMODINIT_FUNC PyInit__received(void)
{
    make_crc32c_tables();
    PyObject *module = PyModule_Create(&definition);
    PyObject *kind = PyType_FromSpec(&spec);
    memory_type = (PyTypeObject *)PyType_FromSpec(&spec_of_memory);
    record_type = (PyTypeObject *)PyType_FromSpec(&spec_of_record);
    rows_type = (PyTypeObject *)PyType_FromSpec(&spec_of_rows);
    if (module == NULL || kind == NULL || memory_type == NULL || record_type == NULL || rows_type == NULL ||
        PyModule_AddObjectRef(module, "ReceivedRecords", kind) < 0 ||
        PyModule_AddObjectRef(module, "ReceivedRecord", (PyObject *)record_type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(kind);
    return module;
}
