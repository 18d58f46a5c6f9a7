/* Walks message sets of magic 0 and 1: checks them, up-converts them to records of magic 2, and down-converts those.
 *
 * The reference implementations in legacy_walks.py are the specification: same arguments, same result for every input,
 * and a test compares each pair. The walks release the interpreter lock, so that a conversion in a thread does not
 * block the event loop.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_records.h"

/* legacy_walks.py has the same numbers; those of `enum fault` go up to 7. */
enum legacy_fault { SHORT = 8, MAGIC, TOO_LARGE, CHECKSUM, FIELDS, NESTED, MANY };
enum violation { NULL_KEY = 1, TIMESTAMP = 2, OTHER_MAGIC = 3 };
enum flag { REQUIRE_KEYS = 1, ONE_TIMESTAMP = 2, CHECK_TIMESTAMPS = 4, INNER = 8 };
enum {
    LOG_OVERHEAD = 12,
    MAGIC_AT = 16,
    ATTRIBUTES_AT = 17,
    FIELDS_AT = 18,
    SHORTEST = 14,
    CODEC_MASK = 7,
    APPEND_TIME = 8,
    MAX_VIOLATIONS = 1000,
};

/* CRC-32 (IEEE), eight bytes a step. */
static uint32_t crc_table[8][256];

static void fill_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = crc_table[0][crc_table[k - 1][i] & 0xFF] ^ (crc_table[k - 1][i] >> 8);
}

static uint32_t crc32_of(const uint8_t *at, size_t size)
{
    uint32_t c = 0xFFFFFFFFu;
    for (; size >= 8; size -= 8, at += 8) {
        c ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        c = crc_table[7][c & 0xFF] ^ crc_table[6][c >> 8 & 0xFF] ^ crc_table[5][c >> 16 & 0xFF] ^ crc_table[4][c >> 24]
            ^ crc_table[3][at[4]] ^ crc_table[2][at[5]] ^ crc_table[1][at[6]] ^ crc_table[0][at[7]];
    }
    for (; size; size--)
        c = crc_table[0][(c ^ *at++) & 0xFF] ^ (c >> 8);
    return ~c;
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t get64(const uint8_t *at) { return (uint64_t)get32(at) << 32 | get32(at + 4); }

static uint8_t *put32(uint8_t *out, uint32_t number)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        *out++ = (uint8_t)(number >> shift);
    return out;
}

static uint8_t *put64(uint8_t *out, uint64_t number)
{
    return put32(put32(out, (uint32_t)(number >> 32)), (uint32_t)number);
}

static uint8_t *put_varint(uint8_t *out, int64_t number)
{
    uint64_t zigzag = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    for (; zigzag > 0x7F; zigzag >>= 7)
        *out++ = (uint8_t)(zigzag | 0x80);
    *out++ = (uint8_t)zigzag;
    return out;
}

static int varint_size(int64_t number)
{
    uint64_t zigzag = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    int size = 1;
    for (; zigzag > 0x7F; zigzag >>= 7)
        size++;
    return size;
}

/* SOUND and the message at `from`, which moves behind it; -1 where no whole message is left, else the fault. */
static int next_message(cursor *from, const uint8_t **message, int32_t *size)
{
    *message = from->at;
    if (from->end - from->at < LOG_OVERHEAD)
        return -1;
    *size = (int32_t)get32(from->at + 8);
    if (*size < SHORTEST)
        return SHORT;
    if (from->end - from->at - LOG_OVERHEAD < *size)
        return -1;
    from->at += LOG_OVERHEAD + *size;
    return SOUND;
}

static int checksum_holds(const uint8_t *message, int32_t size)
{
    return get32(message + LOG_OVERHEAD) == crc32_of(message + MAGIC_AT, (size_t)size - 4);
}

/* ---- survey */

static PyObject *survey(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2) {
        PyErr_SetString(PyExc_TypeError, "survey takes buffer, limit");
        return NULL;
    }
    long long limit = PyLong_AsLongLong(args[1]);
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *base = view.buf, *message = base;
    cursor from = {base, base + view.len};
    int fault, codec = 0;
    int32_t size = 0;
    int64_t count = 0;
    Py_BEGIN_ALLOW_THREADS
    while ((fault = next_message(&from, &message, &size)) == SOUND) {
        if (message[MAGIC_AT] > 1)
            fault = MAGIC;
        else if ((int64_t)size + LOG_OVERHEAD > limit)
            fault = TOO_LARGE;
        else if (!checksum_holds(message, size))
            fault = CHECKSUM;
        if (fault != SOUND)
            break;
        if (message[ATTRIBUTES_AT] & CODEC_MASK)
            codec = message[ATTRIBUTES_AT] & CODEC_MASK;
        count++;
    }
    Py_END_ALLOW_THREADS
    Py_ssize_t where = message - base;
    PyBuffer_Release(&view);
    return Py_BuildValue("(inLi)", fault < 0 ? SOUND : fault, where, (long long)count, codec);
}

