/* The offset map of compaction, and the rewriting of batches with it.
 *
 * The reference implementation in offset_map.py is the specification: same arguments, same result for every input, and
 * a test compares both. The map keeps 128 bits of a keyed hash in place of a key, as Kafka's SkimpyOffsetMap keeps an
 * MD5: an entry takes 24 bytes for a key of any length. With the random key of SipHash-2-4, no writer of records can
 * make two keys collide.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_records.h"

/* offset_map.py has the same numbers. */
enum retain_flag { APPEND_TIME = 1, HAS_HORIZON = 2, SET_HORIZON = 4, FORCE_HORIZON = 8 };
#define SMALLEST_TABLE 1024
#define SMALLEST_RECORD 7 /* length, attributes, two deltas, two lengths, the number of headers */
#define LONGEST_VARINTS 16 /* 5 for the length, 10 for the timestamp, 1 for the attributes */

typedef struct {
    uint64_t low;
    uint64_t high;
    int64_t behind; /* the offset and one more; 0 means that the entry is free */
} entry;

typedef struct {
    PyObject_HEAD
    entry *table;
    size_t slots; /* of the current table, which grows with the number of keys */
    size_t most_slots;
    size_t used;
    size_t capacity;
    uint64_t key[2];
} offset_map;

/* -- hashing ------------------------------------------------------------------------------------------------------- */

#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIP_ROUND                                                                                                      \
    do {                                                                                                               \
        v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32);                                                  \
        v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2;                                                                       \
        v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0;                                                                       \
        v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32);                                                  \
    } while (0)

static uint64_t little_endian(const uint8_t *at, size_t length)
{
    uint64_t word = 0;
    for (size_t i = 0; i < length; i++)
        word |= (uint64_t)at[i] << (8 * i);
    return word;
}

/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012). */
static void sip_hash(const uint64_t key[2], const uint8_t *data, size_t length, uint64_t *low, uint64_t *high)
{
    uint64_t v0 = key[0] ^ UINT64_C(0x736f6d6570736575), v1 = key[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee;
    uint64_t v2 = key[0] ^ UINT64_C(0x6c7967656e657261), v3 = key[1] ^ UINT64_C(0x7465646279746573);
    size_t whole = length & ~(size_t)7;
    for (size_t i = 0; i < whole; i += 8) {
        uint64_t word = little_endian(data + i, 8);
        v3 ^= word;
        SIP_ROUND;
        SIP_ROUND;
        v0 ^= word;
    }
    uint64_t last = (uint64_t)length << 56 | little_endian(data + whole, length - whole);
    v3 ^= last;
    SIP_ROUND;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    *low = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    *high = v0 ^ v1 ^ v2 ^ v3;
}

/* -- the table ----------------------------------------------------------------------------------------------------- */

/* The entry with this hash, or the free one where it belongs. A table always has a free entry. */
static entry *find(const offset_map *map, uint64_t low, uint64_t high)
{
    for (entry *each = &map->table[low % map->slots];;) {
        if (each->behind == 0 || (each->low == low && each->high == high))
            return each;
        if (++each == map->table + map->slots)
            each = map->table;
    }
}

/* -1 with an exception set when memory runs out. */
static int resize(offset_map *map, size_t slots)
{
    entry *table = calloc(slots, sizeof(entry));
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    entry *old = map->table;
    size_t old_slots = map->slots;
    map->table = table;
    map->slots = slots;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].behind != 0)
            *find(map, old[i].low, old[i].high) = old[i];
    free(old);
    return 0;
}

/* Makes room for one more key. The table grows to its allowed size, in a last step that is so large that the old table
 * beside it takes little memory; only a single batch that needs more than all of it makes it larger. */
static int make_room(offset_map *map)
{
    if (map->slots < map->most_slots) {
        if (map->used * 10 < map->slots * 7)
            return 0;
        size_t next = map->slots * 4;
        return resize(map, next < map->most_slots / 4 ? next : map->most_slots);
    }
    return map->used + 1 < map->slots ? 0 : resize(map, map->slots * 2);
}

