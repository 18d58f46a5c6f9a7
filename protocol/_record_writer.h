/* Writes records of magic 2, for _chain.c: the reverse of _records.h.
 *
 * chain.py describes the layout, and records.py has the reference implementation.
 */
#ifndef ODRADEK_RECORD_WRITER_H
#define ODRADEK_RECORD_WRITER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define LONGEST_VARINT 10
#define RECORD_FIELDS 5

typedef struct {
    uint8_t *data;
    size_t size;
    size_t room;
} output;

static int make_room(output *out, size_t more)
{
    if (out->room - out->size >= more)
        return 0;
    size_t room = 2 * out->room + more;
    uint8_t *data = PyMem_Realloc(out->data, room);
    if (data == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    out->data = data;
    out->room = room;
    return 0;
}

/* The bytes of a zigzag varint; `at` has room for LONGEST_VARINT. */
static size_t write_varint(uint8_t *at, int64_t number)
{
    uint64_t zigzag = (uint64_t)number << 1;
    size_t count = 0;
    if (number < 0)
        zigzag = ~zigzag;
    for (; zigzag > 0x7F; zigzag >>= 7)
        at[count++] = (uint8_t)(zigzag & 0x7F) | 0x80;
    at[count++] = (uint8_t)zigzag;
    return count;
}

static int put_varint(output *out, int64_t number)
{
    if (make_room(out, LONGEST_VARINT) < 0)
        return -1;
    out->size += write_varint(out->data + out->size, number);
    return 0;
}

static int put_sized(output *out, const void *content, Py_ssize_t length)
{
    if (put_varint(out, length) < 0 || make_room(out, (size_t)length) < 0)
        return -1;
    if (length > 0)
        memcpy(out->data + out->size, content, (size_t)length);
    out->size += (size_t)length;
    return 0;
}

/* A length and the bytes of an object with the buffer protocol; None is null. */
static int put_bytes(output *out, PyObject *content)
{
    Py_buffer view;
    if (content == Py_None)
        return put_varint(out, -1);
    if (PyObject_GetBuffer(content, &view, PyBUF_SIMPLE) < 0)
        return -1;
    int failed = put_sized(out, view.buf, view.len);
    PyBuffer_Release(&view);
    return failed;
}

static int put_text(output *out, PyObject *text)
{
    Py_ssize_t length;
    const char *content = PyUnicode_AsUTF8AndSize(text, &length);
    return content == NULL ? -1 : put_sized(out, content, length);
}

static int put_header(output *out, PyObject *headers, Py_ssize_t index)
{
    PyObject *header = PySequence_GetItem(headers, index);
    PyObject *name = header == NULL ? NULL : PySequence_GetItem(header, 0);
    PyObject *content = name == NULL ? NULL : PySequence_GetItem(header, 1);
    int failed = content == NULL || put_text(out, name) < 0 || put_bytes(out, content) < 0 ? -1 : 0;
    Py_XDECREF(header);
    Py_XDECREF(name);
    Py_XDECREF(content);
    return failed;
}

static int put_headers(output *out, PyObject *headers)
{
    Py_ssize_t count = PySequence_Size(headers);
    if (count < 0 || put_varint(out, count) < 0)
        return -1;
    for (Py_ssize_t index = 0; index < count; index++)
        if (put_header(out, headers, index) < 0)
            return -1;
    return 0;
}

/* Sums wrap, as in Java. */
static int put_difference(output *out, PyObject *number, int64_t base)
{
    int64_t value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred())
        return -1;
    return put_varint(out, (int64_t)((uint64_t)value - (uint64_t)base));
}

/* Ends a record that begins at `start`: its body is behind room for the longest length, and moves behind its own. */
static void end_record(output *out, size_t start)
{
    size_t body = start + LONGEST_VARINT, length = out->size - body;
    size_t prefix = write_varint(out->data + start, (int64_t)length);
    memmove(out->data + start + prefix, out->data + body, length);
    out->size = start + prefix + length;
}

static int put_record(output *out, PyObject *record, int64_t base_offset, int64_t base_timestamp)
{
    if (!PyTuple_Check(record) || PyTuple_Size(record) != RECORD_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a record is a tuple of offset, timestamp, key, value and headers");
        return -1;
    }
    size_t start = out->size, body = start + LONGEST_VARINT;
    if (make_room(out, LONGEST_VARINT + 1) < 0)
        return -1;
    out->data[body] = 0; /* the attributes */
    out->size = body + 1;
    if (put_difference(out, PyTuple_GetItem(record, 1), base_timestamp) < 0 ||
        put_difference(out, PyTuple_GetItem(record, 0), base_offset) < 0 ||
        put_bytes(out, PyTuple_GetItem(record, 2)) < 0 || put_bytes(out, PyTuple_GetItem(record, 3)) < 0 ||
        put_headers(out, PyTuple_GetItem(record, 4)) < 0)
        return -1;
    end_record(out, start);
    return 0;
}

/* -1 with a Python exception set, else 0. */
static int put_records(output *out, PyObject *records, int64_t base_offset, int64_t base_timestamp)
{
    PyObject *items = PyObject_GetIter(records), *record;
    if (items == NULL)
        return -1;
    while ((record = PyIter_Next(items)) != NULL) {
        int failed = put_record(out, record, base_offset, base_timestamp);
        Py_DECREF(record);
        if (failed < 0)
            break;
    }
    Py_DECREF(items);
    return PyErr_Occurred() ? -1 : 0;
}

#endif