/* ---- up_convert: messages to records of magic 2 */

typedef struct {
    int64_t index, kind, timestamp;
} violation;

typedef struct {
    int fault, magic;
    long flags;
    int64_t count, stamp, earliest, latest, base_timestamp, max_timestamp, last_offset;
    const uint8_t *where;
    uint8_t *out;
    violation *violations;
    int violation_count;
} up_converting;

static void note(up_converting *to, int64_t kind, int64_t timestamp)
{
    if (to->violation_count < MAX_VIOLATIONS)
        to->violations[to->violation_count++] = (violation){to->count, kind, timestamp};
}

/* Whether the message breaks a rule. */
static int judge(up_converting *to, int key_missing, int stamped, int64_t timestamp)
{
    int checked = (to->flags & CHECK_TIMESTAMPS) && timestamp != -1;
    if ((to->flags & REQUIRE_KEYS) && key_missing)
        note(to, NULL_KEY, timestamp);
    else if (timestamp < -1 || (checked ? timestamp < to->earliest || timestamp > to->latest : stamped))
        note(to, TIMESTAMP, timestamp);
    else
        return 0;
    return 1;
}

/* The lengths of key and value behind `at`; 0 where they reach beyond `end`. */
static int fields(const uint8_t *at, const uint8_t *end, const uint8_t **key, int32_t *key_length,
                  const uint8_t **value, int32_t *value_length)
{
    if (end - at < 4)
        return 0;
    *key_length = (int32_t)get32(at);
    *key = at += 4;
    if (*key_length > 0) {
        if (end - at < *key_length)
            return 0;
        at += *key_length;
    }
    if (end - at < 4)
        return 0;
    *value_length = (int32_t)get32(at);
    *value = at += 4;
    return *value_length <= 0 || end - at >= *value_length;
}

static uint8_t *put_bytes(uint8_t *out, const uint8_t *content, int32_t length)
{
    out = put_varint(out, length < 0 ? -1 : length);
    if (length > 0) {
        memcpy(out, content, (size_t)length);
        out += length;
    }
    return out;
}

static uint8_t *put_record(uint8_t *out, int64_t timestamp_delta, int64_t offset_delta, const uint8_t *key,
                           int32_t key_length, const uint8_t *value, int32_t value_length)
{
    int64_t size = 2 + varint_size(timestamp_delta) + varint_size(offset_delta);
    size += varint_size(key_length < 0 ? -1 : key_length) + (key_length > 0 ? key_length : 0);
    size += varint_size(value_length < 0 ? -1 : value_length) + (value_length > 0 ? value_length : 0);
    out = put_varint(out, size);
    *out++ = 0;
    out = put_varint(out, timestamp_delta);
    out = put_varint(out, offset_delta);
    out = put_bytes(out, key, key_length);
    out = put_bytes(out, value, value_length);
    *out++ = 0;
    return out;
}

/* The output is never longer than the input: a message has 26 bytes of its own with magic 0, where a record
 * takes 23 at most, and 34 with magic 1, where it takes 32. */
