"""Retention as users see it: by time, by size, by DeleteRecords, changed while the broker runs; and the deletion of
files.

Stock tools set it, and `--broker kafka` shows that Apache Kafka 3.9.2 does the same. Where records have to stay, the
test waits until the same rounds of the same broker have removed others.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from tests.compatibility.brokers import Broker, create_topic
from tests.compatibility.turns import DEADLINE_S, Stored, alter_topic, led, read, segments
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

VERSION: Final = "3.9.2"
SEGMENT: Final = 4000
LARGEST_BATCH: Final = 1200
PROPERTIES: Final = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    # Kafka's own rounds through the folders of deleted topics are this far apart, for all topics.
    "log.segment.delete.delay.ms": "1500",
}
HOUR_MS: Final = 3_600_000


class Retaining(Broker, Protocol):
    """A broker whose files the test can read."""

    @property
    def data_dir(self) -> Path: ...


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Retaining]:
    """A broker that checks retention five times a second."""
    folder = tmp_path_factory.mktemp("retention")
    if request.config.getoption("--broker") == "kafka":
        kafka = Kafka(folder, PROPERTIES)
        kafka.start()
        yield kafka
        kafka.close()
    else:
        with BrokerProcess(folder, PROPERTIES) as ours:
            yield ours


# -- small steps -------------------------------------------------------------------------------------------------------


def small_topic(broker: Broker, name: str, **config: object) -> None:
    """One partition with segments of SEGMENT bytes; properties with underscores in place of dots."""
    named = {key.replace("_", "."): str(value) for key, value in config.items()}
    create_topic(broker, name, 1, {"segment.bytes": str(SEGMENT), **named})


def write(broker: Broker, topic: str, count: int, *, age_ms: int = 0, key: bytes | None = None) -> int:
    """`count` records of about 100 bytes of this age; returns the offset of the last one.

    `key` may have a %d in it for the number of the record.
    """
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "batch.size": LARGEST_BATCH})
    last = -1

    def delivered(error: object, message: Message) -> None:
        nonlocal last
        if error is not None:
            raise KafkaException(error)
        last = max(last, message.offset() or 0)

    written_ms = int(time.time() * 1000) - age_ms
    for number in range(count):
        its_key = key % number if key and b"%d" in key else key
        producer.produce(topic, b"v" * 90, its_key, 0, timestamp=written_ms, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    return last


def ends(broker: Broker, topic: str) -> tuple[int, int]:
    """The earliest offset and the end."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "ends"})
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
        assert found is not None
        return found
    finally:
        consumer.close()


def await_earliest(broker: Broker, topic: str, offset: int) -> None:
    eventually(lambda: ends(broker, topic)[0], lambda earliest: earliest == offset, f"{topic} begins at {offset}")


def await_deletion(broker: Broker, topic: str) -> int:
    """Wait until the earliest offset is not 0 any more; returns it."""
    return eventually(
        lambda: ends(broker, topic)[0], lambda earliest: earliest > 0, f"the log start offset of {topic} advances"
    )


def restart(broker: Broker, topic: str) -> None:
    """A restart, and the wait for a leader."""
    broker.restart()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    eventually(lambda: led(admin), lambda names: (topic, 0) in names, f"{topic} has a leader")


def records(broker: Broker, topic: str) -> list[Stored]:
    return read(broker.bootstrap, [(topic, 0)])[topic, 0]


def folder_of(broker: Retaining, topic: str) -> Path:
    return broker.data_dir / f"{topic}-0"


def size_of(broker: Retaining, topic: str) -> int:
    """The sizes of the existing segments; one that is deleted meanwhile has none."""
    size = 0
    for path in segments(folder_of(broker, topic)):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def configure(broker: Broker, entity: list[str], *change: str) -> None:
    """kafka-configs --alter."""
    arguments = ["--bootstrap-server", broker.bootstrap, "--alter", *entity, *change]
    run_tool(VERSION, "kafka-configs", arguments)


# -- by size and by time -----------------------------------------------------------------------------------------------


