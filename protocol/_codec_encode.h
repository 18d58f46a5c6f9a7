/* Encodes a message by its table, for _codec.c.
 *
 * Every function returns -1 for a value that the generated encoder has to write; an exception may be set.
 */
#ifndef ODRADEK_CODEC_ENCODE_H
#define ODRADEK_CODEC_ENCODE_H

#include "_codec_table.h"

static PyObject *name_of_version;

typedef struct {
    uint8_t *data;
    Py_ssize_t size, room;
    Py_ssize_t first, start; /* where the first part ends and the last begins, once there are parts */
    PyObject *parts;         /* NULL until there are records */
    PyObject *encoded_array, *version; /* the class of arrays that are encoded before, and the version for it */
    uint8_t own[1024];
} writer;

/* Where the next `size` bytes go; NULL when memory runs out. */
static uint8_t *extend(writer *out, Py_ssize_t size)
{
    if (size > out->room - out->size) {
        if (size > PY_SSIZE_T_MAX / 4)
            return NULL;
        Py_ssize_t room = 2 * out->room + size;
        uint8_t *data = PyMem_Realloc(out->data == out->own ? NULL : out->data, (size_t)room);
        if (data == NULL)
            return NULL;
        if (out->data == out->own)
            memcpy(data, out->own, (size_t)out->size);
        out->data = data;
        out->room = room;
    }
    out->size += size;
    return out->data + out->size - size;
}

static int put(writer *out, const void *bytes, Py_ssize_t size)
{
    uint8_t *at = extend(out, size);
    if (at == NULL)
        return -1;
    memcpy(at, bytes, (size_t)size);
    return 0;
}

static int put_number(writer *out, uint64_t value, int width)
{
    uint8_t *at = extend(out, width);
    if (at == NULL)
        return -1;
    store(at, value, width);
    return 0;
}

static int varint(uint8_t *at, uint64_t value)
{
    int width = 0;
    for (; value > 127; value >>= 7)
        at[width++] = (uint8_t)(value | 0x80);
    at[width++] = (uint8_t)value;
    return width;
}

static int put_varint(writer *out, Py_ssize_t value)
{
    uint8_t bytes[10];
    if (value > INT32_MAX)
        return -1;
    return put(out, bytes, varint(bytes, (uint64_t)value));
}

/* -1 as the length is null. */
static int put_length(writer *out, const field *of, int is_array, Py_ssize_t length)
{
    if (length > INT32_MAX - 1)
        return -1;
    if (of->flags & COMPACT)
        return put_varint(out, length + 1);
    return put_number(out, (uint64_t)length, of->type == STRING && !is_array ? 2 : 4);
}

static int put_float(writer *out, PyObject *value)
{
    uint8_t *at = PyFloat_CheckExact(value) ? extend(out, 8) : NULL;
    return at == NULL ? -1 : PyFloat_Pack8(PyFloat_AS_DOUBLE(value), (char *)at, 0);
}

static int write_number(writer *out, char type, PyObject *value)
{
    if (type == UUID)
        return PyBytes_CheckExact(value) && PyBytes_GET_SIZE(value) == 16 ? put(out, PyBytes_AS_STRING(value), 16) : -1;
    if (type == '?')
        return PyBool_Check(value) ? put_number(out, value == Py_True, 1) : -1;
    if (type == 'd')
        return put_float(out, value);
    int overflow = 0;
    long long number = PyLong_Check(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : (overflow = 1);
    return overflow || !fits(number, type) ? -1 : put_number(out, (uint64_t)number, width_of(type));
}

static int put_text(writer *out, const field *of, const char *text, Py_ssize_t length)
{
    return length > MAX_STRING || put_length(out, of, 0, length) < 0 ? -1 : put(out, text, length);
}

/* Encoded into an object of its own where the text is not ASCII: the text would keep the encoded form. */
static int write_string(writer *out, const field *of, PyObject *value)
{
    if (!PyUnicode_CheckExact(value))
        return -1;
    if (PyUnicode_IS_COMPACT_ASCII(value))
        return put_text(out, of, (const char *)PyUnicode_DATA(value), PyUnicode_GET_LENGTH(value));
    PyObject *bytes = PyUnicode_AsUTF8String(value);
    if (bytes == NULL)
        return -1;
    int failed = put_text(out, of, PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes));
    Py_DECREF(bytes);
    return failed;
}

