"""Kafka itself reads the files of an Odradek log, and Odradek reads those of Kafka."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.batch import control_batch, headers
from odradek.protocol.compression import Codec
from odradek.protocol.errors import KafkaError
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.directory_identity import read_identity
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED, decode_snapshot, encode_snapshot
from tests.jvm.kafka import Kafka, running_kafka
from tests.jvm.tools import run_tool
from tests.storage.batches import NOW_MS, all_bytes, all_headers, batch, files, open_log
from tests.support.eventually import eventually

pytestmark = pytest.mark.jvm

VERSION = "3.9.2"
CONFIG = LogConfig(segment_bytes=30_000, index_interval_bytes=1000)


def dump(path: Path, *options: str, suffixes: tuple[str, ...]) -> str:
    """The output of kafka-dump-log for the files of a log; it must have no complaint."""
    names = [str(file) for file in sorted(path.iterdir()) if file.suffix in suffixes]
    result = run_tool(VERSION, "kafka-dump-log", [*options, "--files", ",".join(names)], timeout_s=120)
    assert result.stderr == ""
    assert "isvalid: false" not in result.stdout
    return result.stdout


def fill(log: Log) -> None:
    """Every codec, late records, two producers, transactions that commit and abort, several epochs and segments."""
    sequences = {1: 0, 2: 0}
    for number in range(150):
        producer = number % 3
        count = 1 + number % 7
        data = batch(
            count,
            size=number * 13 % 300,
            timestamp_ms=NOW_MS + number * 37 % 1000,
            codec=Codec(number % 5),
            producer=(producer, 0, sequences[producer]) if producer else (-1, -1, -1),
            transactional=producer == 2,
        )
        verification = WAIVED if producer == 2 else None
        log.append(data, leader_epoch=number // 40, now_ms=NOW_MS, verification=verification)
        if producer:
            sequences[producer] += count
        if number % 20 == 19:
            marker = control_batch(
                commit=number % 40 == 19,
                coordinator_epoch=3,
                producer_id=2,
                producer_epoch=0,
                timestamp_ms=NOW_MS + number,
            )
            log.append(marker, leader_epoch=number // 40, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


@pytest.fixture(scope="module", params=["closed", "killed", "recovered", "replicated", "append time"])
def log_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was written in one of several ways."""
    path = tmp_path_factory.mktemp("logs") / "topic-0"
    config = LogConfig(segment_bytes=30_000, index_interval_bytes=1000)
    if request.param == "append time":
        config = LogConfig(segment_bytes=30_000, index_interval_bytes=1000, message_timestamp_type="LogAppendTime")
    log = open_log(path, config)
    fill(log)
    match request.param:
        case "killed":
            log.close_files()
        case "recovered":
            log.close_files()
            open_log(path, config, clean=False).close(now_ms=NOW_MS)
        case "replicated":
            follower = open_log(path.parent / "follower-0", config)
            while follower.end_offset < log.end_offset:
                part = log.read(follower.end_offset, 5000).records
                follower.append_replicated(part if isinstance(part, bytes) else part.read(), now_ms=NOW_MS)
            follower.close(now_ms=NOW_MS)
            path = path.parent / "follower-0"
        case _:
            log.close(now_ms=NOW_MS)
    return path


def test_dump_log_reads_all_records_and_finds_nothing_wrong(log_folder: Path) -> None:
    printed = dump(
        log_folder, "--deep-iteration", "--print-data-log", suffixes=(".log", ".index", ".timeindex", ".txnindex")
    )
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", printed, re.MULTILINE)]
    assert offsets == list(range(offsets[-1] + 1))
    assert len(re.findall(r"endTxnMarker: (?:COMMIT|ABORT) coordinatorEpoch: 3", printed)) == 7
    assert {"none", "gzip", "snappy", "lz4", "zstd"} == set(re.findall(r"compresscodec: (\w+)", printed))


def test_its_indexes_pass_kafkas_own_checks(log_folder: Path) -> None:
    indexes = (".index", ".timeindex")
    assert "passed sanity check" in dump(log_folder, "--index-sanity-check", suffixes=indexes)
    dump(log_folder, "--verify-index-only", suffixes=indexes)


def test_kafka_reads_snapshots_and_aborted_transactions(tmp_path: Path) -> None:
    path = tmp_path / "topic-0"
    log = open_log(path, CONFIG)
    fill(log)
    log.close(now_ms=NOW_MS)
    printed = dump(path, suffixes=(".snapshot", ".txnindex"))
    last = printed[printed.rindex("Dumping") :]
    for producer in log.producers.active():
        written, start = producer.batches[-1], producer.transaction_start
        assert (
            f"producerId: {producer.producer_id} producerEpoch: 0 coordinatorEpoch: {producer.coordinator_epoch} "
            f"currentTxnFirstOffset: {f'OptionalLong[{start}]' if start >= 0 else 'OptionalLong.empty'} "
            f"lastTimestamp: {producer.last_timestamp} firstSequence: {written.first_sequence} "
            f"lastSequence: {written.last_sequence} lastOffset: {written.last_offset} "
            f"offsetDelta: {written.offset_delta} timestamp: {written.timestamp}"
        ) in last
    aborted = [entry for segment in log.segments for entry in segment.aborted.entries()]
    assert len(aborted) == 3
    assert [
        tuple(map(int, found))
        for found in re.findall(
            r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", printed
        )
    ] == aborted


