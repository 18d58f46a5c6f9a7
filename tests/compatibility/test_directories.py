"""Kafka's own directories: Apache Kafka 3.9.2 and Odradek take turns on one, after clean stops and after kill -9.

Kafka writes topics of every kind. Then each broker in turn opens the other's directory, finds every record, offset,
time and group unchanged, lets the clients continue (an idempotent producer, an open transaction), and writes more for
the next.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.protocol.batch import headers
from odradek.storage.quarantine import QUARANTINE
from tests.compatibility.turns import (
    DEADLINE_S,
    RECONNECT,
    Name,
    State,
    Stored,
    Turns,
    alter_topic,
    cleaned_to,
    dump_finds_nothing_wrong,
    look,
    read,
    segments,
)
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP: Final = "readers"
BASE_MS: Final = int(time.time() * 1000) - 3_600_000
TIMES_MS: Final = tuple(BASE_MS + after for after in (-1000, 0, 1234, 5000, 90_000_000))
SMALL: Final = {"segment.bytes": "2000", "index.interval.bytes": "500"}
TOPICS: Final[dict[str, dict[str, str]]] = {
    "codecs": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "recompressed": {"compression.type": "gzip"},
    "transactions": {},
    "heads": {},
    "expired": {"retention.bytes": "8000"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"},
}
HEADS: Final = ("heads", 0)
NAMES: Final[list[Name]] = [("codecs", number) for number in range(len(CODECS))] + [
    (topic, 0) for topic in TOPICS if topic != "codecs"
]
GAPPY: Final = frozenset({"compacted", "__consumer_offsets", "__transaction_state"})


class Clients:
    """Producers that live through all turns, and their acknowledged records: `acknowledged` by partition and offset."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[Name, dict[int, tuple[bytes | None, bytes | None]]] = {name: {} for name in NAMES}
        self.latest: dict[bytes, bytes | None] = {}
        self._numbers = itertools.count()
        self._visible: list[int] = []
        self._in_transaction: list[int] = []
        common = {"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.size": 1500, **RECONNECT}
        self._plain = [
            Producer({**common, "compression.type": codec, "enable.idempotence": True, "acks": "all"})
            for codec in CODECS
        ]
        self._careless = Producer({**common, "acks": "1"})
        self._transactional = Producer(
            {**common, "transactional.id": "mover", "transaction.timeout.ms": 600_000, "compression.type": "lz4"}
        )
        self._transactional.init_transactions(DEADLINE_S)

    def write(self, count: int) -> None:
        """`count` records and more into every topic; the transaction that was open is ended, another one left open."""
        for number, producer in enumerate(self._plain):
            self._send(producer, ("codecs", number), count)
        for number, topic in enumerate(("heads", "expired", "append-time", "recompressed")):
            self._send(self._plain[number // 2 * 3], (topic, 0), count)
        self._send(self._careless, ("append-time", 0), count)
        self._update(count)
        self._write_transactions(count)
        for producer in (*self._plain, self._careless):
            assert producer.flush(DEADLINE_S) == 0

    def committed(self) -> list[int]:
        """The offsets that a read_committed consumer gets of the transactions: those before the open one."""
        open_from = min(self._in_transaction, default=1 << 60)
        return sorted(offset for offset in self._visible if offset < open_from)

    def close(self) -> None:
        """End the open transaction, so that no reader waits for it."""
        self._end(commit=True)

    def _update(self, count: int) -> None:
        """Few keys, written again and again; every seventh record is a tombstone."""
        for number in range(count):
            key = b"key %d" % (number % 17)
            value = None if number % 7 == 6 else b"%d" % next(self._numbers) * 8
            producer = self._plain[number // 25 % len(CODECS)]
            self._produce(producer, ("compacted", 0), key, value)
            if number % 25 == 24:
                assert producer.flush(DEADLINE_S) == 0  # before the next one writes
            self.latest[key] = value

    def _write_transactions(self, count: int) -> None:
        if self._in_transaction:
            self._end(commit=True)
        for commit in (True, False, None):
            self._transactional.begin_transaction()
            for number in range(count // 4):
                self._produce(self._transactional, ("transactions", 0), b"t", b"%d" % next(self._numbers), self._within)
                if number % 3 == 0:
                    self._produce(self._plain[0], ("transactions", 0), None, b"%d" % next(self._numbers), self._outside)
            assert self._transactional.flush(DEADLINE_S) == 0
            if commit is not None:
                self._end(commit=commit)

    def _end(self, *, commit: bool) -> None:
        if commit:
            self._transactional.commit_transaction(DEADLINE_S)
            self._visible.extend(self._in_transaction)
        else:
            self._transactional.abort_transaction(DEADLINE_S)
        self._in_transaction.clear()

    def _send(self, producer: Producer, name: Name, count: int) -> None:
        for _ in range(count):
            number = next(self._numbers)
            key = None if number % 3 == 0 else b"key %d" % (number % 10)
            value = None if number % 11 == 0 else b"%d " % number * (number % 40)
            self._produce(producer, name, key, value)

    def _produce(
        self,
        producer: Producer,
        name: Name,
        key: bytes | None,
        value: bytes | None,
        known: Callable[[int], None] = lambda offset: None,
    ) -> None:
        number = next(self._numbers)
        attached: list[Any] = [("n", b"%d" % number), ("n", None), ("", b"")][: number % 4]

        def delivered(error: object, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            offset = message.offset()
            assert offset is not None
            assert offset not in self.acknowledged[name], "one offset for two records"
            self.acknowledged[name][offset] = key, value
            known(offset)

        late_ms = 700 if number % 5 == 0 else 0  # some are older than those before them
        producer.produce(
            name[0], value, key, name[1], on_delivery=delivered, timestamp=BASE_MS + number - late_ms, headers=attached
        )
        producer.poll(0)

    def _within(self, offset: int) -> None:
        self._in_transaction.append(offset)

    def _outside(self, offset: int) -> None:
        self._visible.append(offset)


# -- Kafka's first turn ------------------------------------------------------------------------------------------------


def prepare(turns: Turns) -> Clients:
    """Topics of every kind, of which Kafka has deleted and compacted as much as it could."""
    admin = AdminClient({"bootstrap.servers": turns.bootstrap})
    wanted = [
        NewTopic(topic, len(CODECS) if topic == "codecs" else 1, 1, config={**SMALL, **config})
        for topic, config in TOPICS.items()
    ]
    for answer in admin.create_topics(wanted, operation_timeout=30).values():
        answer.result(30)
    clients = Clients(turns.bootstrap)
    clients.write(200)
    start = int(segments(turns.folder(HEADS))[3].stem) + 2  # within a segment
    for answer in admin.delete_records([TopicPartition(*HEADS, start)]).values():
        assert answer.result(30).low_watermark == start
    expired = turns.folder(("expired", 0))
    eventually(
        lambda: segments(expired)[0].stem, lambda first: int(first) > 0, "Kafka deletes segments over retention.bytes"
    )
    folder = turns.folder(("compacted", 0))
    eventually(
        lambda: (cleaned_to(turns, ("compacted", 0)), int(segments(folder)[-1].stem)),
        lambda found: 0 < found[0] == found[1],
        "Kafka compacts all but the last segment",
    )
    # From here on no record is removed, so that the contents can be compared.
    alter_topic(turns.bootstrap, "expired", retention_bytes=-1)
    alter_topic(turns.bootstrap, "compacted", min_compaction_lag_ms=10**15)
    commit(turns.bootstrap, 0)
    starts = turns.data_dir / "log-start-offset-checkpoint"
    eventually(starts.read_text, lambda text: f"heads 0 {start}" in text, "the start of the log is in the checkpoint")
    return clients


def commit(bootstrap: str, turn: int) -> None:
    """Offsets of the group, others in each turn."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        at = [TopicPartition("codecs", number, 10 * turn + number, f"turn {turn}") for number in range(len(CODECS))]
        for each in consumer.commit(offsets=at, asynchronous=False) or ():
            assert each.error is None
    finally:
        consumer.close()


# -- checks of every turn ----------------------------------------------------------------------------------------------


def assert_as_reported(state: State, clients: Clients) -> None:
    """Consumers find the records that the producers got acknowledged."""
    for name, records in clients.acknowledged.items():
        found = {record.offset: (record.key, record.value) for record in state.uncommitted[name]}
        first = state.ends[name][0][0]
        if name[0] == "compacted":
            assert found.items() <= records.items()
            assert {key: value for key, value in latest(state.uncommitted[name]).items() if value is not None} == {
                key: value for key, value in clients.latest.items() if value is not None
            }
        else:
            assert found == {offset: record for offset, record in records.items() if offset >= first}, name
        offsets = [record.offset for record in state.uncommitted[name]]
        assert offsets == sorted(offsets)
    assert [record.offset for record in state.committed["transactions", 0]] == clients.committed()


def latest(records: list[Stored]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def see(turns: Turns) -> State:
    state = look(turns.bootstrap, NAMES, TIMES_MS, GROUP)
    # Kafka looks into one segment only, and returns that there is no record where compaction has left an empty batch.
    del state.by_time["compacted", 0]
    return state


class Scenario:
    """Turn after turn over one directory."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._turn = 0
        turns.start(turns.kafka)
        self._clients = prepare(turns)
        self._left = see(turns)
        assert_as_reported(self._left, self._clients)
        assert self._left.ends[HEADS][0][0] > 1
        assert self._left.ends["expired", 0][0][0] > 0
        assert len(self._left.uncommitted["compacted", 0]) < len(self._clients.acknowledged["compacted", 0])
        assert min(len(segments(turns.folder(name))) for name in NAMES) > 1

    def hand_over(self, end: Callable[[], None], heir: Any) -> None:
        """Stop the serving broker; the other one opens the directory, has everything, and writes more."""
        turns = self._turns
        end()
        if end == turns.stop:
            dump_finds_nothing_wrong(turns.data_dir, compacted=GAPPY)
        turns.start(heir)
        found = see(turns)
        for part in State._fields:
            assert getattr(found, part) == getattr(self._left, part), part
        self._turn += 1
        before = {name: len(segments(turns.folder(name))) for name in NAMES}
        self._clients.write(80)
        commit(turns.bootstrap, self._turn)
        self._left = see(turns)
        assert_as_reported(self._left, self._clients)
        assert self._left.groups["codecs", 1] == (10 * self._turn + 1, f"turn {self._turn}")
        assert all(len(segments(turns.folder(name))) > before[name] for name in NAMES if name[0] == "codecs"), (
            "the log rolls"
        )

    def close(self) -> None:
        """The last open transaction can be ended, and the directory has no fault."""
        self._clients.close()
        state = see(self._turns)
        assert_as_reported(state, self._clients)
        self._turns.stop()
        dump_finds_nothing_wrong(self._turns.data_dir, compacted=GAPPY)
        for name in NAMES:
            if name[0] == "codecs":
                assert len(self._producers(name)) == 1, "the producer kept its id and epoch over all turns"

    def _producers(self, name: Name) -> set[tuple[int, int]]:
        """(id, epoch) of all producers that have written to a partition."""
        logs = (path.read_bytes() for path in segments(self._turns.folder(name)))
        return {(header.producer_id, header.producer_epoch) for data in logs for _, header in headers(data)}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("turns")
    server = ZooKeeperServer(folder, folder / "zookeeper")
    server.start()
    yield server.connect
    server.stop()


@pytest.fixture
def turns(zookeeper: str, tmp_path: Path) -> Iterator[Turns]:
    made = Turns(tmp_path, f"{zookeeper}/{tmp_path.name}")
    yield made
    made.close()


def test_each_broker_opens_the_directory_that_the_other_stopped_with_or_was_killed_over(turns: Turns) -> None:
    """Each of the two after the other, after a clean stop and after kill -9: each of the four has its turn."""
    scenario = Scenario(turns)
    scenario.hand_over(turns.stop, turns.ours)
    scenario.hand_over(turns.kill, turns.kafka)
    scenario.hand_over(turns.kill, turns.ours)
    scenario.hand_over(turns.stop, turns.kafka)
    scenario.close()


def test_kafka_opens_a_directory_that_has_a_quarantine(turns: Turns) -> None:
    name = ("damaged", 0)
    turns.start(turns.ours)
    admin = AdminClient({"bootstrap.servers": turns.bootstrap})
    admin.create_topics([NewTopic(name[0], 1, 1)])[name[0]].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": turns.bootstrap, "acks": "all", **RECONNECT})
    for number in range(10):
        producer.produce(name[0], b"%d" % number * 50, partition=0)
        assert producer.flush(DEADLINE_S) == 0
    turns.kill()
    (segment,) = segments(turns.folder(name))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    turns.start(turns.ours)
    kept = read(turns.bootstrap, [name])[name]
    assert 0 < len(kept) < 10
    turns.stop()
    quarantined = {path.name: path.read_bytes() for path in (turns.data_dir / QUARANTINE).glob("*/*")}
    assert len(quarantined) == 2
    turns.start(turns.kafka)
    assert read(turns.bootstrap, [name])[name] == kept
    turns.stop()
    assert {path.name: path.read_bytes() for path in (turns.data_dir / QUARANTINE).glob("*/*")} == quarantined