static int write_bytes(writer *out, const field *of, PyObject *value)
{
    Py_buffer view;
    if (get_bytes(value, &view) < 0)
        return -1;
    int failed = put_length(out, of, 0, view.len) < 0 || put(out, view.buf, view.len) < 0 ? -1 : 0;
    PyBuffer_Release(&view);
    return failed;
}

static PyObject *buffer_from(const writer *out, Py_ssize_t start)
{
    return PyByteArray_FromStringAndSize((const char *)out->data + start, out->size - start);
}

/* Records are not copied: the object itself is a part of the result. */
static int write_records(writer *out, const field *of, PyObject *value)
{
    Py_ssize_t length = PyObject_Size(value);
    if (length < 0 || put_length(out, of, 0, length) < 0)
        return -1;
    if (length == 0)
        return 0;
    PyObject *before;
    if (out->parts == NULL) {
        out->parts = PyList_New(0);
        out->first = out->size;
        before = Py_NewRef(Py_None); /* replaced by the caller's buffer */
    } else {
        before = buffer_from(out, out->start);
    }
    int failed = out->parts == NULL || before == NULL || PyList_Append(out->parts, before) < 0
        || PyList_Append(out->parts, value) < 0;
    Py_XDECREF(before);
    out->start = out->size;
    return failed ? -1 : 0;
}

static int write_struct(writer *out, const layout *of, PyObject *object);

static int write_single(writer *out, const field *of, PyObject *value)
{
    switch (of->type) {
    case STRUCT:
        return write_struct(out, of->inner, value);
    case STRING: case BYTES: case RECORDS:
        if (value == Py_None)
            return of->flags & NULLABLE ? put_length(out, of, 0, -1) : -1;
        return of->type == STRING ? write_string(out, of, value)
            : of->type == BYTES   ? write_bytes(out, of, value)
                                  : write_records(out, of, value);
    default:
        return write_number(out, of->type, value);
    }
}

/* The elements that encoded.py has encoded before, for this version only. */
static int write_encoded(writer *out, const field *of, PyObject *array)
{
    PyObject *version = PyObject_GetAttr(array, name_of_version);
    int is_ours = version == NULL ? -1 : PyObject_RichCompareBool(version, out->version, Py_EQ);
    Py_XDECREF(version);
    if (is_ours != 1 || put_length(out, of, 1, PyList_GET_SIZE(array)) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(array); i++) {
        PyObject *item = PyList_GET_ITEM(array, i);
        if (!PyBytes_CheckExact(item) || put(out, PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item)) < 0)
            return -1;
    }
    return 0;
}

/* Objects that Python code defines may change the array meanwhile: each access checks its size. */
static int write_array(writer *out, const field *of, PyObject *array)
{
    if (array == Py_None)
        return of->flags & NULLABLE ? put_length(out, of, 1, -1) : -1;
    if ((of->flags & PREENCODED) && (PyObject *)Py_TYPE(array) == out->encoded_array)
        return write_encoded(out, of, array);
    if (!PyList_CheckExact(array) && !PyTuple_CheckExact(array))
        return -1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(array);
    if (put_length(out, of, 1, count) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PySequence_Fast_GET_SIZE(array) != count)
            return -1;
        PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(array, i));
        int failed = write_single(out, of, item);
        Py_DECREF(item);
        if (failed)
            return -1;
    }
    return 0;
}

static int write_nullable_struct(writer *out, const field *of, PyObject *value, int is_tagged)
{
    if (value == Py_None)
        return put(out, is_tagged ? "\x00" : "\xff", 1);
    return put(out, "\x01", 1) < 0 ? -1 : write_struct(out, of->inner, value);
}

static int write_field(writer *out, const field *of, PyObject *object, int is_tagged)
{
    PyObject *value = *slot(object, of->offset);
    if (value == NULL)
        return -1;
    Py_INCREF(value);
    int failed;
    if (of->flags & ARRAY)
        failed = write_array(out, of, value);
    else if (of->type == STRUCT && (of->flags & NULLABLE))
        failed = write_nullable_struct(out, of, value, is_tagged);
    else
        failed = write_single(out, of, value);
    Py_DECREF(value);
    return failed;
}

