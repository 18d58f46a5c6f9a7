"""When windows are told: at every record, or once they are closed (KIP-825).

With EmitStrategy.ON_WINDOW_CLOSE nothing is said of a window until stream time has left it behind; then it is read from
the store and told once, in the order of time. The store is looked through at most once in an interval of the wall's
clock. How far windows have been told is committed with the offsets, so that a task that moves does not tell them again.
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
"""The configuration of the interval between two looks at the store, in ms."""
DEFAULT_EMIT_INTERVAL_MS: Final = 1000

Closed = Callable[[int, int], "Iterable[tuple[Windowed, Any, int]] | None"]
"""The windows that were closed since: of when windows were told last (-1: never) and of when they are closed now;
windowed key, value and timestamp of each, in order. None where there can be none, and nobody has looked."""


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


def too_late(node: NodeContext, timestamp: int, window: str, close_time: int, stream_time: int) -> None:
    """A record belongs to a window that is closed: it is left out, and counts."""
    task = node.task
    log.warning(
        "Skipping record for expired window. topic=[%s] partition=[%s] offset=[%s] timestamp=[%s] window=%s "
        "expiration=[%s] streamTime=[%s]",
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
    """A function for each record without a key, or another thing that is needed: left out, and counted."""
    return functools.partial(without_key, node, what)


def without_key(node: NodeContext, what: str = "key") -> None:
    """A record without a key, or without a value where one is needed, cannot be aggregated: left out, and counted."""
    task = node.task
    log.warning(
        "Skipping record due to null %s. topic=[%s] partition=[%s] offset=[%s]",
        what,
        task.topic,
        task.partition,
        task.offset,
    )
    node.dropped()
