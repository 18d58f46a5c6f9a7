"""Operators of tables: sources, filter, map_values, transform_values, and changes of keys (Kafka:
KTableProcessorSupplier).

A row travels as `Change(new, old)`. Each operator follows three rules of Kafka's (KTableProcessorSupplier):

- old values are computed only if a node downstream requires them (`enable_sending_old_values`);
- with a store of its own, the operator writes the new value there, takes the old one from there, and leaves forwarding
  to the store's cache if it has one (TimestampedTupleForwarder);
- a lookup of a key (`view`) reads the nearest store upstream, through the operators in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.streams.errors import StreamsError
from odradek.streams.functions import with_key
from odradek.streams.nodes import NodeContext, looking_context
from odradek.streams.processor import ProcessorContext
from odradek.streams.records import NO_TIMESTAMP, Change, Headers, LateChange, Process, Stamped, make_tuple
from odradek.streams.stores.interface import PUT_NOT_DONE, VALID_TO_UNDEFINED, VersionedKeyValueStore

if TYPE_CHECKING:
    from odradek.streams.dsl.ktable import KTable
    from odradek.streams.dsl.materialization import Materialization

Getter = Callable[[Any], "Stamped | None"]
"""A function that returns the current value of a key and its timestamp."""
GetterAsOf = Callable[[Any, int], "Stamped | None"]
"""A function that returns the value of a key at a time in ms."""
StoreRead = Callable[[Any], Any]


class View(Protocol):
    """The lookups of a table by an operator downstream (KTableValueGetterSupplier)."""

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores that a node has to be connected to for it."""

    @property
    def versioned(self) -> bool:
        """Whether get_as_of() is supported. Decided when the topology is bound."""

    def get(self, node: NodeContext) -> Getter:
        """The lookup of one task's node."""

    def get_as_of(self, node: NodeContext) -> GetterAsOf:
        """The lookup at an earlier time. Raises StreamsError where the table has no versions."""


class WithoutPast:
    """The common part of views of tables without versions."""

    versioned = False

    def get_as_of(self, node: NodeContext) -> GetterAsOf:
        """Raises StreamsError."""
        raise StreamsError("only a table in a versioned store has earlier versions")


class TableSupplier(Protocol):
    """The operator that produces a KTable."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""

    def enable_sending_old_values(self, force: bool) -> bool:
        """See KTable.enable_sending_old_values."""

    def view(self) -> View:
        """See KTable.view."""


# ---- stores


class TableStore:
    """The operator's access to a table's store, with versions or without (KeyValueStoreWrapper)."""

    __slots__ = ("_store", "get", "put", "versioned")

    def __init__(self, store: Any) -> None:
        self._store = store
        self.versioned = isinstance(store, VersionedKeyValueStore)
        self.get: Getter = self._get_versioned if self.versioned else store.get
        """The value of a key and its timestamp."""
        self.put: Callable[[Any, Any, int], int] = store.put if self.versioned else self._put
        """Set a value as of a time. Returns PUT_NOT_DONE, VALID_TO_UNDEFINED for the latest version, or its end of
        validity.
        """

    def _get_versioned(self, key: Any) -> Stamped | None:
        found = self._store.get(key)
        return None if found is None else (found.value, found.timestamp)

    def get_as_of(self, key: Any, timestamp: int) -> Stamped | None:
        """The value of a key at an earlier time."""
        found = self._store.get(key, timestamp)
        return None if found is None else (found.value, found.timestamp)

    def _put(self, key: Any, value: Any, timestamp: int) -> int:
        self._store.put(key, None if value is None else (value, timestamp))
        return VALID_TO_UNDEFINED


class StoreView:
    """A table that is in a store."""

    def __init__(self, store: str, versioned: bool = False) -> None:
        self._store = store
        self.stores = (store,)
        self.versioned = versioned

    def get(self, node: NodeContext) -> Getter:
        """The store's own lookup."""
        return TableStore(node.store(self._store)).get

    def get_as_of(self, node: NodeContext) -> GetterAsOf:
        """The store's own lookup."""
        return TableStore(node.store(self._store)).get_as_of


