/* The entries of one cache, in the order of their last use and, where dirty, of their last write.
 *
 * The reference implementation in lru_entries.py is the specification: same arguments, same result for every input, and
 * a test compares both. A read or a write looks a key up once, and moves its node in two linked lists.
 *
 * A count changes with each record, and the objects of its entry are spread over the memory: an entry that `count` has
 * changed is kept as numbers within its node, and becomes a tuple when it is read.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_FIELD 3 /* cache.py: SIZE */
#define FEWEST_BUCKETS 64
#define COUNT_BYTES 8

/* An entry of a count: ((count, latest), the bytes of the count, known, size, timestamp, ..., offset). */
typedef struct {
    long long count, latest, timestamp, offset;
    PyObject *known, *headers, *topic; /* owned */
    int partition;
} counted;

typedef struct node {
    struct node *chained;        /* the next node of the bucket */
    struct node *older, *newer;  /* by last use */
    struct node *before, *after; /* by last write, while dirty */
    PyObject *key;
    PyObject *entry; /* NULL where it is in `counted` */
    Py_hash_t hash;
    Py_ssize_t size;
    int dirty;
    counted counted;
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

/* -- entries of counts --------------------------------------------------------------------------------------------- */

static counted copy_of(const counted *from)
{
    counted to = *from;
    Py_XINCREF(to.known);
    Py_XINCREF(to.headers);
    Py_XINCREF(to.topic);
    return to;
}

/* By value: the owner has forgotten it already, since a finalizer may call methods of the table. */
static void release(counted from)
{
    Py_XDECREF(from.known);
    Py_XDECREF(from.headers);
    Py_XDECREF(from.topic);
}

/* The tuple of an entry. */
static PyObject *tuple_of(const counted *from, Py_ssize_t size)
{
    char bytes[8];
    unsigned long long rest = (unsigned long long)from->count;
    for (int at = 7; at >= 0; at--, rest >>= 8)
        bytes[at] = (char)(rest & 0xff);
    PyObject *count = PyLong_FromLongLong(from->count), *latest = PyLong_FromLongLong(from->latest);
    PyObject *cell = count == NULL || latest == NULL ? NULL : PyTuple_Pack(2, count, latest);
    PyObject *raw = PyBytes_FromStringAndSize(bytes, 8), *number = PyLong_FromSsize_t(size);
    PyObject *timestamp = PyLong_FromLongLong(from->timestamp), *partition = PyLong_FromLong(from->partition);
    PyObject *offset = PyLong_FromLongLong(from->offset), *entry = NULL;
    if (cell != NULL && raw != NULL && number != NULL && timestamp != NULL && partition != NULL && offset != NULL)
        entry = PyTuple_Pack(9, cell, raw, from->known, number, timestamp, from->headers, from->topic, partition,
                             offset);
    PyObject *const parts[] = {count, latest, cell, raw, number, timestamp, partition, offset};
    for (size_t at = 0; at < sizeof(parts) / sizeof(*parts); at++)
        Py_XDECREF(parts[at]);
    return entry;
}

/* An entry as a tuple, as a new reference. */
static PyObject *entry_of(const node *at)
{
    return at->entry != NULL ? Py_NewRef(at->entry) : tuple_of(&at->counted, at->size);
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
static node *set(lru_entries *self, PyObject *key, PyObject *entry, Py_ssize_t *grown, node *before)
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
    *before = *at;
    memset(&at->counted, 0, sizeof(counted));
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
    node before;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "a key and an entry are required");
        return NULL;
    }
    node *at = set(self, arguments[0], arguments[1], &grown, &before);
    if (at == NULL)
        return NULL;
    if (dirty)
        make_dirty(self, at);
    Py_XDECREF(before.entry); /* last: a finalizer may call methods of this object */
    release(before.counted);
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
    return entry_of(at);
}

static PyObject *put(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    return put_as(self, arguments, count, 1);
}

static PyObject *keep(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    return put_as(self, arguments, count, 0);
}

/* The entry of a node that was taken out, or (key, entry, dirty); frees the node. */
static PyObject *taken(node *at, PyObject *dirty)
{
    node last = *at;
    free(at);
    PyObject *entry = entry_of(&last), *found = entry;
    if (entry != NULL && dirty != NULL) {
        found = PyTuple_Pack(3, last.key, entry, dirty);
        Py_DECREF(entry);
    }
    Py_DECREF(last.key);
    Py_XDECREF(last.entry);
    release(last.counted);
    return found;
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
    return taken(take_out(self, link), NULL);
}

