/* Handles the usual request: reads its header, decodes it, calls its handler, and queues and counts the response.
 *
 * `reply` does the second half for a request whose handler has returned no response at once.
 *
 * The Python function behind it (Dispatcher.frame_in_python) is the specification. Until the handler is called, nothing
 * outside of this function has changed, so whatever is rare goes to that function from the start. See frames.py.
 */
#include "_slots.h"

#define HEADER_BYTES 10
#define SIZE_BYTES 4
#define ANSWERS_AT_ONCE 64 /* as in net.py */
#define LARGEST_AT_ONCE (16 * 1024) /* COUNTED_BYTES of read_turn.py: larger ones count for the turns of connections */
#define JOINED_BYTES 65536 /* as in outbox.py */

enum of_route { DECODE, HANDLE, FLEXIBLE, VERSION, ENCODE, HEAD, METRICS, OF_FOLLOWERS, REPORT_ERRORS, QUOTAS, ROUTE_END };
enum of_call {
    CONNECTION, ANSWER, OPERATION, FROM_FOLLOWER, STARTED, LOCAL, ROUTE, CORRELATION, CLIENT, CALL_VERSION, NO_REPLY,
    USAGE, CALL_END
};
enum of_connection { OWED, OUT, WRITING, CORKED, SOCKET, PAUSED, HEAVY, TURN, LOOP, LAST_ACTIVE, CONNECTION_END };
enum of_metrics { COUNT, VERSIONS, TOTAL_NS, LOCAL_NS, METRICS_END };
static const char *const route_names[] = {"decode", "handle", "flexible", "version", "_encode", "_head", "_metrics",
                                          "_of_followers", "_report_errors", "quotas"};
static const char *const call_names[] = {"connection", "answer", "operation", "from_follower", "started_ns", "local_ns",
                                         "route", "correlation_id", "client_id", "version", "no_reply", "usage"};
static const char *const connection_names[] = {"owed", "_out", "_writing", "_corked", "socket", "_paused", "_heavy",
                                               "_turn", "_loop", "last_active_s"};
static const char *const metrics_names[] = {"count", "versions", "_total_ns", "_local_ns"};

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *routes, *now_ns, *behind, *unanswered, *failed;
    PyTypeObject *route_type, *call_type, *connection_type, *outbox_type, *metrics_type, *turn_type;
    Py_ssize_t largest; /* bytes of a request that is handled here */
    Py_ssize_t route[ROUTE_END], call[CALL_END], connection[CONNECTION_END], metrics[METRICS_END], parts, reading;
} handler;

static PyObject *name_of_is_active, *name_of_append, *name_of_answer, *name_of_encode, *name_of_send, *name_of_extend, *name_of_failed, *name_of_time, *name_of_popleft,
    *zero;

/* A request that is being handled; the handler's caller owns the connection and the frame. */
typedef struct {
    PyObject *connection, *route, *request, *call;
    int64_t started_ns;
    int32_t correlation_id;
} exchange;

/* Whether Python code may handle the exception; a KeyboardInterrupt goes on. */
static int is_error(void) { return PyErr_ExceptionMatches(PyExc_Exception); }

static int64_t time_ns(const handler *self)
{
    PyObject *now = PyObject_CallNoArgs(self->now_ns);
    int64_t found = now == NULL ? -1 : PyLong_AsLongLong(now);
    Py_XDECREF(now);
    return found;
}

/* ---- reading a request: each function returns 1, 0 for a rare request, or -1 with an exception */

/* A borrowed reference to the route of a key and version, NULL where there is none in use. */
static PyObject *find_route(const handler *self, const uint8_t *at)
{
    PyObject *key = PyLong_FromLong((int32_t)load(at, 4));
    PyObject *route = key == NULL ? NULL : PyDict_GetItemWithError(self->routes, key);
    Py_XDECREF(key);
    return route != NULL && Py_IS_TYPE(route, self->route_type) ? route : NULL;
}

static int has_quotas(const handler *self, PyObject *route)
{
    PyObject *active = PyObject_GetAttr(*slot(route, self->route[QUOTAS]), name_of_is_active);
    int found = active == NULL ? -1 : active != Py_False;
    Py_XDECREF(active);
    return found;
}

