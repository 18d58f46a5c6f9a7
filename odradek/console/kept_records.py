"""The records that one request keeps, within a number and a size."""

from __future__ import annotations

from typing import Final

from odradek.records.consumed import ConsumedRecord

MOST_BYTES: Final = 32 * 1024 * 1024
"""Keys, values and headers of one request together, unless a single record is larger."""


class KeptRecords:
    """At most `limit` records: the first ones, after which it is full, or with `newest` the latest of all."""

    def __init__(self, limit: int, *, newest: bool, most_bytes: int = MOST_BYTES) -> None:
        self._limit = limit
        self.newest = newest
        self._most_bytes = most_bytes
        self._records: list[ConsumedRecord] = []
        self.dropped: dict[int, int] = {}
        """The highest offset of each partition that was dropped, with `newest`."""
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no further record is to be read; never with `newest`."""
        return not self.newest and (len(self._records) >= self._limit or self._bytes >= self._most_bytes)

    def count_since(self, timestamp_ms: int) -> int:
        """How many of the kept records have this timestamp or a later one."""
        return sum(each.timestamp >= timestamp_ms for each in self._records)

    def add(self, record: ConsumedRecord) -> None:
        """Keep a record; with `newest` the oldest are dropped, now and then."""
        self._records.append(record)
        self._bytes += size_of(record)
        if self.newest and (len(self._records) > 2 * self._limit or self._bytes > self._most_bytes):
            self._cut()

    def records(self) -> tuple[ConsumedRecord, ...]:
        """The records by time: with `newest` the newest first, else the oldest first."""
        if self.newest:
            self._cut()
            return tuple(self._records)
        # The order of partitions is arbitrary; that of times is what a reader expects.
        return tuple(sorted(self._records, key=_by_time))

    def _cut(self) -> None:
        self._records.sort(key=_by_time, reverse=True)
        for dropped in self._records[self._limit :]:
            self._drop(dropped)
        del self._records[self._limit :]
        while self._bytes > self._most_bytes and len(self._records) > 1:
            self._drop(self._records.pop())

    def _drop(self, record: ConsumedRecord) -> None:
        self._bytes -= size_of(record)
        self.dropped[record.partition] = max(record.offset, self.dropped.get(record.partition, record.offset))


def size_of(record: ConsumedRecord) -> int:
    """The bytes of key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _by_time(record: ConsumedRecord) -> tuple[int, int]:
    return record.timestamp, record.offset