static PyObject *pop_oldest(PyObject *object, PyObject *Py_UNUSED(none))
{
    lru_entries *self = (lru_entries *)object;
    if (self->oldest == NULL)
        return Py_NewRef(Py_None);
    PyObject *dirty = self->oldest->dirty ? Py_True : Py_False;
    return taken(take_out(self, find(self, self->oldest->key, self->oldest->hash)), dirty);
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
        node last = *at;
        free(at);
        Py_XDECREF(last.key);
        Py_XDECREF(last.entry);
        release(last.counted);
        at = next;
    }
}

static PyObject *clear_all(PyObject *object, PyObject *Py_UNUSED(none))
{
    Py_ssize_t bytes = ((lru_entries *)object)->bytes;
    release_all((lru_entries *)object);
    return PyLong_FromSsize_t(bytes);
}

/* -- counts --------------------------------------------------------------------------------------------------------- */

/* The count and its time from the cell of an entry. 0 where the entry is a deletion, -1 with an exception set. */
static int read_cell(PyObject *entry, counted *into)
{
    PyObject *cell = PyTuple_GetItem(entry, 0), *count, *latest;
    if (cell == NULL || cell == Py_None)
        return cell == NULL ? -1 : 0;
    if ((count = PyTuple_GetItem(cell, 0)) == NULL || (latest = PyTuple_GetItem(cell, 1)) == NULL)
        return -1;
    into->count = PyLong_AsLongLong(count);
    into->latest = PyLong_AsLongLong(latest);
    return PyErr_Occurred() != NULL ? -1 : 1;
}

static PyObject *count(PyObject *object, PyObject *const *arguments, Py_ssize_t given)
{
    lru_entries *self = (lru_entries *)object;
    Py_hash_t hash;
    if (given != 8) {
        PyErr_SetString(PyExc_TypeError, "count takes eight arguments");
        return NULL;
    }
    if (hash_of(arguments[0], &hash) < 0)
        return NULL;
    node *at = *find(self, arguments[0], hash);
    if (at == NULL)
        return Py_NewRef(Py_None);
    use(self, at);
    counted next = at->counted;
    int is_count = at->entry == NULL ? 1 : read_cell(at->entry, &next);
    if (is_count <= 0)
        return is_count < 0 ? NULL : Py_NewRef(Py_None);
    Py_ssize_t size = PyLong_AsSsize_t(arguments[2]);
    long partition = PyLong_AsLong(arguments[6]);
    next.timestamp = PyLong_AsLongLong(arguments[3]);
    next.offset = PyLong_AsLongLong(arguments[7]);
    if (PyErr_Occurred() != NULL)
        return NULL;
    if (next.count == LLONG_MAX || partition < INT_MIN || partition > INT_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the count is too large");
        return NULL;
    }
    next.count++;
    next.partition = (int)partition;
    if (next.timestamp > next.latest)
        next.latest = next.timestamp;
    next.known = Py_NewRef(arguments[1]);
    next.headers = Py_NewRef(arguments[4]);
    next.topic = Py_NewRef(arguments[5]);
    counted before = at->counted;
    PyObject *entry = at->entry;
    Py_ssize_t grown = size + COUNT_BYTES - at->size;
    at->counted = next;
    at->entry = NULL;
    at->size += grown;
    self->bytes += grown;
    make_dirty(self, at);
    Py_XDECREF(entry); /* last: a finalizer may call methods of this object */
    release(before);
    return PyLong_FromSsize_t(grown);
}

#define VISIT_NODE(at)               \
    do {                             \
        Py_VISIT((at)->entry);           \
        Py_VISIT((at)->counted.known);   \
        Py_VISIT((at)->counted.headers); \
        Py_VISIT((at)->counted.topic);   \
    } while (0)

/* -- rows that are taken ------------------------------------------------------------------------------------------- */

/* An iterator: it has copies of the entries, since the cache changes while they are written, and makes a tuple of one
 * when that is next, so that few of them exist at a time.
 */
typedef struct {
    PyObject_HEAD
    node *rows;
    Py_ssize_t at, count;
} taken_rows;

