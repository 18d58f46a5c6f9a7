"""What clients saw while a cluster was tormented, and every way in which it contradicts what Kafka promises.

A history holds what producers were told (this value stands at that offset) and what readers were given, poll by poll.
A value is unique, written once by one producer to one partition, and its serial number grows by one with each. Once
everything is healed one more reader reads everything from the start: the final log. Then:

- lost-write: acknowledged, and not in the final log
- duplicate-offset: two values acknowledged at one offset
- inconsistent-offset: a reader was given, or a producer was told, another value than the final log has at that offset;
  none at all counts, so that what was read once and vanished is found
- poll-skip, nonmonotonic-poll: within one assignment a reader was given offsets with a gap that holds a record, or
  an offset that is not above the one before
- unknown-value: a value that nobody sent there
- duplicate, reordered: an idempotent producer's value stands at two offsets, or below an older one of its values

A producer without idempotence may see its values twice or reordered: a retry may follow an attempt that had worked.
An idempotent one may be told that a value stands there without being told where.
"""

from __future__ import annotations

import operator
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

SHOWN: Final = 20
INCONSISTENT: Final = "inconsistent-offset"


@dataclass(frozen=True, slots=True)
class Value:
    """The `serial`-th value of a producer for one partition."""

    producer: str
    serial: int

    def encode(self) -> bytes:
        """As it stands in a record."""
        return f"{self.producer} {self.serial}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Value:
        """Raises ValueError for what `encode` never made."""
        producer, _, serial = data.decode().rpartition(" ")
        return cls(producer, int(serial))


Log: TypeAlias = Mapping[int, Value]
"""The values of one partition by offset."""
Assignment: TypeAlias = list[int]
"""The offset that a reader expects next in each partition, all from the start."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One contradiction."""

    kind: str
    partition: int
    what: str

    def __str__(self) -> str:
        return f"{self.kind} in partition {self.partition}: {self.what}"