static int put(offset_map *map, const record *each, int64_t offset)
{
    uint64_t low, high;
    if (make_room(map) < 0)
        return -1;
    sip_hash(map->key, each->key, (size_t)each->key_length, &low, &high);
    entry *place = find(map, low, high);
    if (place->behind == 0) {
        place->low = low;
        place->high = high;
        map->used++;
    }
    place->behind = offset + 1;
    return 0;
}

static int64_t latest(const offset_map *map, const record *each)
{
    uint64_t low, high;
    if (map->used == 0)
        return -1;
    sip_hash(map->key, each->key, (size_t)each->key_length, &low, &high);
    return find(map, low, high)->behind - 1;
}

/* -- the payload of a batch ---------------------------------------------------------------------------------------- */

/* buffer, start, end and count, the first four arguments of both methods; 0 with an exception set on an error. */
typedef struct {
    Py_buffer view;
    cursor from;
    int64_t count;
} payload;

static int open_payload(PyObject *const *args, payload *out)
{
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), end = PyLong_AsSsize_t(args[2]);
    out->count = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &out->view, PyBUF_SIMPLE) < 0)
        return 0;
    if (start < 0 || end < start || end > out->view.len) {
        PyErr_SetString(PyExc_ValueError, "start and end must lie within the buffer");
        PyBuffer_Release(&out->view);
        return 0;
    }
    const uint8_t *base = out->view.buf;
    out->from = (cursor){base + start, base + end};
    return 1;
}

static Py_ssize_t position_in(const payload *from, const uint8_t *at) { return at - (const uint8_t *)from->view.buf; }

static PyObject *note(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    offset_map *map = (offset_map *)self;
    payload batch;
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "note takes buffer, start, end, count, base_offset, from_offset");
        return NULL;
    }
    int64_t base_offset = PyLong_AsLongLong(args[4]), from_offset = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred() || !open_payload(args, &batch))
        return NULL;
    enum fault fault = SOUND;
    int64_t index = 0;
    cursor at = batch.from;
    const uint8_t *where = at.at;
    int failed = 0;
    for (; index < batch.count && !failed; index++) {
        record each;
        where = at.at;
        if ((fault = read_record(&at, &each)) != SOUND)
            break;
        int64_t offset = base_offset + each.offset_delta;
        if (each.key_length >= 0 && offset >= from_offset)
            failed = put(map, &each, offset) < 0;
    }
    if (fault == SOUND) {
        where = at.at;
        if (at.at != at.end)
            fault = TRAILING;
    }
    PyBuffer_Release(&batch.view);
    if (failed)
        return NULL;
    return Py_BuildValue("(iLn)", (int)fault, (long long)index, position_in(&batch, where));
}

typedef struct {
    int64_t base_offset, base_timestamp, append_time, latest_offset, tombstones_below, horizon;
    long flags;
} retention;

typedef struct {
    enum fault fault;
    int64_t index;
    const uint8_t *where;
    int64_t kept, max_timestamp, max_offset, first_timestamp;
    int has_tombstone;
    size_t bytes; /* of the kept records, unchanged */
} selection;

static int64_t timestamp_of(const retention *want, const record *each)
{
    if (want->flags & APPEND_TIME)
        return want->append_time;
    return (int64_t)((uint64_t)want->base_timestamp + (uint64_t)each->timestamp_delta);
}

static int stays(const offset_map *map, const retention *want, const record *each, int64_t offset)
{
    if (offset > want->latest_offset)
        return 1;
    if (each->key_length < 0 || (each->value_length < 0 && offset < want->tombstones_below))
        return 0;
    return offset >= latest(map, each);
}

