/* Walks the records of one batch of magic 2 and returns the input of all rules of a write; writes such records.
 *
 * The reference implementations in chain.py and records.py are the specification: same arguments, same result for every
 * input, and tests compare both.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "_record_writer.h"
#include "_records.h"

/* chain.py has the same numbers. */
enum violation { NULL_KEY = 1, TIMESTAMP = 2 };
enum flag { REQUIRE_KEYS = 1, ONE_TIMESTAMP = 2, CHECK_TIMESTAMPS = 4 };
#define MAX_VIOLATIONS 1000
/* Other threads run during the walk along more records: it takes half a millisecond and more. */
#define MANY_RECORDS 50000
#define HEADER_SIZE 61
#define NOT_PLAIN 0x2F /* a codec, the broker's time, or control records */

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

static int64_t number(const uint8_t *at, int width)
{
    uint64_t value = at[0] & 0x80 ? UINT64_MAX : 0;
    for (int i = 0; i < width; i++)
        value = value << 8 | at[i];
    return (int64_t)value;
}

/* Whether a batch is a plain one, by its header and its records; batch.py has the rules. */
static int is_plain(const uint8_t *at, Py_ssize_t size)
{
    rules want = {.count = number(at + 57, 4), .base_timestamp = number(at + 27, 8)};
    outcome found = {.max_timestamp = -1};
    int64_t delta = number(at + 23, 4), attributes = number(at + 21, 2);
    if (number(at, 8) != 0 || number(at + 8, 4) != size - 12 || at[16] != 2 || attributes & NOT_PLAIN)
        return 0;
    if (want.count <= 0 || want.count > MANY_RECORDS || want.count != delta + 1)
        return 0;
    if (number(at + 43, 8) > -1 && number(at + 53, 4) < 0) /* a producer without a sequence */
        return 0;
    cursor payload = {at + HEADER_SIZE, at + size};
    return walk(payload, &want, &found) == 0 && found.fault == SOUND && found.max_timestamp == number(at + 35, 8);
}

static PyObject *plain_header(PyObject *Py_UNUSED(module), PyObject *batch)
{
    Py_buffer view;
    if (PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = view.buf;
    PyObject *fields = NULL;
    if (view.len >= HEADER_SIZE && is_plain(at, view.len))
        fields = Py_BuildValue("(LiiiIiiLLLiii)", 0LL, (int)number(at + 8, 4), (int)number(at + 12, 4), (int)at[16],
                               (unsigned int)number(at + 17, 4), (int)number(at + 21, 2), (int)number(at + 23, 4),
                               (long long)number(at + 27, 8), (long long)number(at + 35, 8),
                               (long long)number(at + 43, 8), (int)number(at + 51, 2), (int)number(at + 53, 4),
                               (int)number(at + 57, 4));
    PyBuffer_Release(&view);
    return fields != NULL || PyErr_Occurred() ? fields : Py_NewRef(Py_None);
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
    {"write_records", (PyCFunction)(void (*)(void))write_records, METH_FASTCALL, "Write records; see records.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_chain", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__chain(void) { return PyModuleDef_Init(&module); }
