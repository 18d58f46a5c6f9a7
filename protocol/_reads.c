/* Handles the usual read of a connection: one whole request, which has its turn.
 *
 * The methods of Connection in Python are the specification, and handle all other reads. Until the frame handler is
 * called, nothing has changed, so whatever is rare goes to them from the start. See reads.py.
 */
#include "_slots.h"

#define SIZE_BYTES 4

enum of_connection {
    INCOMPLETE, PAUSED, CLOSED, CORKED, WRITING, MOST, VIEW, TURN, LOOP, LAST_ACTIVE, OUT, ON_FRAME, CONNECTION_END
};
enum of_turn { FIRST, FIRST_NS, IS_FULL, READING, WAITING, NOW_NS, TURN_END };
static const char *const connection_names[] = {"_incomplete", "_paused", "closed", "_corked", "_writing", "_most", "_view",
                                               "_turn", "_loop", "last_active_s", "_out", "_on_frame"};
static const char *const turn_names[] = {"_first", "_first_ns", "is_full", "reading", "waiting", "_now_ns"};

/* There is one class of connections in a process. */
typedef struct {
    PyObject *get_buffer, *buffer_updated; /* in Python */
    PyTypeObject *connection_type, *turn_type, *outbox_type;
    Py_ssize_t connection[CONNECTION_END], turn[TURN_END], parts, counted_bytes;
    long first_frames;
    long long first_frames_ns;
} reader;

static reader self;

static PyObject *name_of_time, *name_of_flush, *name_of_end;

static void set(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    Py_XSETREF(*slot(object, offset), Py_NewRef(value));
}