static PyObject *next_row(PyObject *object)
{
    taken_rows *self = (taken_rows *)object;
    if (self->at == self->count)
        return NULL;
    node *row = &self->rows[self->at++], last = *row;
    memset(row, 0, sizeof(node));
    PyObject *entry = entry_of(&last);
    PyObject *found = entry == NULL ? NULL : PyTuple_Pack(2, last.key, entry);
    Py_XDECREF(entry);
    Py_DECREF(last.key);
    Py_XDECREF(last.entry);
    release(last.counted);
    return found;
}

static int clear_rows(PyObject *object)
{
    taken_rows *self = (taken_rows *)object;
    while (self->at < self->count) {
        node *row = &self->rows[self->at++], last = *row;
        memset(row, 0, sizeof(node));
        Py_XDECREF(last.key);
        Py_XDECREF(last.entry);
        release(last.counted);
    }
    return 0;
}

static int traverse_rows(PyObject *object, visitproc visit, void *arg)
{
    taken_rows *self = (taken_rows *)object;
    for (Py_ssize_t at = self->at; at < self->count; at++)
        VISIT_NODE(&self->rows[at]);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static void dealloc_rows(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear_rows(object);
    free(((taken_rows *)object)->rows);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyType_Slot slots_of_rows[] = {
    {Py_tp_doc, "Taken rows; see lru_entries.py."},
    {Py_tp_dealloc, dealloc_rows},
    {Py_tp_traverse, traverse_rows},
    {Py_tp_clear, clear_rows},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, next_row},
    {0, NULL},
};

static PyType_Spec spec_of_rows = {
    "odradek.streams.stores._lru_entries.TakenRows", sizeof(taken_rows), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots_of_rows,
};

static int is_deletion(const node *at)
{
    return at->entry != NULL && PyTuple_GetItem(at->entry, 0) == Py_None;
}

static PyObject *take_dirty(PyObject *object, PyTypeObject *defining, PyObject *const *Py_UNUSED(arguments),
                            Py_ssize_t Py_UNUSED(given), PyObject *Py_UNUSED(names))
{
    lru_entries *self = (lru_entries *)object;
    PyTypeObject *type = *(PyTypeObject **)PyType_GetModuleState(defining);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *deleted = PyList_New(0);
    taken_rows *rows = deleted == NULL ? NULL : (taken_rows *)allocate(type, 0);
    if (rows == NULL) {
        Py_XDECREF(deleted);
        return NULL;
    }
    PyObject *found = PyTuple_Pack(2, (PyObject *)rows, deleted); /* first: it may start a search for garbage */
    Py_DECREF(rows);
    Py_DECREF(deleted);
    if (found == NULL || self->dirty == 0)
        return found;
    rows->rows = malloc((size_t)self->dirty * sizeof(node));
    if (rows->rows == NULL) {
        Py_DECREF(found);
        return PyErr_NoMemory();
    }
    while (self->first_dirty != NULL) {
        node *first = self->first_dirty, *row = &rows->rows[rows->count++];
        make_clean(self, first);
        *row = *first;
        Py_INCREF(row->key);
        Py_XINCREF(row->entry);
        row->counted = copy_of(&first->counted);
        if (is_deletion(first) && PyList_Append(deleted, first->key) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
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
        VISIT_NODE(at);
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
    {"count", FAST(count), "Add one to the count of a key; returns the growth in bytes, None without a count."},
    {"pop", pop, METH_O, "Remove an entry and return it; None."},
    {"pop_oldest", pop_oldest, METH_NOARGS, "Remove the least recently used entry: key, entry, dirty; None."},
    {"take_dirty", (PyCFunction)(void (*)(void))take_dirty, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
     "The dirty rows in the order of their last writes, clean from now on, and the keys of deletions."},
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
    PyObject **rows = PyModule_GetState(module);
    PyObject *type = PyType_FromModuleAndSpec(module, &spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "LruEntries", type);
    Py_DECREF(type);
    *rows = PyType_FromModuleAndSpec(module, &spec_of_rows, NULL);
    return *rows == NULL ? -1 : failed;
}

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
    Py_VISIT(*(PyObject **)PyModule_GetState(module));
    return 0;
}

static int clear_module(PyObject *module)
{
    Py_CLEAR(*(PyObject **)PyModule_GetState(module));
    return 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, populate},
    {0, NULL},
};

/* The state of the module is the type of taken rows. */
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_lru_entries", NULL, sizeof(PyObject *), NULL, slots, traverse_module, clear_module, NULL,
};

PyMODINIT_FUNC PyInit__lru_entries(void) { return PyModuleDef_Init(&module); }
