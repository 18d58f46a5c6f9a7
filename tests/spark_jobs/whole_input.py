"""One input for all jobs: 40,000 records that a reader is to see, in every codec, among those of aborted transactions;
100,000 with ODRADEK_SOAK_ROUNDS.

The record at each offset is known before anything is written: records take offsets in the order in which they are sent,
and the end of a transaction, which writes to every partition, takes one in each. So the expected output of jobs needs
no consumer, and it is the same on every cluster.

A record is an event, a click and a version of a key's value at once. Each key is busy for a time and then quiet for
longer; ids, in a header, come several times in a row and again much later; some records are late, and some have no key,
no value, no id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.spark_jobs import topics
from tests.spark_jobs.copies import Header, Record
from tests.spark_jobs.event_oracles import EPOCH_MS, Event, moment
from tests.spark_jobs.topics import Seen
from tests.support.eventually import eventually
from tests.support.nemesis import ROUNDS

CODECS: Final = ("gzip", "none", "snappy", "lz4", "zstd")
PARTITIONS: Final = 4
RECORDS: Final = 100_000 if ROUNDS else 40_000
PART: Final = RECORDS // len(CODECS) // 5
ABORTED: Final = PART // 4
STEP_MS: Final = 10
PERIOD: Final = 2_000
"""After this many records other keys are busy."""
BUSY: Final = 5
IDS: Final = RECORDS // 50
"""Different ids of a partition, so that each comes again after two fifths of the records."""
LATE_MS: Final = 6 * RECORDS
"""How late some records are: in windows that had records in time and are closed."""
ABORT: Final = b"aborted"
Kind = Literal["plain", "transactional", "commit", "abort"]


class Step(NamedTuple):
    """The steps of one producer: it writes records, or ends the transaction that it has begun."""

    codec: str
    kind: Kind
    records: Sequence[Record] = ()


@dataclass
class Plan:
    """The records written to a topic, with their offsets: sorted by place, `committed` without the aborted ones."""

    topic: str
    steps: list[Step] = field(default_factory=list)
    committed: list[Seen] = field(default_factory=list)
    everything: list[Seen] = field(default_factory=list)
    ends: Counter[int] = field(default_factory=Counter)
    """Where each partition ends."""

    @classmethod
    def of(cls, topic: str) -> Plan:
        """All codecs, one after the other; within each, transactions and the records of another producer meanwhile."""
        plan = cls(topic)
        for number, codec in enumerate(CODECS):
            parts = [
                [record(topic, n) for n in range(begin, begin + PART)]
                for begin in range(number * 5 * PART, (number + 1) * 5 * PART, PART)
            ]
            lost = [record(topic, n, ABORT) for n in range(number * 5 * PART, number * 5 * PART + 2 * ABORTED)]
            plan.steps += [
                *(Step(codec, "plain", parts[0]), Step(codec, "transactional", parts[1]), Step(codec, "commit")),
                *(Step(codec, "transactional", lost[:ABORTED]), Step(codec, "plain", parts[2])),
                *(Step(codec, "transactional", lost[ABORTED:]), Step(codec, "abort")),
                *(Step(codec, "transactional", parts[3]), Step(codec, "commit"), Step(codec, "plain", parts[4])),
            ]
        plan._place()
        return plan

    def write(self, bootstrap: str) -> None:
        """Writes it, each step acknowledged before the next."""
        plain: dict[str, Producer] = {}
        transactional: dict[str, Producer] = {}
        for codec in CODECS:
            plain[codec] = topics.producer(bootstrap, compression_type=codec)
            own = f"{self.topic}-{codec}"
            transactional[codec] = topics.producer(bootstrap, compression_type=codec, transactional_id=own)
            transactional[codec].init_transactions(topics.TIMEOUT_S)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        begun, ends = False, Counter[int]()
        for codec, kind, records in self.steps:
            to = plain[codec] if kind == "plain" else transactional[codec]
            if kind == "transactional" and not begun:
                to.begin_transaction()
                begun = True
            for each in records:
                topics.send(to, each)
            assert to.flush(topics.TIMEOUT_S) == 0  # aborted records have to be in the log
            if kind == "commit":
                to.commit_transaction(topics.TIMEOUT_S)
            elif kind == "abort":
                to.abort_transaction(topics.TIMEOUT_S)
            ends.update(each.partition for each in records)
            if kind in ("commit", "abort"):
                begun = False
                ends.update(range(PARTITIONS))
                _await_ends(admin, self.topic, ends)

    def events(self, header: str | None = None) -> list[Event]:
        """The committed records in the form of the oracles; by key, or by the value of a header."""
        return [
            Event(each.partition, each.offset, dict(each.headers).get(header) if header else each.key, at_of(each))
            for each in self.committed
        ]

    def since(self, at: int) -> list[Seen]:
        """The committed records from the first record of each partition on that is at least so late, committed or not.

        A marker of a transaction has the time of the broker, which is later: `at` has to lie before the first one.
        """
        first: dict[int, int] = {}
        for each in self.everything:
            if at_of(each) >= at:
                first.setdefault(each.partition, each.offset)
        return [each for each in self.committed if each.offset >= first[each.partition]]

    def _place(self) -> None:
        open_records: list[Seen] = []
        for _, kind, records in self.steps:
            seen = list(_placed(records, self.ends))
            self.everything += seen
            if kind == "plain":
                self.committed += seen
            else:
                open_records += seen
            if kind in ("commit", "abort"):
                self.committed += open_records if kind == "commit" else []
                self.ends.update(range(PARTITIONS))
                open_records = []
        for found in (self.committed, self.everything):
            found.sort(key=lambda each: each[:3])


def _await_ends(admin: AdminClient, topic: str, ends: Mapping[int, int]) -> None:
    """The coordinator answers the end of a transaction before its markers are in the partitions, and another producer's
    records may come first.
    """
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in ends}

    def found() -> dict[int, int]:
        notified = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return {place.partition: done.result(topics.TIMEOUT_S).offset for place, done in notified.items()}

    eventually(found, lambda offsets: offsets == ends, f"the ends are {dict(ends)}")


def _placed(records: Iterable[Record], ends: Counter[int]) -> Iterable[Seen]:
    for each in records:
        time_ms = round(each.timestamp.timestamp() * 1000)
        yield Seen(each.topic, each.partition, ends[each.partition], each.key, each.value, each.headers, time_ms)
        ends[each.partition] += 1


def record(topic: str, number: int, name: bytes = b"value") -> Record:
    """The record of that number; an aborted one has the same time and id, and would be counted with it."""
    partition, turn = number % PARTITIONS, number // PARTITIONS
    key = None if number % 50 == 7 else b"key-%d" % (number // PERIOD % 4 * BUSY + turn % BUSY)
    if name == ABORT:
        key = ABORT
    value = None if number % 11 == 0 else b"%b-%d" % (name, number)
    headers: tuple[Header, ...] = ()
    if number % 40 != 3:
        headers = (("id", b"%d-%d" % (partition, turn // 5 % IDS)), ("h", None if number % 2 else b""))
    late_ms = LATE_MS if number % 997 == 996 else number % 13 * 7
    return Record(topic, partition, 0, value, key, headers, moment(LATE_MS + number * STEP_MS - late_ms))


def at_of(seen: Seen) -> int:
    """The time of a record, in ms since the oracles' epoch."""
    return seen.timestamp_ms - EPOCH_MS
