/* Decodes and encodes messages: runs the table of fields that programs.py makes of one message in one version.
 *
 * The generated functions of decoding.py and encoding.py are the specification. A function here returns the same result
 * or fails; then the generated function runs from the start, with the same arguments, and makes the exact error. So
 * whatever is rare only fails here, and nothing outside the call may have changed by then.
 *
 * Fields are slots of the classes. They are read and written at their offset, which the limited API does not have.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

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

typedef struct {
    PyObject_HEAD
    PyObject *source; /* the tuples of the table: they own the objects to which it points */
    PyObject *encoded_array, *version, *decode, *decode_metered, *encode;
    int copies; /* the generated decoder copies the message, and a meter limits this copy */
    layout *root;
} program;

static PyObject *name_of_at_once, *name_of_charge, *name_of_version;

static PyObject **slot(PyObject *object, Py_ssize_t offset) { return (PyObject **)((char *)object + offset); }

/* -- numbers */

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

static uint64_t load(const uint8_t *at, int width)
{
    uint64_t value = 0;
    for (int i = 0; i < width; i++)
        value = value << 8 | at[i];
    return value;
}

static void store(uint8_t *at, uint64_t value, int width)
{
    for (int i = width - 1; i >= 0; i--, value >>= 8)
        at[i] = (uint8_t)value;
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

/* Lends the memory of an object whose items are single bytes for Python code, too. */
static int get_bytes(PyObject *object, Py_buffer *view)
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

/* -- decoding: every function returns NULL or -1 for bytes that the generated decoder has to read */

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

/* -- encoding: every function returns -1 for a value that the generated encoder has to write */

typedef struct {
    uint8_t *data;
    Py_ssize_t size, room;
    Py_ssize_t first, start; /* where the first part ends and the last begins, once there are parts */
    PyObject *parts;         /* NULL until there are records */
    const program *of;
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
    int is_ours = version == NULL ? -1 : PyObject_RichCompareBool(version, out->of->version, Py_EQ);
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
    if ((of->flags & PREENCODED) && (PyObject *)Py_TYPE(array) == out->of->encoded_array)
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

/* -- the type Program */

/* Whether the generated function has to run; not after an interrupt, which came from Python code that ran meanwhile. */
static int falls_back(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return 0;
    PyErr_Clear();
    return 1;
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
        result = Py_BuildValue("(Nn)", message, in->at - in->start);
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
    out.of = self;
    PyObject *result = NULL;
    if (PyByteArray_CheckExact(args[1]) && write_struct(&out, self->root, args[0]) == 0)
        result = finish(&out, args[1]);
    if (out.data != out.own)
        PyMem_Free(out.data);
    Py_XDECREF(out.parts);
    return result != NULL || !falls_back() ? result : PyObject_Vectorcall(self->encode, args, 2, NULL);
}

/* -- the table */

static void free_layout(layout *of)
{
    if (of == NULL)
        return;
    for (Py_ssize_t i = 0; i < of->count; i++)
        free_layout(of->fields[i].inner);
    PyMem_Free(of);
}

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
