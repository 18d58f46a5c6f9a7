/* Decodes a message by its table, for _codec.c.
 *
 * Every function returns NULL or -1 for bytes that the generated decoder has to read; an exception may be set.
 */
#ifndef ODRADEK_CODEC_DECODE_H
#define ODRADEK_CODEC_DECODE_H

#include "_codec_table.h"

typedef struct {
    const uint8_t *at, *start, *end;
    PyObject *buffer;
    PyObject *view; /* the memoryview along the buffer, once there are records */
    int64_t left;   /* memory that may still be charged */
    int64_t charged;
} reader;

static int charge(reader *in, int64_t size)
{
    in->charged += size;
    return in->charged > in->left ? -1 : 0;
}

static int read_varint(reader *in, Py_ssize_t *value)
{
    uint64_t found = 0;
    for (int shift = 0; shift < 35 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 128) {
            *value = (Py_ssize_t)found;
            return found > INT32_MAX ? -1 : 0;
        }
    }
    return -1;
}

/* The length of a text or the count of an array; -1 for null. */
static int read_length(reader *in, const field *of, int is_array, Py_ssize_t *length)
{
    if (of->flags & COMPACT) {
        if (read_varint(in, length) < 0)
            return -1;
        *length -= 1;
    } else {
        int width = of->type == STRING && !is_array ? 2 : 4;
        if (in->end - in->at < width)
            return -1;
        *length = width == 2 ? (int16_t)load(in->at, 2) : (int32_t)load(in->at, 4);
        in->at += width;
    }
    if (*length < 0) {
        *length = -1;
        return of->flags & NULLABLE ? 0 : -1;
    }
    return 0;
}

/* Records stay a view into the caller's buffer. */
static PyObject *read_view(reader *in, Py_ssize_t length)
{
    if (in->view == NULL) {
        int is_view = PyMemoryView_Check(in->buffer);
        in->view = is_view ? Py_NewRef(in->buffer) : PyMemoryView_FromObject(in->buffer);
        if (in->view == NULL)
            return NULL;
    }
    PyObject *first = PyLong_FromSsize_t(in->at - in->start);
    PyObject *last = PyLong_FromSsize_t(in->at - in->start + length);
    PyObject *range = first && last ? PySlice_New(first, last, NULL) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(last);
    if (range == NULL)
        return NULL;
    PyObject *found = PyObject_GetItem(in->view, range);
    Py_DECREF(range);
    return found;
}

static PyObject *read_sized(reader *in, const field *of)
{
    Py_ssize_t length;
    if (read_length(in, of, 0, &length) < 0)
        return NULL;
    if (length < 0)
        Py_RETURN_NONE;
    if (length > in->end - in->at || (of->type == STRING && length > MAX_STRING))
        return NULL;
    PyObject *found;
    if (of->type == STRING)
        found = PyUnicode_DecodeUTF8((const char *)in->at, length, "strict");
    else if (of->type == BYTES)
        found = PyBytes_FromStringAndSize((const char *)in->at, length);
    else
        found = read_view(in, length);
    in->at += length;
    return found;
}

static PyObject *read_struct(reader *in, const layout *of);

static PyObject *read_single(reader *in, const field *of)
{
    if (of->type == STRUCT)
        return read_struct(in, of->inner);
    if (of->type == STRING || of->type == BYTES || of->type == RECORDS)
        return read_sized(in, of);
    int width = width_of(of->type);
    if (in->end - in->at < width)
        return NULL;
    in->at += width;
    return number_at(in->at - width, of->type);
}

static PyObject *read_array(reader *in, const field *of)
{
    Py_ssize_t count;
    if (read_length(in, of, 1, &count) < 0)
        return NULL;
    if (count < 0)
        Py_RETURN_NONE;
    if (count > (in->end - in->at) / of->smallest || charge(in, count * (int64_t)of->charge) < 0)
        return NULL;
    PyObject *array = PyList_New(count);
    if (array == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = read_single(in, of);
        if (item == NULL) {
            Py_DECREF(array);
            return NULL;
        }
        PyList_SET_ITEM(array, i, item);
    }
    return array;
}

