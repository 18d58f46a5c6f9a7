/* The entries of one cache, in the order of their last use and, where dirty, of their last write.
 *
 * The reference implementation in lru_entries.py is the specification: same arguments, same result for every input, and
 * a test compares both. A read or a write looks a key up once, and moves its node in two linked lists.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_FIELD 3 /* cache.py: SIZE */
#define FEWEST_BUCKETS 64

typedef struct node {
    struct node *chained;        /* the next node of the bucket */
    struct node *older, *newer;  /* by last use */
    struct node *before, *after; /* by last write, while dirty */
    PyObject *key, *entry;
    Py_hash_t hash;
    Py_ssize_t size;
    int dirty;
} node;

typedef struct {
    PyObject_HEAD
    node **buckets;
    size_t count; /* of buckets: a power of two */
    size_t used;
    Py_ssize_t bytes;
    node *oldest, *newest, *first_dirty, *last_dirty;
    Py_ssize_t dirty;
} lru_entries;

/* -- the two orders ------------------------------------------------------------------------------------------------ */

static void unlink_use(lru_entries *self, node *at)
{
    if (at->older != NULL) at->older->newer = at->newer; else self->oldest = at->newer;
    if (at->newer != NULL) at->newer->older = at->older; else self->newest = at->older;
}

static void link_newest(lru_entries *self, node *at)
{
    at->older = self->newest;
    at->newer = NULL;
    if (self->newest != NULL) self->newest->newer = at; else self->oldest = at;
    self->newest = at;
}

static void use(lru_entries *self, node *at)
{
    if (self->newest != at) {
        unlink_use(self, at);
        link_newest(self, at);
    }
}

static void make_clean(lru_entries *self, node *at)
{
    if (!at->dirty)
        return;
    if (at->before != NULL) at->before->after = at->after; else self->first_dirty = at->after;
    if (at->after != NULL) at->after->before = at->before; else self->last_dirty = at->before;
    at->dirty = 0;
    self->dirty--;
}

static void make_dirty(lru_entries *self, node *at)
{
    make_clean(self, at); /* its place is that of its last write */
    at->before = self->last_dirty;
    at->after = NULL;
    if (self->last_dirty != NULL) self->last_dirty->after = at; else self->first_dirty = at;
    self->last_dirty = at;
    at->dirty = 1;
    self->dirty++;
}

/* -- the hash table ------------------------------------------------------------------------------------------------ */

static int hash_of(PyObject *key, Py_hash_t *hash)
{
    if (!PyBytes_Check(key)) {
        PyErr_SetString(PyExc_TypeError, "a key of a cache is bytes");
        return -1;
    }
    *hash = PyObject_Hash(key);
    return 0;
}

static int is_equal(PyObject *one, PyObject *other)
{
    if (one == other)
        return 1;
    Py_ssize_t length = PyBytes_Size(one);
    return length == PyBytes_Size(other) && memcmp(PyBytes_AsString(one), PyBytes_AsString(other), (size_t)length) == 0;
}

/* The link that points to the node of this key, or the NULL where it belongs. */
static node **find(lru_entries *self, PyObject *key, Py_hash_t hash)
{
    node **link = &self->buckets[(size_t)hash & (self->count - 1)];
    while (*link != NULL && ((*link)->hash != hash || !is_equal((*link)->key, key)))
        link = &(*link)->chained;
    return link;
}