/* The position of the body; 0 where the header has no client id, tagged fields, or too few bytes. */
static Py_ssize_t find_body(const uint8_t *at, Py_ssize_t size, int is_flexible)
{
    Py_ssize_t length = (int16_t)load(at + 8, 2), body = HEADER_BYTES + length;
    if (length < 0 || body + is_flexible > size || (is_flexible && at[body] != 0))
        return 0;
    return body + is_flexible;
}

static int decode_body(const handler *self, PyObject *frame, Py_ssize_t body, exchange *one)
{
    PyObject *position = PyLong_FromSsize_t(body);
    PyObject *arguments[] = {frame, position};
    PyObject *decoded = position == NULL ? NULL : PyObject_Vectorcall(*slot(one->route, self->route[DECODE]), arguments, 2, NULL);
    Py_XDECREF(position);
    if (decoded == NULL)
        return -1;
    if (PyTuple_CheckExact(decoded) && PyTuple_GET_SIZE(decoded) == 2)
        one->request = Py_NewRef(PyTuple_GET_ITEM(decoded, 0));
    Py_DECREF(decoded);
    return one->request != NULL;
}

static int make_call(const handler *self, PyObject *client_id, exchange *one)
{
    PyObject *made = self->call_type->tp_alloc(self->call_type, 0);
    PyObject *started = made == NULL ? NULL : PyLong_FromLongLong(one->started_ns);
    PyObject *correlation = started == NULL ? NULL : PyLong_FromLong(one->correlation_id);
    if (correlation == NULL) {
        Py_XDECREF(started);
        Py_XDECREF(made);
        return -1;
    }
    PyObject *const values[CALL_END] = {
        [CONNECTION] = one->connection, [ANSWER] = Py_None, [OPERATION] = Py_None, [FROM_FOLLOWER] = Py_False,
        [LOCAL] = zero, [ROUTE] = one->route, [CLIENT] = client_id, [NO_REPLY] = Py_False, [USAGE] = Py_None,
        [CALL_VERSION] = *slot(one->route, self->route[VERSION]), [STARTED] = started, [CORRELATION] = correlation,
    };
    for (int i = 0; i < CALL_END; i++)
        *slot(made, self->call[i]) = Py_NewRef(values[i]);
    Py_DECREF(started);
    Py_DECREF(correlation);
    one->call = made;
    return 1;
}

static int read_request(const handler *self, PyObject *frame, exchange *one)
{
    Py_buffer view;
    if ((one->started_ns = time_ns(self)) < 0 || get_bytes(frame, &view) < 0)
        return PyErr_Occurred() ? -1 : 0;
    int found = 0;
    Py_ssize_t body = 0;
    PyObject *client_id = NULL;
    if (view.len >= HEADER_BYTES && view.len <= self->largest && (one->route = find_route(self, view.buf)) != NULL) {
        Py_INCREF(one->route);
        found = has_quotas(self, one->route);
        body = found ? 0 : find_body(view.buf, view.len, *slot(one->route, self->route[FLEXIBLE]) == Py_True);
        one->correlation_id = (int32_t)load((uint8_t *)view.buf + 4, 4);
        if (body > 0)
            client_id = PyUnicode_DecodeUTF8((char *)view.buf + HEADER_BYTES, (int16_t)load((uint8_t *)view.buf + 8, 2), "replace");
    }
    PyBuffer_Release(&view);
    if (client_id == NULL)
        return PyErr_Occurred() ? -1 : 0;
    found = decode_body(self, frame, body, one);
    if (found > 0)
        found = make_call(self, client_id, one);
    Py_DECREF(client_id);
    return found;
}

/* ---- the response: each function returns -1 with an exception */

static Py_ssize_t size_of(PyObject *parts)
{
    Py_ssize_t size = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); i++) {
        Py_ssize_t one = PyObject_Size(PyList_GET_ITEM(parts, i));
        if (one < 0)
            return -1;
        size += one;
    }
    if (size - SIZE_BYTES <= INT32_MAX)
        return size;
    PyErr_SetString(PyExc_OverflowError, "a response of 2 GB");
    return -1;
}

