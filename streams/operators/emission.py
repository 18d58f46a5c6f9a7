"""Emission of windows: at every record, or once they are closed (KIP-825).

With EmitStrategy.ON_WINDOW_CLOSE the operator emits no result of a window until stream time has passed its end; then it
reads the window from the store and emits it once, in time order. It scans the store at most once in an interval of
wall-clock time. The emitted position is committed with the offsets, so that a task that moves does not emit windows
again.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from odradek.streams.nodes import NodeContext
from odradek.streams.records import NO_TIMESTAMP, Change, Headers, Windowed

log = logging.getLogger(__name__)

EMIT_INTERVAL: Final = "__emit.interval.ms.kstreams.windowed.aggregation__"
"""The config of the interval between two scans of the store, in ms."""
DEFAULT_EMIT_INTERVAL_MS: Final = 1000

Closed = Callable[[int, int], "Iterable[tuple[Windowed, Any, int]] | None"]
"""A function of the last emission time (-1: never) and the present close time; returns the windows closed in between:
windowed key, value and timestamp of each, in order. None if no window can have closed, without a scan.
"""


def final_results(node: NodeContext, store: str, closed: Closed) -> Callable[[int, Headers], None]:
    """A function to be called after each record, with the time before which windows are closed, and its headers."""
    task, forward = node.task, node.forward
    interval_ms = int(task.config.get(EMIT_INTERVAL, DEFAULT_EMIT_INTERVAL_MS))
    progress = task.processor_metadata
    next_look = 0

    def emit(close_time: int, headers: Headers) -> None:
        nonlocal next_look
        now = task.system_time_ms()
        if now < next_look:
            return
        next_look = now + interval_ms
        last = progress.get(store, NO_TIMESTAMP)
        if last != NO_TIMESTAMP and last >= close_time:
            return
        windows = closed(last, close_time)
        if windows is None:
            return
        for key, value, timestamp in windows:
            forward(key, Change(value, None), timestamp, headers)
        progress[store] = close_time

    return emit


class LateRecords:
    """Drops the records of one task whose windows are closed: logs, counts, and forwards them to late()'s stream."""

    __slots__ = ("_end_inside", "_forward", "_node")

    def __init__(self, node: NodeContext, child: str | None, *, end_inside: bool = False) -> None:
        """`child` is the node of the stream of late records, None where the program has none. `end_inside` is whether
        windows contain their end.
        """
        self._node = node
        self._forward = None if child is None else node.child(child)
        self._end_inside = end_inside

    def drop(
        self,
        windowed: Windowed,
        value: Any,
        timestamp: int,
        headers: Headers,
        close_time: int,
        stream_time: int,
    ) -> None:
        """Drop a record from one window, that of `windowed`. Windows are closed that end at `close_time`, or before."""
        start, end = windowed.window
        too_late(self._node, timestamp, f"[{start},{end}{']' if self._end_inside else ')'}", close_time, stream_time)
        if self._forward is not None:
            self._forward(windowed, value, timestamp, headers)
            task = self._node.task
            task.timestamp, task.headers = timestamp, headers  # nodes downstream have set their own


def too_late(node: NodeContext, timestamp: int, window: str, close_time: int, stream_time: int) -> None:
    """Log and count a record whose window is closed."""
    task = node.task
    log.warning(
        "Skipping record for expired window topic=%s partition=%s offset=%s timestamp=%s window=%s "
        "expiration=%s stream_time=%s",
        task.topic,
        task.partition,
        task.offset,
        timestamp,
        window,
        close_time,
        stream_time,
    )
    node.dropped()


def skipping(node: NodeContext, what: str) -> Callable[[], None]:
    """A function that drops and counts a record without a key or another required part."""
    return functools.partial(without_key, node, what)


def without_key(node: NodeContext, what: str = "key") -> None:
    """Drop and count a record without a key, or without a value where one is required."""
    task = node.task
    log.warning(
        "Skipping record due to null field=%s topic=%s partition=%s offset=%s",
        what,
        task.topic,
        task.partition,
        task.offset,
    )
    node.dropped()
