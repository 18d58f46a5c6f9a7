/* Collects produced records in batches of magic 2, one open batch for each partition.
 *
 * The reference implementation in accumulator.py is the specification: same arguments, same bytes for every input, and
 * a test compares both. A record is written into its batch by the call that produces it: no object of it is kept but
 * its callback, and the source record that goes to the callback.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <structmember.h>
#include <time.h>

#include "../../protocol/_crc32c.h"
#include "../../protocol/_record_writer.h"

enum {
    MAGIC_AT = 16,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    HEADER_SIZE = 61,
    LOG_OVERHEAD = 12,
    POOLED = 16,
    FIRST_ROOM = 16384,
    RECORD_OVERHEAD = 40, /* the longest lengths, deltas and attributes of a record */
    MSG_SIZE_TOO_LARGE = 10,
    UNKNOWN_PARTITION = -190,
};

static void set32(uint8_t *at, uint32_t number)
{
    at[0] = (uint8_t)(number >> 24);
    at[1] = (uint8_t)(number >> 16);
    at[2] = (uint8_t)(number >> 8);
    at[3] = (uint8_t)number;
}

static void set16(uint8_t *at, uint32_t number)
{
    at[0] = (uint8_t)(number >> 8);
    at[1] = (uint8_t)number;
}

static void set64(uint8_t *at, uint64_t number)
{
    set32(at, (uint32_t)(number >> 32));
    set32(at + 4, (uint32_t)number);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static PyObject *owned(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

static void free_object(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* -- one batch ----------------------------------------------------------------------------------------------------- */

typedef struct accumulator accumulator;

typedef struct {
    PyObject *callback, *source; /* `source` is NULL where the callback gets none */
} origin;

typedef struct {
    PyObject_HEAD
    output out; /* the header, and the records behind it */
    long long first_timestamp, max_timestamp;
    int count, partition;
    double begun_s;
    PyObject *topic;
    origin *origins; /* as many as records */
    int origins_room;
    accumulator *owner;
} producer_batch;

typedef struct {
    PyObject *topic;
    int partitions;
    producer_batch **open;
} target;

struct accumulator {
    PyObject_HEAD
    target *targets;
    int target_count, last_target, sticky;
    Py_ssize_t batch_bytes, record_bytes, most_bytes, most_records;
    Py_ssize_t bytes, records; /* of all batches that exist */
    PyObject *partitions_of, *refuse;
    PyObject *full; /* a list */
    int full_count;
};

static PyTypeObject *batch_type;
static output pool[POOLED];
static int pooled;

static void drop_origin(origin of)
{
    Py_XDECREF(of.callback);
    Py_XDECREF(of.source);
}

static void dealloc_batch(PyObject *object)
{
    producer_batch *self = (producer_batch *)object;
    for (int index = 0; index < self->count; index++)
        drop_origin(self->origins[index]);
    free(self->origins);
    if (self->owner != NULL) {
        self->owner->bytes -= (Py_ssize_t)self->out.size;
        self->owner->records -= self->count;
        Py_DECREF((PyObject *)self->owner);
    }
    if (pooled < POOLED && self->out.data != NULL)
        pool[pooled++] = self->out;
    else
        PyMem_Free(self->out.data);
    Py_XDECREF(self->topic);
    free_object(object);
}

static producer_batch *begin_batch(accumulator *owner, PyObject *topic, int partition, int64_t timestamp)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(batch_type, Py_tp_alloc);
    producer_batch *self = (producer_batch *)allocate(batch_type, 0);
    if (self == NULL)
        return NULL;
    if (pooled > 0)
        self->out = pool[--pooled];
    self->out.size = 0;
    if (make_room(&self->out, FIRST_ROOM) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->out.size = HEADER_SIZE;
    self->first_timestamp = self->max_timestamp = timestamp;
    self->partition = partition;
    self->topic = owned(topic);
    self->begun_s = seconds(CLOCK_MONOTONIC);
    self->owner = (accumulator *)owned((PyObject *)owner);
    owner->bytes += HEADER_SIZE;
    return self;
}

static int add_origin(producer_batch *self, PyObject *callback, PyObject *source)
{
    if (self->count == self->origins_room) {
        int room = self->origins_room ? 2 * self->origins_room : 64;
        origin *more = realloc(self->origins, sizeof *more * (size_t)room);
        if (more == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->origins = more;
        self->origins_room = room;
    }
    self->origins[self->count] = (origin){owned(callback), source == Py_None ? NULL : owned(source)};
    return 0;
}

static PyObject *seal(PyObject *object, PyObject *arguments)
{
    producer_batch *self = (producer_batch *)object;
    long long producer_id;
    int epoch, sequence, attributes;
    if (!PyArg_ParseTuple(arguments, "Liii", &producer_id, &epoch, &sequence, &attributes))
        return NULL;
    uint8_t *at = self->out.data;
    set64(at, 0);
    set32(at + 8, (uint32_t)(self->out.size - LOG_OVERHEAD));
    set32(at + 12, 0xFFFFFFFFu);
    at[MAGIC_AT] = 2;
    set16(at + ATTRIBUTES_AT, (uint32_t)attributes);
    set32(at + 23, (uint32_t)self->count - 1);
    set64(at + 27, (uint64_t)self->first_timestamp);
    set64(at + 35, (uint64_t)self->max_timestamp);
    set64(at + 43, (uint64_t)producer_id);
    set16(at + 51, (uint32_t)epoch);
    set32(at + 53, (uint32_t)sequence);
    set32(at + 57, (uint32_t)self->count);
    set32(at + CRC_AT, crc32c(at + ATTRIBUTES_AT, self->out.size - ATTRIBUTES_AT));
    Py_RETURN_NONE;
}

/* The callback of a record; where there is a source record, a method of it. */
static PyObject *callback_of(PyObject *method_type, origin of)
{
    return of.source == NULL ? owned(of.callback) : PyObject_CallFunctionObjArgs(method_type, of.callback, of.source, NULL);
}

static PyObject *origins_of(PyObject *object, PyObject *Py_UNUSED(none))
{
    producer_batch *self = (producer_batch *)object;
    PyObject *types = PyImport_ImportModule("types");
    PyObject *method_type = types == NULL ? NULL : PyObject_GetAttrString(types, "MethodType");
    PyObject *list = method_type == NULL ? NULL : PyList_New(self->count);
    for (int index = 0; list != NULL && index < self->count; index++) {
        PyObject *callback = callback_of(method_type, self->origins[index]);
        if (callback == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, index, callback);
    }
    Py_XDECREF(types);
    Py_XDECREF(method_type);
    return list;
}

static PyObject *view_of(PyObject *object, PyObject *Py_UNUSED(none)) { return PyMemoryView_FromObject(object); }

static int buffer_of(PyObject *object, Py_buffer *view, int flags)
{
    producer_batch *self = (producer_batch *)object;
    return PyBuffer_FillInfo(view, object, self->out.data, (Py_ssize_t)self->out.size, 1, flags);
}

static Py_ssize_t length_of(PyObject *object) { return (Py_ssize_t)((producer_batch *)object)->out.size; }

static PyMethodDef batch_methods[] = {
    {"seal", seal, METH_VARARGS, "Write the header."},
    {"view", view_of, METH_NOARGS, "The bytes of the sealed batch."},
    {"origins", origins_of, METH_NOARGS, "The callbacks of the records, or None for each."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef batch_members[] = {
    {"count", T_INT, offsetof(producer_batch, count), READONLY, "How many records."},
    {"partition", T_INT, offsetof(producer_batch, partition), READONLY, "The partition."},
    {"topic", T_OBJECT, offsetof(producer_batch, topic), READONLY, "The topic."},
    {"begun_s", T_DOUBLE, offsetof(producer_batch, begun_s), READONLY, "The monotonic time of the first record."},
    {"first_timestamp", T_LONGLONG, offsetof(producer_batch, first_timestamp), READONLY, "Of the first record."},
    {"max_timestamp", T_LONGLONG, offsetof(producer_batch, max_timestamp), READONLY, "The greatest of all records."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots_of_batch[] = {
    {Py_tp_doc, "A batch of one partition; see accumulator.py."},
    {Py_tp_dealloc, dealloc_batch},
    {Py_tp_methods, batch_methods},
    {Py_tp_members, batch_members},
    {Py_bf_getbuffer, buffer_of},
    {Py_sq_length, length_of},
    {0, NULL},
};

static PyType_Spec spec_of_batch = {
    "odradek.streams.clients._accumulator.ProducerBatch", sizeof(producer_batch), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots_of_batch,
};

/* -- the batches of all partitions --------------------------------------------------------------------------------- */

static void drop_open(accumulator *self)
{
    for (int index = 0; index < self->target_count; index++)
        for (int partition = 0; partition < self->targets[index].partitions; partition++)
            Py_CLEAR(self->targets[index].open[partition]);
}

static void dealloc(PyObject *object)
{
    accumulator *self = (accumulator *)object;
    drop_open(self);
    for (int index = 0; index < self->target_count; index++) {
        Py_DECREF(self->targets[index].topic);
        free(self->targets[index].open);
    }
    free(self->targets);
    Py_XDECREF(self->partitions_of);
    Py_XDECREF(self->refuse);
    Py_XDECREF(self->full);
    free_object(object);
}

static int init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    accumulator *self = (accumulator *)object;
    PyObject *partitions_of, *refuse;
    if (self->full != NULL || keywords != NULL) {
        PyErr_SetString(PyExc_TypeError, "Accumulator takes seven positional arguments, once");
        return -1;
    }
    if (!PyArg_ParseTuple(arguments, "nnnniOO", &self->batch_bytes, &self->record_bytes, &self->most_bytes,
                          &self->most_records, &self->sticky, &partitions_of, &refuse))
        return -1;
    self->partitions_of = owned(partitions_of);
    self->refuse = owned(refuse);
    self->full = PyList_New(0);
    return self->full == NULL ? -1 : 0;
}

static uint32_t murmur2(const uint8_t *data, size_t length)
{
    const uint32_t m = 0x5BD1E995u;
    uint32_t hash = 0x9747B28Cu ^ (uint32_t)length, rest = 0;
    size_t whole = length & ~(size_t)3;
    for (size_t at = 0; at < whole; at += 4) {
        uint32_t k = data[at] | (uint32_t)data[at + 1] << 8 | (uint32_t)data[at + 2] << 16 | (uint32_t)data[at + 3] << 24;
        k *= m;
        k ^= k >> 24;
        hash = hash * m ^ k * m;
    }
    for (size_t at = length; at > whole; at--)
        rest = rest << 8 | data[at - 1];
    if (length != whole)
        hash = (hash ^ rest) * m;
    hash = (hash ^ hash >> 13) * m;
    return hash ^ hash >> 15;
}

/* The target of a topic, or NULL. Topics are few, and mostly the same object as before. */
static target *known_target(accumulator *self, PyObject *topic)
{
    if (self->target_count > 0 && self->targets[self->last_target].topic == topic)
        return &self->targets[self->last_target];
    for (int index = 0; index < self->target_count; index++)
        if (self->targets[index].topic == topic) {
            self->last_target = index;
            return &self->targets[index];
        }
    for (int index = 0; index < self->target_count; index++)
        if (PyUnicode_Compare(self->targets[index].topic, topic) == 0) {
            self->last_target = index;
            return &self->targets[index];
        }
    return NULL;
}

static target *set_target(accumulator *self, PyObject *topic, int partitions)
{
    target *found = known_target(self, topic);
    if (found == NULL) {
        target *more = realloc(self->targets, sizeof *more * (size_t)(self->target_count + 1));
        if (more == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        self->targets = more;
        found = &self->targets[self->target_count];
        *found = (target){owned(topic), 0, NULL};
        self->last_target = self->target_count++;
    }
    if (partitions > found->partitions) {
        producer_batch **open = realloc(found->open, sizeof *open * (size_t)partitions);
        if (open == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        memset(open + found->partitions, 0, sizeof *open * (size_t)(partitions - found->partitions));
        found->open = open;
        found->partitions = partitions;
    }
    return found;
}

static target *target_of(accumulator *self, PyObject *topic)
{
    if (!PyUnicode_Check(topic)) {
        PyErr_SetString(PyExc_TypeError, "a topic is a str");
        return NULL;
    }
    target *found = known_target(self, topic);
    if (found != NULL && found->partitions > 0)
        return found;
    PyObject *number = PyObject_CallFunctionObjArgs(self->partitions_of, topic, NULL);
    if (number == NULL)
        return NULL;
    long partitions = PyLong_AsLong(number);
    Py_DECREF(number);
    if (partitions == -1 && PyErr_Occurred())
        return NULL;
    return set_target(self, topic, (int)partitions);
}

/* A key or a value: bytes, the UTF-8 form of a str, or any object with the buffer protocol. */
typedef struct {
    const uint8_t *at;
    Py_ssize_t length; /* -1 for None */
    Py_buffer view;    /* `obj` is NULL where there is none */
} part;

static int get_part(PyObject *object, part *out)
{
    out->at = NULL;
    out->length = -1;
    out->view.obj = NULL;
    if (object == Py_None)
        return 0;
    if (PyBytes_Check(object)) {
        out->at = (const uint8_t *)PyBytes_AsString(object);
        out->length = PyBytes_Size(object);
        return 0;
    }
    if (PyUnicode_Check(object)) {
        out->at = (const uint8_t *)PyUnicode_AsUTF8AndSize(object, &out->length);
        return out->at == NULL ? -1 : 0;
    }
    if (PyObject_GetBuffer(object, &out->view, PyBUF_SIMPLE) < 0)
        return -1;
    out->at = out->view.buf;
    out->length = out->view.len;
    return 0;
}

static void release_part(part *of)
{
    if (of->view.obj != NULL)
        PyBuffer_Release(&of->view);
}

static size_t bytes_of(const part *of) { return of->length > 0 ? (size_t)of->length : 0; }

static size_t varint_size(int64_t number)
{
    uint64_t zigzag = (uint64_t)number << 1;
    if (number < 0)
        zigzag = ~zigzag;
    return (size_t)(70 - __builtin_clzll(zigzag | 1)) / 7;
}

static uint8_t *write_part(uint8_t *to, const part *from)
{
    to += write_varint(to, from->length);
    if (from->length > 0)
        memcpy(to, from->at, (size_t)from->length);
    return to + bytes_of(from);
}

static int refused(accumulator *self, int code, const char *reason, Py_ssize_t number)
{
    PyObject *result = PyObject_CallFunction(self->refuse, "isn", code, reason, number);
    if (result != NULL) { /* it has to raise */
        Py_DECREF(result);
        PyErr_SetString(PyExc_ValueError, reason);
    }
    return -1;
}

static int finish(accumulator *self, producer_batch **open)
{
    int failed = PyList_Append(self->full, (PyObject *)*open);
    if (failed == 0) {
        Py_CLEAR(*open);
        self->full_count++;
        self->sticky++;
    }
    return failed;
}

/* The headers of a record in wire form. `out` is empty without them. */
static int get_headers(PyObject *headers, output *out)
{
    *out = (output){NULL, 0, 0};
    if (headers == Py_None)
        return 0;
    if (!PyDict_Check(headers))
        return put_headers(out, headers);
    PyObject *items = PyDict_Items(headers);
    int failed = items == NULL ? -1 : put_headers(out, items);
    Py_XDECREF(items);
    return failed;
}

/* The open batch of a partition with room for a record of up to `most` bytes. */
static producer_batch *room_in(accumulator *self, target *to, int partition, size_t most, int64_t timestamp)
{
    producer_batch **open = &to->open[partition];
    if (*open != NULL && (*open)->out.size + most > (size_t)self->batch_bytes && finish(self, open) < 0)
        return NULL;
    if (*open == NULL && (*open = begin_batch(self, to->topic, partition, timestamp)) == NULL)
        return NULL;
    return make_room(&(*open)->out, most) < 0 ? NULL : *open;
}

static int append(accumulator *self, target *to, int partition, const part *key, const part *value,
                  const output *headers, int64_t timestamp, PyObject *const *origin_and_source)
{
    size_t headers_size = headers->size ? headers->size : 1;
    size_t most = bytes_of(key) + bytes_of(value) + headers_size + RECORD_OVERHEAD;
    if (most > (size_t)self->record_bytes)
        return refused(self, MSG_SIZE_TOO_LARGE, "the record is larger than message.max.bytes", (Py_ssize_t)most);
    if (partition < 0 && key->length >= 0)
        partition = (int)((murmur2(key->at, (size_t)key->length) & 0x7FFFFFFF) % (uint32_t)to->partitions);
    else if (partition < 0)
        partition = (int)((unsigned)self->sticky % (unsigned)to->partitions);
    else if (partition >= to->partitions)
        return refused(self, UNKNOWN_PARTITION, "the topic has no such partition", partition);
    producer_batch *batch = room_in(self, to, partition, most, timestamp);
    if (batch == NULL || add_origin(batch, origin_and_source[0], origin_and_source[1]) < 0)
        return -1;
    int64_t delta = (int64_t)((uint64_t)timestamp - (uint64_t)batch->first_timestamp);
    size_t body = 1 + varint_size(delta) + varint_size(batch->count) + varint_size(key->length) + bytes_of(key) +
                  varint_size(value->length) + bytes_of(value) + headers_size;
    size_t before = batch->out.size;
    uint8_t *at = batch->out.data + before;
    at += write_varint(at, (int64_t)body);
    *at++ = 0; /* the attributes */
    at += write_varint(at, delta);
    at += write_varint(at, batch->count);
    at = write_part(at, key);
    at = write_part(at, value);
    *at = 0; /* no headers */
    if (headers->size)
        memcpy(at, headers->data, headers->size);
    batch->out.size = (size_t)(at - batch->out.data) + headers_size;
    batch->count++;
    if (timestamp > batch->max_timestamp)
        batch->max_timestamp = timestamp;
    self->bytes += (Py_ssize_t)(batch->out.size - before);
    self->records++;
    return 0;
}

/* produce(topic, value, key, partition, origin, source, timestamp, headers), as confluent-kafka's Producer has it. */
static PyObject *produce(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    accumulator *self = (accumulator *)object;
    if (count != 8) {
        PyErr_SetString(PyExc_TypeError, "produce takes eight positional arguments");
        return NULL;
    }
    if (self->bytes >= self->most_bytes || self->records >= self->most_records) {
        PyErr_SetString(PyExc_BufferError, "Local: Queue full");
        return NULL;
    }
    long partition = PyLong_AsLong(given[3]);
    int64_t timestamp = PyLong_AsLongLong(given[6]);
    if ((partition == -1 || timestamp == -1) && PyErr_Occurred())
        return NULL;
    if (timestamp <= 0)
        timestamp = (int64_t)(seconds(CLOCK_REALTIME) * 1000);
    target *to = target_of(self, given[0]);
    part key = {.view.obj = NULL}, value = {.view.obj = NULL};
    output headers = {NULL, 0, 0};
    int failed = to == NULL || get_part(given[1], &value) < 0 || get_part(given[2], &key) < 0 ||
                 get_headers(given[7], &headers) < 0 ||
                 append(self, to, (int)partition, &key, &value, &headers, timestamp, given + 4) < 0;
    release_part(&key);
    release_part(&value);
    PyMem_Free(headers.data);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *due(PyObject *object, PyObject *before)
{
    accumulator *self = (accumulator *)object;
    double begun_before = PyFloat_AsDouble(before);
    if (begun_before == -1.0 && PyErr_Occurred())
        return NULL;
    for (int index = 0; index < self->target_count; index++)
        for (int partition = 0; partition < self->targets[index].partitions; partition++) {
            producer_batch **open = &self->targets[index].open[partition];
            if (*open != NULL && (*open)->begun_s <= begun_before && finish(self, open) < 0)
                return NULL;
        }
    PyObject *fresh = PyList_New(0), *full = self->full;
    if (fresh == NULL)
        return NULL;
    self->full = fresh;
    self->full_count = 0;
    return full;
}

static PyObject *set_partitions(PyObject *object, PyObject *arguments)
{
    PyObject *topic;
    int partitions;
    if (!PyArg_ParseTuple(arguments, "Ui", &topic, &partitions) ||
        set_target((accumulator *)object, topic, partitions) == NULL)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"produce", (PyCFunction)(void (*)(void))produce, METH_FASTCALL, "Write a record into the batch of its partition."},
    {"due", due, METH_O, "Take the full batches, and those that began before this monotonic time."},
    {"set_partitions", set_partitions, METH_VARARGS, "Set the partition count of a topic, which only grows."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"bytes", T_PYSSIZET, offsetof(accumulator, bytes), READONLY, "The bytes of all batches that exist."},
    {"records", T_PYSSIZET, offsetof(accumulator, records), READONLY, "The records of all batches that exist."},
    {"full", T_INT, offsetof(accumulator, full_count), READONLY, "How many batches are full."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Batches of produced records; see accumulator.py."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, init},
    {Py_tp_dealloc, dealloc},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

static PyType_Spec spec = {
    "odradek.streams.clients._accumulator.Accumulator", sizeof(accumulator), 0, Py_TPFLAGS_DEFAULT, slots,
};

/* The text itself where it has a UTF-8 form, which str keeps; otherwise what str.encode does. */
static PyObject *checked_text(PyObject *Py_UNUSED(module), PyObject *object)
{
    Py_ssize_t length;
    if (PyUnicode_CheckExact(object))
        return PyUnicode_AsUTF8AndSize(object, &length) == NULL ? NULL : owned(object);
    PyObject *encode = PyObject_GetAttrString((PyObject *)&PyUnicode_Type, "encode");
    PyObject *made = encode == NULL ? NULL : PyObject_CallFunctionObjArgs(encode, object, NULL);
    Py_XDECREF(encode);
    return made;
}

static PyMethodDef functions[] = {
    {"checked_text", checked_text, METH_O, "The text itself, or the exception that str.encode raises."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_accumulator", "See accumulator.py.", -1, functions};

PyMODINIT_FUNC PyInit__accumulator(void)
{
    make_crc32c_tables();
    PyObject *module = PyModule_Create(&definition);
    PyObject *kind = PyType_FromSpec(&spec);
    batch_type = (PyTypeObject *)PyType_FromSpec(&spec_of_batch);
    if (module == NULL || kind == NULL || batch_type == NULL ||
        PyModule_AddObjectRef(module, "Accumulator", kind) < 0)
        Py_CLEAR(module);
    Py_XDECREF(kind);
    return module;
}
