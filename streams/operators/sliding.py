"""Aggregations by sliding windows (Kafka: KStreamSlidingWindowAggregate, KIP-450).

Each distinct combination of records that are at most the time difference apart has a window. Records create windows:
one that ends at a record (its left window) and one that begins a ms after it (its right window), as far as it contains
a record. So a record changes every window that contains it, and may create up to three:

    left window of the record            [t - difference, t]         always, unless it exists
    right window of the record           [t + 1, t + 1 + difference] if there are later records within it
    right window of the record before    [p + 1, p + 1 + difference] if it does not exist and reaches to t

The initial aggregate of a new window comes from an existing one: the latest window that ended before the record has the
aggregate of the left window, and the latest window around the record that of the right window. A window's timestamp in
the store is that of its latest record, which determines the window's content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from odradek.streams.nodes import NodeContext
from odradek.streams.operators.emission import Closed, LateRecords, final_results, without_key
from odradek.streams.operators.windowed import Aggregator, Initializer, WindowedTable, in_order_of_time
from odradek.streams.records import NO_TIMESTAMP, Change, Headers, Process, Stamped, Window, Windowed
from odradek.streams.windows import EmitStrategy, SlidingWindows

Update = Callable[[int, Stamped], None]
"""Adds the current record to the window with this start, with its previous aggregate and latest timestamp."""


@dataclass(slots=True)
class _Found:
    """The content of the windows around a record's timestamp, scanned from the latest to the earliest."""

    starts: set[int] = field(default_factory=set)
    left: Stamped | None = None
    """The initial aggregate of the record's left window."""
    right: Stamped | None = None
    """The initial aggregate of the record's right window."""
    has_left: bool = False
    has_right: bool = False
    previous: int | None = None
    """The timestamp of the latest record before this one."""
    whole: bool = False
    """No window has to be created: a record with this timestamp exists, with all of its windows."""


