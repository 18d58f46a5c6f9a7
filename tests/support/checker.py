"""What clients received while faults hit a cluster, and every way in which it contradicts Kafka's guarantees.

A history holds the acknowledgements of producers (this value is at that offset) and the records of readers, poll by
poll. A value is unique, written once by one producer to one partition, and its serial number grows by one with each.
Once all faults have ended one more reader reads everything from the start: the final log. Then:

- lost-write: acknowledged, and not in the final log
- duplicate-offset: two values acknowledged at one offset
- inconsistent-offset: a reader received, or an acknowledgement to a producer has, another value than the final log has
  at that offset; none at all counts, so that a value that was read once and vanished is found
- poll-skip, nonmonotonic-poll: within one assignment a reader received offsets with a gap that holds a record, or
  an offset that is not above the one before
- unknown-value: a value that no producer sent there
- duplicate, reordered: an idempotent producer's value is at two offsets, or below an older one of its values

A producer without idempotence may find its values twice or reordered: a retry may follow an attempt that had worked. An
idempotent one may get an acknowledgement of a value without its offset. A broker keeps its guarantees within a session,
a producer id with one epoch (KIP-98); a client that raises its epoch while the outcome of a request is unknown may
write that again. librdkafka does so in all partitions as soon as a request in one of them fails for what failed before
it (its issue 4953), which takes several requests in flight. So a producer with one request at a time is checked across
its sessions, and one that pipelines within each.
"""

from __future__ import annotations

import operator
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

SHOWN: Final = 20
INCONSISTENT: Final = "inconsistent-offset"


@dataclass(frozen=True, slots=True)
class Value:
    """The `serial`-th value of a producer for one partition."""

    producer: str
    serial: int

    def encode(self) -> bytes:
        """The bytes of the value in a record."""
        return f"{self.producer} {self.serial}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Value:
        """Raises ValueError for bytes that `encode` never made."""
        producer, _, serial = data.decode().rpartition(" ")
        return cls(producer, int(serial))


Log: TypeAlias = Mapping[int, Value]
"""The values of one partition by offset."""
Sessions: TypeAlias = Mapping[int, tuple[int, int]]
"""The producer id and the epoch that wrote each offset of one partition."""
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
    """The values sent, acknowledged and read; any thread may add to it, each reader with an assignment of its own."""

    def __init__(
        self, partitions: int, idempotent: frozenset[str] = frozenset(), pipelined: frozenset[str] = frozenset()
    ) -> None:
        """`idempotent` names the producers whose values may appear only once and in order; `pipelined`, in a
        session.
        """
        self._idempotent = idempotent
        self._pipelined = pipelined
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
        """The next value that this producer sends to the partition."""
        with self._changed:
            serial = self._sent[partition, producer]
            self._sent[partition, producer] = serial + 1
        return Value(producer, serial)

    def acknowledge(self, partition: int, offset: int, value: Value) -> None:
        """A producer received the offset of its value, or, with -1, an acknowledgement without an offset."""
        with self._changed:
            self._acknowledged[partition].append((offset, value))
            self._changed.notify_all()

    def assign(self) -> Assignment:
        """A reader starts over at the start of every partition."""
        return [0 for _ in self.partitions]

    def poll(self, assignment: Assignment, records: Sequence[tuple[int, int, Value]]) -> None:
        """A reader received these: partition, offset, value."""
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
        """One more than the highest offset that any reader received."""
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

    def anomalies(self, final: Sequence[Log], sessions: Sequence[Sessions] = ()) -> list[Anomaly]:
        """Every contradiction; `final` is the log of each partition as the last reader found it. All clients are done.

        `sessions` are those of each partition; without them a pipelined producer is checked as if it had one only.
        """
        found = list(self._found)
        for partition, log in enumerate(final):
            judged = [self._judge_acknowledged(partition, log), self._judge_read(partition, log)]
            judged.append(self._judge_final(partition, log, sessions[partition] if sessions else {}))
            found += [Anomaly(kind, partition, what) for kind, what in chain.from_iterable(judged)]
        return found

    def _judge_acknowledged(self, partition: int, log: Log) -> Iterator[tuple[str, str]]:
        there = set(log.values())
        notified: dict[int, Value] = {}
        for offset, value in self._acknowledged[partition]:
            if offset >= 0 and notified.setdefault(offset, value) != value:
                yield "duplicate-offset", f"{value} and {notified[offset]} were both acknowledged at {offset}"
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

    def _judge_final(self, partition: int, log: Log, sessions: Sessions) -> Iterator[tuple[str, str]]:
        latest: dict[object, int] = {}
        first: dict[object, int] = {}
        for offset, value in log.items():
            if not 0 <= value.serial < self._sent.get((partition, value.producer), 0):
                yield "unknown-value", f"{value} at {offset}"
            if value.producer not in self._idempotent | self._pipelined:
                continue
            writer = value.producer, sessions.get(offset) if value.producer in self._pipelined else None
            one = writer, value.serial
            if one in first:
                yield "duplicate", f"{value} at {first[one]} and {offset}"
            elif value.serial < latest.get(writer, -1):
                yield "reordered", f"{value} at {offset}, after {latest[writer]}"
            first.setdefault(one, offset)
            latest[writer] = max(value.serial, latest.get(writer, -1))


def report(anomalies: Sequence[Anomaly]) -> str:
    """The first of them, a line each, and how many there are."""
    more = [f"... {len(anomalies)} in all"] if len(anomalies) > SHOWN else []
    return "\n".join([*map(str, anomalies[:SHOWN]), *more])
