"""Metered stores and nodes: count and time their calls where `metrics.recording.level` is DEBUG (Kafka:
MeteredKeyValueStore, ProcessorNodeMetrics).

The wrapper replaces the methods of a store on the object before operators bind them, and nodes are wrapped as they are
bound: at the level INFO there is no overhead. A method that calls another method of the store counts once, under the
name of the outer one. The time of a node does not include that of the nodes that it forwards to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from odradek.streams.recorded_metrics import Counter, RecordedStat
from odradek.streams.records import Headers, Process

LEVELS: Final = ("DEBUG", "TRACE")
_OPERATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "key-value": {
        "put": "put",
        "put_if_absent": "put-if-absent",
        "put_all": "put-all",
        "get": "get",
        "delete": "delete",
        "all": "all",
        "reverse_all": "all",
        "range": "range",
        "reverse_range": "range",
        "prefix_scan": "prefix-scan",
        "flush_cache": "flush",
    },
    "window": {
        "put": "put",
        "fetch": "fetch",
        "backward_fetch": "fetch",
        "fetch_range": "fetch",
        "backward_fetch_range": "fetch",
        "fetch_all": "fetch",
        "backward_fetch_all": "fetch",
        "all": "fetch",
        "backward_all": "fetch",
        "flush_cache": "flush",
    },
    "session": {
        "put": "put",
        "remove": "remove",
        "fetch_session": "fetch",
        "find_sessions": "fetch",
        "backward_find_sessions": "fetch",
        "find_sessions_range": "fetch",
        "fetch": "fetch",
        "backward_fetch": "fetch",
        "fetch_range": "fetch",
        "backward_fetch_range": "fetch",
        "flush_cache": "flush",
    },
    "versioned": {"put": "put", "get": "get", "delete": "delete", "flush_cache": "flush"},
}
"""Methods, and the sensors that they record to."""


def meter(store: Any, kind: str) -> dict[str, RecordedStat]:
    """Count and time the methods of this store from now on. Returns the metrics, by the names of the sensors, in ns."""
    stats: dict[str, RecordedStat] = {}
    busy: list[bool] = []
    for method, sensor in _OPERATIONS.get(kind, {}).items():
        stat = stats.setdefault(sensor, RecordedStat())
        setattr(store, method, _timed(getattr(store, method), stat, busy))
    for name in ("counter", "logged_counter"):
        if hasattr(store, name):
            setattr(store, name, _no_counter)  # a count is a read and a write, each with its time
    return stats


def _no_counter() -> None:
    """The faster way of counts, which a store with meters does not have."""


def _timed(method: Callable[..., Any], stat: RecordedStat, busy: list[bool]) -> Callable[..., Any]:
    record, clock = stat.record, time.perf_counter_ns

    def timed(*arguments: Any, **named: Any) -> Any:
        if busy:
            return method(*arguments, **named)
        busy.append(True)
        start = clock()
        try:
            return method(*arguments, **named)
        finally:
            record(clock() - start)
            busy.clear()

    return timed


class NodeMeter:
    """The records of one node of one task, and its time."""

    __slots__ = ("nanoseconds", "rate", "records")

    def __init__(self) -> None:
        self.records = 0
        self.nanoseconds = 0
        self.rate = Counter()
        """Samples of `records`."""


class NodeMeters:
    """Meters of the nodes of one task, whose thread alone calls the nodes."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """`clock` returns ns."""
        self.nodes: dict[str, NodeMeter] = {}
        self._clock = clock
        self._nested = 0
        """The time of the nodes that the current node has called so far, in ns."""

    def metered(self, name: str, process: Process) -> Process:
        """A function that counts and times the calls of a node's function."""
        meter, clock = self.nodes.setdefault(name, NodeMeter()), self._clock

        def timed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            outer, self._nested = self._nested, 0
            start = clock()
            try:
                process(key, value, timestamp, headers)
            finally:
                spent = clock() - start
                meter.records += 1
                meter.nanoseconds += spent - self._nested
                self._nested = outer + spent

        return timed