def test_size_set_while_the_broker_runs(broker: Retaining, topic: str) -> None:
    small_topic(broker, topic)
    last = write(broker, topic, 300)
    assert ends(broker, topic) == (0, last + 1)
    configure(broker, ["--entity-type", "topics", "--entity-name", topic], "--add-config", "retention.bytes=9000")
    await_deletion(broker, topic)
    # As little is deleted as is needed, in whole segments.
    size = eventually(lambda: size_of(broker, topic), lambda size: size < 9000 + SEGMENT, "the log is small enough")
    assert size >= 9000
    earliest, end = ends(broker, topic)
    assert end == last + 1
    assert [record.offset for record in records(broker, topic)] == list(range(earliest, last + 1))
    assert int(segments(folder_of(broker, topic))[0].stem) == earliest
    refused = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "old", "auto.offset.reset": "error"})
    refused.assign([TopicPartition(topic, 0, earliest - 1)])
    try:
        message = refused.poll(DEADLINE_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
    finally:
        refused.close()


def test_time_set_while_the_broker_runs(broker: Retaining, topic: str) -> None:
    small_topic(broker, topic)
    write(broker, topic, 100, age_ms=2 * HOUR_MS)
    last_old = int(segments(folder_of(broker, topic))[-1].stem) - 1
    last = write(broker, topic, 100)
    alter_topic(broker.bootstrap, topic, retention_ms=HOUR_MS)
    # The segment in which the new records begin stays whole.
    await_earliest(broker, topic, last_old + 1)
    alter_topic(broker.bootstrap, topic, retention_ms=1)
    # Even the active segment is deleted, because there is a new one; the offsets go on.
    await_earliest(broker, topic, last + 1)
    assert records(broker, topic) == []
    alter_topic(broker.bootstrap, topic, retention_ms=-1)
    assert write(broker, topic, 1, age_ms=2 * HOUR_MS) == last + 1
    assert ends(broker, topic)[1] == last + 2


def test_the_default_of_all_brokers_and_topics_that_have_their_own(broker: Retaining, topic: str) -> None:
    own = f"{topic}-own"
    small_topic(broker, topic)
    small_topic(broker, own, retention_ms=3 * HOUR_MS)
    last = write(broker, topic, 100, age_ms=2 * HOUR_MS)
    write(broker, own, 100, age_ms=2 * HOUR_MS)
    everywhere = ["--entity-type", "brokers", "--entity-default"]
    configure(broker, everywhere, "--add-config", f"log.retention.ms={HOUR_MS}")
    try:
        await_earliest(broker, topic, last + 1)
        assert ends(broker, own)[0] == 0
    finally:
        configure(broker, everywhere, "--delete-config", "log.retention.ms")
    alter_topic(broker.bootstrap, own, retention_ms=HOUR_MS)
    await_deletion(broker, own)


def test_deleted_records_stay_deleted_after_a_restart(broker: Retaining, topic: str) -> None:
    small_topic(broker, topic, retention_bytes=9000)
    last = write(broker, topic, 300)
    eventually(lambda: size_of(broker, topic), lambda size: size < 9000 + SEGMENT, "the log is small enough")
    before = ends(broker, topic)
    restart(broker, topic)
    assert ends(broker, topic) == before
    assert before[1] == last + 1


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_are_deleted_after_their_delay(broker: Retaining, topic: str) -> None:
    late = f"{topic}-late"
    small_topic(broker, topic)
    small_topic(broker, late, file_delete_delay_ms=600_000)
    for each in (topic, late):
        write(broker, each, 100)
        alter_topic(broker.bootstrap, each, retention_bytes=SEGMENT)
        await_deletion(broker, each)
        # No new request reads them, but a read under way can end.
        marked = {path.name for path in folder_of(broker, each).glob("*.deleted")}
        assert {name.partition(".")[2] for name in marked} >= {"log.deleted", "index.deleted", "timeindex.deleted"}
    eventually(lambda: list(folder_of(broker, topic).glob("*.deleted")), lambda left: not left, "the files are deleted")
    assert list(folder_of(broker, late).glob("*.log.deleted"))


def test_the_files_of_a_deleted_topic_are_deleted_after_their_delay(broker: Retaining, topic: str) -> None:
    small_topic(broker, topic)
    write(broker, topic, 10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(DEADLINE_S)

    def folders() -> list[str]:
        return [path.name for path in broker.data_dir.iterdir() if path.name.startswith(f"{topic}-0")]

    def renamed(names: list[str]) -> bool:
        return all(name.startswith(f"{topic}-0.") and name.endswith("-delete") for name in names)

    assert eventually(folders, renamed, "the folder has another name")
    eventually(folders, lambda names: not names, "the folder is deleted")


def test_segments_roll_by_time_and_size(broker: Retaining, topic: str) -> None:
    small_topic(broker, topic, segment_bytes=1_000_000, segment_ms=60_000)
    for age_ms in (300_000, 250_000, 200_000, 10_000):  # by the time of the records, where they have one
        write(broker, topic, 1, age_ms=age_ms)
    assert [int(path.stem) for path in segments(folder_of(broker, topic))] == [0, 2, 3]
    alter_topic(broker.bootstrap, topic, segment_bytes=SEGMENT, segment_ms=HOUR_MS)

    def written_more() -> list[int]:
        write(broker, topic, 20)
        return [path.stat().st_size for path in segments(folder_of(broker, topic))]

    sizes = eventually(written_more, lambda sizes: len(sizes) > 5, "the smaller segments are effective")
    assert max(sizes[4:]) <= SEGMENT


# -- policies ----------------------------------------------------------------------------------------------------------


def test_a_compacted_topic_has_no_retention(broker: Retaining, topic: str) -> None:
    other = f"{topic}-other"
    small_topic(broker, topic, cleanup_policy="compact", retention_bytes=SEGMENT, retention_ms=1)
    write(broker, topic, 1, age_ms=HOUR_MS, key=b"only once")
    write(broker, topic, 200, key=b"again and again")
    small_topic(broker, other, retention_bytes=SEGMENT)
    write(broker, other, 200, key=b"again and again")
    await_deletion(broker, other)
    assert records(broker, topic)[0].key == b"only once"
    # From now on it is a topic with retention.
    alter_topic(broker.bootstrap, topic, cleanup_policy="delete")
    last = ends(broker, topic)[1] - 1
    await_earliest(broker, topic, last + 1)


def test_compact_and_delete_together(broker: Retaining, topic: str) -> None:
    small_topic(broker, topic, cleanup_policy="compact,delete", retention_ms=-1, min_cleanable_dirty_ratio="0.01")
    # Written once: a compaction would leave an empty segment of records that others replace, and it has the time of its
    # file, now. Kafka's retention ends at such a segment, too, until a later compaction joins it to the next one.
    write(broker, topic, 60, age_ms=2 * HOUR_MS, key=b"old %d")
    for _ in range(3):
        write(broker, topic, 60, key=b"new %d")

    def sealed_keys() -> list[bytes | None]:
        end = int(segments(folder_of(broker, topic))[-1].stem)
        return [record.key for record in records(broker, topic) if record.offset < end]

    keys = eventually(
        sealed_keys,
        lambda keys: len(keys) == len(set(keys)) > 2,
        "all but the last segment have one record for each key",
    )
    assert {b"old %d" % number for number in range(60)} <= set(keys)
    # Compaction has left the last record of each key; retention by time deletes the old ones all the same.
    alter_topic(broker.bootstrap, topic, retention_ms=HOUR_MS)
    await_deletion(broker, topic)
    assert {b"new %d" % number for number in range(60)} <= {record.key for record in records(broker, topic)}
    alter_topic(broker.bootstrap, topic, retention_ms=1)
    last = ends(broker, topic)[1] - 1
    await_earliest(broker, topic, last + 1)


# -- DeleteRecords -----------------------------------------------------------------------------------------------------


def test_deleted_records_free_their_segments(broker: Retaining, topic: str, tmp_path: Path) -> None:
    small_topic(broker, topic, retention_bytes=-1, retention_ms=-1)
    last = write(broker, topic, 200)
    boundary = int(segments(folder_of(broker, topic))[2].stem)
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": boundary + 3}]}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted))
    arguments = ["--bootstrap-server", broker.bootstrap, "--offset-json-file", str(file)]
    printed = run_tool(VERSION, "org.apache.kafka.tools.DeleteRecordsCommand", arguments).stdout
    assert f"low_watermark: {boundary + 3}" in printed
    assert ends(broker, topic) == (boundary + 3, last + 1)
    assert [record.offset for record in records(broker, topic)] == list(range(boundary + 3, last + 1))
    eventually(
        lambda: int(segments(folder_of(broker, topic))[0].stem),
        lambda base: base == boundary,
        "whole segments below the log start offset are deleted",
    )
    restart(broker, topic)
    assert ends(broker, topic) == (boundary + 3, last + 1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (too_far,) = admin.delete_records([TopicPartition(topic, 0, last + 2)]).values()
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        too_far.result(DEADLINE_S)
    (all_of_them,) = admin.delete_records([TopicPartition(topic, 0, -1)]).values()
    assert all_of_them.result(DEADLINE_S).low_watermark == last + 1
    await_earliest(broker, topic, last + 1)