/* Marks the records that remain, with a byte for each in `marks`. */
static void choose(const offset_map *map, const payload *batch, const retention *want, uint8_t *marks, selection *out)
{
    cursor at = batch->from;
    for (int64_t index = 0; index < batch->count; index++) {
        record each;
        out->index = index;
        out->where = at.at;
        const uint8_t *begin = at.at;
        if ((out->fault = read_record(&at, &each)) != SOUND)
            return;
        int64_t offset = want->base_offset + each.offset_delta;
        marks[index] = (uint8_t)stays(map, want, &each, offset);
        if (!marks[index])
            continue;
        int64_t timestamp = timestamp_of(want, &each);
        if (out->kept == 0)
            out->first_timestamp = timestamp;
        if (out->kept == 0 || timestamp > out->max_timestamp) {
            out->max_timestamp = timestamp;
            out->max_offset = offset;
        }
        out->kept++;
        out->has_tombstone |= each.value_length < 0;
        out->bytes += (size_t)(at.at - begin);
    }
    out->index = batch->count > 0 ? batch->count : 0;
    out->where = at.at;
    if (at.at != at.end)
        out->fault = TRAILING;
}

static uint8_t *write_varint(uint8_t *out, uint64_t zigzag)
{
    while (zigzag > 0x7F) {
        *out++ = (uint8_t)(zigzag & 0x7F) | 0x80;
        zigzag >>= 7;
    }
    *out++ = (uint8_t)zigzag;
    return out;
}

static uint64_t zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

/* The chosen records with timestamps that count from `base_timestamp`, as a bytearray. */
static PyObject *rewrite(const payload *batch, const retention *want, const uint8_t *marks, const selection *chosen,
                         int64_t base_timestamp)
{
    size_t most = chosen->bytes + (size_t)chosen->kept * LONGEST_VARINTS;
    if (most > PY_SSIZE_T_MAX)
        return PyErr_NoMemory();
    PyObject *result = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)most);
    if (result == NULL)
        return NULL;
    uint8_t *begin = (uint8_t *)PyByteArray_AsString(result), *out = begin;
    cursor at = batch->from;
    for (int64_t index = 0; index < batch->count; index++) {
        record each;
        uint8_t head[LONGEST_VARINTS + 5];
        if (read_record(&at, &each) != SOUND)
            break; /* cannot happen: `choose` has read it */
        if (!marks[index])
            continue;
        head[0] = 0; /* the attributes */
        uint64_t delta = (uint64_t)timestamp_of(want, &each) - (uint64_t)base_timestamp;
        uint8_t *end = write_varint(head + 1, zigzag((int64_t)delta));
        end = write_varint(end, (uint32_t)zigzag(each.offset_delta));
        size_t before = (size_t)(end - head), behind = (size_t)(each.end - each.behind_offset);
        out = write_varint(out, zigzag((int64_t)(before + behind)));
        memcpy(out, head, before);
        memcpy(out + before, each.behind_offset, behind);
        out += before + behind;
    }
    if (PyByteArray_Resize(result, out - begin) < 0)
        Py_CLEAR(result);
    return result;
}

static PyObject *report(const payload *batch, const retention *want, const uint8_t *marks, const selection *chosen)
{
    PyObject *data = Py_None;
    int64_t base_timestamp = want->base_timestamp;
    int horizon = (want->flags & HAS_HORIZON) != 0;
    if (chosen->fault == SOUND && chosen->kept > 0) {
        int sets = !horizon && ((want->flags & FORCE_HORIZON) || ((want->flags & SET_HORIZON) && chosen->has_tombstone));
        if (sets || chosen->kept < batch->count) {
            if (!horizon)
                base_timestamp = sets ? want->horizon : chosen->first_timestamp;
            horizon |= sets;
            if ((data = rewrite(batch, want, marks, chosen, base_timestamp)) == NULL)
                return NULL;
        }
    }
    if (data == Py_None)
        Py_INCREF(data);
    return Py_BuildValue("(iLnLLLLiN)", (int)chosen->fault, (long long)chosen->index, position_in(batch, chosen->where),
                         (long long)chosen->kept, (long long)chosen->max_timestamp, (long long)chosen->max_offset,
                         (long long)base_timestamp, horizon, data);
}

