"""Aggregations without windows: of streams, and of tables, whose old rows are subtracted (KStreamAggregate,
KTableAggregate).

The timestamp of a result is the latest of its inputs (KIP-258). A record with a null key or value does not take part in
a stream's aggregation, and counts as dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from odradek.streams.errors import StreamsError
from odradek.streams.nodes import NodeContext
from odradek.streams.operators.table import StoreView, TableStore, View, cache_forwards, forwarder
from odradek.streams.records import Change, Headers, LateChange, Process, make_tuple
from odradek.streams.stores.interface import PUT_NOT_DONE, VALID_TO_UNDEFINED, VersionedKeyValueStore
from odradek.streams.stores.keyvalue import CachedKeyValueStore, PlainKeyValueStore

Aggregator = Callable[[Any, Any, Any], Any]


def zero() -> int:
    """The initial count."""
    return 0


def count(key: Any, value: Any, aggregate: int) -> int:
    """Add one."""
    return aggregate + 1


def discount(key: Any, value: Any, aggregate: int) -> int:
    """Subtract one."""
    return aggregate - 1


class AggregationOperator(ABC):
    """The common part of all aggregations, as suppliers of their table (KStreamAggProcessorSupplier)."""

    def __init__(self, store: str | None) -> None:
        assert store is not None
        self.store = store
        self.sends_old_values = False

    def enable_sending_old_values(self, force: bool) -> bool:
        """No effect: the store has the old values."""
        self.sends_old_values = True
        return True

    def view(self) -> View:
        """The store."""
        return StoreView(self.store)

    @abstractmethod
    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""


class StreamAggregate(AggregationOperator):
    """Adds each record to the aggregate of its key (KStreamAggregate)."""

    def __init__(self, store: str | None, initializer: Callable[[], Any], aggregator: Aggregator) -> None:
        super().__init__(store)
        self._initializer = initializer
        self._aggregator = aggregator

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        opened = node.store(self.store)
        sends_old_values = self.sends_old_values
        forward = forwarder(node, opened, sends_old_values)
        if isinstance(opened, VersionedKeyValueStore):
            return self._bind_versioned(node, opened, forward)
        initializer, aggregator, task, dropped = self._initializer, self._aggregator, node.task, node.dropped
        get, put = opened.get, opened.put
        forwards = forward is not cache_forwards  # else no change has to be created
        if initializer is zero and aggregator is count:
            counts = _bind_count(node, opened, sends_old_values)
            if counts is not None:
                return counts

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                dropped()
                return
            task.timestamp, task.headers = timestamp, headers  # a deletion is logged with the record's own timestamp
            found = get(key)
            if found is None:
                old = initializer()
            else:
                old, before = found
                if before > timestamp:
                    timestamp = before
            new = aggregator(key, value, old)
            put(key, None if new is None else (new, timestamp))
            if forwards:
                forward(key, Change(new, old if sends_old_values else None), timestamp, headers)

        return process

    def _bind_versioned(self, node: NodeContext, opened: Any, forward: Process) -> Process:
        initializer, aggregator, task, dropped = self._initializer, self._aggregator, node.task, node.dropped
        sends_old_values, store = self.sends_old_values, TableStore(opened)
        get, put = store.get, store.put

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                dropped()
                return
            task.timestamp, task.headers = timestamp, headers  # a deletion is logged with the record's own timestamp
            found = get(key)
            old = initializer() if found is None else found[0]
            if found is not None:
                timestamp = max(timestamp, found[1])
            new = aggregator(key, value, old)
            _forward(put(key, new, timestamp), key, new, old if sends_old_values else None, timestamp, headers, forward)

        return process


def _bind_count(node: NodeContext, opened: Any, sends_old_values: bool) -> Process | None:
    """The function of one task for counts; None where the store has none of its own for them."""
    if isinstance(opened, CachedKeyValueStore):
        count_in = opened.counter()
        return None if count_in is None else _bind_cached_count(node, count_in)
    if type(opened) is PlainKeyValueStore:
        count_logged = opened.logged_counter()
        return None if count_logged is None else _bind_logged_count(node, count_logged, sends_old_values)
    return None


def _bind_cached_count(node: NodeContext, count_in: Callable[[Any, int], None]) -> Process:
    """The function of one task for counts in a cache, which forwards them."""
    task, dropped = node.task, node.dropped

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            dropped()
            return
        task.timestamp, task.headers = timestamp, headers
        count_in(key, timestamp)

    return process


def _bind_logged_count(
    node: NodeContext, count_in: Callable[[Any, int], tuple[int, int]], sends_old_values: bool
) -> Process:
    """The function of one task for counts without a cache: each is forwarded."""
    task, dropped, forward = node.task, node.dropped, node.forward

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None or value is None:
            dropped()
            return
        task.timestamp, task.headers = timestamp, headers
        number, timestamp = count_in(key, timestamp)
        change = make_tuple(Change, (number, number - 1 if sends_old_values else None))
        forward(key, change, timestamp, headers)

    return process


class StreamReduce(AggregationOperator):
    """Combines each value with the current value of its key (KStreamReduce)."""

    def __init__(self, store: str | None, reducer: Callable[[Any, Any], Any]) -> None:
        super().__init__(store)
        self._reducer = reducer

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        opened = node.store(self.store)
        reducer, task, dropped = self._reducer, node.task, node.dropped
        sends_old_values = self.sends_old_values
        forward = forwarder(node, opened, sends_old_values)
        store = TableStore(opened)
        get, put = store.get, store.put

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                dropped()
                return
            task.timestamp, task.headers = timestamp, headers  # a deletion is logged with the record's own timestamp
            found = get(key)
            old = None
            if found is not None:
                old, before = found
                value = reducer(old, value)
                if before > timestamp:
                    timestamp = before
            result = put(key, value, timestamp)
            _forward(result, key, value, old if sends_old_values else None, timestamp, headers, forward)

        return process


class _TableAggregation(AggregationOperator):
    """Subtracts the old row, then adds the new row."""

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        opened = node.store(self.store)
        task, sends_old_values = node.task, self.sends_old_values
        forward = forwarder(node, opened, sends_old_values)
        store = TableStore(opened)
        get, put, take_out, take_in = store.get, store.put, self._take_out, self._take_in
        name = self.store

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                raise StreamsError(
                    f"Record key for a KTable aggregation with the state store {name} should not be null."
                )
            task.timestamp, task.headers = timestamp, headers
            found = get(key)
            old = aggregate = None
            if found is not None:
                old, before = found
                aggregate = old
                if value[1] is not None:
                    aggregate = take_out(key, value[1], old)
                    timestamp = max(timestamp, before)
            if value[0] is not None:
                timestamp = max(timestamp, before) if found is not None else timestamp
                aggregate = take_in(key, value[0], aggregate)
            result = put(key, aggregate, timestamp)
            _forward(result, key, aggregate, old if sends_old_values else None, timestamp, headers, forward)

        return process

    @abstractmethod
    def _take_out(self, key: Any, value: Any, aggregate: Any) -> Any:
        """The aggregate without this value."""

    @abstractmethod
    def _take_in(self, key: Any, value: Any, aggregate: Any) -> Any:
        """The aggregate with this value."""


class TableAggregate(_TableAggregation):
    """By functions of (key, value, aggregate) (KTableAggregate)."""

    def __init__(
        self, store: str | None, initializer: Callable[[], Any], adder: Aggregator, subtractor: Aggregator
    ) -> None:
        super().__init__(store)
        self._initializer = initializer
        self._adder = adder
        self._subtractor = subtractor

    def _take_out(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self._subtractor(key, value, aggregate)

    def _take_in(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self._adder(key, value, self._initializer() if aggregate is None else aggregate)


class TableReduce(_TableAggregation):
    """By functions of (current value, value) (KTableReduce)."""

    def __init__(
        self, store: str | None, adder: Callable[[Any, Any], Any], subtractor: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(store)
        self._adder = adder
        self._subtractor = subtractor

    def _take_out(self, key: Any, value: Any, aggregate: Any) -> Any:
        return self._subtractor(aggregate, value)

    def _take_in(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._adder(aggregate, value)


def _forward(result: int, key: Any, new: Any, old: Any, timestamp: int, headers: Headers, forward: Process) -> None:
    """Forward the result of a put: the latest version, or a change to an older one; nothing after a rejected put."""
    if result == VALID_TO_UNDEFINED:
        forward(key, Change(new, old), timestamp, headers)
    elif result != PUT_NOT_DONE:
        forward(key, LateChange(new, old), timestamp, headers)