/* Appends the other parts to the first one where all are bytes and together not large; 0 where they stay apart. */
static int join(PyObject *parts, Py_ssize_t size)
{
    PyObject *head = PyList_GET_ITEM(parts, 0);
    Py_ssize_t at = PyByteArray_GET_SIZE(head), count = PyList_GET_SIZE(parts);
    for (Py_ssize_t i = 1; i < count; i++)
        if (!PyBytes_CheckExact(PyList_GET_ITEM(parts, i)) && !PyByteArray_CheckExact(PyList_GET_ITEM(parts, i)))
            return 0;
    if (size > JOINED_BYTES || PyByteArray_Resize(head, size) < 0)
        return size > JOINED_BYTES ? 0 : -1;
    for (Py_ssize_t i = 1; i < count; i++) {
        PyObject *part = PyList_GET_ITEM(parts, i);
        int is_bytes = PyBytes_CheckExact(part);
        Py_ssize_t length = PyObject_Size(part);
        memcpy(PyByteArray_AS_STRING(head) + at, is_bytes ? PyBytes_AS_STRING(part) : PyByteArray_AS_STRING(part), length);
        at += length;
    }
    return PyList_SetSlice(parts, 1, count, NULL);
}

/* The parts of the encoded response, with its size and header; as Route.encode. */
static PyObject *encode(const handler *self, const exchange *one, PyObject *response)
{
    PyObject *empty = *slot(one->route, self->route[HEAD]);
    PyObject *head = PyByteArray_FromObject(empty);
    PyObject *arguments[] = {response, head};
    PyObject *parts = head == NULL ? NULL : PyObject_Vectorcall(*slot(one->route, self->route[ENCODE]), arguments, 2, NULL);
    Py_ssize_t size = parts != NULL && PyList_CheckExact(parts) ? size_of(parts) : -1;
    int is_headed = size > 0 && PyList_GET_ITEM(parts, 0) == head && PyByteArray_GET_SIZE(head) >= 2 * SIZE_BYTES;
    if (is_headed && (PyList_GET_SIZE(parts) == 1 || join(parts, size) >= 0)) {
        uint8_t *at = (uint8_t *)PyByteArray_AS_STRING(head);
        store(at, (uint64_t)(size - SIZE_BYTES), SIZE_BYTES);
        store(at + SIZE_BYTES, (uint32_t)one->correlation_id, SIZE_BYTES);
    } else {
        Py_CLEAR(parts);
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_ValueError)) { /* perhaps a message that is too long */
            PyErr_Clear();
            PyObject *correlation = *slot(one->call, self->call[CORRELATION]);
            parts = PyObject_CallMethodObjArgs(one->route, name_of_encode, correlation, response, NULL);
        } else if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "an encoder returned no list of parts");
    }
    Py_XDECREF(head);
    return parts;
}

/* Sends a response, before which none waits, or the first bytes of it: then only the others are left in the parts. */
static int send_at_once(PyObject *sock, PyObject *parts)
{
    PyObject *data = PyList_GET_ITEM(parts, 0);
    if (!PyByteArray_CheckExact(data) || PyByteArray_GET_SIZE(data) >= LARGEST_AT_ONCE)
        return 0;
    PyObject *sent = PyObject_CallMethodOneArg(sock, name_of_send, data);
    Py_ssize_t count = sent == NULL ? -1 : PyLong_AsSsize_t(sent), size = PyByteArray_GET_SIZE(data);
    Py_XDECREF(sent);
    if (count < 0) { /* the connection finds the reason when it sends them */
        if (!is_error())
            return -1;
        PyErr_Clear();
        return 0;
    }
    if (count == size)
        return 1;
    PyObject *view = PyMemoryView_FromObject(data);
    PyObject *rest = view == NULL ? NULL : PySequence_GetSlice(view, count, size);
    Py_XDECREF(view);
    return rest == NULL ? -1 : PyList_SetItem(parts, 0, rest);
}

/* Queues the response while the connection handles several requests, or sends it: 1 where that was all. */
static int send_usual(const handler *self, const exchange *one, PyObject *parts)
{
    PyObject *connection = one->connection, *outbox = *slot(connection, self->connection[OUT]);
    PyObject *queue = Py_IS_TYPE(outbox, self->outbox_type) ? *slot(outbox, self->parts) : NULL;
    Py_ssize_t owed = PyObject_Size(*slot(connection, self->connection[OWED]));
    Py_ssize_t queued = queue == NULL ? -1 : PyObject_Size(queue), more = PyList_GET_SIZE(parts);
    if (queued < 0 || owed != 0 || *slot(connection, self->connection[WRITING]) != Py_False)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *sock = *slot(connection, self->connection[SOCKET]), *done = NULL;
    if (*slot(connection, self->connection[CORKED]) != Py_True)
        return queued == 0 && more == 1 && sock != NULL && sock != Py_None ? send_at_once(sock, parts) : 0;
    if (queued + more > ANSWERS_AT_ONCE)
        return 0;
    done = more == 1 ? PyObject_CallMethodOneArg(queue, name_of_append, PyList_GET_ITEM(parts, 0))
                     : PyObject_CallMethodOneArg(queue, name_of_extend, parts);
    Py_XDECREF(done);
    return done == NULL ? -1 : 1;
}