static void up_convert_all(cursor from, up_converting *to)
{
    const uint8_t *message, *key, *value;
    int32_t size, key_length, value_length;
    while ((to->fault = next_message(&from, &message, &size)) == SOUND) {
        to->where = message;
        const uint8_t *at = message + FIELDS_AT;
        int stamped = to->flags & ONE_TIMESTAMP;
        int64_t timestamp = -1;
        if ((to->flags & INNER) && (message[ATTRIBUTES_AT] & CODEC_MASK)) {
            to->fault = NESTED;
            return;
        }
        if (message[MAGIC_AT] != to->magic) {
            if (!(to->flags & INNER)) {
                to->fault = MAGIC;
                return;
            }
            note(to, OTHER_MAGIC, -1);
            to->count++;
            continue;
        }
        if ((to->flags & INNER) && !checksum_holds(message, size)) {
            to->fault = CHECKSUM;
            return;
        }
        if (to->magic == 1) {
            if (size < SHORTEST + 8) {
                to->fault = FIELDS;
                return;
            }
            timestamp = stamped ? to->stamp : (int64_t)get64(at);
            at += 8;
            if (!(to->flags & INNER))
                stamped = message[ATTRIBUTES_AT] & APPEND_TIME;
        }
        if (!fields(at, message + LOG_OVERHEAD + size, &key, &key_length, &value, &value_length)) {
            to->fault = FIELDS;
            return;
        }
        if (to->count > INT32_MAX) {
            to->fault = MANY;
            return;
        }
        to->last_offset = (int64_t)get64(message);
        if (!judge(to, key_length < 0, stamped, timestamp)) {
            if (to->count == 0)
                to->base_timestamp = timestamp;
            if (timestamp > to->max_timestamp)
                to->max_timestamp = timestamp;
            int64_t delta = (int64_t)((uint64_t)timestamp - (uint64_t)to->base_timestamp);
            to->out = put_record(to->out, delta, to->count, key, key_length, value, value_length);
        }
        to->count++;
    }
    to->where = message;
    if (to->fault < 0)
        to->fault = SOUND;
}

static PyObject *violations_of(const up_converting *done)
{
    PyObject *all = PyTuple_New(done->violation_count);
    for (int i = 0; all != NULL && i < done->violation_count; i++) {
        const violation *each = &done->violations[i];
        PyObject *item = Py_BuildValue("(LLL)", (long long)each->index, (long long)each->kind, (long long)each->timestamp);
        if (item == NULL || PyTuple_SetItem(all, i, item) < 0) {
            Py_DECREF(all);
            return NULL;
        }
    }
    return all;
}

/* Bounds are sums of settings that may be the largest int64; a sum beyond it is replaced by the nearest int64. */
static int64_t clamped(PyObject *number)
{
    int overflow;
    long long narrow = PyLong_AsLongLongAndOverflow(number, &overflow);
    return overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : narrow;
}

static PyObject *up_convert(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "up_convert takes buffer, magic, flags, stamp, earliest, latest");
        return NULL;
    }
    up_converting to = {.magic = (int)PyLong_AsLong(args[1]), .flags = PyLong_AsLong(args[2]), .base_timestamp = -1,
                  .max_timestamp = -1, .last_offset = -1};
    to.stamp = PyLong_AsLongLong(args[3]);
    to.earliest = clamped(args[4]);
    to.latest = clamped(args[5]);
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = NULL;
    const uint8_t *base = view.buf;
    /* The records are written where they stay: a copy would hold the interpreter for as long as it takes. */
    PyObject *records = PyByteArray_FromStringAndSize(NULL, view.len + 1);
    to.violations = malloc(sizeof(violation) * MAX_VIOLATIONS);
    if (records != NULL && to.violations == NULL) {
        PyErr_NoMemory();
    } else if (records != NULL) {
        uint8_t *out = (uint8_t *)PyByteArray_AsString(records);
        to.out = out;
        to.where = base;
        Py_BEGIN_ALLOW_THREADS
        up_convert_all((cursor){base, base + view.len}, &to);
        Py_END_ALLOW_THREADS
        PyObject *violations = violations_of(&to);
        if (PyByteArray_Resize(records, (Py_ssize_t)(to.out - out)) < 0)
            Py_CLEAR(violations);
        if (violations != NULL) /* the format takes over `violations` */
            answer = Py_BuildValue("(iLnOLLLN)", to.fault, (long long)to.count, (Py_ssize_t)(to.where - base), records,
                                   (long long)to.base_timestamp, (long long)to.max_timestamp,
                                   (long long)to.last_offset, violations);
    }
    Py_XDECREF(records);
    free(to.violations);
    PyBuffer_Release(&view);
    return answer;
}

/* ---- down_convert: records of magic 2 to messages */

typedef struct {
    int64_t base_offset, base_timestamp, first_offset;
    long flags;
    int magic;
} batch;

typedef struct {
    int fault;
    int64_t kept, first, last, max_timestamp, size;
} down_converted;

