"""Compaction in a directory that changes hands: Odradek continues after Kafka's cleaner, and Kafka after Odradek's.

A key's last record is never lost, whichever broker compacts, and also where a broker is killed during compaction. The
compacted part holds one record for each key; tombstones are removed after delete.retention.ms; of an aborted
transaction nothing stays; and kafka-dump-log finds no fault with any of it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import pytest
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.compatibility.turns import (
    DEADLINE_S,
    RECONNECT,
    Name,
    Stored,
    Turns,
    cleaned_to,
    dump_finds_nothing_wrong,
    read,
    segments,
)
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

KEPT: Final[Name] = ("kept", 0)
"""Its tombstones stay for a day."""
GONE: Final[Name] = ("gone", 0)
"""Its tombstones may be removed at once."""
BOTH: Final = (KEPT, GONE)
GAPPY: Final = frozenset({"kept", "gone", "__consumer_offsets", "__transaction_state"})
KEYS: Final = 13
K = TypeVar("K")


class Writer:
    """Updates of a few keys, some of them in transactions, and `latest`, the expected value of each key."""

    def __init__(self, bootstrap: str) -> None:
        common = {"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.size": 700, **RECONNECT}
        self._plain = Producer({**common, "enable.idempotence": True, "compression.type": "lz4"})
        self._transactional = Producer({**common, "transactional.id": "updates"})
        self._transactional.init_transactions(DEADLINE_S)
        self._numbers = itertools.count()
        self.latest: dict[Name, dict[bytes, bytes | None]] = {name: {} for name in BOTH}

    def update(self, count: int = 200) -> None:
        """`count` plain updates, then a transaction that commits and one that does not."""
        for _ in range(count):
            self._write(self._plain, commits=True)
        assert self._plain.flush(DEADLINE_S) == 0
        for commits in (True, False):
            self._transactional.begin_transaction()
            for _ in range(KEYS):
                self._write(self._transactional, commits=commits)
            if commits:
                self._transactional.commit_transaction(DEADLINE_S)
            else:
                self._transactional.flush(DEADLINE_S)
                self._transactional.abort_transaction(DEADLINE_S)

    def take_away(self) -> bytes:
        """A key that has a value and then none; never written again."""
        key = b"once %d" % next(self._numbers)
        for value in (b"here", None):
            self._write_one(self._plain, key, value)
        for name in BOTH:
            self.latest[name][key] = None
        assert self._plain.flush(DEADLINE_S) == 0
        return key

    def _write(self, producer: Producer, *, commits: bool) -> None:
        number = next(self._numbers)
        key = b"key %d" % (number % KEYS)
        value = None if number % 11 == 0 else b"%d " % number * 5
        self._write_one(producer, key, value)
        if commits:
            for name in BOTH:
                self.latest[name][key] = value

    def _write_one(self, producer: Producer, key: bytes, value: bytes | None) -> None:
        for name in BOTH:
            producer.produce(name[0], value, key, name[1], on_delivery=_raise)
        producer.poll(0)


def _raise(error: object, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def create_topics(bootstrap: str) -> None:
    common = {
        "cleanup.policy": "compact",
        "segment.bytes": "4000",
        "index.interval.bytes": "500",
        "min.cleanable.dirty.ratio": "0.01",
    }
    wanted = [
        NewTopic("kept", 1, 1, config={**common, "delete.retention.ms": "86400000"}),
        NewTopic("gone", 1, 1, config={**common, "delete.retention.ms": "0"}),
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.create_topics(wanted, operation_timeout=30).values():
        answer.result(30)


# -- conditions --------------------------------------------------------------------------------------------------------


def await_compaction(turns: Turns) -> None:
    """Wait until everything but the last segment of each log has been compacted."""
    for name in BOTH:
        eventually(
            lambda name=name: (cleaned_to(turns, name), int(segments(turns.folder(name))[-1].stem)),
            lambda found: found[0] == found[1] > 0,
            f"{name} is compacted",
        )


def assert_nothing_lost(turns: Turns, writer: Writer) -> dict[Name, list[Stored]]:
    """Every key has the last value that was committed; returns the records."""
    records = read(turns.bootstrap, BOTH, "read_committed")
    for name in BOTH:
        found = {record.key: record.value for record in records[name]}
        assert present(found) == present(writer.latest[name]), name
    kept = {record.key: record.value for record in records[KEPT]}
    assert kept == writer.latest[KEPT], "tombstones stay for a day"
    return records


def present(values: Mapping[K, bytes | None]) -> dict[K, bytes]:
    return {key: value for key, value in values.items() if value is not None}


def assert_compacted(turns: Turns, writer: Writer) -> None:
    """One record a key below the last segment, and nothing of an aborted transaction."""
    await_compaction(turns)
    records = assert_nothing_lost(turns, writer)
    everything = read(turns.bootstrap, BOTH)
    for name in BOTH:
        end = cleaned_to(turns, name)
        sealed = [record for record in records[name] if record.offset < end]
        assert max(Counter(record.key for record in sealed).values()) == 1, name
        assert [record for record in everything[name] if record.offset < end] == sealed, "aborted records are gone"


def assert_tombstones_go(turns: Turns, writer: Writer) -> None:
    """A tombstone is removed with the second compaction that reads it, for which a new record has to come in."""
    key = writer.take_away()

    def compact_once_more() -> dict[Name, list[bytes | None]]:
        writer.update(50)
        await_compaction(turns)
        found = read(turns.bootstrap, BOTH)
        return {name: [each.value for each in found[name] if each.key == key] for name in BOTH}

    eventually(
        compact_once_more,
        lambda left: left == {KEPT: [None], GONE: []},
        "the tombstone is deleted, or stays, as configured",
    )


# -- the turns ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("compaction")
    server = ZooKeeperServer(folder, folder / "zookeeper")
    server.start()
    yield server.connect
    server.stop()


@pytest.fixture
def turns(zookeeper: str, tmp_path: Path) -> Iterator[Turns]:
    made = Turns(tmp_path, f"{zookeeper}/{tmp_path.name}")
    yield made
    made.close()


def begin(turns: Turns) -> Writer:
    """Kafka writes and compacts."""
    turns.start(turns.kafka)
    create_topics(turns.bootstrap)
    writer = Writer(turns.bootstrap)
    writer.update()
    assert_compacted(turns, writer)
    return writer


def test_each_broker_compacts_where_the_other_stopped(turns: Turns) -> None:
    writer = begin(turns)
    for heir in (turns.ours, turns.kafka):
        before = {name: cleaned_to(turns, name) for name in BOTH}
        turns.stop()
        assert {name: cleaned_to(turns, name) for name in BOTH} == before, "a stop keeps the cleaner checkpoint"
        dump_finds_nothing_wrong(turns.data_dir, compacted=GAPPY)
        turns.start(heir)
        assert_nothing_lost(turns, writer)
        writer.update()
        assert_compacted(turns, writer)
        assert all(cleaned_to(turns, name) > before[name] for name in BOTH)
        assert_tombstones_go(turns, writer)
        assert_nothing_lost(turns, writer)
    turns.stop()
    dump_finds_nothing_wrong(turns.data_dir, compacted=GAPPY)


def test_no_key_is_lost_where_a_broker_is_killed_while_it_compacts(turns: Turns) -> None:
    writer = begin(turns)
    for heir in (turns.ours, turns.ours, turns.ours, turns.kafka, turns.ours):
        turns.kill()
        turns.start(heir)
        assert_nothing_lost(turns, writer)
        writer.update(400)  # enough for the cleaner to be at work when the next kill comes
    assert_compacted(turns, writer)
    turns.stop()
    dump_finds_nothing_wrong(turns.data_dir, compacted=GAPPY)
    assert not list(turns.data_dir.glob("*/*.cleaned")) + list(turns.data_dir.glob("*/*.swap"))
