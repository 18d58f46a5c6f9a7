"""Apache Kafka's cleaner and Odradek's produce equal logs from the same log, batch by batch.

Kafka writes topics of every kind while its cleaner waits; the directory is copied; Kafka's cleaner works on the one,
Odradek's on the other. Then the same again with more records, so that the results of the first pass (horizons, bare
batches, tombstones and markers whose time is over) are compacted in turn, by both from the result of Kafka's first
pass.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from odradek.protocol.batch import DELETE_HORIZON, Header, Record, records
from odradek.storage.checkpoints import decode_offsets
from odradek.storage.cleanable import cleanable_part, request_for
from odradek.storage.compaction import clean
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.file_records import checked_batches
from odradek.storage.log import Log
from tests.jvm.kafka import Kafka, running_kafka
from tests.storage.batches import open_log
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TIMEOUT_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = (*(f"plain-{codec}" for codec in CODECS), "transactions", "append-time")
NEVER = "1"
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "index.interval.bytes": "100",
    "min.cleanable.dirty.ratio": NEVER,
    "delete.retention.ms": "1",
    "file.delete.delay.ms": "0",
}
CONFIG = LogConfig(cleanup_policy=("compact",), segment_bytes=2000, index_interval_bytes=100, delete_retention_ms=1)


class Batch(NamedTuple):
    """A stored batch without the parts that may differ: the codec's bytes, and the time of a horizon."""

    header: Header
    records: tuple[Record, ...]


def batches(log: Log) -> list[Batch]:
    found = []
    for segment in log.segments:
        for buffer, place, _, header in checked_batches(segment):
            plain = header._replace(batch_length=0, crc=0)
            if header.attributes & DELETE_HORIZON:
                plain = plain._replace(base_timestamp=0)
            found.append(Batch(plain, tuple(records(buffer, place))))
    return found


class Cleaning:
    """The topics of a Kafka, cleaned on request: below a dirty ratio of 1, never at 1."""

    def __init__(self, folder: Path, kafka: Kafka) -> None:
        self._folder = folder
        self._kafka = kafka
        self.bootstrap = kafka.bootstrap
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def make_topics(self) -> None:
        own = {"append-time": {"message.timestamp.type": "LogAppendTime"}}
        topics = [NewTopic(topic, 1, 1, config=TOPIC | own.get(topic, {})) for topic in TOPICS]
        for created in self._admin.create_topics(topics).values():
            created.result(TIMEOUT_S)

    def copy(self, name: str) -> Path:
        """A copy of Kafka's data: no client writes, and the cleaner does not run."""
        target = self._folder / name
        shutil.copytree(self._kafka.data_dir, target, ignore=shutil.ignore_patterns("*.deleted"))
        return target

    def checkpoint(self) -> dict[tuple[str, int], int]:
        path = self._kafka.data_dir / "cleaner-offset-checkpoint"
        data = path.read_bytes() if path.exists() else b""
        return decode_offsets(data) if data else {}  # Kafka creates the file before it has entries

    def clean(self, wanted: dict[str, int]) -> None:
        """Let Kafka clean until its checkpoint covers every topic."""
        self._let_ratio_be("0.01")
        eventually(
            self.checkpoint,
            lambda found: all(found.get((topic, 0), -1) >= offset for topic, offset in wanted.items()),
            f"the checkpoint covers {wanted}",
        )
        self._let_ratio_be(NEVER)

    def _let_ratio_be(self, ratio: str) -> None:
        entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]) for topic in TOPICS]
        for altered in self._admin.incremental_alter_configs(resources).values():
            altered.result(TIMEOUT_S)


@pytest.fixture
def cleaning(tmp_path: Path) -> Iterator[Cleaning]:
    properties = {
        "log.cleaner.backoff.ms": "50",
        "transaction.state.log.num.partitions": "1",
    }
    with running_kafka(tmp_path / "kafka", properties) as kafka:
        yield Cleaning(tmp_path, kafka)


