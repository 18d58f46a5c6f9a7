/* Appends the usual batch of a log with one call: checks it, sets its offset and epoch, writes it, and notes it.
 *
 * Log.append is the specification. Until the write nothing has changed but the offset and the epoch in the batch, so
 * whatever is rare goes to that function from the start: the result is None. See log_append.py.
 */
#include "_slots.h"

#include "_plain_batch.h"

#define TRANSACTIONAL 0x10
#define CONTROL 0x20
#define LEADER_EPOCH_POSITION 12
#define MAX_RELATIVE_OFFSET INT32_MAX /* as in index.py */
#define MOST_REMEMBERED 128 /* as in recent_batches.py */
#define RESULT_FIELDS 6
#define NO_TIMESTAMP (-1)
#define UNKNOWN (-2) /* as in segment.py */

enum of_log { FAILURE, CONFIG, START_OFFSET, END_OFFSET, EPOCHS, PRODUCERS, SEGMENTS, TOUCHED, LOG_END };
enum of_config { STORES_PLAIN_BATCHES, STAMPS_APPEND_TIME, MAX_MESSAGE_BYTES, SEGMENT_BYTES, MAX_SEGMENT_MS, CONFIG_END };
enum of_segment {
    FILE_OF, SIZE, BASE_OFFSET, CREATED_MS, JITTER_MS, READY, IS_FULL, INDEX_INTERVAL, SINCE_INDEX, FIRST_TIMESTAMP,
    MAX_TIMESTAMP, MAX_TIMESTAMP_OFFSET, RECENT, SEGMENT_END
};
enum of_producers { PRODUCED_TO, BY_ID, PRODUCERS_END };
enum of_recent { LAST_OFFSETS, POSITIONS, RECENT_END };
static const char *const log_names[] = {"failure", "config", "start_offset", "end_offset", "epochs", "producers",
                                        "_segments", "_touched"};
static const char *const config_names[] = {"stores_plain_batches", "stamps_append_time", "max_message_bytes",
                                           "segment_bytes", "max_segment_ms"};
static const char *const segment_names[] = {
    "_file", "size", "base_offset", "created_ms", "jitter_ms", "_ready", "is_full", "_index_interval",
    "_since_index", "_first_timestamp", "_max_timestamp", "_max_timestamp_offset", "recent",
};
static const char *const recent_names[] = {"last_offsets", "positions"};
static const char *const producers_names[] = {"end_offset", "_producers"};
static const char *const latest_names[] = {"latest"}, *const active_names[] = {"active"};

/* The classes and the places of their slots, once `prepare` has been called. */
static struct {
    PyTypeObject *log, *segments, *segment, *config, *epochs, *producers, *recent, *result;
} types;
static Py_ssize_t log_at[LOG_END], config_at[CONFIG_END], segment_at[SEGMENT_END], recent_at[RECENT_END];
static Py_ssize_t latest_at, active_at, producers_at[PRODUCERS_END];
static PyObject *name_of_write, *name_of_is_next, *name_of_append, *name_of_drop;

/* One append. It owns its references to `segment` and `producer`; the caller has the log and the batch. */
typedef struct {
    PyObject *log, *config, *segment, *batch, *producer;
    uint8_t *at;
    int64_t size, position, first_offset, last_offset, max_timestamp, producer_id;
    int is_prepared;
} append;

/* ---- numbers in slots */

static int get(PyObject *object, Py_ssize_t offset, int64_t *value)
{
    PyObject *found = *slot(object, offset);
    if (found == NULL || !PyLong_Check(found))
        return 0;
    *value = PyLong_AsLongLong(found);
    if (*value != -1 || !PyErr_Occurred())
        return 1;
    PyErr_Clear();
    return 0;
}

static int put(PyObject *object, Py_ssize_t offset, int64_t value)
{
    PyObject *made = PyLong_FromLongLong(value);
    if (made == NULL)
        return -1;
    Py_XSETREF(*slot(object, offset), made);
    return 0;
}

static PyObject *object_in(PyObject *object, Py_ssize_t offset, PyTypeObject *type)
{
    PyObject *found = *slot(object, offset);
    return found != NULL && Py_IS_TYPE(found, type) ? found : NULL;
}

/* ---- before the write: each function returns whether the append is a usual one */

