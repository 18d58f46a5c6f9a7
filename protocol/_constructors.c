/* Constructs messages: sets the slots of a new object from keyword arguments and defaults, see constructors.py.
 *
 * The compiled Python function `__init__` of a class is the specification. A call with anything but known keyword
 * arguments goes to it, and it makes the exact error.
 */
#include "_slots.h"

/* programs.py has the same numbers. */
enum initial { SHARED = 0, NEW_LIST = 1, CALLED = 2 };

typedef struct {
    PyObject *name;
    PyObject *initial; /* the default, or the class that is called for it */
    Py_ssize_t offset; /* of the slot */
    int starts_as;
} field;

typedef struct {
    Py_ssize_t count;
    field fields[];
} recipe;

#define NAME_OF_CAPSULE "odradek.protocol._constructors.recipe"

static PyObject *name_of_recipe;

static PyObject *construct_in_python(PyObject *type, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    PyObject *positional = PyTuple_New(nargs), *keywords = PyDict_New(), *made = NULL;
    int failed = positional == NULL || keywords == NULL;
    for (Py_ssize_t i = 0; !failed && i < nargs; i++)
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; !failed && names != NULL && i < PyTuple_GET_SIZE(names); i++)
        failed = PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[nargs + i]) < 0;
    if (!failed)
        made = PyType_Type.tp_call(type, positional, keywords);
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return made;
}

/* The number of the field of this name, beginning with `from`: calls have the order of the definition. */
static Py_ssize_t find_field(const recipe *of, PyObject *name, Py_ssize_t from)
{
    for (Py_ssize_t i = 0; i < of->count; i++) {
        Py_ssize_t at = from + i < of->count ? from + i : from + i - of->count;
        if (of->fields[at].name == name)
            return at;
    }
    return -1;
}

static PyObject *initial_value(const field *of)
{
    if (of->starts_as == NEW_LIST)
        return PyList_New(0);
    return of->starts_as == CALLED ? PyObject_CallNoArgs(of->initial) : Py_NewRef(of->initial);
}

static int set_defaults(const recipe *of, PyObject *object)
{
    for (Py_ssize_t i = 0; i < of->count; i++) {
        PyObject **at = slot(object, of->fields[i].offset);
        if (*at == NULL && (*at = initial_value(&of->fields[i])) == NULL)
            return -1;
    }
    return 0;
}

static PyObject *construct(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *names)
{
    PyTypeObject *type = (PyTypeObject *)callable;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), given = names == NULL ? 0 : PyTuple_GET_SIZE(names), next = 0;
    PyObject *capsule = PyDict_GetItemWithError(type->tp_dict, name_of_recipe);
    const recipe *of = capsule == NULL ? NULL : PyCapsule_GetPointer(capsule, NAME_OF_CAPSULE);
    if (of == NULL || nargs > 0)
        return PyErr_Occurred() ? NULL : construct_in_python(callable, args, nargs, names);
    PyObject *made = type->tp_alloc(type, 0);
    if (made == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < given; i++) {
        Py_ssize_t at = find_field(of, PyTuple_GET_ITEM(names, i), next);
        if (at < 0) {
            Py_DECREF(made);
            return construct_in_python(callable, args, nargs, names);
        }
        Py_XSETREF(*slot(made, of->fields[at].offset), Py_NewRef(args[i]));
        next = at + 1;
    }
    if (set_defaults(of, made) == 0)
        return made;
    Py_DECREF(made);
    return NULL;
}

static void free_recipe(recipe *of)
{
    for (Py_ssize_t i = 0; of != NULL && i < of->count; i++) {
        Py_XDECREF(of->fields[i].name);
        Py_XDECREF(of->fields[i].initial);
    }
    PyMem_Free(of);
}

static void free_capsule(PyObject *capsule) { free_recipe(PyCapsule_GetPointer(capsule, NAME_OF_CAPSULE)); }

static recipe *recipe_from(PyTypeObject *type, PyObject *source)
{
    Py_ssize_t count = PyTuple_GET_SIZE(source);
    recipe *made = PyMem_Calloc(1, sizeof(recipe) + (size_t)count * sizeof(field));
    if (made == NULL)
        return (recipe *)PyErr_NoMemory();
    made->count = count;
    for (Py_ssize_t i = 0; i < count; i++) {
        field *into = &made->fields[i];
        PyObject *name, *initial;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(source, i), "UiO", &name, &into->starts_as, &initial)
            || (into->offset = offset_of(type, name)) < 0) {
            free_recipe(made);
            return NULL;
        }
        into->initial = Py_NewRef(initial);
        into->name = Py_NewRef(name);
        PyUnicode_InternInPlace(&into->name);
    }
    return made;
}

static PyObject *install(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyTypeObject *type;
    PyObject *source;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &type, &PyTuple_Type, &source))
        return NULL;
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || !Py_IS_TYPE(type, &PyType_Type))
        return PyErr_Format(PyExc_TypeError, "%R is not a class of this package", type);
    recipe *made = recipe_from(type, source);
    PyObject *capsule = made == NULL ? NULL : PyCapsule_New(made, NAME_OF_CAPSULE, free_capsule);
    if (capsule == NULL) {
        free_recipe(made);
        return NULL;
    }
    int failed = PyObject_SetAttr((PyObject *)type, name_of_recipe, capsule);
    Py_DECREF(capsule);
    if (failed)
        return NULL;
    type->tp_vectorcall = construct;
    Py_RETURN_NONE;
}

static int populate(PyObject *Py_UNUSED(module))
{
    name_of_recipe = PyUnicode_InternFromString("_recipe");
    return name_of_recipe == NULL ? -1 : 0;
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, "Construct the objects of a class here; see constructors.py."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, populate},
    {0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_constructors", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__constructors(void) { return PyModuleDef_Init(&module); }
