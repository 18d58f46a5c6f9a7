/* Walks the records of one batch of magic 2 and reports what the rules of a write need to know.
 *
 * The twin in chain.py is the specification: same arguments, same answer for every input, and a test holds the two
 * equal. Nothing here trusts a length: every read compares the bytes wanted with the bytes left before it moves.
 * Varints keep Java's arithmetic (bits beyond 32 or 64 fall off, sums wrap), because what a Java reader sees is what
 * must be judged.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* The numbers stand in chain.py too. */
enum fault { SOUND, TRUNCATED, RECORD_SIZE, VARINT, OFFSET, HEADERS, HEADER_KEY, TRAILING };
enum violation { NULL_KEY = 1, TIMESTAMP = 2 };
enum flag { REQUIRE_KEYS = 1, ONE_TIMESTAMP = 2, CHECK_TIMESTAMPS = 4 };
#define MAX_VIOLATIONS 1000

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} cursor;

typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int has_key;
} record;

/* `limit` is 5 bytes for an int32 and 10 for an int64; `beyond` is the fault when the bytes run out. */
static inline enum fault read_unsigned(cursor *from, int limit, enum fault beyond, uint64_t *value)
{
    const uint8_t *at = from->at, *end = from->end;
    uint64_t sum = 0;
    for (int shift = 0; shift < 7 * limit; shift += 7) {
        if (at == end)
            return beyond;
        uint8_t byte = *at++;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            from->at = at;
            *value = sum;
            return SOUND;
        }
    }
    return VARINT;
}

static inline enum fault read_int32(cursor *from, enum fault beyond, int32_t *value)
{
    uint64_t wide;
    enum fault fault = read_unsigned(from, 5, beyond, &wide);
    if (fault == SOUND) {
        uint32_t zigzag = (uint32_t)wide;
        *value = (int32_t)((zigzag >> 1) ^ (0u - (zigzag & 1u)));
    }
    return fault;
}

static inline enum fault read_int64(cursor *from, enum fault beyond, int64_t *value)
{
    uint64_t zigzag;
    enum fault fault = read_unsigned(from, 10, beyond, &zigzag);
    if (fault == SOUND)
        *value = (int64_t)((zigzag >> 1) ^ (UINT64_C(0) - (zigzag & 1u)));
    return fault;
}

/* A length and as many bytes; a negative length is null and has none. */
static inline enum fault skip_bytes(cursor *from, int32_t *length)
{
    enum fault fault = read_int32(from, RECORD_SIZE, length);
    if (fault != SOUND)
        return fault;
    if (*length > 0) {
        if (from->end - from->at < *length)
            return RECORD_SIZE;
        from->at += *length;
    }
    return SOUND;
}

static enum fault skip_headers(cursor *body)
{
    int32_t count, length;
    enum fault fault = read_int32(body, RECORD_SIZE, &count);
    if (fault != SOUND)
        return fault;
    if (count < 0 || count > body->end - body->at)
        return HEADERS;
    for (int32_t i = 0; i < count; i++) {
        if ((fault = skip_bytes(body, &length)) != SOUND)
            return fault;
        if (length < 0)
            return HEADER_KEY;
        if ((fault = skip_bytes(body, &length)) != SOUND)
            return fault;
    }
    return SOUND;
}

static enum fault read_record(cursor *payload, record *out)
{
    int32_t size, length;
    enum fault fault = read_int32(payload, TRUNCATED, &size);
    if (fault != SOUND)
        return fault;
    if (size < 1)
        return RECORD_SIZE;
    if (payload->end - payload->at < size)
        return TRUNCATED;
    cursor body = {payload->at + 1, payload->at + size}; /* past the attributes, which have no meaning yet */
    if ((fault = read_int64(&body, RECORD_SIZE, &out->timestamp_delta)) != SOUND)
        return fault;
    if ((fault = read_int32(&body, RECORD_SIZE, &out->offset_delta)) != SOUND)
        return fault;
    if ((fault = skip_bytes(&body, &length)) != SOUND)
        return fault;
    out->has_key = length >= 0;
    if ((fault = skip_bytes(&body, &length)) != SOUND)
        return fault;
    if ((fault = skip_headers(&body)) != SOUND)
        return fault;
    if (body.at != body.end)
        return RECORD_SIZE;
    payload->at = body.end;
    return SOUND;
}

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
    PyObject *violations; /* NULL until there is one */
} outcome;

static int note_violation(outcome *found, int64_t index, enum violation kind, int64_t timestamp)
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
        enum violation kind = (want->flags & REQUIRE_KEYS) && !each.has_key ? NULL_KEY : wrong_time ? TIMESTAMP : 0;
        if (kind && note_violation(found, index, kind, timestamp) < 0)
            return -1;
    }
    found->index = want->count > 0 ? want->count : 0;
    found->where = payload.at;
    found->fault = payload.at == payload.end ? SOUND : TRAILING;
    return 0;
}

/* Bounds are sums of settings that may be the largest int64; beyond it they are moved to the nearest number. */
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
        if (walk(payload, &want, &found) == 0)
            answer = report(&found, base);
        Py_XDECREF(found.violations);
    }
    PyBuffer_Release(&view);
    return answer;
}

static PyMethodDef methods[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, "Walk the records of a batch; see chain.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_chain", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__chain(void) { return PyModuleDef_Init(&module); }
