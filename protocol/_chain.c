/* Walks the records of one batch of magic 2 and returns the input of all rules of a write; writes such records, and whole
 * batches of the broker itself.
 *
 * The reference implementations in chain.py and records.py are the specification: same arguments, same result for every
 * input, and tests compare both.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_plain_batch.h"
#include "_record_writer.h"

/* chain.py has the same numbers. */
enum violation { NULL_KEY = 1, TIMESTAMP = 2 };
enum flag { REQUIRE_KEYS = 1, ONE_TIMESTAMP = 2, CHECK_TIMESTAMPS = 4 };
#define MAX_VIOLATIONS 1000
#define HEADER_FIELDS 13

typedef struct {
    int64_t count;
    int64_t base_timestamp;
    int64_t earliest;
    int64_t latest;
    long flags;
} rules;

typedef struct {
    enum fault fault;
    int64_t index;
    const uint8_t *where;
    int64_t max_timestamp;
    int64_t max_index;
    PyObject *violations;    /* NULL until there is one */
    PyThreadState *released; /* NULL while the caller holds the interpreter */
} outcome;

static int add_violation(outcome *found, int64_t index, enum violation kind, int64_t timestamp)
{
    if (found->violations == NULL && (found->violations = PyList_New(0)) == NULL)
        return -1;
    if (PyList_Size(found->violations) >= MAX_VIOLATIONS)
        return 0;
    PyObject *item = Py_BuildValue("(LiL)", (long long)index, (int)kind, (long long)timestamp);
    if (item == NULL)
        return -1;
    int failed = PyList_Append(found->violations, item);
    Py_DECREF(item);
    return failed;
}

static int note_violation(outcome *found, int64_t index, enum violation kind, int64_t timestamp)
{
    if (found->released == NULL)
        return add_violation(found, index, kind, timestamp);
    PyEval_RestoreThread(found->released);
    int failed = add_violation(found, index, kind, timestamp);
    found->released = PyEval_SaveThread();
    return failed;
}

/* -1 with a Python exception set when memory runs out, else 0. */
static int walk(cursor payload, const rules *want, outcome *found)
{
    record each;
    for (int64_t index = 0; index < want->count; index++) {
        found->index = index;
        found->where = payload.at;
        if ((found->fault = read_record(&payload, &each)) != SOUND)
            return 0;
        if (each.offset_delta != index) {
            found->fault = OFFSET;
            return 0;
        }
        int64_t timestamp = want->base_timestamp;
        if (!(want->flags & ONE_TIMESTAMP))
            timestamp = (int64_t)((uint64_t)timestamp + (uint64_t)each.timestamp_delta);
        if (timestamp > found->max_timestamp) {
            found->max_timestamp = timestamp;
            found->max_index = index;
        }
        int wrong_time;
        if ((want->flags & CHECK_TIMESTAMPS) && timestamp != -1)
            wrong_time = timestamp < want->earliest || timestamp > want->latest;
        else
            wrong_time = (want->flags & ONE_TIMESTAMP) != 0;
        enum violation kind = (want->flags & REQUIRE_KEYS) && each.key_length < 0 ? NULL_KEY : wrong_time ? TIMESTAMP : 0;
        if (kind && note_violation(found, index, kind, timestamp) < 0)
            return -1;
    }
    found->index = want->count > 0 ? want->count : 0;
    found->where = payload.at;
    found->fault = payload.at == payload.end ? SOUND : TRAILING;
    return 0;
}

/* Bounds are sums of settings that may be the largest int64; a sum beyond it is replaced by the nearest int64. */
static int clamped(PyObject *number, int64_t *value)
{
    int overflow;
    long long narrow = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (narrow == -1 && !overflow && PyErr_Occurred())
        return -1;
    *value = overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : narrow;
    return 0;
}

static PyObject *report(outcome *found, const uint8_t *base)
{
    PyObject *violations = found->violations ? PyList_AsTuple(found->violations) : PyTuple_New(0);
    if (violations == NULL)
        return NULL;
    return Py_BuildValue("(iLnLLN)", (int)found->fault, (long long)found->index, (Py_ssize_t)(found->where - base),
                         (long long)found->max_timestamp, (long long)found->max_index, violations);
}

static PyObject *scan(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 8) {
        PyErr_SetString(PyExc_TypeError, "scan takes buffer, start, end, count, base_timestamp, flags, earliest, latest");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    Py_ssize_t end = PyLong_AsSsize_t(args[2]);
    rules want = {.count = PyLong_AsLongLong(args[3]), .base_timestamp = PyLong_AsLongLong(args[4])};
    want.flags = PyLong_AsLong(args[5]);
    if (PyErr_Occurred() || clamped(args[6], &want.earliest) < 0 || clamped(args[7], &want.latest) < 0)
        return NULL;

    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = NULL;
    const uint8_t *base = view.buf;
    if (start < 0 || end < start || end > view.len) {
        PyErr_SetString(PyExc_ValueError, "start and end must lie within the buffer");
    } else {
        cursor payload = {base + start, base + end};
        outcome found = {.where = payload.at, .max_timestamp = -1, .max_index = -1};
        if (want.count > MANY_RECORDS)
            found.released = PyEval_SaveThread();
        int failed = walk(payload, &want, &found);
        if (found.released != NULL)
            PyEval_RestoreThread(found.released);
        if (failed == 0)
            answer = report(&found, base);
        Py_XDECREF(found.violations);
    }
    PyBuffer_Release(&view);
    return answer;
}