/* ReadTurn.may_handle_first: 1, 0 where the Python method decides, or -1 with an exception. */
static int may_handle_first(PyObject *turn)
{
    long first = PyLong_AsLong(*slot(turn, self.turn[FIRST]));
    if (first == -1 && PyErr_Occurred())
        return -1;
    if (first >= self.first_frames) {
        long long began_ns = PyLong_AsLongLong(*slot(turn, self.turn[FIRST_NS]));
        if (began_ns <= 0)
            return PyErr_Occurred() ? -1 : 0;
        PyObject *now = PyObject_CallNoArgs(*slot(turn, self.turn[NOW_NS]));
        long long now_ns = now == NULL ? -1 : PyLong_AsLongLong(now);
        Py_XDECREF(now);
        if (now_ns < 0 || now_ns - began_ns > self.first_frames_ns)
            return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *more = PyLong_FromLong(first + 1);
    if (more == NULL)
        return -1;
    Py_XSETREF(*slot(turn, self.turn[FIRST]), more);
    return 1;
}

/* Whether every slot has a value. */
static int is_complete(PyObject *object, const Py_ssize_t *offsets, int count)
{
    for (int i = 0; i < count; i++)
        if (*slot(object, offsets[i]) == NULL)
            return 0;
    return 1;
}

/* The turn of a connection whose objects are those of a broker; NULL for others. */
static PyObject *turn_of(PyObject *connection)
{
    if (!is_complete(connection, self.connection, CONNECTION_END))
        return NULL;
    PyObject *turn = *slot(connection, self.connection[TURN]), *outbox = *slot(connection, self.connection[OUT]);
    if (!Py_IS_TYPE(turn, self.turn_type) || !Py_IS_TYPE(outbox, self.outbox_type))
        return NULL;
    return is_complete(turn, self.turn, TURN_END) && is_complete(outbox, &self.parts, 1) ? turn : NULL;
}

/* Whether the bytes are one whole request of a connection that reads: 1, 0, or -1 with an exception. */
static int is_whole(PyObject *connection, Py_ssize_t count)
{
    if (*slot(connection, self.connection[INCOMPLETE]) != Py_None || *slot(connection, self.connection[PAUSED]) != Py_False
        || *slot(connection, self.connection[CLOSED]) != Py_False || *slot(connection, self.connection[CORKED]) != Py_False
        || count < SIZE_BYTES || count >= self.counted_bytes)
        return 0;
    Py_ssize_t most = PyLong_AsSsize_t(*slot(connection, self.connection[MOST]));
    Py_buffer view;
    if ((most == -1 && PyErr_Occurred()) || get_bytes(*slot(connection, self.connection[VIEW]), &view) < 0)
        return PyErr_Occurred() ? -1 : 0;
    Py_ssize_t size = view.len < count ? -1 : (int32_t)load(view.buf, SIZE_BYTES);
    PyBuffer_Release(&view);
    return size == count - SIZE_BYTES && size <= most;
}

static PyObject *frame_of(PyObject *view, Py_ssize_t end)
{
    PyObject *from = PyLong_FromLong(SIZE_BYTES), *to = PyLong_FromSsize_t(end);
    PyObject *range = from == NULL || to == NULL ? NULL : PySlice_New(from, to, NULL);
    PyObject *frame = range == NULL ? NULL : PyObject_GetItem(view, range);
    Py_XDECREF(from);
    Py_XDECREF(to);
    Py_XDECREF(range);
    return frame;
}

static int call(PyObject *object, PyObject *name)
{
    PyObject *done = PyObject_CallMethodNoArgs(object, name);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Sends the responses that wait, those of other connections last. */
static int send_responses(PyObject *connection, PyObject *turn)
{
    Py_ssize_t queued = PyObject_Size(*slot(*slot(connection, self.connection[OUT]), self.parts));
    if (queued < 0 || (queued > 0 && *slot(connection, self.connection[WRITING]) == Py_False && call(connection, name_of_flush) < 0))
        return -1;
    Py_ssize_t waiting = PyObject_Size(*slot(turn, self.turn[WAITING]));
    return waiting > 0 ? call(turn, name_of_end) : (int)waiting;
}

static int handle(PyObject *connection, PyObject *turn, PyObject *frame)
{
    set(turn, self.turn[READING], Py_True);
    PyObject *arguments[] = {connection, frame};
    PyObject *handler = Py_NewRef(*slot(connection, self.connection[ON_FRAME]));
    PyObject *done = PyObject_Vectorcall(handler, arguments, 2, NULL);
    set(turn, self.turn[READING], Py_False);
    set(connection, self.connection[CORKED], Py_False);
    Py_DECREF(handler);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* ---- the methods */

static PyObject *get_buffer(PyObject *connection, PyObject *size)
{
    PyObject *const turn = turn_of(connection);
    if (turn != NULL && *slot(connection, self.connection[INCOMPLETE]) == Py_None && *slot(turn, self.turn[IS_FULL]) == Py_False)
        return Py_NewRef(*slot(connection, self.connection[VIEW]));
    PyObject *arguments[] = {connection, size};
    return PyObject_Vectorcall(self.get_buffer, arguments, 2, NULL);
}

static int read_usual(PyObject *connection, PyObject *turn, PyObject *count)
{
    PyObject *frame = frame_of(*slot(connection, self.connection[VIEW]), PyLong_AsSsize_t(count));
    PyObject *now_s = frame == NULL ? NULL : PyObject_CallMethodNoArgs(*slot(connection, self.connection[LOOP]), name_of_time);
    int failed = now_s == NULL;
    if (!failed) {
        Py_XSETREF(*slot(connection, self.connection[LAST_ACTIVE]), now_s);
        Py_INCREF(turn);
        failed = handle(connection, turn, frame) < 0 || send_responses(connection, turn) < 0;
        Py_DECREF(turn);
    }
    Py_XDECREF(frame);
    return failed ? -1 : 0;
}

static PyObject *buffer_updated(PyObject *connection, PyObject *count)
{
    PyObject *const turn = turn_of(connection);
    Py_ssize_t bytes = PyLong_AsSsize_t(count);
    int usual = bytes == -1 && PyErr_Occurred() ? -1 : turn == NULL ? 0 : is_whole(connection, bytes);
    if (usual > 0)
        usual = may_handle_first(turn);
    if (usual < 0)
        return NULL;
    if (usual)
        return read_usual(connection, turn, count) < 0 ? NULL : Py_NewRef(Py_None);
    PyObject *arguments[] = {connection, count};
    return PyObject_Vectorcall(self.buffer_updated, arguments, 2, NULL);
}

static PyMethodDef replacements[] = {
    {"get_buffer", get_buffer, METH_O, "Return the memory for the next read."},
    {"buffer_updated", buffer_updated, METH_O, "Handle a read."},
};

/* ---- the module */

static PyObject *make_methods(void)
{
    PyObject *get = PyDescr_NewMethod(self.connection_type, &replacements[0]);
    PyObject *updated = PyDescr_NewMethod(self.connection_type, &replacements[1]);
    PyObject *both = get == NULL || updated == NULL ? NULL : PyTuple_Pack(2, get, updated);
    Py_XDECREF(get);
    Py_XDECREF(updated);
    return both;
}

static PyObject *methods(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const char *const parts[] = {"parts"};
    reader found = {0};
    PyTypeObject *const meta = &PyType_Type;
    if (!PyArg_ParseTuple(args, "O!O!O!OOlLn", meta, &found.connection_type, meta, &found.turn_type, meta, &found.outbox_type,
                          &found.get_buffer, &found.buffer_updated, &found.first_frames, &found.first_frames_ns,
                          &found.counted_bytes)
        || find_slots(found.connection_type, connection_names, found.connection, CONNECTION_END) < 0
        || find_slots(found.turn_type, turn_names, found.turn, TURN_END) < 0
        || find_slots(found.outbox_type, parts, &found.parts, 1) < 0)
        return NULL;
    Py_INCREF(found.connection_type);
    Py_INCREF(found.turn_type);
    Py_INCREF(found.outbox_type);
    Py_INCREF(found.get_buffer);
    Py_INCREF(found.buffer_updated);
    self = found; /* with the classes of an earlier call, which exist as long as the process */
    return make_methods();
}

static int populate(PyObject *Py_UNUSED(module))
{
    name_of_time = PyUnicode_InternFromString("time");
    name_of_flush = PyUnicode_InternFromString("_flush");
    name_of_end = PyUnicode_InternFromString("end");
    return name_of_time == NULL || name_of_flush == NULL || name_of_end == NULL ? -1 : 0;
}

static PyMethodDef functions[] = {
    {"methods", methods, METH_VARARGS, "The two methods of the connection class; see reads.py."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, populate},
    {0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_reads", NULL, 0, functions, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__reads(void) { return PyModuleDef_Init(&module); }