class History:
    """What was sent, acknowledged and read; any thread may add to it, each reader with an assignment of its own."""

    def __init__(self, partitions: int, idempotent: frozenset[str] = frozenset()) -> None:
        """`idempotent` names the producers whose values may stand only once and in order."""
        self._idempotent = idempotent
        self._changed = threading.Condition()
        self._sent: dict[tuple[int, str], int] = defaultdict(int)
        self._acknowledged: list[list[tuple[int, Value]]] = [[] for _ in range(partitions)]
        self._read_below = [0] * partitions
        self._read: list[dict[int, Value]] = [{} for _ in range(partitions)]
        self._gaps: list[set[tuple[int, int]]] = [set() for _ in range(partitions)]
        self._found: list[Anomaly] = []

    @property
    def partitions(self) -> range:
        return range(len(self._acknowledged))

    def next_value(self, partition: int, producer: str) -> Value:
        """The value that this producer is about to send to the partition."""
        with self._changed:
            serial = self._sent[partition, producer]
            self._sent[partition, producer] = serial + 1
        return Value(producer, serial)

    def acknowledge(self, partition: int, offset: int, value: Value) -> None:
        """A producer was told that its value stands at the offset, or, with -1, that it does somewhere."""
        with self._changed:
            self._acknowledged[partition].append((offset, value))
            self._changed.notify_all()

    def assign(self) -> Assignment:
        """A reader begins anew at the start of every partition."""
        return [0 for _ in self.partitions]

    def poll(self, assignment: Assignment, records: Sequence[tuple[int, int, Value]]) -> None:
        """A reader was given these: partition, offset, value."""
        with self._changed:
            for partition, offset, value in records:
                expected = assignment[partition]
                assignment[partition] = offset + 1
                first = self._read[partition].setdefault(offset, value)
                if first != value:
                    self._found.append(Anomaly(INCONSISTENT, partition, f"{first} and {value} were read at {offset}"))
                if offset < expected:
                    what = f"{offset} came after {expected - 1}"
                    self._found.append(Anomaly("nonmonotonic-poll", partition, what))
                elif offset > expected:
                    self._gaps[partition].add((expected, offset))
                self._read_below[partition] = max(self._read_below[partition], offset + 1)
            self._changed.notify_all()

    def read_below(self, partition: int) -> int:
        """One more than the highest offset that any reader was given."""
        with self._changed:
            return self._read_below[partition]

    def acknowledged(self) -> int:
        """How many values were acknowledged so far."""
        with self._changed:
            return sum(map(len, self._acknowledged))

    def await_more(self, partitions: Iterable[int], timeout_s: float) -> None:
        """Wait until in each of these a value more was acknowledged, and a newer one read. Raises TimeoutError."""
        wanted = set(partitions)
        with self._changed:
            before = self._progress()

            def stuck() -> list[int]:
                return [each for each in wanted if any(map(operator.le, self._progress()[each], before[each]))]

            if not self._changed.wait_for(lambda: not stuck(), timeout_s):
                shown = ", ".join(f"{each}: {self._progress()[each]}" for each in stuck())
                raise TimeoutError(
                    f"(acknowledged, read below) stay the same for {timeout_s:g} s in partitions {shown}"
                )

    def _progress(self) -> list[tuple[int, int]]:
        return list(zip(map(len, self._acknowledged), self._read_below, strict=True))

    def anomalies(self, final: Sequence[Log]) -> list[Anomaly]:
        """Every contradiction; `final` is the log of each partition as it was read in the end. All clients are done."""
        found = list(self._found)
        for partition, log in enumerate(final):
            for judge in (self._judge_acknowledged, self._judge_read, self._judge_final):
                found += [Anomaly(kind, partition, what) for kind, what in judge(partition, log)]
        return found

    def _judge_acknowledged(self, partition: int, log: Log) -> Iterator[tuple[str, str]]:
        there = set(log.values())
        told: dict[int, Value] = {}
        for offset, value in self._acknowledged[partition]:
            if offset >= 0 and told.setdefault(offset, value) != value:
                yield "duplicate-offset", f"{value} and {told[offset]} were both acknowledged at {offset}"
            if value not in there:
                yield "lost-write", f"{value} was acknowledged at {offset}, where {log.get(offset)} stands in the end"
            elif offset >= 0 and log.get(offset) != value:
                yield INCONSISTENT, f"{value} was acknowledged at {offset}, where {log.get(offset)} stands"

    def _judge_read(self, partition: int, log: Log) -> Iterator[tuple[str, str]]:
        for offset, value in self._read[partition].items():
            if log.get(offset) != value:
                yield INCONSISTENT, f"{value} was read at {offset}, where {log.get(offset)} stands in the end"
        for expected, offset in self._gaps[partition]:
            skipped = next((each for each in range(expected, offset) if each in log), None)
            if skipped is not None:
                yield "poll-skip", f"{offset} came after {expected - 1}, and {skipped} holds {log[skipped]}"

    def _judge_final(self, partition: int, log: Log) -> Iterator[tuple[str, str]]:
        latest: dict[str, int] = {}
        first: dict[Value, int] = {}
        for offset, value in log.items():
            if not 0 <= value.serial < self._sent.get((partition, value.producer), 0):
                yield "unknown-value", f"{value} at {offset}"
            if value.producer not in self._idempotent:
                continue
            if value in first:
                yield "duplicate", f"{value} at {first[value]} and {offset}"
            elif value.serial < latest.get(value.producer, -1):
                yield "reordered", f"{value} at {offset}, after {latest[value.producer]}"
            first.setdefault(value, offset)
            latest[value.producer] = max(value.serial, latest.get(value.producer, -1))


def report(anomalies: Sequence[Anomaly]) -> str:
    """The first of them, a line each, and how many there are."""
    more = [f"... {len(anomalies)} in all"] if len(anomalies) > SHOWN else []
    return "\n".join([*map(str, anomalies[:SHOWN]), *more])