class SlidingAggregate(WindowedTable):
    """count, reduce and aggregate by sliding windows."""

    def __init__(
        self,
        store: str,
        windows: SlidingWindows,
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
        difference, grace = self._windows.time_difference_ms, self._windows.grace_ms
        task = node.task
        writer = _Writer(self, node, difference, forwards=not self.caches(node) and not self.final)
        emit = final_results(node, self.store, self._closed(node)) if self.final else None
        store = node.store(self.store)
        initializer = self._initializer

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                without_key(node, "key or value")
                return
            task.timestamp, task.headers = timestamp, headers
            writer.observed = max(writer.observed, timestamp)
            close_time = writer.observed - grace
            if timestamp + 1 + difference <= close_time:
                windowed = Windowed(key, Window(timestamp, timestamp + difference))
                writer.late.drop(windowed, value, timestamp, headers, close_time, writer.observed)
                return
            writer.begin(key, value, timestamp, headers, close_time)
            if timestamp < difference:
                _early(store, writer, initializer, difference)
            else:
                _usual(store, writer, initializer, difference)
            if emit is not None:
                emit(close_time, headers)

        return process

    def write(self, key: Any, value: Any, aggregate: Any) -> Any:
        """The aggregate with one more record."""
        return self._aggregator(key, value, aggregate)

    def _closed(self, node: NodeContext) -> Closed:
        store, difference = node.store(self.store), self._windows.time_difference_ms

        def closed(last: int, now: int) -> Iterable[tuple[Windowed, Any, int]] | None:
            lower = 0 if last == NO_TIMESTAMP else max(0, last - difference)
            upper = now - difference - 1  # the end of a window is inside
            return in_order_of_time(store, lower, upper) if upper >= 0 else None

        return closed


class _Writer:
    """Adds the current record to windows."""

    def __init__(self, operator: SlidingAggregate, node: NodeContext, difference: int, forwards: bool) -> None:
        self.observed = NO_TIMESTAMP
        self.late = LateRecords(node, operator.late, end_inside=True)
        self._aggregate = operator.write
        self._send_old = operator.send_old
        self._node = node
        self._put = node.store(operator.store).put
        self._difference = difference
        self._forwards = forwards
        self.key: Any = None
        self.value: Any = None
        self.timestamp = self.close_time = NO_TIMESTAMP
        self.headers: Headers = None

    def begin(self, key: Any, value: Any, timestamp: int, headers: Headers, close_time: int) -> None:
        """Set the current record."""
        self.key, self.value, self.timestamp, self.headers, self.close_time = key, value, timestamp, headers, close_time

    def update(self, start: int, before: Stamped) -> None:
        """Add the record to a window with this previous aggregate and latest timestamp, unless it is closed."""
        end = start + self._difference
        if end < self.close_time:
            windowed = Windowed(self.key, Window(start, end))
            self.late.drop(windowed, self.value, self.timestamp, self.headers, self.close_time, self.observed)
            return
        old, stamp = before
        new = self._aggregate(self.key, self.value, old)
        self._write(start, old, new, max(stamp, self.timestamp))

    def copy(self, start: int, aggregate: Stamped) -> None:
        """Create a window of existing records."""
        self._write(start, None, *aggregate)

    def _write(self, start: int, old: Any, new: Any, stamp: int) -> None:
        self._put(self.key, None if new is None else (new, stamp), start)
        if self._forwards:
            windowed = Windowed(self.key, Window(start, start + self._difference))
            change = Change(new, old if self._send_old else None)
            self._node.forward(windowed, change, stamp, self.headers)
            task = self._node.task
            task.timestamp, task.headers = self.timestamp, self.headers


def _usual(store: Any, writer: _Writer, initializer: Initializer, difference: int) -> None:
    """A record whose left window begins at or after 0."""
    timestamp = writer.timestamp
    found = _scan(store, writer, difference)
    if found.whole:
        return
    if found.previous is not None:
        start = found.previous + 1
        if start not in found.starts and start + difference >= timestamp:
            writer.update(start, (initializer(), timestamp))
    if not found.has_left:
        begins = found.previous is not None and timestamp - difference <= found.previous
        aggregate = found.left[0] if begins and found.left is not None else initializer()
        writer.update(timestamp - difference, (aggregate, timestamp))
    if not found.has_right and found.right is not None and found.right[1] > timestamp:
        writer.copy(timestamp + 1, found.right)


def _scan(store: Any, writer: _Writer, difference: int) -> _Found:
    """Scan the windows around the record, the latest first, and add it to those that contain it."""
    found, timestamp = _Found(), writer.timestamp
    lower = max(0, timestamp - 2 * difference)
    with store.backward_fetch(writer.key, lower, timestamp + 1) as rows:
        for start, (aggregate, latest) in rows:
            found.starts.add(start)
            end = start + difference
            if start == timestamp + 1:
                found.has_right = True
            elif end > timestamp:
                if found.right is None:
                    found.right = aggregate, latest
                writer.update(start, (aggregate, latest))
            elif end == timestamp:
                found.has_left = True
                writer.update(start, (aggregate, latest))
                if latest >= timestamp:
                    found.whole = True  # a record with this timestamp exists, and so do all windows around it
                    return found
                found.previous = latest
            else:
                found.left, found.previous = (aggregate, latest), latest
                return found
    return found


def _early(store: Any, writer: _Writer, initializer: Initializer, difference: int) -> None:
    """A record whose left window would begin before 0: one window from 0 on contains all of these."""
    timestamp = writer.timestamp
    found = _Found()
    combined: Stamped | None = None
    with store.fetch(writer.key, 0, timestamp + 1) as rows:
        for start, (aggregate, latest) in rows:
            found.starts.add(start)
            if start == 0:
                combined = aggregate, latest
                if latest < timestamp:
                    found.previous = latest
            elif start <= timestamp:
                found.right = aggregate, latest
                writer.update(start, (aggregate, latest))
            else:
                found.has_right = True
    if found.right is None and combined is not None and combined[1] > timestamp:
        found.right = combined
    if not found.has_right and found.right is not None and found.right[1] > timestamp:
        writer.copy(timestamp + 1, found.right)
    if found.previous is not None and found.previous + 1 not in found.starts:
        writer.update(found.previous + 1, (initializer(), timestamp))
    writer.update(0, combined if combined is not None else (initializer(), timestamp))