static PyObject *retain(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    payload batch;
    if (nargs != 11) {
        PyErr_SetString(PyExc_TypeError, "retain takes buffer, start, end, count, base_offset, base_timestamp, "
                                         "append_time, flags, latest_offset, tombstones_below, horizon");
        return NULL;
    }
    retention want = {
        .base_offset = PyLong_AsLongLong(args[4]),
        .base_timestamp = PyLong_AsLongLong(args[5]),
        .append_time = PyLong_AsLongLong(args[6]),
        .flags = PyLong_AsLong(args[7]),
        .latest_offset = PyLong_AsLongLong(args[8]),
        .tombstones_below = PyLong_AsLongLong(args[9]),
        .horizon = PyLong_AsLongLong(args[10]),
    };
    if (PyErr_Occurred() || !open_payload(args, &batch))
        return NULL;
    /* No payload holds more records than this, for any count in the header: beyond it the walk meets a fault. */
    int64_t most = (batch.from.end - batch.from.at) / SMALLEST_RECORD + 1;
    uint8_t *marks = malloc((size_t)(batch.count < most ? (batch.count > 0 ? batch.count : 1) : most));
    PyObject *answer = NULL;
    if (marks == NULL) {
        PyErr_NoMemory();
    } else {
        selection chosen = {.where = batch.from.at, .max_timestamp = -1, .max_offset = -1};
        choose((offset_map *)self, &batch, &want, marks, &chosen);
        answer = report(&batch, &want, marks, &chosen);
    }
    free(marks);
    PyBuffer_Release(&batch.view);
    return answer;
}

/* -- the type ------------------------------------------------------------------------------------------------------ */

static int init(PyObject *self, PyObject *args, PyObject *keywords)
{
    offset_map *map = (offset_map *)self;
    Py_ssize_t slots, capacity, size;
    const char *key;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "OffsetMap takes no keywords");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "nny#", &slots, &capacity, &key, &size))
        return -1;
    if (slots < 2 || capacity < 1 || capacity >= slots || size != 16) {
        PyErr_SetString(PyExc_ValueError, "OffsetMap takes slots, fewer keys than slots, and a hash key of 16 bytes");
        return -1;
    }
    free(map->table);
    map->table = NULL;
    map->slots = map->used = 0;
    map->most_slots = (size_t)slots;
    map->capacity = (size_t)capacity;
    map->key[0] = little_endian((const uint8_t *)key, 8);
    map->key[1] = little_endian((const uint8_t *)key + 8, 8);
    return resize(map, slots < SMALLEST_TABLE ? (size_t)slots : SMALLEST_TABLE);
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(((offset_map *)self)->table);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static Py_ssize_t length(PyObject *self) { return (Py_ssize_t)((offset_map *)self)->used; }

static PyObject *get_capacity(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((offset_map *)self)->capacity);
}

static PyMethodDef map_methods[] = {
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL, "Add the keys of a batch; see offset_map.py."},
    {"retain", (PyCFunction)(void (*)(void))retain, METH_FASTCALL, "Filter the records of a batch; see offset_map.py."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef map_properties[] = {
    {"capacity", get_capacity, NULL, "How many keys it is meant to hold.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot map_slots[] = {
    {Py_tp_doc, "Keys to their latest offsets; see offset_map.py."},
    {Py_tp_init, init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, dealloc},
    {Py_mp_length, length},
    {Py_tp_methods, map_methods},
    {Py_tp_getset, map_properties},
    {0, NULL},
};

static PyType_Spec map_spec = {
    "odradek.protocol._offset_map.OffsetMap", sizeof(offset_map), 0, Py_TPFLAGS_DEFAULT, map_slots,
};

static int populate(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&map_spec);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "OffsetMap", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, populate},
    {0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_offset_map", NULL, 0, NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__offset_map(void) { return PyModuleDef_Init(&module); }
