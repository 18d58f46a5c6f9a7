/* Decodes and encodes messages: runs the table of fields that programs.py makes of one message in one version.
 *
 * The generated functions of decoding.py and encoding.py are the specification. A function here returns the same result
 * or fails; then the generated function runs from the start, with the same arguments, and makes the exact error. So
 * whatever is rare only fails here, and nothing outside the call may have changed by then.
 */
#include "_codec_decode.h"
#include "_codec_encode.h"

typedef struct {
    PyObject_HEAD
    PyObject *source; /* the tuples of the table: they own the objects to which it points */
    PyObject *encoded_array, *version, *decode, *decode_metered, *encode;
    int copies; /* the generated decoder copies the message, and a meter limits this copy */
    layout *root;
} program;

static PyObject *name_of_at_once, *name_of_charge;

/* Whether the generated function has to run; not after an interrupt, which came from Python code that ran meanwhile. */
static int falls_back(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return 0;
    PyErr_Clear();
    return 1;
}

static PyObject *with_position(PyObject *message, Py_ssize_t position)
{
    PyObject *number = PyLong_FromSsize_t(position), *pair = number == NULL ? NULL : PyTuple_New(2);
    if (pair == NULL) {
        Py_DECREF(message);
        Py_XDECREF(number);
        return NULL;
    }
    PyTuple_SET_ITEM(pair, 0, message);
    PyTuple_SET_ITEM(pair, 1, number);
    return pair;
}

static PyObject *run_decoder(const program *self, PyObject *buffer, PyObject *position, reader *in)
{
    Py_buffer view;
    Py_ssize_t start = PyLong_CheckExact(position) ? PyLong_AsSsize_t(position) : -1;
    if (start < 0 || get_bytes(buffer, &view) < 0)
        return NULL;
    PyObject *message = NULL, *result = NULL;
    if (start <= view.len && !(self->copies && view.len - start > in->left)) {
        in->buffer = buffer;
        in->start = view.buf;
        in->at = in->start + start;
        in->end = in->start + view.len;
        message = read_struct(in, self->root);
    }
    if (message != NULL)
        result = with_position(message, in->at - in->start);
    Py_XDECREF(in->view);
    PyBuffer_Release(&view);
    return result;
}

static int takes(const char *name, Py_ssize_t expected, Py_ssize_t given)
{
    if (given == expected)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments (%zd given)", name, expected, given);
    return 0;
}

static PyObject *decode(program *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (!takes("decode", 2, nargs))
        return NULL;
    reader in = {.left = INT64_MAX};
    PyObject *result = run_decoder(self, args[0], args[1], &in);
    return result != NULL || !falls_back() ? result : PyObject_Vectorcall(self->decode, args, 2, NULL);
}

/* The memory that the meter lets a decoder take without a call; 0 for none. */
static int64_t at_once(PyObject *meter)
{
    PyObject *limit = PyObject_GetAttr(meter, name_of_at_once);
    int64_t size = limit != NULL && PyLong_CheckExact(limit) ? PyLong_AsLongLong(limit) : 0;
    Py_XDECREF(limit);
    return size;
}

static int count_charged(PyObject *meter, int64_t size)
{
    PyObject *number = PyLong_FromLongLong(size);
    PyObject *done = number == NULL ? NULL : PyObject_CallMethodOneArg(meter, name_of_charge, number);
    Py_XDECREF(number);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *decode_metered(program *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (!takes("decode_metered", 3, nargs))
        return NULL;
    reader in = {.left = at_once(args[2])};
    PyObject *result = in.left > 0 ? run_decoder(self, args[0], args[1], &in) : NULL;
    if (result != NULL && count_charged(args[2], in.charged) < 0) {
        Py_DECREF(result);
        return NULL;
    }
    return result != NULL || !falls_back() ? result : PyObject_Vectorcall(self->decode_metered, args, 3, NULL);
}

static PyObject *encode(program *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (!takes("encode", 2, nargs))
        return NULL;
    writer out;
    out.data = out.own;
    out.size = out.first = out.start = 0;
    out.room = sizeof out.own;
    out.parts = NULL;
    out.encoded_array = self->encoded_array;
    out.version = self->version;
    PyObject *result = NULL;
    if (PyByteArray_CheckExact(args[1]) && write_struct(&out, self->root, args[0]) == 0)
        result = finish(&out, args[1]);
    if (out.data != out.own)
        PyMem_Free(out.data);
    Py_XDECREF(out.parts);
    return result != NULL || !falls_back() ? result : PyObject_Vectorcall(self->encode, args, 2, NULL);
}

static PyObject *new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *source, *version, *encoded_array, *decode, *decode_metered, *encode;
    int copies;
    if (!PyArg_ParseTuple(args, "O!OOpOOO", &PyTuple_Type, &source, &version, &encoded_array, &copies, &decode,
                          &decode_metered, &encode))
        return NULL;
    layout *root = layout_from(source);
    program *self = root == NULL ? NULL : (program *)type->tp_alloc(type, 0);
    if (self == NULL) {
        free_layout(root);
        return NULL;
    }
    self->root = root;
    self->copies = copies;
    self->source = Py_NewRef(source);
    self->version = Py_NewRef(version);
    self->encoded_array = Py_NewRef(encoded_array);
    self->decode = Py_NewRef(decode);
    self->decode_metered = Py_NewRef(decode_metered);
    self->encode = Py_NewRef(encode);
    return (PyObject *)self;
}

/* There is no tp_clear: a cycle contains a class or a function, which the collector clears. */
static int traverse(program *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->source);
    Py_VISIT(self->version);
    Py_VISIT(self->encoded_array);
    Py_VISIT(self->decode);
    Py_VISIT(self->decode_metered);
    Py_VISIT(self->encode);
    return 0;
}

static void dealloc(program *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    free_layout(self->root);
    Py_XDECREF(self->source);
    Py_XDECREF(self->version);
    Py_XDECREF(self->encoded_array);
    Py_XDECREF(self->decode);
    Py_XDECREF(self->decode_metered);
    Py_XDECREF(self->encode);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"decode", (PyCFunction)(void (*)(void))decode, METH_FASTCALL, "Read a message; see decoding.Decoder."},
    {"decode_metered", (PyCFunction)(void (*)(void))decode_metered, METH_FASTCALL, "See decoding.MeteredDecoder."},
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL, "Append a message; see encoding.Encoder."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots_of_type[] = {
    {Py_tp_doc, "The codecs of one message in one version; see programs.py."},
    {Py_tp_new, new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "odradek.protocol._codec.Program", sizeof(program), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots_of_type,
};

static int populate(PyObject *module)
{
    name_of_at_once = PyUnicode_InternFromString("at_once");
    name_of_charge = PyUnicode_InternFromString("charge");
    name_of_version = PyUnicode_InternFromString("version");
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL || name_of_at_once == NULL || name_of_charge == NULL || name_of_version == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "Program", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, populate},
    {0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_codec", NULL, 0, NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__codec(void) { return PyModuleDef_Init(&module); }