/* The fields of a header as a tuple, in the order of batch.py. */
static PyObject *header_of(const uint8_t *at)
{
    static const struct { int where, width; } fields[HEADER_FIELDS] = {
        {0, 8}, {8, 4}, {12, 4}, {16, 1}, {17, 4}, {21, 2}, {23, 4}, {27, 8}, {35, 8}, {43, 8}, {51, 2}, {53, 4}, {57, 4},
    };
    PyObject *header = PyTuple_New(HEADER_FIELDS);
    for (int index = 0; header != NULL && index < HEADER_FIELDS; index++) {
        int64_t value = number(at + fields[index].where, fields[index].width);
        PyObject *item = PyLong_FromLongLong(fields[index].where == CRC_POSITION ? (uint32_t)value : value);
        if (item == NULL || PyTuple_SetItem(header, index, item) < 0)
            Py_CLEAR(header);
    }
    return header;
}

static PyObject *plain_header(PyObject *Py_UNUSED(module), PyObject *batch)
{
    Py_buffer view;
    if (PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = view.buf;
    PyObject *fields = NULL;
    if (is_plain(at, view.len))
        fields = header_of(at);
    PyBuffer_Release(&view);
    return fields != NULL || PyErr_Occurred() ? fields : Py_NewRef(Py_None);
}

static void set_number(uint8_t *at, int width, int64_t value)
{
    for (int i = width - 1; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
}

static void set_own_header(uint8_t *at, size_t size, int64_t count, int64_t timestamp)
{
    memset(at, 0, HEADER_SIZE);
    set_number(at + 8, 4, (int64_t)size - 12);
    memset(at + 12, 0xFF, 4); /* no leader epoch */
    at[16] = 2;
    set_number(at + 23, 4, count - 1);
    set_number(at + 27, 8, timestamp);
    set_number(at + 35, 8, timestamp);
    memset(at + 43, 0xFF, 14); /* no producer, epoch and sequence */
    set_number(at + 57, 4, count);
    set_number(at + CRC_POSITION, 4, checksum(at, (Py_ssize_t)size));
}

/* One record at the time of the batch; the length in front of it needs no more than its varint. */
static int put_own_record(output *out, PyObject *entry, int64_t offset_delta)
{
    if (!PyTuple_Check(entry) || PyTuple_Size(entry) != 2) {
        PyErr_SetString(PyExc_TypeError, "an entry is a tuple of key and value");
        return -1;
    }
    size_t start = out->size, body = start + LONGEST_VARINT;
    if (make_room(out, LONGEST_VARINT + 2) < 0)
        return -1;
    out->data[body] = 0;     /* the attributes */
    out->data[body + 1] = 0; /* the difference of the times */
    out->size = body + 2;
    if (put_varint(out, offset_delta) < 0 || put_bytes(out, PyTuple_GetItem(entry, 0)) < 0 ||
        put_bytes(out, PyTuple_GetItem(entry, 1)) < 0 || put_varint(out, 0) < 0)
        return -1;
    end_record(out, start);
    return 0;
}

static PyObject *own_batch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "own_batch takes a list of entries and a timestamp");
        return NULL;
    }
    int64_t timestamp = PyLong_AsLongLong(args[1]);
    if (timestamp == -1 && PyErr_Occurred())
        return NULL;
    output out = {0};
    Py_ssize_t count = PyList_Size(args[0]);
    int failed = make_room(&out, HEADER_SIZE + 64);
    out.size = HEADER_SIZE;
    for (Py_ssize_t index = 0; failed == 0 && index < count; index++)
        failed = put_own_record(&out, PyList_GetItem(args[0], index), index);
    PyObject *made = NULL;
    if (failed == 0) {
        set_own_header(out.data, out.size, count, timestamp);
        made = Py_BuildValue("(NN)", PyByteArray_FromStringAndSize((const char *)out.data, (Py_ssize_t)out.size),
                             header_of(out.data));
    }
    PyMem_Free(out.data);
    return made;
}

static PyObject *write_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "write_records takes records, base_offset, base_timestamp");
        return NULL;
    }
    int64_t base_offset = PyLong_AsLongLong(args[1]), base_timestamp = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    output out = {0};
    PyObject *payload = NULL;
    if (put_records(&out, args[0], base_offset, base_timestamp) == 0)
        payload = PyByteArray_FromStringAndSize((const char *)out.data, (Py_ssize_t)out.size);
    PyMem_Free(out.data);
    return payload;
}

static PyMethodDef methods[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, "Walk the records of a batch; see chain.py."},
    {"plain_header", plain_header, METH_O, "The header of a plain batch, or None; see batch.py."},
    {"own_batch", (PyCFunction)(void (*)(void))own_batch, METH_FASTCALL, "A batch of the broker itself; see batch.py."},
    {"write_records", (PyCFunction)(void (*)(void))write_records, METH_FASTCALL, "Write records; see records.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_chain", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__chain(void)
{
    make_crc32c_tables();
    return PyModuleDef_Init(&module);
}