static int send(const handler *self, const exchange *one, PyObject *parts)
{
    int sent = 0;
    if (PyList_CheckExact(parts) && PyObject_TypeCheck(one->connection, self->connection_type))
        sent = send_usual(self, one, parts);
    if (sent != 0)
        return sent < 0 ? -1 : 0;
    PyObject *done = PyObject_CallMethodObjArgs(one->connection, name_of_send, one->call, parts, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Whether the connection waits for this response alone, and can send it now. */
static int is_only_one(const handler *self, const exchange *one)
{
    PyObject *connection = one->connection, *outbox = *slot(connection, self->connection[OUT]);
    PyObject *owed = *slot(connection, self->connection[OWED]), *turn = *slot(connection, self->connection[TURN]);
    if (!Py_IS_TYPE(outbox, self->outbox_type) || !Py_IS_TYPE(turn, self->turn_type)
        || *slot(turn, self->reading) != Py_False || *slot(connection, self->connection[WRITING]) != Py_False
        || *slot(connection, self->connection[CORKED]) != Py_False || *slot(connection, self->connection[PAUSED]) != Py_False
        || PyObject_IsTrue(*slot(connection, self->connection[HEAVY])) != 0 || PyObject_Size(owed) != 1
        || PyObject_Size(*slot(outbox, self->parts)) != 0)
        return 0;
    PyObject *first = PySequence_GetItem(owed, 0);
    Py_XDECREF(first);
    return first == one->call;
}

/* Connection.answer: sends a response that none is in front of and none behind. */
static int answer_only(const handler *self, const exchange *one, PyObject *parts)
{
    PyObject *connection = one->connection, *sock = *slot(connection, self->connection[SOCKET]);
    PyObject *now_s = PyObject_CallMethodNoArgs(*slot(connection, self->connection[LOOP]), name_of_time);
    if (now_s == NULL)
        return -1;
    Py_XSETREF(*slot(connection, self->connection[LAST_ACTIVE]), now_s);
    PyObject *done = PyObject_CallMethodNoArgs(*slot(connection, self->connection[OWED]), name_of_popleft);
    if (done == NULL)
        return -1;
    Py_DECREF(done);
    Py_XSETREF(*slot(one->call, self->call[ANSWER]), Py_NewRef(parts));
    int sent = sock != NULL && sock != Py_None && PyList_GET_SIZE(parts) == 1 ? send_at_once(sock, parts) : 0;
    if (sent != 0)
        return sent < 0 ? -1 : 0;
    done = PyObject_CallMethodObjArgs(connection, name_of_send, one->call, parts, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int answer(const handler *self, const exchange *one, PyObject *parts)
{
    if (PyList_CheckExact(parts) && Py_IS_TYPE(one->connection, self->connection_type) && is_only_one(self, one))
        return answer_only(self, one, parts);
    if (PyErr_Occurred())
        return -1;
    PyObject *done = PyObject_CallMethodObjArgs(one->connection, name_of_answer, one->call, parts, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int put_duration(PyObject *durations, Py_ssize_t number, int64_t value)
{
    Py_buffer view;
    if (PyObject_GetBuffer(durations, &view, PyBUF_WRITABLE) < 0)
        return -1;
    Py_ssize_t kept = view.len / (Py_ssize_t)sizeof value;
    if (kept > 0)
        ((int64_t *)view.buf)[number % kept] = value;
    PyBuffer_Release(&view);
    return 0;
}

static int add_one(PyObject *list, Py_ssize_t at)
{
    if (!PyList_CheckExact(list) || at < 0 || at >= PyList_GET_SIZE(list))
        return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_IndexError, "version"), -1);
    int64_t count = PyLong_AsLongLong(PyList_GET_ITEM(list, at));
    PyObject *more = count < 0 ? NULL : PyLong_FromLongLong(count + 1);
    return more == NULL ? -1 : PyList_SetItem(list, at, more);
}

/* RequestMetrics.answered. */
static int count_answered(const handler *self, PyObject *metrics, PyObject *version, int64_t total_ns, int64_t local_ns)
{
    PyObject **count = slot(metrics, self->metrics[COUNT]);
    Py_ssize_t number = PyLong_AsSsize_t(*count);
    if (number < 0 || put_duration(*slot(metrics, self->metrics[TOTAL_NS]), number, total_ns) < 0
        || put_duration(*slot(metrics, self->metrics[LOCAL_NS]), number, local_ns) < 0
        || add_one(*slot(metrics, self->metrics[VERSIONS]), PyLong_AsSsize_t(version)) < 0)
        return -1;
    PyObject *more = PyLong_FromSsize_t(number + 1);
    if (more == NULL)
        return -1;
    Py_SETREF(*count, more);
    return 0;
}

/* Route.count. */
static int count(const handler *self, const exchange *one, PyObject *response)
{
    int from_follower = *slot(one->call, self->call[FROM_FOLLOWER]) == Py_True;
    PyObject *metrics = *slot(one->route, self->route[from_follower ? OF_FOLLOWERS : METRICS]);
    if (!Py_IS_TYPE(metrics, self->metrics_type))
        return PyErr_Format(PyExc_TypeError, "%R are no metrics", metrics), -1;
    int64_t now = time_ns(self), local_ns = PyLong_AsLongLong(*slot(one->call, self->call[LOCAL]));
    int64_t total_ns = now - one->started_ns;
    if (now < 0 || (local_ns < 0 && PyErr_Occurred()))
        return -1;
    PyObject *version = *slot(one->route, self->route[VERSION]);
    if (count_answered(self, metrics, version, total_ns, local_ns ? local_ns : total_ns) < 0)
        return -1;
    PyObject *failed = PyObject_GetAttr(metrics, name_of_failed);
    PyObject *arguments[] = {response, failed};
    PyObject *done = failed == NULL ? NULL : PyObject_Vectorcall(*slot(one->route, self->route[REPORT_ERRORS]), arguments, 2, NULL);
    Py_XDECREF(failed);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int respond(const handler *self, const exchange *one)
{
    PyObject *arguments[] = {one->call, one->request};
    PyObject *response = PyObject_Vectorcall(*slot(one->route, self->route[HANDLE]), arguments, 2, NULL);
    int failed = response == NULL ? -1 : 0;
    if (response == Py_None) {
        PyObject *done = PyObject_CallOneArg(self->unanswered, one->call);
        failed = done == NULL ? -1 : 0;
        Py_XDECREF(done);
    } else if (response != NULL) {
        PyObject *parts = encode(self, one, response);
        if (parts == NULL || send(self, one, parts) < 0 || count(self, one, response) < 0)
            failed = -1;
        Py_XDECREF(parts);
    }
    Py_XDECREF(response);
    return failed;
}

/* ---- the call */

/* Passes an exception of the handler to Python, which logs it and closes the connection. */
static PyObject *report(const handler *self, const exchange *one)
{
    if (!is_error())
        return NULL;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *done = PyObject_CallFunctionObjArgs(self->failed, one->call, error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return done;
}

static PyObject *handle(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *names)
{
    handler *self = (handler *)callable;
    if (PyVectorcall_NARGS(nargsf) != 2 || (names != NULL && PyTuple_GET_SIZE(names) > 0)) {
        PyErr_SetString(PyExc_TypeError, "a frame handler takes a connection and a frame");
        return NULL;
    }
    exchange one = {.connection = args[0]};
    PyObject *result = NULL;
    int found = read_request(self, args[1], &one);
    if (found < 0 && is_error()) {
        PyErr_Clear();
        found = 0;
    }
    if (found == 0)
        result = PyObject_Vectorcall(self->behind, args, 2, NULL);
    else if (found > 0)
        result = respond(self, &one) == 0 ? Py_NewRef(Py_None) : report(self, &one);
    Py_XDECREF(one.call);
    Py_XDECREF(one.request);
    Py_XDECREF(one.route);
    return result;
}

/* ---- the type */

static int find_all_slots(handler *self)
{
    static const char *const parts[] = {"parts"}, *const reading[] = {"reading"};
    return find_slots(self->route_type, route_names, self->route, ROUTE_END) < 0
        || find_slots(self->call_type, call_names, self->call, CALL_END) < 0
        || find_slots(self->connection_type, connection_names, self->connection, CONNECTION_END) < 0
        || find_slots(self->outbox_type, parts, &self->parts, 1) < 0
        || find_slots(self->turn_type, reading, &self->reading, 1) < 0
        || find_slots(self->metrics_type, metrics_names, self->metrics, METRICS_END) < 0;
}

/* Call.reply: true where the response is queued and counted, false where nothing has changed and Python has to do it. */
static PyObject *reply(handler *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !Py_IS_TYPE(args[0], self->call_type))
        return PyErr_Format(PyExc_TypeError, "reply takes a call and a response");
    PyObject *const call = args[0];
    exchange one = {.connection = *slot(call, self->call[CONNECTION]), .route = *slot(call, self->call[ROUTE]), .call = call};
    one.started_ns = PyLong_AsLongLong(*slot(call, self->call[STARTED]));
    one.correlation_id = (int32_t)PyLong_AsLong(*slot(call, self->call[CORRELATION]));
    if (PyErr_Occurred())
        return NULL;
    int is_rare = has_quotas(self, one.route);
    PyObject *parts = is_rare ? NULL : encode(self, &one, args[1]);
    if (parts == NULL) {
        if (PyErr_Occurred() && !is_error())
            return NULL;
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    int failed = answer(self, &one, parts);
    Py_DECREF(parts);
    return failed < 0 || count(self, &one, args[1]) < 0 ? NULL : Py_NewRef(Py_True);
}

static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    handler *self = (handler *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = handle;
    PyTypeObject *const meta = &PyType_Type;
    int taken = PyArg_ParseTuple(args, "O!(O!O!O!O!O!O!)OnOOO", &PyDict_Type, &self->routes, meta, &self->route_type, meta,
                                 &self->call_type, meta, &self->connection_type, meta, &self->outbox_type, meta,
                                 &self->metrics_type, meta, &self->turn_type, &self->now_ns, &self->largest, &self->behind, &self->unanswered,
                                 &self->failed);
    PyObject *const owned[] = {
        self->routes, (PyObject *)self->route_type, (PyObject *)self->call_type, (PyObject *)self->connection_type,
        (PyObject *)self->outbox_type, (PyObject *)self->metrics_type, (PyObject *)self->turn_type, self->now_ns, self->behind, self->unanswered,
        self->failed,
    };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        Py_XINCREF(owned[i]);
    if (taken && find_all_slots(self) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

/* There is no tp_clear: a cycle contains the dispatcher, whose attributes the collector clears. */
static int traverse(handler *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->routes);
    Py_VISIT(self->route_type);
    Py_VISIT(self->call_type);
    Py_VISIT(self->connection_type);
    Py_VISIT(self->outbox_type);
    Py_VISIT(self->metrics_type);
    Py_VISIT(self->turn_type);
    Py_VISIT(self->now_ns);
    Py_VISIT(self->behind);
    Py_VISIT(self->unanswered);
    Py_VISIT(self->failed);
    return 0;
}

static void dealloc(handler *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->routes);
    Py_XDECREF(self->route_type);
    Py_XDECREF(self->call_type);
    Py_XDECREF(self->connection_type);
    Py_XDECREF(self->outbox_type);
    Py_XDECREF(self->metrics_type);
    Py_XDECREF(self->turn_type);
    Py_XDECREF(self->now_ns);
    Py_XDECREF(self->behind);
    Py_XDECREF(self->unanswered);
    Py_XDECREF(self->failed);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"reply", (PyCFunction)(void (*)(void))reply, METH_FASTCALL, "Answer a call; see Call.reply."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(handler, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots_of_type[] = {
    {Py_tp_doc, "Handles the frames of requests; see frames.py."},
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "odradek.protocol._frames.FrameHandler", sizeof(handler), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots_of_type,
};

static int populate(PyObject *module)
{
    name_of_is_active = PyUnicode_InternFromString("is_active");
    name_of_append = PyUnicode_InternFromString("append");
    name_of_answer = PyUnicode_InternFromString("answer");
    name_of_extend = PyUnicode_InternFromString("extend");
    name_of_encode = PyUnicode_InternFromString("encode");
    name_of_send = PyUnicode_InternFromString("send");
    name_of_time = PyUnicode_InternFromString("time");
    name_of_popleft = PyUnicode_InternFromString("popleft");
    name_of_failed = PyUnicode_InternFromString("failed");
    zero = PyLong_FromLong(0);
    PyObject *type = PyType_FromSpec(&spec);
    if (PyErr_Occurred() || type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "FrameHandler", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, populate},
    {0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_frames", NULL, 0, NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__frames(void) { return PyModuleDef_Init(&module); }
