"""A data directory and a ZooKeeper tree that Apache Kafka 2.2 has written: Odradek opens both and serves all of it.

Kafka 2.2.2 with its own ZooKeeper writes plain and compressed records, those of an idempotent and of a transactional
producer (one transaction is committed, one aborted), the offsets of a group, and a topic with a configuration. It ends,
by a controlled shutdown or by SIGKILL. The ZooKeeper of Kafka 3.9 takes over the data of the old one, as an upgrade to
Kafka 3.9 requires, and Odradek starts over both, as the same broker at the same address. Every record is at its offset,
and the clients continue at their positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from tests.compatibility.turns import DEADLINE_S, RECONNECT, Name, Stored, read
from tests.jvm.kafka import Kafka
from tests.registry.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RELEASE: Final = "2.2.2"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT: Final = 50
CONFIG: Final = {"segment.bytes": "20000", "retention.ms": "-1", "max.message.bytes": "500000"}
CODEC_NAMES: Final[list[Name]] = [("codecs", number) for number in range(len(CODECS))]
IDEMPOTENT: Final[Name] = ("idempotent", 0)
TRANSACTIONAL: Final[Name] = ("transactional", 0)
CONFIGURED: Final[Name] = ("configured", 0)
NAMES: Final = [*CODEC_NAMES, IDEMPOTENT, TRANSACTIONAL, CONFIGURED]
GROUP: Final = "readers"
COMMITTED: Final = 20
"""The offset that the group has committed in the first partition of `codecs`."""
FIRST_MS: Final = 1_700_000_000_000


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Kafka]:
    """Kafka 2.2 with its ZooKeeper, running."""
    kafka = Kafka(tmp_path / "kafka", {"log.retention.ms": "-1"}, version=RELEASE)
    kafka.start()
    yield kafka
    kafka.close()


@pytest.fixture
def newer(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """The ZooKeeper of Kafka 3.9 over the data of the one of `old`, not started."""
    server = ZooKeeperServer(tmp_path, tmp_path / "kafka" / "zookeeper", upgrade=True)
    yield server
    server.stop()


@pytest.fixture
def ours(old: Kafka, newer: ZooKeeperServer, tmp_path: Path) -> Iterator[BrokerProcess]:
    """Odradek over the directory of `old`, in `newer`, not started."""
    overrides = {
        "broker.id": str(old.broker_id),
        "listeners": f"PLAINTEXT://{old.bootstrap}",
        "log.dirs": str(old.data_dir),
        "log.retention.ms": "-1",
        "zookeeper.connect": newer.connect,
        "zookeeper.session.timeout.ms": "6000",
    }
    broker = BrokerProcess(tmp_path / "ours", overrides, timeout_s=60)
    yield broker
    broker.discard()


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic("codecs", len(CODECS), 1),
        NewTopic("idempotent", 1, 1),
        NewTopic("transactional", 1, 1),
        NewTopic("configured", 1, 1, config=CONFIG),
    ]
    for made in admin.create_topics(wanted, operation_timeout=DEADLINE_S).values():
        made.result(DEADLINE_S)


def write(producer: Producer, name: Name, first: int) -> None:
    """COUNT records from number `first` on, with keys, headers and times of their own."""
    topic, partition = name
    for number in range(first, first + COUNT):
        key, value = (f"{kind}-{number}".encode() for kind in ("key", "value"))
        at = FIRST_MS + number
        producer.produce(topic, value, key, partition=partition, timestamp=at, headers=[("n", b"%d" % number)])
    assert producer.flush(DEADLINE_S) == 0


def expected(offset: int, number: int) -> Stored:
    """The record that `write` has written at an offset."""
    key, value = (f"{kind}-{number}".encode() for kind in ("key", "value"))
    return Stored(offset, (1, FIRST_MS + number), key, value, (("n", b"%d" % number),))


def write_codecs(bootstrap: str, first: int) -> None:
    for name, codec in zip(CODEC_NAMES, CODECS, strict=True):
        write(Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 10}), name, first)


def transact(bootstrap: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments", **RECONNECT})
    producer.init_transactions(DEADLINE_S)
    return producer


def in_transaction(producer: Producer, first: int, *, commit: bool) -> None:
    producer.begin_transaction()
    write(producer, TRANSACTIONAL, first)
    if commit:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)


def member(bootstrap: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})


def group_offset(bootstrap: str) -> int:
    """The committed offset of the group in the first partition of `codecs`."""
    consumer = member(bootstrap)
    try:
        (found,) = consumer.committed([TopicPartition("codecs", 0)], timeout=DEADLINE_S)
        return int(found.offset)
    finally:
        consumer.close()


def commit_offset(bootstrap: str, offset: int) -> None:
    consumer = member(bootstrap)
    consumer.commit(offsets=[TopicPartition("codecs", 0, offset)], asynchronous=False)
    consumer.close()


def topic_config(bootstrap: str, topic: str) -> dict[str, str]:
    """The topic's own properties."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its responses end with it
    (answer,) = admin.describe_configs([resource]).values()
    of_the_topic = 1
    return {each.name: each.value for each in answer.result(DEADLINE_S).values() if each.source == of_the_topic}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_odradek_serves_the_directory_of_kafka_2_2(
    old: Kafka, newer: ZooKeeperServer, ours: BrokerProcess, end: str
) -> None:
    bootstrap = old.bootstrap
    make_topics(bootstrap)
    write_codecs(bootstrap, 0)
    idempotent = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **RECONNECT})
    write(idempotent, IDEMPOTENT, 0)
    write(Producer({"bootstrap.servers": bootstrap}), CONFIGURED, 0)
    payments = transact(bootstrap)
    in_transaction(payments, 0, commit=True)
    in_transaction(payments, COUNT, commit=False)
    commit_offset(bootstrap, COMMITTED)
    left = read(bootstrap, NAMES), read(bootstrap, NAMES, "read_committed")
    cluster = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S).cluster_id

    old.stop() if end == "stop" else old.kill()
    old.stop_zookeeper()
    newer.start()
    ours.start()

    # Everything is unchanged.
    assert (read(bootstrap, NAMES), read(bootstrap, NAMES, "read_committed")) == left
    assert left[1][TRANSACTIONAL] == [expected(number, number) for number in range(COUNT)]
    assert all(left[0][name] == [expected(number, number) for number in range(COUNT)] for name in CODEC_NAMES)
    assert group_offset(bootstrap) == COMMITTED
    assert topic_config(bootstrap, "configured") == CONFIG
    assert AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S).cluster_id == cluster

    # Clients continue: the producer that was idempotent with Kafka, a new one with the same transactional id, the
    # group.
    write(idempotent, IDEMPOTENT, COUNT)
    assert read(bootstrap, [IDEMPOTENT])[IDEMPOTENT] == [expected(number, number) for number in range(2 * COUNT)]
    write_codecs(bootstrap, COUNT)
    assert read(bootstrap, CODEC_NAMES) == {
        name: [expected(number, number) for number in range(2 * COUNT)] for name in CODEC_NAMES
    }
    in_transaction(transact(bootstrap), 2 * COUNT, commit=True)
    # Between them lie a marker, the aborted records and another marker.
    after = [expected(COUNT + 2 + number, number + COUNT) for number in range(COUNT, 2 * COUNT)]
    assert read(bootstrap, [TRANSACTIONAL], "read_committed")[TRANSACTIONAL] == [*left[1][TRANSACTIONAL], *after]
    commit_offset(bootstrap, 2 * COUNT)
    assert group_offset(bootstrap) == 2 * COUNT
    ours.stop()
