"""Aggregations by windows of a fixed length, aligned to 0 (Kafka: KStreamWindowAggregate).

A record belongs to every window that contains its timestamp and that is not closed yet: the stream time of this
operator has not reached the window's end plus the grace.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from odradek.streams.nodes import NodeContext
from odradek.streams.operators.aggregate import count, zero
from odradek.streams.operators.emission import Closed, LateRecords, final_results, without_key
from odradek.streams.operators.table import View, WithoutPast
from odradek.streams.records import NO_TIMESTAMP, Change, Headers, Process, Stamped, Window, Windowed, make_tuple
from odradek.streams.stores.windows import CountInWindows, SegmentedWindowStore, suffix_of
from odradek.streams.windows import EmitStrategy, TimeWindows, UnlimitedWindows, Windows, end_of

Initializer = Callable[[], Any]
Aggregator = Callable[[Any, Any, Any], Any]
"""A function of key, value and the current aggregate."""
Get = Callable[[Any], "Stamped | None"]


class WindowedView(WithoutPast):
    """The view of the window store for operators downstream, by windowed key."""

    def __init__(self, store: str) -> None:
        self.stores = (store,)

    def get(self, node: NodeContext) -> Get:
        """The lookup function of a windowed key."""
        fetch = node.store(self.stores[0]).fetch

        def look_up(windowed: Windowed) -> Stamped | None:
            found: Stamped | None = fetch(windowed.key, windowed.window.start)
            return found

        return look_up


class WindowedTable(abc.ABC):
    """The common part of all windowed aggregations, as suppliers of a table."""

    def __init__(self, store: str, emit: EmitStrategy) -> None:
        """`store` is the name of the window store."""
        self.store = store
        self.final = emit is EmitStrategy.ON_WINDOW_CLOSE
        self.send_old = False
        self.late: str | None = None
        """The node of the stream of late records, if the program has one."""

    @property
    def apart(self) -> tuple[str, ...]:
        """The children that results are not forwarded to."""
        return () if self.late is None else (self.late,)

    def enable_sending_old_values(self, force: bool = True) -> bool:
        """Changes carry the old value, too."""
        self.send_old = True
        return True

    @abc.abstractmethod
    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""

    def view(self) -> View:
        """For joins and lookups downstream."""
        return WindowedView(self.store)

    def caches(self, node: NodeContext) -> bool:
        """Make the store's cache, if it has one, forward what it flushes; returns whether it has one."""
        forward, time_of = node.forward, self.time_of

        def leaves(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
            forward(key, make_tuple(Change, (new, old)), time_of(key, timestamp), headers)

        return not self.final and bool(node.store(self.store).set_flush_listener(leaves, self.send_old))

    def time_of(self, key: Windowed, timestamp: int) -> int:
        """The timestamp of a result, from that in the store."""
        return timestamp


class WindowedAggregate(WindowedTable):
    """count, reduce and aggregate by tumbling, hopping or unlimited windows."""

    def __init__(
        self,
        store: str,
        windows: TimeWindows | UnlimitedWindows | Windows,
        initializer: Initializer,
        aggregator: Aggregator,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        super().__init__(store, emit)
        self._windows = windows
        self._initializer = initializer
        self._aggregator = aggregator

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        starts_for, size, grace = starts_of(self._windows), self._windows.size_ms, self._windows.grace_ms
        initializer, aggregator = self._initializer, self._aggregator
        store, forwards, emit = self._bound(node)
        if initializer is zero and aggregator is count and not forwards and emit is None:
            count_in = store.counter() if isinstance(store, SegmentedWindowStore) else None
            if count_in is not None and isinstance(self._windows, TimeWindows):
                return self._bind_count(node, self._windows, count_in)
        task, forward, fetch, put, send_old = node.task, node.forward, store.fetch, store.put, self.send_old
        late = LateRecords(node, self.late)
        observed = NO_TIMESTAMP

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            if key is None:
                without_key(node)
                return
            task.timestamp, task.headers = timestamp, headers
            if timestamp > observed:
                observed = timestamp
            close_time = observed - grace
            for start in starts_for(timestamp):
                if start + size <= close_time:
                    windowed = Windowed(key, Window(start, end_of(start, size)))
                    late.drop(windowed, value, timestamp, headers, close_time, observed)
                    continue
                before = fetch(key, start)
                if before is None:
                    old, stamp = initializer(), timestamp
                else:
                    old, stamp = before
                    if timestamp > stamp:
                        stamp = timestamp
                new = aggregator(key, value, old)
                put(key, None if new is None else (new, stamp), start)
                if forwards:
                    windowed = Windowed(key, Window(start, end_of(start, size)))
                    forward(windowed, Change(new, old if send_old else None), stamp, headers)
                    task.timestamp, task.headers = timestamp, headers
            if emit is not None:
                emit(close_time, headers)

        return process

    def _bind_count(self, node: NodeContext, of: TimeWindows, count_in: CountInWindows) -> Process:
        """The function of one task for counts in a cache: the windows of many records are computed once."""
        task, late, size, grace = node.task, LateRecords(node, self.late), of.size_ms, of.grace_ms
        observed, first, last = NO_TIMESTAMP, 0, -1
        windows: Sequence[tuple[int, bytes]] = ()

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed, windows, first, last
            if key is None:
                without_key(node)
                return
            task.timestamp, task.headers = timestamp, headers
            if timestamp > observed:
                observed = timestamp
            if not first <= timestamp <= last:
                windows, first, last = windows_around(of, timestamp)
            close_time = observed - grace
            if windows[0][0] + size > close_time:
                count_in(key, timestamp, windows)
                return
            for start, _ in windows:
                if start + size <= close_time:
                    windowed = Windowed(key, Window(start, end_of(start, size)))
                    late.drop(windowed, value, timestamp, headers, close_time, observed)
            count_in(key, timestamp, [each for each in windows if each[0] + size > close_time])

        return process

    def _bound(self, node: NodeContext) -> tuple[Any, bool, Callable[[int, Headers], None] | None]:
        """The store of one task, whether each update is forwarded, and the function that forwards final results."""
        emit = final_results(node, self.store, self._closed(node)) if self.final else None
        return node.store(self.store), not self.caches(node) and not self.final, emit

    def _closed(self, node: NodeContext) -> Closed:
        store, size, starts_for = node.store(self.store), self._windows.size_ms, self._windows.starts_for

        def closed(last: int, now: int) -> Iterable[tuple[Windowed, Any, int]] | None:
            upper = now - size
            emitted_to = -1 if last == NO_TIMESTAMP else last - size
            if upper < 0 or (last != NO_TIMESTAMP and starts_for(max(0, emitted_to)) == starts_for(upper)):
                return None
            return in_order_of_time(store, max(0, emitted_to + 1), upper)

        return closed


class CustomWindowedAggregate(WindowedAggregate):
    """The same by windows of a user's own, each with an end of its own."""

    def __init__(
        self, store: str, windows: Windows, initializer: Initializer, aggregator: Aggregator, emit: EmitStrategy
    ) -> None:
        super().__init__(store, windows, initializer, aggregator, emit)
        self._windows_for, self._grace_ms = windows.windows_for, windows.grace_ms

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        windows_for, grace = self._windows_for, self._grace_ms
        store, forwards, emit = self._bound(node)
        task, forward, step, send_old = node.task, node.forward, self._step, self.send_old
        late = LateRecords(node, self.late)
        observed = NO_TIMESTAMP

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            if key is None:
                without_key(node)
                return
            observed = max(observed, timestamp)
            close_time = observed - grace
            for window in windows_for(timestamp):
                if window.end <= close_time:
                    late.drop(Windowed(key, window), value, timestamp, headers, close_time, observed)
                    continue
                task.timestamp, task.headers = timestamp, headers
                new, old, stamp = step(store, window, key, value, timestamp)
                if forwards:
                    forward(Windowed(key, window), Change(new, old if send_old else None), stamp, headers)
            task.timestamp, task.headers = timestamp, headers
            if emit is not None:
                emit(close_time, headers)

        return process

    def _step(self, store: Any, window: Window, key: Any, value: Any, timestamp: int) -> tuple[Any, Any, int]:
        """Update one window. Returns its new aggregate, the old one and its timestamp."""
        before = store.fetch(key, window.start)
        old, stamp = (self._initializer(), timestamp) if before is None else before
        stamp = max(stamp, timestamp)
        new = self._aggregator(key, value, old)
        store.put(key, None if new is None else (new, stamp), window.start)
        return new, old, stamp


def starts_of(windows: TimeWindows | UnlimitedWindows | Windows) -> Callable[[int], Iterable[int]]:
    """The windows' own `starts_for`; for tumbling windows, of which one contains a timestamp, a faster version."""
    if not isinstance(windows, TimeWindows) or windows.advance_ms < windows.size_ms:
        return windows.starts_for
    size = windows.size_ms
    return lambda timestamp: (timestamp - timestamp % size,)


def windows_around(windows: TimeWindows, timestamp: int) -> tuple[list[tuple[int, bytes]], int, int]:
    """The windows that contain a timestamp, as starts with `suffix_of` them, and the first and last timestamp that
    exactly these contain.
    """
    starts, size, advance = windows.starts_for(timestamp), windows.size_ms, windows.advance_ms
    earliest, latest = starts[0], starts[-1]
    begin_of_earliest = earliest + size - advance if earliest > 0 else 0  # where the window before it has ended
    first, last = max(latest, begin_of_earliest), min(latest + advance, earliest + size) - 1
    return [(start, suffix_of(start)) for start in starts], first, last


def in_order_of_time(store: Any, lower: int, upper: int) -> Iterator[tuple[Windowed, Any, int]]:
    """The windows of a store that start between these times, by their start and then by key."""
    with store.fetch_all(lower, upper) as rows:
        found = sorted(
            rows, key=lambda row: row[0].window.start
        )  # a store in memory returns them in time order already
    for windowed, (value, timestamp) in found:
        yield windowed, value, timestamp