def forwarder(node: NodeContext, store: Any, sends_old_values: bool) -> Process:
    """The function with which an operator with a store forwards a change (TimestampedTupleForwarder).

    It does nothing where the store has a cache, which forwards when it is flushed; otherwise it forwards to the
    children, without the old value unless a node downstream requires it.
    """
    forward = node.forward

    def flushed(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        forward(key, make_tuple(Change, (new, old)), timestamp, headers)

    if store.set_flush_listener(flushed, sends_old_values):
        return cache_forwards
    if sends_old_values:
        return forward

    def without_old(key: Any, change: Any, timestamp: int, headers: Headers) -> None:
        forward(key, change if change[1] is None else type(change)(change[0], None), timestamp, headers)

    return without_old


def cache_forwards(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """The forwarder where the store's cache forwards changes: no effect."""


# ---- source tables


class TableSource:
    """The records of a topic, or of a stream, as the rows of a table (KTableSource)."""

    def __init__(self, stated: Materialization) -> None:
        """The table has a store if the user named it, or its rows expire, or as soon as an operator requires one."""
        assert stated.store_name is not None
        self.store = stated.store_name
        self.materialized = stated.queryable_name is not None or stated.ttl is not None
        self.versioned = stated.versioned
        self._sends_old_values = False

    def materialize(self) -> None:
        """Give the table a store."""
        self.materialized = True

    def enable_sending_old_values(self, force: bool) -> bool:
        """Request a store; creates one if allowed."""
        if not force and not self.materialized:
            return False
        self.materialized = self._sends_old_values = True
        return True

    def view(self) -> View:
        """The name of the store; the table has one from now on."""
        self.materialize()
        return StoreView(self.store, self.versioned)

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward, dropped = node.forward, node.dropped
        if self.materialized:
            return self._bind_stored(node)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                dropped()
                return
            forward(key, Change(value, None), timestamp, headers)

        return process

    def _bind_stored(self, node: NodeContext) -> Process:
        task, dropped = node.task, node.dropped
        opened = node.store(self.store)
        forward = forwarder(node, opened, self._sends_old_values)
        store = TableStore(opened)
        get, put = store.get, store.put

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                dropped()
                return
            task.timestamp, task.headers = timestamp, headers
            old = get(key)
            result = put(key, value, timestamp)
            if result == PUT_NOT_DONE:
                return
            kind = Change if result == VALID_TO_UNDEFINED else LateChange
            forward(key, kind(value, None if old is None else old[0]), timestamp, headers)

        def process_cached(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                dropped()
                return
            task.timestamp, task.headers = timestamp, headers
            put(key, value, timestamp)

        return process_cached if forward is cache_forwards else process


# ---- computed tables


class _Derived(ABC):
    """A table computed row by row from its parent."""

    def __init__(self, parent: KTable[Any, Any], queryable: str | None) -> None:
        """`queryable` is the name of the table's own store, if any."""
        self.parent = parent
        self.queryable = queryable
        self.sends_old_values = False

    def enable_sending_old_values(self, force: bool) -> bool:
        """No effect with an own store, which has them; otherwise the parent sends them."""
        if self.queryable is not None or self.parent.enable_sending_old_values(force):
            self.sends_old_values = True
        return self.sends_old_values

    def view(self) -> View:
        """The own store, or the parent's view with the operator on top."""
        if self.queryable is not None:
            return StoreView(self.queryable)
        return _ComputedView(self.parent.view(), self.compute)

    @abstractmethod
    def compute(self, node: NodeContext) -> Callable[[Any, Any], Any]:
        """The function of (key, value) from a row of the parent to one of this table."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        compute = self.compute(node)
        if self.queryable is not None:
            return self._bind_stored(node, compute)
        forward, sends_old_values = node.forward, self.sends_old_values
        drops_nothing = self.drops_nothing

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new = compute(key, value[0])
            old = compute(key, value[1]) if sends_old_values else None
            if drops_nothing or new is not None or old is not None:
                forward(key, type(value)(new, old), timestamp, headers)

        return process

    @property
    def drops_nothing(self) -> bool:
        """Whether a change from null to null is forwarded."""
        return True

    def _bind_stored(self, node: NodeContext, compute: Callable[[Any, Any], Any]) -> Process:
        task, sends_old_values, drops_nothing = node.task, self.sends_old_values, self.drops_nothing
        opened = node.store(self.queryable or "")
        forward = forwarder(node, opened, sends_old_values)
        store = TableStore(opened)
        get, put = store.get, store.put

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            new = compute(key, value[0])
            found = get(key) if sends_old_values else None
            old = None if found is None else found[0]
            if not drops_nothing and new is None and old is None:
                return
            task.timestamp, task.headers = timestamp, headers
            result = put(key, new, timestamp)
            if result == PUT_NOT_DONE:
                return
            kind = Change if result == VALID_TO_UNDEFINED else LateChange
            forward(key, kind(new, old), timestamp, headers)

        return process


class _ComputedView:
    """The parent's rows, computed at each lookup. The timestamp is the parent's."""

    def __init__(self, parent: View, compute: Callable[[NodeContext], Callable[[Any, Any], Any]]) -> None:
        self._parent = parent
        self._compute = compute
        self.stores = parent.stores
        self.versioned = parent.versioned

    def get(self, node: NodeContext) -> Getter:
        """The lookup of one task's node."""
        get, compute = self._parent.get(node), self._compute(node)

        def lookup(key: Any) -> Stamped | None:
            found = get(key)
            value = compute(key, None if found is None else found[0])
            if value is None:
                return None
            return value, NO_TIMESTAMP if found is None else found[1]

        return lookup

    def get_as_of(self, node: NodeContext) -> GetterAsOf:
        """The lookup at an earlier time."""
        get, compute = self._parent.get_as_of(node), self._compute(node)

        def lookup(key: Any, timestamp: int) -> Stamped | None:
            found = get(key, timestamp)
            value = compute(key, None if found is None else found[0])
            if value is None:
                return None
            return value, NO_TIMESTAMP if found is None else found[1]

        return lookup


class KTableFilter(_Derived):
    """The rows for which a predicate holds (KTableFilter)."""

    def __init__(
        self, parent: KTable[Any, Any], predicate: Callable[..., bool], negate: bool, queryable: str | None
    ) -> None:
        super().__init__(parent, queryable)
        self._predicate = with_key(predicate)
        self._negate = negate
        # With the old value from an existing store, the operator sends no deletion of a row that it never forwarded.
        self.sends_old_values = parent.enable_sending_old_values(False)

    @property
    def drops_nothing(self) -> bool:
        """A change from no row to no row is dropped, unless it may change an older version."""
        return not self.sends_old_values or self.parent.versioned

    def compute(self, node: NodeContext) -> Callable[[Any, Any], Any]:
        """The value, or None."""
        predicate, negate = self._predicate, self._negate

        def keep(key: Any, value: Any) -> Any:
            return value if value is not None and bool(predicate(key, value)) is not negate else None

        return keep


class KTableMapValues(_Derived):
    """Maps the value of each row (KTableMapValues)."""

    def __init__(self, parent: KTable[Any, Any], mapper: Callable[..., Any], queryable: str | None) -> None:
        super().__init__(parent, queryable)
        self._mapper = with_key(mapper)

    def compute(self, node: NodeContext) -> Callable[[Any, Any], Any]:
        """The mapper, which is not called for null."""
        mapper = self._mapper

        def mapped(key: Any, value: Any) -> Any:
            return None if value is None else mapper(key, value)

        return mapped


class ValueTransformer(ABC):
    """Computes the values of a table with stores and punctuators (ValueTransformerWithKey). Override it."""

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called once before the first row."""
        self.context = context

    @abstractmethod
    def transform(self, key: Any, value: Any) -> Any:
        """The value for a row, which may be null; the key is read-only."""

    def close(self) -> None:  # noqa: B027 - few have anything to close
        """Called once when the task closes."""


class KTableTransformValues(_Derived):
    """Maps the value of each row with a ValueTransformer (KTableTransformValues)."""

    def __init__(
        self, parent: KTable[Any, Any], supplier: Callable[[], ValueTransformer], queryable: str | None
    ) -> None:
        super().__init__(parent, queryable)
        self._supplier = supplier
        self.brings = tuple(getattr(supplier, "stores", None) or ())

    @property
    def stores(self) -> tuple[Any, ...]:
        """The builders of the supplier's stores (KIP-401)."""
        return self.brings

    def compute(self, node: NodeContext) -> Callable[[Any, Any], Any]:
        """A transformer for this node alone; lookups from downstream have their own."""
        transformer = self._supplier()
        node.on_life(lambda: transformer.init(looking_context(node)), transformer.close)
        return transformer.transform


class RepartitionMap:
    """Moves each row to another key: deletes it from the old key, adds it to the new one (KTableRepartitionMap)."""

    def __init__(self, parent: KTable[Any, Any], selector: Callable[..., tuple[Any, Any]]) -> None:
        self._parent = parent
        self._selector = with_key(selector)

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        select, forward = self._selector, node.forward
        only_latest = self._parent.versioned
        together = not sends_apart(node.task.config.get("upgrade.from"))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise StreamsError("Record key for the grouping KTable should not be null.")
            if only_latest and type(value) is LateChange:
                return
            new, old = value
            new_key, new_value = (None, None) if new is None else select(key, new)
            old_key, old_value = (None, None) if old is None else select(key, old)
            is_new = new_key is not None and new_value is not None
            is_old = old_key is not None and old_value is not None
            if together and is_new and is_old and new_key == old_key:
                forward(new_key, type(value)(new_value, old_value), timestamp, headers)
                return
            if is_old:
                forward(old_key, type(value)(None, old_value), timestamp, headers)
            if is_new:
                forward(new_key, type(value)(new_value, None), timestamp, headers)

        return process


def sends_apart(upgrade_from: Any) -> bool:
    """Whether instances of a release before 3.5 may be in the group: they cannot read both values in one record."""
    if not upgrade_from:
        return False
    major, _, minor = str(upgrade_from).partition(".")
    return (int(major), int(minor.partition(".")[0] or 0)) < (3, 5)