static int begin(append *one, int64_t leader_epoch)
{
    int64_t latest;
    PyObject *segments = object_in(one->log, log_at[SEGMENTS], types.segments);
    PyObject *epochs = object_in(one->log, log_at[EPOCHS], types.epochs);
    one->config = object_in(one->log, log_at[CONFIG], types.config);
    one->segment = Py_XNewRef(segments == NULL ? NULL : object_in(segments, active_at, types.segment));
    return one->config != NULL && one->segment != NULL && epochs != NULL && *slot(one->log, log_at[FAILURE]) == Py_None
        && object_in(one->log, log_at[PRODUCERS], types.producers) != NULL && get(epochs, latest_at, &latest)
        && latest == leader_epoch && get(one->log, log_at[END_OFFSET], &one->first_offset);
}

/* A client's batch is validated as `admit` does it; a prepared one is valid already. */
static int is_usual_batch(append *one)
{
    int64_t most;
    if (one->size < HEADER_SIZE || one->size > SHORT_BATCH)
        return 0;
    if (one->is_prepared)
        return *slot(one->config, config_at[STAMPS_APPEND_TIME]) == Py_False;
    return *slot(one->config, config_at[STORES_PLAIN_BATCHES]) == Py_True
        && get(one->config, config_at[MAX_MESSAGE_BYTES], &most) && one->size <= most && is_plain(one->at, one->size);
}

static int read_header(append *one)
{
    one->max_timestamp = number(one->at + MAX_TIMESTAMP_POSITION, 8);
    one->producer_id = number(one->at + PRODUCER_ID_POSITION, 8);
    int64_t delta = number(one->at + LAST_OFFSET_DELTA_POSITION, 4);
    return !(number(one->at + ATTRIBUTES_POSITION, 2) & (TRANSACTIONAL | CONTROL)) && delta >= 0
        && !__builtin_add_overflow(one->first_offset, delta, &one->last_offset) && one->last_offset < INT64_MAX
        && (one->producer_id < 0 || !one->is_prepared);
}

/* Segment.should_roll, and whether the indexes take an entry for this batch. */
static int has_room(append *one, int64_t now_ms)
{
    PyObject *const segment = one->segment;
    int64_t base_offset, segment_bytes, interval, since, first, most_ms, jitter_ms, waited, age_ms;
    if (*slot(segment, segment_at[READY]) != Py_True || *slot(segment, segment_at[IS_FULL]) != Py_False
        || *slot(segment, segment_at[FILE_OF]) == NULL || *slot(segment, segment_at[FILE_OF]) == Py_None
        || !get(segment, segment_at[SIZE], &one->position) || !get(segment, segment_at[BASE_OFFSET], &base_offset)
        || !get(one->config, config_at[SEGMENT_BYTES], &segment_bytes)
        || !get(segment, segment_at[INDEX_INTERVAL], &interval) || !get(segment, segment_at[SINCE_INDEX], &since))
        return 0;
    if (one->size > segment_bytes - one->position || since > interval
        || one->last_offset - base_offset > MAX_RELATIVE_OFFSET)
        return 0;
    if (one->position == 0)
        return 1;
    if (!get(segment, segment_at[FIRST_TIMESTAMP], &first) || first == UNKNOWN
        || !get(one->config, config_at[MAX_SEGMENT_MS], &most_ms) || !get(segment, segment_at[JITTER_MS], &jitter_ms)
        || __builtin_sub_overflow(most_ms, jitter_ms, &age_ms))
        return 0;
    if (first >= 0)
        return !__builtin_sub_overflow(one->max_timestamp, first, &waited) && waited <= age_ms;
    return get(segment, segment_at[CREATED_MS], &first) && !__builtin_sub_overflow(now_ms, first, &waited) && waited <= age_ms;
}

/* A new reference to the producer of a batch, NULL where the log has none. */
static PyObject *producer_of(const append *one)
{
    PyObject *by_id = *slot(*slot(one->log, log_at[PRODUCERS]), producers_at[BY_ID]);
    PyObject *key = PyDict_CheckExact(by_id) ? PyLong_FromLongLong(one->producer_id) : NULL;
    PyObject *found = key == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(by_id, key));
    Py_XDECREF(key);
    return found;
}