static int grow(lru_entries *self)
{
    size_t count = self->count * 2;
    node **buckets = calloc(count, sizeof(node *));
    if (buckets == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (node *at = self->oldest; at != NULL; at = at->newer) {
        node **bucket = &buckets[(size_t)at->hash & (count - 1)];
        at->chained = *bucket;
        *bucket = at;
    }
    free(self->buckets);
    self->buckets = buckets;
    self->count = count;
    return 0;
}

/* Takes a node out; the caller owns it and its two references then. */
static node *take_out(lru_entries *self, node **link)
{
    node *at = *link;
    *link = at->chained;
    unlink_use(self, at);
    make_clean(self, at);
    self->used--;
    self->bytes -= at->size;
    return at;
}

/* The node of this key with this entry, now the most recently used one. NULL with an exception set. */
static node *set(lru_entries *self, PyObject *key, PyObject *entry, Py_ssize_t *grown, PyObject **before)
{
    Py_hash_t hash;
    PyObject *number = PyTuple_Check(entry) ? PyTuple_GetItem(entry, SIZE_FIELD) : NULL;
    if (number == NULL || hash_of(key, &hash) < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "an entry of a cache is a tuple");
        return NULL;
    }
    Py_ssize_t size = PyLong_AsSsize_t(number);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    node **link = find(self, key, hash), *at = *link;
    if (at == NULL) {
        if (self->used >= self->count) {
            if (grow(self) < 0)
                return NULL;
            link = find(self, key, hash);
        }
        at = calloc(1, sizeof(node));
        if (at == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        at->key = Py_NewRef(key);
        at->hash = hash;
        *link = at;
        link_newest(self, at);
        self->used++;
    }
    else {
        use(self, at);
    }
    *before = at->entry;
    at->entry = Py_NewRef(entry);
    *grown = size - at->size;
    at->size = size;
    self->bytes += *grown;
    return at;
}

static PyObject *put_as(PyObject *object, PyObject *const *arguments, Py_ssize_t count, int dirty)
{
    lru_entries *self = (lru_entries *)object;
    Py_ssize_t grown;
    PyObject *before;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "a key and an entry are required");
        return NULL;
    }
    node *at = set(self, arguments[0], arguments[1], &grown, &before);
    if (at == NULL)
        return NULL;
    if (dirty)
        make_dirty(self, at);
    Py_XDECREF(before); /* last: a finalizer may call methods of this object */
    return PyLong_FromSsize_t(grown);
}

/* -- methods ------------------------------------------------------------------------------------------------------- */

static PyObject *get(PyObject *object, PyObject *key)
{
    lru_entries *self = (lru_entries *)object;
    Py_hash_t hash;
    if (hash_of(key, &hash) < 0)
        return NULL;
    node *at = *find(self, key, hash);
    if (at == NULL)
        return Py_NewRef(Py_None);
    use(self, at);
    return Py_NewRef(at->entry);
}

static PyObject *put(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    return put_as(self, arguments, count, 1);
}

static PyObject *keep(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    return put_as(self, arguments, count, 0);
}

static PyObject *pop(PyObject *object, PyObject *key)
{
    lru_entries *self = (lru_entries *)object;
    Py_hash_t hash;
    if (hash_of(key, &hash) < 0)
        return NULL;
    node **link = find(self, key, hash);
    if (*link == NULL)
        return Py_NewRef(Py_None);
    node *at = take_out(self, link);
    PyObject *entry = at->entry;
    Py_DECREF(at->key);
    free(at);
    return entry;
}

static PyObject *pop_oldest(PyObject *object, PyObject *Py_UNUSED(none))
{
    lru_entries *self = (lru_entries *)object;
    if (self->oldest == NULL)
        return Py_NewRef(Py_None);
    int dirty = self->oldest->dirty;
    node *at = take_out(self, find(self, self->oldest->key, self->oldest->hash));
    PyObject *found = Py_BuildValue("(NNO)", at->key, at->entry, dirty ? Py_True : Py_False);
    free(at);
    return found;
}

