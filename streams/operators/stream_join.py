"""Stream-stream joins within a window: inner, left and outer (Kafka: KStreamKStreamJoin, KIP-633, KAFKA-10847).

Each side of a join stores its records in a window store, and fetches partners from the store of the other side. A
record of an outer side without a partner waits in a store that both sides share, until the stream time of both closes
its window, and is then joined with null. The operator scans that store at most once in an interval of wall-clock time
(one second), and only where an entry may be due.

A record with a null key or a null value is dropped; an outer side forwards a record with a null key at once, joined
with null (KIP-962).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from odradek.streams.context import TaskContext
from odradek.streams.functions import takes_key
from odradek.streams.nodes import NodeContext
from odradek.streams.operators.emission import skipping
from odradek.streams.operators.waiting import WaitingStore
from odradek.streams.records import NO_TIMESTAMP, Headers, Process
from odradek.streams.windows import JoinWindows

JoinSide = Callable[[Any, Any, Any], Any]
"""A function of key, value of this side, value of the other side (None where there is none)."""

EMIT_INTERVAL: Final = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__"
"""The config of the interval between two scans of waiting records, in ms."""
_LATEST: Final = 2**63 - 1


class JoinWindow:
    """Forwards a record to its join, and stores it for those of the other side (KStreamJoinWindow)."""

    def __init__(self, store: str) -> None:
        self._store = store

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward, task = node.forward, node.task
        put = node.store(self._store).put

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            task.timestamp, task.headers = timestamp, headers
            forward(key, value, timestamp, headers)
            if key is not None:
                task.timestamp, task.headers = timestamp, headers  # nodes downstream have set their own
                put(key, value, timestamp)

        return process


class TimeTracker:
    """The state that both sides of a join share in one task: the time, and the earliest waiting record."""

    __slots__ = ("earliest", "next_look", "stream_time")

    def __init__(self) -> None:
        self.stream_time = NO_TIMESTAMP
        self.earliest = _LATEST
        """The timestamp of the first waiting record, or an earlier one; the largest timestamp where none waits."""
        self.next_look = 0
        """When to scan waiting records again, by wall-clock time in ms."""


class TimeTrackers:
    """The trackers of one join, by task. Several threads use it, each with the keys of its own tasks."""

    def __init__(self) -> None:
        self._trackers: dict[TaskContext, TimeTracker] = {}

    def of(self, node: NodeContext) -> TimeTracker:
        """The tracker of a node's task, which is removed when the task closes."""
        task, trackers = node.task, self._trackers

        def forget() -> None:
            trackers.pop(task, None)  # both sides call this

        node.on_close(forget)
        return trackers.setdefault(task, TimeTracker())


class StreamJoin:
    """One side of a join."""

    def __init__(
        self,
        other_store: str,
        windows: JoinWindows,
        joiner: Callable[..., Any],
        trackers: TimeTrackers,
        *,
        left_side: bool,
        outer: bool,
        waiting: str | None,
    ) -> None:
        """`joiner` is of (left, right) or of (key, left, right).

        `outer`: this side's records without partners are results, too; `waiting` is the store in which they wait.
        """
        self._other_store = other_store
        self._join = _oriented(joiner, left_side)
        self._trackers = trackers
        self._left_side = left_side
        self._outer = outer
        self._waiting = waiting
        self._windows = windows
        earlier, later = windows.before_ms, windows.after_ms
        self._before_ms, self._after_ms = (earlier, later) if left_side else (later, earlier)

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward, task, join, skip = node.forward, node.task, self._join, skipping(node, "key or value")
        fetch = node.store(self._other_store).fetch
        waiting: WaitingStore | None = None if self._waiting is None else node.store(self._waiting)
        tracker, outer, left_side = self._trackers.of(node), self._outer, self._left_side
        before, after = self._before_ms, self._after_ms
        look = None if waiting is None else self._make_look(node, waiting, tracker)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if timestamp > tracker.stream_time:
                tracker.stream_time = timestamp
            if key is None or value is None:
                if outer and value is not None:
                    forward(key, join(key, value, None), timestamp, headers)
                else:
                    skip()
                return
            if look is not None and timestamp == tracker.stream_time:
                look(timestamp, headers)
            latest = max(0, timestamp + after)
            alone = True
            for other_time, other in fetch(key, max(0, timestamp - before), latest):
                alone = False
                if waiting is not None:
                    task.timestamp, task.headers = timestamp, headers
                    waiting.found(key, other_time, not left_side)
                forward(key, join(key, value, other), timestamp if timestamp > other_time else other_time, headers)
            if alone and outer:
                if waiting is None or latest < tracker.stream_time:
                    forward(key, join(key, value, None), timestamp, headers)
                    return
                if timestamp < tracker.earliest:
                    tracker.earliest = timestamp
                task.timestamp, task.headers = timestamp, headers
                waiting.add(key, timestamp, left_side, value)

        return process

    def _make_look(
        self, node: NodeContext, waiting: WaitingStore, tracker: TimeTracker
    ) -> Callable[[int, Headers], None]:
        """A function that forwards waiting records whose windows are closed."""
        task, config = node.task, node.task.config
        interval_ms = int(config.get(EMIT_INTERVAL, 1000))
        wait_ms = self._after_ms + self._windows.grace_ms
        now_ms = task.system_time_ms
        emit = self._make_emit(node, waiting, tracker)

        def look(timestamp: int, headers: Headers) -> None:
            if tracker.earliest == _LATEST:
                # Java adds to the largest timestamp and overflows, so an empty store is scanned once
                if wait_ms <= 0:
                    return
            elif tracker.earliest + wait_ms >= tracker.stream_time:
                return
            now = now_ms()
            if now < tracker.next_look:
                return
            tracker.next_look = now + interval_ms
            tracker.earliest = _LATEST
            emit(timestamp, headers)

        return look

    def _make_emit(
        self, node: NodeContext, waiting: WaitingStore, tracker: TimeTracker
    ) -> Callable[[int, Headers], None]:
        forward, task, join, left_side = node.forward, node.task, self._join, self._left_side
        left_wait_ms = self._windows.after_ms + self._windows.grace_ms
        right_wait_ms = self._windows.before_ms + self._windows.grace_ms

        def emit(timestamp: int, headers: Headers) -> None:
            left_open = right_open = False
            previous: bytes | None = None
            for row, key, time, left, value in waiting.rows():
                tracker.earliest = time
                if left_open and right_open:
                    break
                if time + (left_wait_ms if left else right_wait_ms) >= tracker.stream_time:
                    if left:
                        left_open = True
                    else:
                        right_open = True
                    continue
                joined = join(key, value, None) if left is left_side else join(key, None, value)
                forward(key, joined, time, headers)
                if previous is not None and previous != row:
                    task.timestamp, task.headers = timestamp, headers
                    waiting.remove(previous)
                previous = row
            if previous is not None:
                task.timestamp, task.headers = timestamp, headers
                waiting.remove(previous)

        return emit


def _oriented(joiner: Callable[..., Any], left_side: bool) -> JoinSide:
    """The user's joiner with this side's value first."""
    if takes_key(joiner):
        return joiner if left_side else lambda key, this, other: joiner(key, other, this)
    if left_side:
        return lambda key, this, other: joiner(this, other)
    return lambda key, this, other: joiner(other, this)