/* Whether the batch has no producer, or is the next one of its producer (Producer.is_next); -1 with an exception. */
static int is_next(append *one)
{
    if (one->producer_id < 0)
        return 1;
    if ((one->producer = producer_of(one)) == NULL)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *arguments[] = {
        one->producer, PyLong_FromLongLong(number(one->at + PRODUCER_ID_POSITION + 8, 2)),
        PyLong_FromLongLong(number(one->at + SEQUENCE_POSITION, 4)),
    };
    PyObject *found = NULL;
    if (arguments[1] != NULL && arguments[2] != NULL)
        found = PyObject_VectorcallMethod(name_of_is_next, arguments, 3, NULL);
    Py_XDECREF(arguments[1]);
    Py_XDECREF(arguments[2]);
    Py_XDECREF(found);
    return found == NULL ? -1 : found == Py_True;
}

/* ---- the write, and after it: each function returns -1 with an exception */

static int write_batch(const append *one, int64_t leader_epoch)
{
    store(one->at, (uint64_t)one->first_offset, 8);
    store(one->at + LEADER_EPOCH_POSITION, (uint64_t)leader_epoch, 4);
    PyObject *position = PyLong_FromLongLong(one->position);
    PyObject *arguments[] = {*slot(one->segment, segment_at[FILE_OF]), one->batch, position};
    PyObject *done = position == NULL ? NULL : PyObject_VectorcallMethod(name_of_write, arguments, 3, NULL);
    Py_XDECREF(position);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int add_to(PyObject *array, int64_t value)
{
    PyObject *item = PyLong_FromLongLong(value);
    PyObject *done = item == NULL ? NULL : PyObject_CallMethodOneArg(array, name_of_append, item);
    Py_XDECREF(item);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* RecentBatches of the segment. */
static int remember(const append *one)
{
    PyObject *recent = *slot(one->segment, segment_at[RECENT]), *positions = *slot(recent, recent_at[POSITIONS]);
    if (add_to(*slot(recent, recent_at[LAST_OFFSETS]), one->last_offset) < 0 || add_to(positions, one->position) < 0)
        return -1;
    if (PyObject_Size(positions) <= MOST_REMEMBERED)
        return 0;
    PyObject *done = PyObject_CallMethodNoArgs(recent, name_of_drop);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Segment.append and Segment.note. */
static int note(const append *one)
{
    PyObject *const segment = one->segment;
    int64_t latest, since;
    if (put(segment, segment_at[SIZE], one->position + one->size) < 0
        || (one->position == 0 && put(segment, segment_at[FIRST_TIMESTAMP], one->max_timestamp) < 0))
        return -1;
    if (get(segment, segment_at[MAX_TIMESTAMP], &latest) && one->max_timestamp > latest
        && (put(segment, segment_at[MAX_TIMESTAMP], one->max_timestamp) < 0
            || put(segment, segment_at[MAX_TIMESTAMP_OFFSET], one->last_offset) < 0))
        return -1;
    if (get(segment, segment_at[SINCE_INDEX], &since) && put(segment, segment_at[SINCE_INDEX], since + one->size) < 0)
        return -1;
    return remember(one);
}

static int note_producer(const append *one)
{
    if (one->producer == NULL)
        return 0;
    int64_t delta = one->last_offset - one->first_offset;
    PyObject *done = PyObject_CallMethod(one->producer, "append", "LLLL",
                                         (long long)((number(one->at + SEQUENCE_POSITION, 4) + delta) & INT32_MAX),
                                         (long long)one->last_offset, (long long)delta, (long long)one->max_timestamp);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int finish(const append *one)
{
    if (note(one) < 0)
        return -1;
    Py_XSETREF(*slot(one->log, log_at[TOUCHED]), Py_NewRef(Py_True));
    if (put(one->log, log_at[END_OFFSET], one->last_offset + 1) < 0 || note_producer(one) < 0)
        return -1;
    return put(*slot(one->log, log_at[PRODUCERS]), producers_at[PRODUCED_TO], one->last_offset + 1);
}

static PyObject *result_of(const append *one)
{
    PyObject *const items[RESULT_FIELDS] = {
        PyLong_FromLongLong(one->first_offset), PyLong_FromLongLong(one->last_offset),
        PyLong_FromLongLong(one->max_timestamp), PyLong_FromLong(NO_TIMESTAMP),
        Py_NewRef(*slot(one->log, log_at[START_OFFSET])), Py_NewRef(Py_False),
    };
    PyObject *made = types.result->tp_alloc(types.result, RESULT_FIELDS);
    for (int i = 0; i < RESULT_FIELDS; i++) {
        if (items[i] == NULL)
            Py_CLEAR(made);
        if (made != NULL)
            PyTuple_SET_ITEM(made, i, items[i]);
        else
            Py_XDECREF(items[i]);
    }
    return made;
}

/* ---- the call */

static PyObject *append_checked(append *one, int64_t leader_epoch, int64_t now_ms)
{
    int usual = begin(one, leader_epoch) && is_usual_batch(one) && read_header(one) && has_room(one, now_ms)
        && object_in(one->segment, segment_at[RECENT], types.recent) != NULL;
    if (usual)
        usual = is_next(one);
    if (usual == 0)
        Py_RETURN_NONE;
    return usual > 0 && write_batch(one, leader_epoch) == 0 && finish(one) == 0 ? result_of(one) : NULL;
}

static PyObject *append_usual(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 5 || !PyMemoryView_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "append_usual takes a log, a memoryview, is_prepared, leader_epoch and now_ms");
        return NULL;
    }
    append one = {.log = args[0], .batch = args[1], .is_prepared = args[2] == Py_True};
    int64_t leader_epoch = PyLong_AsLongLong(args[3]), now_ms = PyLong_AsLongLong(args[4]);
    if (PyErr_Occurred())
        return NULL;
    if (!Py_IS_TYPE(args[0], types.log) || PyMemoryView_GET_BUFFER(args[1])->readonly)
        Py_RETURN_NONE;
    Py_buffer view;
    if (PyObject_GetBuffer(args[1], &view, PyBUF_WRITABLE) < 0)
        return NULL;
    one.at = view.buf;
    one.size = view.len;
    PyObject *result = append_checked(&one, leader_epoch, now_ms);
    Py_XDECREF(one.segment);
    Py_XDECREF(one.producer);
    PyBuffer_Release(&view);
    return result;
}

static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyTypeObject *found[8];
    PyTypeObject *const meta = &PyType_Type;
    if (!PyArg_ParseTuple(args, "(O!O!O!O!O!O!O!O!)", meta, &found[0], meta, &found[1], meta, &found[2], meta, &found[3],
                          meta, &found[4], meta, &found[5], meta, &found[6], meta, &found[7]))
        return NULL;
    if (find_slots(found[0], log_names, log_at, LOG_END) < 0 || find_slots(found[1], active_names, &active_at, 1) < 0
        || find_slots(found[2], segment_names, segment_at, SEGMENT_END) < 0
        || find_slots(found[3], config_names, config_at, CONFIG_END) < 0
        || find_slots(found[4], latest_names, &latest_at, 1) < 0
        || find_slots(found[5], producers_names, producers_at, PRODUCERS_END) < 0
        || find_slots(found[6], recent_names, recent_at, RECENT_END) < 0)
        return NULL;
    if (!PyType_IsSubtype(found[7], &PyTuple_Type))
        return PyErr_Format(PyExc_TypeError, "%R is no tuple", found[7]);
    PyTypeObject **const kept[] = {&types.log, &types.segments, &types.segment, &types.config, &types.epochs,
                                   &types.producers, &types.recent, &types.result};
    for (int i = 0; i < 8; i++)
        Py_XSETREF(*kept[i], (PyTypeObject *)Py_NewRef((PyObject *)found[i]));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"append_usual", (PyCFunction)(void (*)(void))append_usual, METH_FASTCALL, "Append a usual batch; see log_append.py."},
    {"prepare", prepare, METH_VARARGS, "Take the classes of a log; see log_append.py."},
    {NULL, NULL, 0, NULL},
};

static int populate(PyObject *Py_UNUSED(module))
{
    make_crc32c_tables();
    name_of_write = PyUnicode_InternFromString("write");
    name_of_is_next = PyUnicode_InternFromString("is_next");
    name_of_append = PyUnicode_InternFromString("append");
    name_of_drop = PyUnicode_InternFromString("drop_older_half");
    return PyErr_Occurred() ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, populate},
    {0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_log_append", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__log_append(void) { return PyModuleDef_Init(&module); }