static PyObject *take_dirty(PyObject *object, PyObject *Py_UNUSED(none))
{
    lru_entries *self = (lru_entries *)object;
    PyObject *rows = PyList_New(0);
    while (rows != NULL && self->first_dirty != NULL) {
        node *first = self->first_dirty;
        make_clean(self, first); /* first: a new tuple may start a search for garbage, whose finalizers call back */
        PyObject *row = Py_BuildValue("(OO)", first->key, first->entry);
        if (row == NULL || PyList_Append(rows, row) < 0)
            Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    return rows;
}

static PyObject *keys(PyObject *object, PyObject *Py_UNUSED(none))
{
    PyObject *found = PyList_New(0);
    for (node *at = ((lru_entries *)object)->oldest; at != NULL && found != NULL; at = at->newer)
        if (PyList_Append(found, at->key) < 0)
            Py_CLEAR(found);
    return found;
}

static void release_all(lru_entries *self)
{
    node *at = self->oldest;
    self->oldest = self->newest = self->first_dirty = self->last_dirty = NULL;
    self->used = 0;
    self->bytes = self->dirty = 0;
    if (self->buckets != NULL)
        memset(self->buckets, 0, self->count * sizeof(node *));
    while (at != NULL) {
        node *next = at->newer;
        Py_XDECREF(at->key);
        Py_XDECREF(at->entry);
        free(at);
        at = next;
    }
}

static PyObject *clear_all(PyObject *object, PyObject *Py_UNUSED(none))
{
    Py_ssize_t bytes = ((lru_entries *)object)->bytes;
    release_all((lru_entries *)object);
    return PyLong_FromSsize_t(bytes);
}

/* -- the type ------------------------------------------------------------------------------------------------------ */

static Py_ssize_t length(PyObject *self) { return (Py_ssize_t)((lru_entries *)self)->used; }

static int contains(PyObject *object, PyObject *key)
{
    Py_hash_t hash;
    if (hash_of(key, &hash) < 0)
        return -1;
    return *find((lru_entries *)object, key, hash) != NULL;
}

static int init(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    lru_entries *self = (lru_entries *)object;
    if (PyTuple_Size(arguments) != 0 || (keywords != NULL && PyDict_Size(keywords) != 0)) {
        PyErr_SetString(PyExc_TypeError, "LruEntries takes no arguments");
        return -1;
    }
    release_all(self);
    return 0;
}

static PyObject *new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords))
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    lru_entries *self = (lru_entries *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->count = FEWEST_BUCKETS;
    self->buckets = calloc(self->count, sizeof(node *));
    if (self->buckets == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    for (node *at = ((lru_entries *)object)->oldest; at != NULL; at = at->newer)
        Py_VISIT(at->entry);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static int clear_references(PyObject *self)
{
    release_all((lru_entries *)self);
    return 0;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    release_all((lru_entries *)self);
    free(((lru_entries *)self)->buckets);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

static PyMethodDef methods[] = {
    {"get", get, METH_O, "An entry, which counts as a use; None."},
    {"put", FAST(put), "Set a dirty entry; returns the growth in bytes."},
    {"keep", FAST(keep), "Set an entry that is not made dirty; returns the growth in bytes."},
    {"pop", pop, METH_O, "Remove an entry and return it; None."},
    {"pop_oldest", pop_oldest, METH_NOARGS, "Remove the least recently used entry: key, entry, dirty; None."},
    {"take_dirty", take_dirty, METH_NOARGS, "The dirty rows in the order of their last writes, clean from now on."},
    {"keys", keys, METH_NOARGS, "The keys in the order of their last use."},
    {"clear", clear_all, METH_NOARGS, "Remove all entries; returns their bytes."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots_of_type[] = {
    {Py_tp_doc, "The entries of one cache; see lru_entries.py."},
    {Py_tp_new, new},
    {Py_tp_init, init},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_clear, clear_references},
    {Py_mp_length, length},
    {Py_sq_contains, contains},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    "odradek.streams.stores._lru_entries.LruEntries", sizeof(lru_entries), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots_of_type,
};

static int populate(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "LruEntries", type);
    Py_DECREF(type);
    return failed;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, populate},
    {0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_lru_entries", NULL, 0, NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__lru_entries(void) { return PyModuleDef_Init(&module); }
