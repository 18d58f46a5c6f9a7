"""Joins of two tables by their keys: inner, left and outer (Kafka: KTableKTableInnerJoin and its siblings).

A change on one side is joined with the current row of the other side; the result has the later timestamp of both. Each
side of a join is an operator of its own, and a third operator, which follows both, stores the result where it has a
store. Changes of older versions of a versioned table are dropped (KIP-914).

    INNER   both rows are required
    LEFT    this side's row is required
    RIGHT   the other side's row is required: the right side of a left join
    OUTER   one of both is required
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Protocol

from odradek.streams.java_order import hash_set_order
from odradek.streams.nodes import NodeContext
from odradek.streams.operators.table import Getter, StoreView, TableStore, View, WithoutPast, forwarder
from odradek.streams.records import NO_TIMESTAMP, Change, Headers, LateChange, Process, Stamped
from odradek.streams.stores.interface import PUT_NOT_DONE, VALID_TO_UNDEFINED

Join = Callable[[Any, Any], Any]
"""A function of the value of this side and the value of the other."""


class Table(Protocol):
    """The table operations that a join requires."""

    def enable_sending_old_values(self, force: bool) -> bool:
        """Make changes carry old values."""

    def view(self) -> View:
        """The lookups of the table's rows."""


class Kind(enum.Enum):
    """The side whose row is required for a result."""

    INNER = enum.auto()
    LEFT = enum.auto()
    RIGHT = enum.auto()
    OUTER = enum.auto()

    @property
    def needs_this(self) -> bool:
        """Whether there is no result without this side's row."""
        return self in (Kind.INNER, Kind.LEFT)

    @property
    def needs_other(self) -> bool:
        """Whether there is no result without the other side's row."""
        return self in (Kind.INNER, Kind.RIGHT)


class TableJoin:
    """One side of a join of tables."""

    def __init__(self, kind: Kind, this: Table, other: Table, join: Join, *, versioned: bool = False) -> None:
        """`join` is of this side's value and the other's; `versioned` drops changes of older versions of this table."""
        self._kind = kind
        self._tables = (this, other)
        self._views = (this.view(), other.view())
        self._join = join
        self.versioned = versioned
        self.send_old_values = False

    def enable_sending_old_values(self, force: bool) -> bool:
        """Both tables have to send their old values for that."""
        for table in self._tables:
            table.enable_sending_old_values(True)
        self.send_old_values = True
        return True

    def view(self) -> View:
        """Rows that are joined at each lookup."""
        return _JoinView(self._kind, *self._views, self._join)

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        make = {Kind.INNER: self._inner, Kind.LEFT: self._left, Kind.RIGHT: self._right, Kind.OUTER: self._outer}
        process = make[self._kind](node, self._views[1].get(node))
        return self._checked(node, process)

    def _checked(self, node: NodeContext, process: Process) -> Process:
        dropped, versioned = node.dropped, self.versioned

        def checked(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            if key is None or (versioned and not change.is_latest):
                dropped()
                return
            process(key, change, timestamp, headers)

        return checked

    def _inner(self, node: NodeContext, get: Getter) -> Process:
        forward, join, send_old = node.forward, self._join, self.send_old_values

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            row = get(key)
            if row is None:
                return
            new, old = change
            other, other_time = row
            joined = None if new is None else join(new, other)
            before = join(old, other) if send_old and old is not None else None
            forward(key, Change(joined, before), max(timestamp, other_time), headers)

        return process

    def _left(self, node: NodeContext, get: Getter) -> Process:
        forward, join, send_old = node.forward, self._join, self.send_old_values

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            row = get(key)
            new, old = change
            if row is None:
                if new is None and old is None:
                    return
                other = None
            else:
                other, other_time = row
                if other_time > timestamp:
                    timestamp = other_time
            joined = None if new is None else join(new, other)
            before = join(old, other) if send_old and old is not None else None
            forward(key, Change(joined, before), timestamp, headers)

        return process

    def _right(self, node: NodeContext, get: Getter) -> Process:
        forward, join, send_old = node.forward, self._join, self.send_old_values

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            row = get(key)
            if row is None:
                return
            other, other_time = row
            joined = join(change[0], other)
            before = join(change[1], other) if send_old else None
            forward(key, Change(joined, before), max(timestamp, other_time), headers)

        return process

    def _outer(self, node: NodeContext, get: Getter) -> Process:
        forward, join, send_old = node.forward, self._join, self.send_old_values

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            row = get(key)
            new, old = change
            if row is None:
                if new is None and old is None:
                    return
                joined = None if new is None else join(new, None)
                before = join(old, None) if send_old and old is not None else None
            else:
                other, other_time = row
                if other_time > timestamp:
                    timestamp = other_time
                joined = join(new, other)
                before = join(old, other) if send_old else None
            forward(key, Change(joined, before), timestamp, headers)

        return process


class _JoinView(WithoutPast):
    """The rows of a join without a store; it has no older versions, not even with versioned tables (KIP-914)."""

    def __init__(self, kind: Kind, this: View, other: View, join: Join) -> None:
        self._kind = kind
        self._this = this
        self._other = other
        self._join = join
        self.stores = tuple(hash_set_order([*this.stores, *other.stores]))

    def get(self, node: NodeContext) -> Getter:
        """A function that joins the rows of a key."""
        this_row, other_row, join = self._this.get(node), self._other.get(node), self._join
        needs_this, needs_other = self._kind.needs_this, self._kind.needs_other

        def get(key: Any) -> Stamped | None:
            this = this_row(key)
            if this is None and needs_this:
                return None
            other = other_row(key)
            if other is None and (needs_other or this is None):
                return None
            value, timestamp = (None, NO_TIMESTAMP) if this is None else this
            other_value, other_time = (None, NO_TIMESTAMP) if other is None else other
            joined = join(value, other_value)
            return None if joined is None else (joined, max(timestamp, other_time))

        return get


class JoinMerger:
    """Merges both sides of a join of tables, and stores the result if it has a store (KTableKTableJoinMerger)."""

    def __init__(self, this: TableJoin, other: TableJoin, store: str | None, *, versioned: bool = False) -> None:
        self._sides = (this, other)
        self._store = store
        self._versioned = versioned
        self._sends_old_values = False

    def enable_sending_old_values(self, force: bool) -> bool:
        """Both sides have to send old values."""
        for side in self._sides:
            side.enable_sending_old_values(True)
        self._sends_old_values = True
        return True

    def view(self) -> View:
        """The store of the result, or else the joined rows of both sides."""
        return self._sides[0].view() if self._store is None else StoreView(self._store, self._versioned)

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        if self._store is not None:
            return self._bind_stored(node, self._store)
        if self._sends_old_values:
            return node.forward
        forward = node.forward

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            forward(key, change if change[1] is None else Change(change[0], None), timestamp, headers)

        return process

    def _bind_stored(self, node: NodeContext, name: str) -> Process:
        task, opened = node.task, node.store(name)
        forward = forwarder(node, opened, self._sends_old_values)
        put = TableStore(opened).put

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            task.timestamp, task.headers = timestamp, headers
            result = put(key, change[0], timestamp)
            if result != PUT_NOT_DONE:
                forward(key, change if result == VALID_TO_UNDEFINED else LateChange(*change), timestamp, headers)

        return process