# -- one directory, both brokers ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """An Apache Kafka that may be stopped."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


def open_data_of(kafka: Kafka) -> Directory:
    identity = read_identity(OsDisk(), str(kafka.data_dir))
    small = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
    request = DirectoryRequest(int(identity["broker.id"]), None, NOW_MS, lambda topic: small)
    return Directory.open(str(kafka.data_dir), request)


def produce(kafka: Kafka, topic: str, count: int, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0, "batch.size": 700} | settings)
    for number in range(count):
        producer.produce(topic, key=b"%d" % number, value=b"v" * (number % 200), on_delivery=_raise)
    assert producer.flush(60) == 0


def _raise(error: object, message: object) -> None:
    if error is not None:
        raise KafkaException(error)


def consume(kafka: Kafka, topic: str, end_offset: int) -> list[int]:
    """The offsets that a read-committed consumer gets up to the end of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    offsets: list[int] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "the consumer waits for records that do not come"
            if message.error():
                return offsets
            offsets.append(message.offset() or 0)
    finally:
        consumer.close()


@pytest.mark.slow
def test_one_directory_serves_both_in_turn(own_kafka: Kafka, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": own_kafka.bootstrap})
    settings = {"segment.bytes": "20000", "index.interval.bytes": "500"}
    admin.create_topics([NewTopic("shared", 1, 1, config=settings)])["shared"].result(30)
    produce(own_kafka, "shared", 400, **{"enable.idempotence": True})
    transactional = Producer({"bootstrap.servers": own_kafka.bootstrap, "transactional.id": "t", "linger.ms": 0})
    transactional.init_transactions()
    for commit in (True, False, True):
        transactional.begin_transaction()
        transactional.produce("shared", b"in a transaction")
        transactional.flush()
        transactional.commit_transaction() if commit else transactional.abort_transaction()
    consumer = Consumer({"bootstrap.servers": own_kafka.bootstrap, "group.id": "g"})
    # The last marker may be written after the coordinator has answered.
    eventually(lambda: consumer.get_watermark_offsets(TopicPartition("shared", 0), 30)[1], lambda end: end == 406)
    consumer.close()
    with pytest.raises(KafkaError, match="using this directory"):
        open_data_of(own_kafka)
    own_kafka.stop()

    written_by_kafka = tmp_path / "kafka"
    shutil.copytree(own_kafka.data_dir / "shared-0", written_by_kafka)
    directory = open_data_of(own_kafka)
    assert directory.was_clean
    settings_file = str(own_kafka.data_dir.parent / "server.properties")
    refused = run_tool(VERSION, "kafka.Kafka", [settings_file], check=False)
    assert refused.status != 0
    assert f"Failed to acquire lock on file .lock in {own_kafka.data_dir}." in refused.stdout + refused.stderr
    log = directory.logs["shared", 0]
    assert log.topic_id != bytes(16)
    end_offset = log.end_offset
    assert end_offset == 406
    assert len(log.segments) > 1
    assert directory.high_watermarks["shared", 0] == end_offset
    assert len(log.search.aborted_transactions(0, end_offset)) == 1

    # Every file that Odradek would rebuild equals the one that Kafka wrote.
    rebuilt = tmp_path / "rebuilt"
    rebuilt.mkdir()
    for file in written_by_kafka.glob("*.log"):
        shutil.copy(file, rebuilt)
    ours = open_log(rebuilt, log.config, clean=False)
    ours.close(now_ms=NOW_MS)
    assert without_metadata(files(rebuilt)) == without_metadata(files(written_by_kafka))

    # Kafka serves records that Odradek appended; once after a clean stop of Odradek, once after a kill.
    for clean in (True, False):
        epoch = log.epochs.latest
        for number in range(100):
            log.append(batch(3, size=number, codec=Codec(number % 5)), leader_epoch=epoch, now_ms=NOW_MS)
        end_offset = log.end_offset
        expected = [
            offset
            for header in all_headers(log)
            if not header.is_control
            for offset in range(header.base_offset, header.next_offset)
        ]
        aborted = {start for _, start in log.search.aborted_transactions(0, end_offset)}
        directory.write_high_watermarks({name: each.end_offset for name, each in directory.logs.items()})
        directory.close(now_ms=NOW_MS, clean=clean)
        own_kafka.start()
        assert consume(own_kafka, "shared", end_offset) == [offset for offset in expected if offset not in aborted]
        produce(own_kafka, "shared", 10, **{"enable.idempotence": True})
        own_kafka.stop()
        directory = open_data_of(own_kafka)
        log = directory.logs["shared", 0]
        assert log.end_offset == end_offset + 10
        assert [header.base_offset for _, header in headers(all_bytes(log))][-1] >= end_offset
    directory.close(now_ms=NOW_MS)


def without_metadata(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a log, without the topic id and with the producers of snapshots in one order."""
    return {
        name: encode_snapshot(sorted(decode_snapshot(data), key=lambda producer: producer.producer_id))
        if name.endswith(".snapshot")
        else data
        for name, data in contents.items()
        if name != "partition.metadata"
    }