/* A structure that may be null has a marker before it: an int8, or a varint among the tagged fields (KIP-893). */
static PyObject *read_nullable_struct(reader *in, const field *of, int is_tagged)
{
    Py_ssize_t marker;
    if (is_tagged) {
        if (read_varint(in, &marker) < 0)
            return NULL;
        marker -= 1;
    } else {
        if (in->at == in->end)
            return NULL;
        marker = (int8_t)*in->at++;
    }
    if (marker < 0)
        Py_RETURN_NONE;
    return read_struct(in, of->inner);
}

static int read_field(reader *in, const field *of, PyObject *into, int is_tagged)
{
    PyObject *value;
    if (of->flags & ARRAY)
        value = read_array(in, of);
    else if (of->type == STRUCT && (of->flags & NULLABLE))
        value = read_nullable_struct(in, of, is_tagged);
    else
        value = read_single(in, of);
    if (value == NULL)
        return -1;
    PyObject *old = *slot(into, of->offset);
    *slot(into, of->offset) = value;
    Py_XDECREF(old);
    return 0;
}

static int keep_unknown(reader *in, const layout *of, PyObject *into, Py_ssize_t tag, Py_ssize_t size)
{
    PyObject **list = slot(into, of->unknown_tags);
    if (*list == Py_None) {
        PyObject *made = PyList_New(0);
        if (made == NULL)
            return -1;
        Py_SETREF(*list, made);
    }
    PyObject *item = Py_BuildValue("(ny#)", tag, (const char *)in->at, size);
    if (item == NULL)
        return -1;
    int failed = PyList_Append(*list, item);
    Py_DECREF(item);
    return failed;
}

static int read_tag(reader *in, const layout *of, PyObject *into)
{
    Py_ssize_t tag, size;
    if (read_varint(in, &tag) < 0 || read_varint(in, &size) < 0 || size > in->end - in->at)
        return -1;
    const uint8_t *stop = in->at + size;
    for (Py_ssize_t i = of->absent; i < of->absent + of->tagged; i++)
        if (of->fields[i].tag == (uint32_t)tag)
            return read_field(in, &of->fields[i], into, 1) < 0 || in->at != stop ? -1 : 0;
    if (of->keeps_unknown && keep_unknown(in, of, into, tag, size) < 0)
        return -1;
    in->at = stop;
    return 0;
}

static int read_tags(reader *in, const layout *of, PyObject *into)
{
    Py_ssize_t count;
    if (read_varint(in, &count) < 0 || count > (in->end - in->at) / 2 || charge(in, count * (int64_t)TAG_BYTES) < 0)
        return -1;
    for (; count > 0; count--)
        if (read_tag(in, of, into) < 0)
            return -1;
    return 0;
}

static PyObject *initial_of(const field *of)
{
    switch (of->starts_as) {
    case NEW_LIST: return PyList_New(0);
    case CALLED: return PyObject_CallNoArgs(of->initial);
    default: return Py_NewRef(of->initial);
    }
}

static int read_fields(reader *in, const layout *of, PyObject *into)
{
    *slot(into, of->unknown_tags) = Py_NewRef(Py_None);
    Py_ssize_t i = 0;
    for (; i < of->absent + of->tagged; i++)
        if ((*slot(into, of->fields[i].offset) = initial_of(&of->fields[i])) == NULL)
            return -1;
    for (; i < of->count; i++)
        if (read_field(in, &of->fields[i], into, 0) < 0)
            return -1;
    return of->is_flexible ? read_tags(in, of, into) : 0;
}

static PyObject *read_struct(reader *in, const layout *of)
{
    PyObject *object = of->type->tp_alloc(of->type, 0);
    if (object != NULL && read_fields(in, of, object) < 0)
        Py_CLEAR(object);
    return object;
}

#endif
