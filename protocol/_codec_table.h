/* The table of one message in one version, made from the tuples of programs.py, for _codec.c.
 *
 * Fields are slots of the classes. They are read and written at their offset, which the limited API does not have.
 */
#ifndef ODRADEK_CODEC_TABLE_H
#define ODRADEK_CODEC_TABLE_H

#include <stddef.h>

#include "_slots.h"

/* programs.py has the same numbers and letters. */
enum initial { SHARED = 0, NEW_LIST = 1, CALLED = 2 };
enum test { NO_TEST = 0, TRUTH = 1, NOT_EQUAL = 2, NOT_NONE = 3, NULL_OR_FULL = 4, OTHER_STRUCT = 5 };
enum flag { ARRAY = 1, NULLABLE = 2, COMPACT = 4, PREENCODED = 8 };
#define STRING 's'
#define BYTES 'y'
#define RECORDS 'r'
#define STRUCT 'o'
#define UUID 'u'
#define MAX_STRING 0x7FFF
#define TAG_BYTES 8

typedef struct layout layout;

typedef struct {
    Py_ssize_t offset;   /* of the slot in its object */
    PyObject *initial;   /* the default, or the class that is called for it */
    PyObject *compared;  /* the default that is not written */
    layout *inner;       /* of a structure, else NULL */
    Py_ssize_t smallest; /* bytes of an element of the array */
    Py_ssize_t charge;   /* memory of an element of the array */
    uint32_t tag;
    char type; /* a format of the module struct, or a letter from above */
    char flags, starts_as, test;
} field;

struct layout {
    PyTypeObject *type;
    Py_ssize_t unknown_tags; /* the offset of this slot */
    int is_flexible, keeps_unknown;
    Py_ssize_t absent, tagged, count; /* the fields in this order; then those that are present in every object */
    field fields[];
};

static void free_layout(layout *of)
{
    if (of == NULL)
        return;
    for (Py_ssize_t i = 0; i < of->count; i++)
        free_layout(of->fields[i].inner);
    PyMem_Free(of);
}

static layout *layout_from(PyObject *source);

static int fill_field(field *into, PyTypeObject *type, PyObject *source)
{
    PyObject *name, *inner;
    int letter, flags, starts_as, test;
    if (!PyArg_ParseTuple(source, "UCiiiInnOOO", &name, &letter, &flags, &starts_as, &test, &into->tag,
                          &into->smallest, &into->charge, &into->initial, &into->compared, &inner))
        return -1;
    if ((into->offset = offset_of(type, name)) < 0)
        return -1;
    into->type = (char)letter;
    into->flags = (char)flags;
    into->starts_as = (char)starts_as;
    into->test = (char)test;
    if (into->smallest < 1 || strchr("?bhHiIqdusyro", letter) == NULL || (letter == STRUCT) != (inner != Py_None)) {
        PyErr_Format(PyExc_ValueError, "field %R", source);
        return -1;
    }
    return inner != Py_None && (into->inner = layout_from(inner)) == NULL ? -1 : 0;
}

static layout *layout_from(PyObject *source)
{
    PyTypeObject *type;
    PyObject *fields, *name_of_tags;
    layout head;
    if (!PyArg_ParseTuple(source, "O!UppnnO!", &PyType_Type, &type, &name_of_tags, &head.is_flexible,
                          &head.keeps_unknown, &head.absent, &head.tagged, &PyTuple_Type, &fields))
        return NULL;
    head.type = type;
    head.count = PyTuple_GET_SIZE(fields);
    if ((head.unknown_tags = offset_of(type, name_of_tags)) < 0)
        return NULL;
    if (head.absent < 0 || head.tagged < 0 || head.tagged > 127 || head.absent + head.tagged > head.count) {
        PyErr_Format(PyExc_ValueError, "layout %R", source);
        return NULL;
    }
    layout *made = PyMem_Calloc(1, sizeof(layout) + (size_t)head.count * sizeof(field));
    if (made == NULL)
        return (layout *)PyErr_NoMemory();
    memcpy(made, &head, offsetof(layout, fields));
    for (Py_ssize_t i = 0; i < head.count; i++)
        if (fill_field(&made->fields[i], type, PyTuple_GET_ITEM(fields, i)) < 0) {
            free_layout(made);
            return NULL;
        }
    return made;
}

static int width_of(char type)
{
    switch (type) {
    case 'b': case '?': return 1;
    case 'h': case 'H': return 2;
    case 'i': case 'I': return 4;
    case 'q': case 'd': return 8;
    default: return 16;
    }
}

static PyObject *number_at(const uint8_t *at, char type)
{
    switch (type) {
    case 'b': return PyLong_FromLong((int8_t)at[0]);
    case '?': return PyBool_FromLong(at[0]);
    case 'h': return PyLong_FromLong((int16_t)load(at, 2));
    case 'H': return PyLong_FromLong((long)load(at, 2));
    case 'i': return PyLong_FromLong((int32_t)load(at, 4));
    case 'I': return PyLong_FromUnsignedLong((unsigned long)load(at, 4));
    case 'q': return PyLong_FromLongLong((int64_t)load(at, 8));
    case 'd': {
        double value = PyFloat_Unpack8((const char *)at, 0);
        return value == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(value);
    }
    default: return PyBytes_FromStringAndSize((const char *)at, 16);
    }
}

static int fits(long long value, char type)
{
    switch (type) {
    case 'b': return value >= INT8_MIN && value <= INT8_MAX;
    case 'h': return value >= INT16_MIN && value <= INT16_MAX;
    case 'H': return value >= 0 && value <= UINT16_MAX;
    case 'i': return value >= INT32_MIN && value <= INT32_MAX;
    case 'I': return value >= 0 && value <= UINT32_MAX;
    default: return 1;
    }
}

#endif
