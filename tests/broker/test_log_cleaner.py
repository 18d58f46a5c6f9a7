"""Compaction in a broker: its time, its process, and its behavior after failures."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.broker.compacting import TIMEOUT_S, Compacting, create
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

SLOW = "20000"  # bytes a second, so that a pass over the records written here takes a while
FAST = "1000000000"


@pytest.fixture
def compacting(tmp_path: Path) -> Iterator[Callable[..., Compacting]]:
    brokers: list[Compacting] = []

    def start(**overrides: str) -> Compacting:
        broker = Compacting(tmp_path, {name.replace("_", "."): value for name, value in overrides.items()})
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.close()


def fill(broker: Compacting, topic: str = "t", rounds: int = 40, keys: int = 50) -> None:
    """Each key once a round; a batch each round."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "batch.num.messages": keys})
    for number in range(rounds):
        for key in range(keys):
            producer.produce(topic, key=b"k%d" % key, value=b"%d of %d" % (number, key))
        assert producer.flush(TIMEOUT_S) == 0


def read(broker: Compacting, topic: str = "t") -> list[tuple[int, bytes, bytes]]:
    """Offset, key and value of every record in the topic."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        partition = TopicPartition(topic, 0, 0)
        end = consumer.get_watermark_offsets(partition, TIMEOUT_S)[1]
        consumer.assign([partition])
        found: list[tuple[int, bytes, bytes]] = []
        while consumer.position([partition])[0].offset < end:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            assert message.error() is None
            found.append((message.offset() or 0, message.key() or b"", message.value() or b""))
        return found
    finally:
        consumer.close()


def set_broker(admin: AdminClient, name: str, value: str) -> None:
    resource = ConfigResource(ConfigResource.Type.BROKER, "0")
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)


def sealed_records(broker: Compacting, keys: int) -> bool:
    """Whether only one record for each key and the active segment are left."""
    return len(read(broker)) < 2 * keys + 600


def children(pid: int) -> Sequence[int]:
    """The processes that any thread of this one has started."""
    found = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(each) for thread in found for each in thread]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_topic_shrinks_to_the_latest_values_and_the_metrics_show_it(compacting: Callable[..., Compacting]) -> None:
    broker = compacting()
    create(broker, "t")
    fill(broker)
    eventually(lambda: sealed_records(broker, 50))
    found = read(broker)
    assert {key: value for _, key, value in found} == {b"k%d" % key: b"39 of %d" % key for key in range(50)}
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
    metrics = broker.metrics()
    assert metrics["odradek_log_cleaner_passes_total"] >= 1
    assert 0 < metrics["kafka_log_logcleaner_cleaner_recopy_percent"] < 100
    assert broker.uncleanable() == 0
    eventually(lambda: "t 0 " in (broker.data_dir / "cleaner-offset-checkpoint").read_text())
    assert list(broker.folder.glob("*.deleted")), "the old files stay for file.delete.delay.ms"


def test_an_unreadable_log_is_skipped_and_counted(compacting: Callable[..., Compacting]) -> None:
    broker = compacting(log_cleaner_enable="false")
    admin = create(broker, "t", "other")
    fill(broker)
    fill(broker, "other")
    broker.stop()
    first = broker.folder / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 0xFF
    first.write_bytes(data)
    broker = compacting()
    eventually(lambda: broker.uncleanable() == 1)
    eventually(lambda: "other 0 " in (broker.data_dir / "cleaner-offset-checkpoint").read_text())
    sizes = f'kafka_log_logcleanermanager_uncleanable_bytes{{logDirectory="{broker.data_dir}"}}'
    assert broker.metrics()[sizes] > 10_000
    assert "marking log as uncleanable until restart topic=t partition=0 " in broker.output
    assert not list(broker.folder.glob("*.cleaned"))
    fill(broker, rounds=1)
    del admin


def test_a_dead_worker_is_replaced_and_its_pass_repeated(compacting: Callable[..., Compacting]) -> None:
    broker = compacting(log_cleaner_io_max_bytes_per_second=SLOW)
    admin = create(broker, "t")
    fill(broker)
    eventually(lambda: list(broker.folder.glob("*.cleaned")))
    (worker,) = children(broker.pid)
    set_broker(admin, "log.cleaner.io.max.bytes.per.second", FAST)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: sealed_records(broker, 50))
    assert "retrying interrupted compaction" in broker.output
    assert broker.uncleanable() == 0


def test_a_killed_broker_takes_its_worker_along(compacting: Callable[..., Compacting]) -> None:
    broker = compacting(log_cleaner_io_max_bytes_per_second=SLOW)
    create(broker, "t")
    fill(broker)
    eventually(lambda: list(broker.folder.glob("*.cleaned")))
    (worker,) = children(broker.pid)
    broker.kill()
    eventually(lambda: not alive(worker))
    broker = compacting()
    eventually(lambda: sealed_records(broker, 50))
    assert {key: value for _, key, value in read(broker)} == {b"k%d" % key: b"39 of %d" % key for key in range(50)}


def test_a_topic_can_be_deleted_and_recreated_during_its_compaction(compacting: Callable[..., Compacting]) -> None:
    broker = compacting(log_cleaner_io_max_bytes_per_second=SLOW)
    admin = create(broker, "t")
    fill(broker)
    eventually(lambda: list(broker.folder.glob("*.cleaned")))
    for deleted in admin.delete_topics(["t"]).values():
        deleted.result(TIMEOUT_S)
    eventually(lambda: not broker.folder.exists())
    create(broker, "t")
    set_broker(admin, "log.cleaner.io.max.bytes.per.second", FAST)
    fill(broker, rounds=45)
    eventually(lambda: sealed_records(broker, 50))
    assert {key: value for _, key, value in read(broker)} == {b"k%d" % key: b"44 of %d" % key for key in range(50)}