/* Counts the bytes where `out` is NULL, else writes them. */
static void down_convert_all(cursor payload, int64_t count, const batch *from, down_converted *to, uint8_t *out)
{
    record each;
    *to = (down_converted){.first = -1, .last = -1, .max_timestamp = -1};
    for (int64_t index = 0; index < count; index++) {
        if ((to->fault = read_record(&payload, &each)) != SOUND)
            return;
        int64_t offset = from->base_offset + each.offset_delta;
        if (offset < from->first_offset)
            continue;
        if (to->kept++ == 0)
            to->first = offset;
        to->last = offset;
        int64_t timestamp = from->base_timestamp;
        if (!(from->flags & ONE_TIMESTAMP))
            timestamp = (int64_t)((uint64_t)timestamp + (uint64_t)each.timestamp_delta);
        if (timestamp > to->max_timestamp)
            to->max_timestamp = timestamp;
        int64_t key_length = each.key_length > 0 ? each.key_length : 0;
        int64_t value_length = each.value_length > 0 ? each.value_length : 0;
        int64_t size = SHORTEST + (from->magic ? 8 : 0) + key_length + value_length;
        to->size += LOG_OVERHEAD + size;
        if (out == NULL)
            continue;
        cursor value = {each.key + key_length, each.end};
        int32_t again;
        read_int32(&value, RECORD_SIZE, &again);
        uint8_t *message = out;
        out = put64(out, (uint64_t)((from->flags & INNER) && from->magic ? offset - to->first : offset));
        out = put32(out, (uint32_t)size) + 4;
        *out++ = (uint8_t)from->magic;
        *out++ = from->magic && (from->flags & ONE_TIMESTAMP) ? APPEND_TIME : 0;
        if (from->magic)
            out = put64(out, (uint64_t)timestamp);
        out = put32(out, each.key_length < 0 ? UINT32_MAX : (uint32_t)each.key_length);
        memcpy(out, each.key, (size_t)key_length);
        out = put32(out + key_length, each.value_length < 0 ? UINT32_MAX : (uint32_t)each.value_length);
        memcpy(out, value.at, (size_t)value_length);
        out += value_length;
        put32(message + LOG_OVERHEAD, crc32_of(message + MAGIC_AT, (size_t)size - 4));
    }
}

static PyObject *down_convert(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 10) {
        PyErr_SetString(PyExc_TypeError, "down_convert takes buffer, start, end, count, magic, flags, base_offset,"
                                         " base_timestamp, first_offset, limit");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    int64_t count = PyLong_AsLongLong(args[3]);
    batch from = {.magic = (int)PyLong_AsLong(args[4]), .flags = PyLong_AsLong(args[5])};
    from.base_offset = PyLong_AsLongLong(args[6]);
    from.base_timestamp = PyLong_AsLongLong(args[7]);
    from.first_offset = PyLong_AsLongLong(args[8]);
    int64_t limit = PyLong_AsLongLong(args[9]);
    Py_buffer view;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = NULL, *messages = NULL;
    down_converted to;
    if (start < 0 || end < start || end > view.len) {
        PyErr_SetString(PyExc_ValueError, "start and end must lie within the buffer");
    } else {
        cursor payload = {(const uint8_t *)view.buf + start, (const uint8_t *)view.buf + end};
        Py_BEGIN_ALLOW_THREADS
        down_convert_all(payload, count, &from, &to, NULL);
        Py_END_ALLOW_THREADS
        if (to.fault == SOUND && to.size > limit)
            to.fault = TOO_LARGE;
        /* The messages are written where they stay: a copy would hold the interpreter for as long as it takes. */
        messages = PyBytes_FromStringAndSize(NULL, to.fault == SOUND ? (Py_ssize_t)to.size : 0);
        uint8_t *out = messages == NULL ? NULL : (uint8_t *)PyBytes_AsString(messages);
        if (out != NULL) {
            if (to.fault == SOUND) {
                Py_BEGIN_ALLOW_THREADS
                down_convert_all(payload, count, &from, &to, out);
                Py_END_ALLOW_THREADS
            }
            answer = Py_BuildValue("(iLLLLO)", to.fault, (long long)to.kept, (long long)to.first, (long long)to.last,
                                   (long long)to.max_timestamp, messages);
        }
    }
    Py_XDECREF(messages);
    PyBuffer_Release(&view);
    return answer;
}

static PyMethodDef methods[] = {
    {"survey", (PyCFunction)(void (*)(void))survey, METH_FASTCALL, "Check a message set; see legacy_walks.py."},
    {"up_convert", (PyCFunction)(void (*)(void))up_convert, METH_FASTCALL, "Messages to records of magic 2; see legacy_walks.py."},
    {"down_convert", (PyCFunction)(void (*)(void))down_convert, METH_FASTCALL, "Records of magic 2 to messages; see legacy_walks.py."},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *Py_UNUSED(module))
{
    fill_crc_table();
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_legacy", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__legacy(void) { return PyModuleDef_Init(&module); }