def write(bootstrap: str, round_: int) -> None:
    """Values, tombstones, headers, batches of several sizes; transactions that commit and abort, one after the other
    and side by side; producers that continue and producers that fall silent.
    """
    for topic in TOPICS:
        if topic == "transactions":
            continue
        codec = topic.partition("-")[2] if topic.startswith("plain") else "lz4"
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 100, "enable.idempotence": True}
        )
        for number in range(30):
            for key in range(1 + number % 7):
                value = None if (number + key) % 5 == 0 else b"%d of round %d " % (number, round_) * (1 + number % 4)
                producer.produce(topic, key=b"key %d" % ((number * 3 + key) % 25), value=value, headers=[("h", b"x")])
            assert producer.flush(TIMEOUT_S) == 0
    producers = []
    for name in range(3):
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"id-{name}", "linger.ms": 100}
        producers.append(Producer(settings))
        producers[-1].init_transactions(TIMEOUT_S)
    for number in range(12):
        for name, producer in enumerate(producers):
            if number % (name + 1) == 0:
                producer.begin_transaction()
        for name, producer in enumerate(producers):
            if number % (name + 1) == 0:
                for key in range(3):
                    value = None if (number + key) % 4 == 0 else b"%d by %d in round %d" % (number, name, round_)
                    producer.produce("transactions", key=b"key %d" % ((number + key * name) % 9), value=value)
                producer.flush(TIMEOUT_S)
        for name, producer in enumerate(producers):
            if number % (name + 1) == 0:
                if (number + name) % 3:
                    producer.commit_transaction(TIMEOUT_S)
                else:
                    producer.abort_transaction(TIMEOUT_S)


def opened(data: Path, topic: str, cleaned_to: int) -> Log:
    log = open_log(data / f"{topic}-0", CONFIG)
    log.cleaned_to = cleaned_to
    return log


def cleaned_by_us(log: Log) -> int:
    """One pass over everything that can be cleaned; returns the offset up to which it cleaned."""
    now_ms = time.time_ns() // 1_000_000
    part = cleanable_part(log, last_stable_offset=log.end_offset, now_ms=now_ms)
    request = request_for(
        log,
        part,
        now_ms=now_ms,
        hash_key=bytes(16),
        compacted_everywhere=log.end_offset,
        map_bytes=128 << 20,
        load_factor=0.9,
        bytes_per_second=float("inf"),
    )
    cleaned = clean(OsDisk(), request)
    assert log.swap_in(cleaned, now_ms=now_ms)
    return cleaned.cleaned_to


def check_same(kafkas: Log, ours: Log) -> int:
    """Every batch is equal, and there is no other, also none without records. Returns the number of batches."""
    theirs, mine = batches(kafkas), batches(ours)
    assert mine == theirs
    return len(theirs)


def test_both_cleaners_produce_the_same_log(cleaning: Cleaning) -> None:
    cleaning.make_topics()
    cleaned_to = dict.fromkeys(TOPICS, -1)
    for round_ in (1, 2, 3):
        write(cleaning.bootstrap, round_)
        copy = cleaning.copy(f"round-{round_}")
        ours = {topic: opened(copy, topic, cleaned_to[topic]) for topic in TOPICS}
        for topic, log in ours.items():
            assert cleaning.checkpoint().get((topic, 0), -1) == cleaned_to[topic], "Kafka waits"
            before = sum(len(batch.records) for batch in batches(log))
            cleaned_to[topic] = cleaned_by_us(log)
            assert sum(len(batch.records) for batch in batches(log)) < before
        cleaning.clean(cleaned_to)
        theirs = cleaning.copy(f"cleaned-{round_}")
        for topic, log in ours.items():
            assert cleaning.checkpoint()[topic, 0] == cleaned_to[topic]
            assert check_same(opened(theirs, topic, -1), log) > 5