/* Whether a value differs from the default of its field; -1 where that is not known. */
static int differs(const field *of, PyObject *value)
{
    Py_ssize_t size;
    switch (of->test) {
    case TRUTH: return PyObject_IsTrue(value);
    case NOT_EQUAL: return PyObject_RichCompareBool(value, of->compared, Py_NE);
    case NOT_NONE: return value != Py_None;
    case OTHER_STRUCT: return value == Py_None ? 0 : PyObject_RichCompareBool(value, of->compared, Py_NE);
    case NULL_OR_FULL:
        if (value == Py_None)
            return 1;
        size = PyObject_Size(value);
        return size < 0 ? -1 : size > 0;
    default: return 0;
    }
}

static int is_set(const field *of, PyObject *object)
{
    PyObject *value = *slot(object, of->offset);
    if (of->test == NO_TEST)
        return 0;
    if (value == NULL)
        return -1;
    Py_INCREF(value);
    int found = differs(of, value);
    Py_DECREF(value);
    return found;
}

/* Writes a tagged field; its size, which comes before it, is known last. */
static int write_tag(writer *out, const field *of, PyObject *object)
{
    if (put_varint(out, of->tag) < 0)
        return -1;
    Py_ssize_t start = out->size;
    if (write_field(out, of, object, 1) < 0 || out->size - start > INT32_MAX)
        return -1;
    uint8_t bytes[10];
    Py_ssize_t size = out->size - start;
    int width = varint(bytes, (uint64_t)size);
    if (extend(out, width) == NULL)
        return -1;
    memmove(out->data + start + width, out->data + start, (size_t)size);
    memcpy(out->data + start, bytes, (size_t)width);
    return 0;
}

static int write_tags(writer *out, const layout *of, PyObject *object)
{
    Py_ssize_t place = out->size;
    uint8_t count = 0; /* a varint of one byte: programs.py counts the tagged fields */
    if (put(out, &count, 1) < 0)
        return -1;
    for (Py_ssize_t i = of->absent; i < of->absent + of->tagged; i++) {
        int found = is_set(&of->fields[i], object);
        if (found < 0 || (found && write_tag(out, &of->fields[i], object) < 0))
            return -1;
        count += (uint8_t)found;
    }
    out->data[place] = count;
    return 0;
}

static int has_unknown_tags(const layout *of, PyObject *object)
{
    PyObject *tags = *slot(object, of->unknown_tags);
    return tags != Py_None && !(tags != NULL && PyList_CheckExact(tags) && PyList_GET_SIZE(tags) == 0);
}

static int write_struct(writer *out, const layout *of, PyObject *object)
{
    if (Py_TYPE(object) != of->type || has_unknown_tags(of, object))
        return -1;
    Py_ssize_t i = 0;
    for (; i < of->absent; i++)
        if (is_set(&of->fields[i], object) != 0)
            return -1;
    for (i += of->tagged; i < of->count; i++)
        if (write_field(out, &of->fields[i], object, 0) < 0)
            return -1;
    return of->is_flexible ? write_tags(out, of, object) : 0;
}

/* Appends the first part to the caller's buffer and returns all parts. */
static PyObject *finish(writer *out, PyObject *buffer)
{
    PyObject *parts = out->parts;
    if (parts == NULL) {
        if ((parts = out->parts = PyList_New(1)) == NULL)
            return NULL;
        out->first = out->size;
        PyList_SET_ITEM(parts, 0, Py_NewRef(buffer));
    } else {
        PyObject *last = buffer_from(out, out->start);
        int failed = last == NULL || PyList_Append(parts, last) < 0;
        Py_XDECREF(last);
        if (failed || PyList_SetItem(parts, 0, Py_NewRef(buffer)) < 0)
            return NULL;
    }
    Py_ssize_t before = PyByteArray_GET_SIZE(buffer);
    if (PyByteArray_Resize(buffer, before + out->first) < 0)
        return NULL;
    memcpy(PyByteArray_AS_STRING(buffer) + before, out->data, (size_t)out->first);
    return Py_NewRef(parts);
}

#endif
