"""Records and faulty copies of them, in plain Python: the input of the tests of `reconcile`.

A partition's records lie far enough apart from each other's faults that each fault has one name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
FAULTS: Final = ("loss", "duplicate", "corruption", "reordering")
SPACING: Final = 6

Difference = tuple[str, str | None, int | None, int | None, str | None, int | None, int | None]
Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class Record:
    """The record as the Kafka source returns it."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = b"key"
    headers: tuple[Header, ...] = (("h", b"1"),)
    timestamp: datetime = START
    appended: bool = False
    """Whether the timestamp is the broker's."""

    @property
    def row(self) -> tuple[Any, ...]:
        """For SCHEMA. Absent headers are null, as the source has it."""
        headers = [(key, None if value is None else bytearray(value)) for key, value in self.headers] or None
        return (
            _bytes(self.key),
            _bytes(self.value),
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            int(self.appended),
            headers,
        )

    def copied_to(self, offset: int, *, named: bool, appended: bool = False) -> Record:
        """A copy. It names its origin where that is requested; an `appended` one has another time of its own."""
        place = f"{self.topic}:{self.partition}:{self.offset}".encode()
        time_ms = str(round(self.timestamp.timestamp() * 1000)).encode()
        own = (("odradek.origin", place), ("odradek.timestamp", time_ms)) if named else ()
        time = self.timestamp + timedelta(days=1) if appended else self.timestamp
        return replace(self, offset=offset, headers=self.headers + own, timestamp=time, appended=appended)


def _bytes(value: bytes | None) -> bytearray | None:
    return None if value is None else bytearray(value)


def partition_of(topic: str, partition: int, count: int) -> list[Record]:
    """Records that all differ, with gaps between their offsets, as markers of transactions leave them."""
    return [
        Record(topic, partition, 100 + number + number // 7, f"{topic}-{partition}-{number}".encode())
        for number in range(count)
    ]


def faulty(
    records: Sequence[Record], faults: Mapping[int, str], match: str, *, appended: bool = False
) -> tuple[list[Record], set[Difference]]:
    """The copy of a partition with a fault at some of its records, and the expected findings.

    `faults` are names by number of the record, SPACING apart; a record that changes places does so with the next.
    """
    if match == "offset":
        return _faulty_archive(records, faults)
    order = list(range(len(records)))
    copies: list[tuple[int, bytes | None]] = []
    expected: list[tuple[str, int | None, int]] = []  # kind, number, place in the copy
    for number, injected in faults.items():
        if injected == "reordering":
            order[number], order[number + 1] = number + 1, number
    for number in order:
        fault = faults.get(number)
        if fault == "loss":
            expected.append(("loss", number, -1))
            continue
        if fault in ("corruption", "reordering"):
            expected.append((fault, number, len(copies)))
        copies.append((number, b"other" + str(number).encode() if fault == "corruption" else records[number].value))
        if faults.get(number - 2) == "duplicate":
            expected.append(("duplicate", number - 2, len(copies)))
            copies.append((number - 2, records[number - 2].value))
    named = match == "origin"
    copy = [
        replace(records[n].copied_to(at, named=named, appended=appended and named), value=value)
        for at, (n, value) in enumerate(copies)
    ]
    found: set[Difference] = set()
    for kind, at, place in expected:
        known = at is not None and not (kind == "duplicate" and match == "content")
        where = (records[0].topic, records[0].partition)
        left = (*where, records[at].offset) if known and at is not None else (None, None, None)
        found.add((kind, *left, *((*where, place) if place >= 0 else (None, None, None))))
    return copy, found


def _faulty_archive(records: Sequence[Record], faults: Mapping[int, str]) -> tuple[list[Record], set[Difference]]:
    copy: list[Record] = []
    found: set[Difference] = set()
    for number, record in enumerate(records):
        fault, before = faults.get(number), faults.get(number - 1)
        place = (record.topic, record.partition, record.offset)
        if fault == "loss":
            found.add(("loss", *place, None, None, None))
            continue
        if fault == "corruption":
            copy.append(replace(record, value=b"other"))
        elif fault == "reordering":
            copy.append(replace(record, value=records[number + 1].value))
        elif before == "reordering":
            copy.append(replace(record, value=records[number - 1].value))
            fault = "reordering"
        else:
            copy += [record] * (2 if fault == "duplicate" else 1)
        if fault is not None:
            found.add((fault, *place, *place))
    return copy, found
