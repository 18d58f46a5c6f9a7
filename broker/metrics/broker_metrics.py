"""Broker metrics: plain numbers that the event loop increments and the page for Prometheus reads.

Counting is part of the hot path: a few additions for each request and none for a record. The last thousand durations
are kept, as Kafka's reservoirs keep 1,028 of them; percentiles are computed from these when the page is requested.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final

KEPT: Final = 1024
_LAST: Final = KEPT - 1
MOST_VERSIONS: Final = 64


class TopicMetrics:
    """Counters of the partitions of one topic on this broker (Kafka's BrokerTopicMetrics, and what its
    ReplicaManager counts of ISRs). Bytes are bytes of record batches.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_isr_updates",
        "failed_produces",
        "fetches",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "produce_conversions",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    bytes_in: int
    bytes_out: int
    bytes_rejected: int
    failed_fetches: int
    failed_isr_updates: int
    failed_produces: int
    fetches: int
    isr_expands: int
    isr_shrinks: int
    messages_in: int
    produce_conversions: int
    produces: int
    replication_bytes_in: int
    replication_bytes_out: int


class RequestMetrics:
    """Requests of one API (Kafka's RequestMetrics): how many of each version, and how long they took.

    The total time is from a request's arrival to its response. The local time is the part in which the broker worked
    for the request. The difference is the wait for replicas, records or members.
    """

    __slots__ = ("_local_ns", "_total_ns", "count", "errors", "name", "versions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.versions = [0] * MOST_VERSIONS
        self.errors: dict[int, int] = {}
        self._total_ns = array("q", bytes(8 * KEPT))
        self._local_ns = array("q", bytes(8 * KEPT))

    def answered(self, version: int, total_ns: int, local_ns: int) -> None:
        """Count a response to a request of this version."""
        count = self.count
        self._total_ns[count & _LAST] = total_ns
        self._local_ns[count & _LAST] = local_ns
        self.versions[version] += 1
        self.count = count + 1

    def failed(self, code: int) -> None:
        """Count an error code in a response."""
        self.errors[code] = self.errors.get(code, 0) + 1

    def durations(self) -> list[tuple[int, int]]:
        """Total and local time of the last requests, in no particular order."""
        return list(zip(self._total_ns[: self.count], self._local_ns[: self.count], strict=True))


class ApiMetrics:
    """The metrics of all APIs, by the names of Kafka's metrics; `now_ns` is a clock that never runs backwards."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._apis: dict[str, RequestMetrics] = {}

    def __iter__(self) -> Iterator[RequestMetrics]:
        return iter(list(self._apis.values()))

    def of(self, name: str) -> RequestMetrics:
        """The metrics of one API."""
        found = self._apis.get(name)
        if found is None:
            found = self._apis[name] = RequestMetrics(name)
        return found


def percentiles(durations_ns: Iterable[int], wanted: Iterable[float]) -> list[float]:
    """The percentiles (0 to 1) of durations, in milliseconds; 0 where there are none."""
    ordered = sorted(durations_ns)
    if not ordered:
        return [0.0 for _ in wanted]
    last = len(ordered) - 1
    return [ordered[min(last, int(each * len(ordered)))] / 1e6 for each in wanted]
