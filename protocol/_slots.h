/* Slots of Python objects, numbers in network byte order and the memory of buffers, for _codec.c, _constructors.c,
 * _frames.c, _log_append.c and _reads.c.
 *
 * Slots are read and written at their offset, which the limited API does not have.
 */
#ifndef ODRADEK_SLOTS_H
#define ODRADEK_SLOTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

static PyObject **slot(PyObject *object, Py_ssize_t offset) { return (PyObject **)((char *)object + offset); }

static Py_ssize_t offset_of(PyTypeObject *type, PyObject *name)
{
    PyObject *found = PyObject_GetAttr((PyObject *)type, name);
    if (found == NULL)
        return -1;
    Py_ssize_t offset = -1;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type) && PyType_IsSubtype(type, PyDescr_TYPE(found))) {
        const PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        if (member->type == T_OBJECT_EX)
            offset = member->offset;
    }
    Py_DECREF(found);
    if (offset < 0)
        PyErr_Format(PyExc_TypeError, "%R is not a slot of %R", name, type);
    return offset;
}

/* Finds the offsets of several slots; -1 with an exception. */
static inline int find_slots(PyTypeObject *type, const char *const *names, Py_ssize_t *offsets, int count)
{
    for (int i = 0; i < count; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        offsets[i] = name == NULL ? -1 : offset_of(type, name);
        Py_XDECREF(name);
        if (offsets[i] < 0)
            return -1;
    }
    return 0;
}

static inline uint64_t load(const uint8_t *at, int width)
{
    uint64_t value = 0;
    for (int i = 0; i < width; i++)
        value = value << 8 | at[i];
    return value;
}

static inline void store(uint8_t *at, uint64_t value, int width)
{
    for (int i = width - 1; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
}

/* Lends the memory of an object whose items are single bytes for Python code, too. */
static inline int get_bytes(PyObject *object, Py_buffer *view)
{
    if (!PyBytes_CheckExact(object) && !PyMemoryView_Check(object) && !PyByteArray_CheckExact(object))
        return -1;
    if (PyObject_GetBuffer(object, view, PyBUF_CONTIG_RO | PyBUF_FORMAT) < 0)
        return -1;
    if (view->ndim == 1 && view->format != NULL && strcmp(view->format, "B") == 0)
        return 0;
    PyBuffer_Release(view);
    return -1;
}

#endif
