"""Joins of a stream with a table or a global table: each record with the current row (Kafka: KStreamKTableJoin).

Only the table has state. A record whose join key or value is null is dropped; a left join forwards a record with a null
key (KIP-962). With a versioned table a record joins the row of its own timestamp, and may wait for the grace period
before, so that the table's updates for that time can arrive (KIP-914, KIP-923).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.streams.functions import joiner_with_key, takes_key
from odradek.streams.nodes import NodeContext
from odradek.streams.operators.emission import skipping
from odradek.streams.operators.fusion import FusedFunctionBuilder, Inlined
from odradek.streams.operators.join_buffer import JoinBuffer
from odradek.streams.operators.table import Getter, StoreView, View
from odradek.streams.records import Headers, Process

Lookup = Callable[[Any, int], Any]
"""The table's value of a key, for a record with a timestamp in ms; None where there is none."""
JoinRow = Callable[[Any, Any, Any, int, Headers], None]
"""Joins a record, given the row's key, its own key, value, timestamp and headers."""


class StreamTableJoin:
    """Joins each record with the row of its key, or of the key that a mapper returns."""

    def __init__(
        self,
        table: View,
        joiner: Callable[..., Any],
        *,
        left: bool,
        key_mapper: Callable[[Any, Any], Any] | None = None,
        buffer: str | None = None,
    ) -> None:
        """`joiner` is of (value, row) or of (key, value, row).

        `buffer` names the store in which records wait for the grace period.
        """
        self._table = table
        self._joiner = joiner
        self._left = left
        self._key_mapper = key_mapper
        self._buffer = buffer

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        join, left = self._make_join(node), self._left
        if self._buffer is not None:
            return _waiting(node, node.store(self._buffer), join, left)
        if self._key_mapper is not None:
            return _mapped(node, self._key_mapper, join, left)
        skip = skipping(node, "join key or value")

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if value is None or (key is None and not left):
                skip()
                return
            join(key, key, value, timestamp, headers)

        return process

    def fused(self, node: NodeContext) -> Inlined | None:
        """The most frequent case as part of a chain: the current row of the record's own key."""
        if self._key_mapper is not None or self._buffer is not None or not isinstance(self._table, StoreView):
            return None
        if self._table.versioned:
            return None
        return _CurrentRow(self._table.get(node), self._joiner, skipping(node, "join key or value"), self._left)

    def _make_join(self, node: NodeContext) -> JoinRow:
        """A function of the row's key and of the record."""
        forward, joiner, left = node.forward, joiner_with_key(self._joiner), self._left
        look_up = _lookup(self._table, node)

        def join(row_key: Any, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            row = None if row_key is None else look_up(row_key, timestamp)
            if row is not None or left:
                forward(key, joiner(key, value, row), timestamp, headers)

        return join


class _CurrentRow:
    """The lines of one task's join with the current rows of a table."""

    def __init__(self, get: Getter, joiner: Callable[..., Any], skip: Callable[[], None], left: bool) -> None:
        self._get = get
        self._joiner = joiner
        self._skip = skip
        self._left = left

    def inline(self, chain: FusedFunctionBuilder) -> None:
        """As part of a chain."""
        key, value, skip, get = chain.key, chain.value, chain.name(self._skip), chain.name(self._get)
        if self._left:
            chain.emit(f"if {value} is None: {skip}(); {chain.leave}")
            chain.emit(f"row = None if {key} is None else {get}({key})")
            row = "None if row is None else row[0]"
        else:
            chain.emit(f"if {value} is None or {key} is None: {skip}(); {chain.leave}")
            chain.emit(f"row = {get}({key})")
            chain.emit(f"if row is None: {chain.leave}")
            row = "row[0]"
        sides = f"{key}, {value}" if takes_key(self._joiner) else value
        chain.emit(f"{value} = {chain.name(self._joiner)}({sides}, {row})")


def _lookup(table: View, node: NodeContext) -> Lookup:
    if table.versioned:
        get_as_of = table.get_as_of(node)

        def look_up_version(key: Any, timestamp: int) -> Any:
            found = get_as_of(key, timestamp)
            return None if found is None else found[0]

        return look_up_version
    get = table.get(node)

    def look_up(key: Any, timestamp: int) -> Any:
        found = get(key)
        return None if found is None else found[0]

    return look_up


def _mapped(node: NodeContext, key_mapper: Callable[[Any, Any], Any], join: JoinRow, left: bool) -> Process:
    """Joins with the row of the key that the mapper returns for a record."""
    skip = skipping(node, "join key or value")

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        row_key = key_mapper(key, value)
        if value is None or (row_key is None and not (left and key is None)):
            skip()
            return
        join(row_key, key, value, timestamp, headers)

    return process


def _waiting(node: NodeContext, buffer: JoinBuffer, join: JoinRow, left: bool) -> Process:
    """Buffers records for the grace period, and joins those that are due, in time order."""
    task, skip = node.task, skipping(node, "join key or value")

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if value is None or (key is None and not left):
            skip()
            return
        task.timestamp, task.headers = timestamp, headers
        if not buffer.put(key, value, timestamp):
            join(key, key, value, timestamp, headers)
            return
        before = task.timestamp, task.headers, task.topic, task.partition, task.offset
        for row in buffer.due():
            task.timestamp, task.headers, task.topic, task.partition, task.offset = row.context
            try:
                join(row.key, row.key, row.value, row.context[0], row.context[1])
            finally:
                task.timestamp, task.headers, task.topic, task.partition, task.offset = before
            buffer.remove(row)

    return process
