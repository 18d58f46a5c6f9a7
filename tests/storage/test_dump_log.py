"""`odradek dump-log` beside the kafka-dump-log of Kafka 3.9.2: the same files, the same lines."""

from __future__ import annotations

import itertools
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c

from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.protocol import messages as m
from odradek.protocol.batch import CRC_POSITION, Record, build, control_batch
from odradek.protocol.compression import Codec
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from odradek.storage.reading import DamagedLog
from odradek.storage.verify import verify
from tests.jvm.kafka import running_kafka
from tests.jvm.tools import run_tool
from tests.storage.batches import NOW_MS, batch, open_log

VERSION = "3.9.2"
NAME = "00000000000000000000"


def ours(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["dump-log", *arguments], catch_exceptions=False)


def assert_as_kafka_prints(*arguments: str) -> str:
    """Runs both tools; returns their output, which is the same."""
    kafka = run_tool(VERSION, "kafka-dump-log", arguments, timeout_s=120)
    result = ours(*arguments)
    assert result.exit_code == 0, result.stderr
    for line, expected in itertools.zip_longest(result.stdout.split("\n"), kafka.stdout.split("\n")):
        assert line == expected
    assert result.stderr == kafka.stderr
    return result.stdout


def named(*paths: Path) -> str:
    return ",".join(map(str, paths))


def all_files(folder: Path) -> str:
    suffixes = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    return named(*(file for file in sorted(folder.iterdir()) if file.suffix in suffixes))


# -- a log of Odradek --------------------------------------------------------------------------------------------------


def fill(log: Log) -> None:
    """Every codec, two producers, transactions that commit and abort, one that stays open, several epochs, segments."""
    sequences = {1: 0, 2: 2**31 - 5}
    for number in range(120):
        producer, count = number % 3, 1 + number % 7
        data = batch(
            count,
            size=number * 13 % 300,
            timestamp_ms=NOW_MS + number * 37 % 1000,
            codec=Codec(number % 5),
            producer=(producer, 0, sequences[producer]) if producer else (-1, -1, -1),
            transactional=producer == 2,
        )
        log.append(data, leader_epoch=number // 40, now_ms=NOW_MS, verification=WAIVED if producer == 2 else None)
        if producer:
            sequences[producer] = (sequences[producer] + count) % 2**31
        if number % 20 == 17:
            marker = control_batch(
                commit=number % 40 == 17,
                coordinator_epoch=3,
                producer_id=2,
                producer_epoch=0,
                timestamp_ms=NOW_MS + number,
            )
            log.append(marker, leader_epoch=number // 40, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "topic-0"
    log = open_log(path, LogConfig(segment_bytes=12_000, index_interval_bytes=1000))
    fill(log)
    log.close(now_ms=NOW_MS)
    assert len(list(path.glob("*.log"))) > 2
    return path


@pytest.mark.jvm
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--print-data-log",),
        ("--deep-iteration", "--max-bytes", "7000"),
        ("--verify-index-only", "--max-message-size", "3000"),
    ],
    ids=" ".join,
)
def test_a_whole_log_is_printed_as_kafka_prints_it(folder: Path, options: tuple[str, ...]) -> None:
    printed = assert_as_kafka_prints(*options, "--files", all_files(folder))
    assert ("endTxnMarker: ABORT coordinatorEpoch: 3" in printed) == ("--print-data-log" in options)
    assert "currentTxnFirstOffset: OptionalLong[" in printed
    assert "version: 0 producerId: 2 firstOffset:" in printed


@pytest.mark.jvm
def test_the_sanity_check_of_indexes(folder: Path, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.log").touch()
    (tmp_path / f"{NAME}.index").touch()
    (tmp_path / f"{NAME}.timeindex").touch()
    files = [*folder.glob("*.index"), *folder.glob("*.timeindex"), *tmp_path.glob("*index")]
    printed = assert_as_kafka_prints("--index-sanity-check", "--files", named(*files))
    assert "passed sanity check." in printed
    assert "is empty." in printed


@pytest.mark.jvm
def test_indexes_that_do_not_fit_their_log(folder: Path, tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.log").write_bytes((folder / f"{NAME}.log").read_bytes())
    index = bytearray((folder / f"{NAME}.index").read_bytes())
    for place in (0, 8):
        struct.pack_into(">i", index, place, struct.unpack_from(">i", index, place)[0] - 1)
    (tmp_path / f"{NAME}.index").write_bytes(index + bytes(80))
    times = bytearray((folder / f"{NAME}.timeindex").read_bytes())
    first, second = struct.unpack_from(">qi", times, 0), struct.unpack_from(">qi", times, 12)
    struct.pack_into(">qi", times, 0, second[0] + 500, first[1])
    struct.pack_into(">qi", times, 24, struct.unpack_from(">q", times, 24)[0], second[1] + 1)
    (tmp_path / f"{NAME}.timeindex").write_bytes(times)
    assert_as_kafka_prints("--files", named(tmp_path / f"{NAME}.timeindex"))
    (tmp_path / f"{NAME}.timeindex").write_bytes(bytes(12))
    assert_as_kafka_prints("--files", named(tmp_path / f"{NAME}.index", tmp_path / f"{NAME}.timeindex"))


# -- a log by hand -----------------------------------------------------------------------------------------------------


def crafted() -> bytes:
    """Batches that only compaction, odd clients and bad disks leave behind."""
    odd = [
        Record(3, NOW_MS, None, b"no key"),
        Record(4, NOW_MS - 5, b"no value", None),
        Record(5, -1, None, None, (("a", b"1"), ("a", None), ("ü,]", b""))),
        Record(9, NOW_MS, b"", b""),
        Record(
            11, NOW_MS, "schlüssel \U0001f600".encode(), b"\xff\xfe \xed\xa0\x80 \xc3( \xe2\x82 \xf0\x9f\x98 \x00\t"
        ),
    ]
    damaged = build([Record(40, NOW_MS, b"k", b"v")], base_offset=40)
    damaged[CRC_POSITION] ^= 1
    marker = control_batch(commit=False, coordinator_epoch=7, producer_id=9, producer_epoch=1, timestamp_ms=NOW_MS)
    parts = [
        *(build(odd, base_offset=2, last_offset=13 + codec, codec=codec, leader_epoch=codec) for codec in Codec),
        build([], base_offset=20, last_offset=22, producer_id=5, producer_epoch=2, base_sequence=2**31 - 2),
        build([Record(24, NOW_MS, b"k", b"v")], base_offset=23, log_append_time_ms=NOW_MS + 9, codec=Codec.LZ4),
        build([Record(30, NOW_MS, b"k", None)], base_offset=30, delete_horizon_ms=NOW_MS + 1000),
        build(
            [Record(31, NOW_MS, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 4))],
            base_offset=31,
            producer_id=5,
            producer_epoch=3,
            transactional=True,
            control=True,
            delete_horizon_ms=NOW_MS,
        ),
        build([], base_offset=32, last_offset=32, control=True, transactional=True, producer_id=5, producer_epoch=3),
        build([Record(33, NOW_MS, struct.pack(">hh", 0, 2), b"")], base_offset=33, control=True),
        build([Record(34, NOW_MS, struct.pack(">hh", 0, 99), b"")], base_offset=34, control=True),
        marker,
        damaged,
        damaged[:66],
    ]
    return b"".join(map(bytes, parts))


@pytest.mark.jvm
@pytest.mark.parametrize(
    "options", [("--print-data-log",), ("--print-data-log", "--skip-record-metadata")], ids=" ".join
)
def test_odd_batches_are_printed_as_kafka_prints_them(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(crafted())
    other = tmp_path / "notes.txt"
    other.touch()
    printed = assert_as_kafka_prints(*options, "--files", named(path, other))
    assert "isvalid: false" in printed
    assert "invalid bytes at the end of" in printed


# -- the topics of coordinators ----------------------------------------------------------------------------------------


def versioned(message: Any, version: int) -> bytes:
    return struct.pack(">h", version) + message.encode(version)


def offsets_records() -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of every kind and version that 3.9 reads, and some that it does not."""
    committed = m.OffsetCommitValue(offset=5, metadata='m "ü" \x1f\\u00ff\n', commit_timestamp=NOW_MS)
    offset_key = versioned(m.OffsetCommitKey(group="g", topic="t\x7f", partition=3), 1)
    subscription = versioned(
        m.ConsumerProtocolSubscription(
            topics=["a", "b"],
            user_data=b"\x00\x01",
            owned_partitions=[m.ConsumerProtocolSubscription.TopicPartition(topic="a", partitions=[1, 2])],
            generation_id=4,
            rack_id="r",
        ),
        3,
    )
    assignment = versioned(
        m.ConsumerProtocolAssignment(
            assigned_partitions=[m.ConsumerProtocolAssignment.TopicPartition(topic="a", partitions=[1])]
        ),
        1,
    )
    member = m.GroupMetadataValue.MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=subscription,
        assignment=assignment,
    )
    odd = m.GroupMetadataValue.MemberMetadata(member_id="n", subscription=b"", assignment=b"\x00\x01\xff\xff")
    group_key = versioned(m.GroupMetadataKey(group="g"), 2)
    found: list[tuple[bytes | None, bytes | None]] = [(offset_key, versioned(committed, v)) for v in range(4)]
    found += [(versioned(m.OffsetCommitKey(group="g", topic="t", partition=3), 0), None)]
    for protocol_type in ("consumer", "connect"):
        value = m.GroupMetadataValue(
            protocol_type=protocol_type, generation=3, protocol="range", leader="m", members=[member, odd]
        )
        found += [(group_key, versioned(value, version)) for version in range(5)]
    found += [(group_key, versioned(m.GroupMetadataValue(protocol_type="consumer"), 3)), (group_key, None)]
    return [*found, *consumer_group_records(), (struct.pack(">h", 16) + b"x", b"y"), (struct.pack(">h", 99), None)]


def consumer_group_records() -> list[tuple[bytes | None, bytes | None]]:
    uuid = bytes(range(240, 256))
    topic = m.ConsumerGroupPartitionMetadataValue.TopicMetadata(
        topic_id=uuid,
        topic_name="t",
        num_partitions=2,
        partition_metadata=[m.ConsumerGroupPartitionMetadataValue.PartitionMetadata(partition=0, racks=["r"])],
    )
    classic = m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=9,
        supported_protocols=[m.ConsumerGroupMemberMetadataValue.ClassicProtocol(name="range", metadata=b"xyz")],
    )
    member: dict[str, Any] = {
        "client_id": "c",
        "client_host": "/h",
        "subscribed_topic_names": ["t"],
        "rebalance_timeout_ms": 5,
    }
    target = m.ConsumerGroupTargetAssignmentMemberValue
    current = m.ConsumerGroupCurrentMemberAssignmentValue
    rows = [
        (3, m.ConsumerGroupMetadataKey(group_id="g"), m.ConsumerGroupMetadataValue(epoch=4)),
        (4, m.ConsumerGroupPartitionMetadataKey(group_id="g"), m.ConsumerGroupPartitionMetadataValue(topics=[topic])),
        (
            5,
            m.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
            m.ConsumerGroupMemberMetadataValue(**member),
        ),
        (
            5,
            m.ConsumerGroupMemberMetadataKey(group_id="g", member_id="n"),
            m.ConsumerGroupMemberMetadataValue(**member, classic_member_metadata=classic, instance_id="i"),
        ),
        (
            5,
            m.ConsumerGroupMemberMetadataKey(group_id="g", member_id="o"),
            m.ConsumerGroupMemberMetadataValue(**member, classic_member_metadata=None, rack_id="r"),
        ),
        (
            6,
            m.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
            m.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=4),
        ),
        (
            7,
            m.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
            target(topic_partitions=[target.TopicPartition(topic_id=uuid, partitions=[0, 1])]),
        ),
        (
            8,
            m.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
            current(
                member_epoch=4,
                previous_member_epoch=3,
                state=1,
                assigned_partitions=[current.TopicPartitions(topic_id=uuid, partitions=[0])],
            ),
        ),
    ]
    return [(versioned(key, kind), versioned(value, 0)) for kind, key, value in rows]


def write_records(path: Path, pairs: list[tuple[bytes | None, bytes | None]]) -> Path:
    records = [Record(offset, NOW_MS, key, value) for offset, (key, value) in enumerate(pairs)]
    path.write_bytes(build(records))
    return path


@pytest.mark.jvm
@pytest.mark.parametrize("options", [(), ("--skip-record-metadata",)], ids=["", "skip"])
def test_the_records_of_groups(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = write_records(tmp_path / f"{NAME}.log", offsets_records())
    printed = assert_as_kafka_prints("--offsets-decoder", *options, "--files", named(path))
    assert "<DELETE>" in printed


@pytest.mark.jvm
def test_the_records_of_transactions(tmp_path: Path) -> None:
    pairs: list[tuple[bytes | None, bytes | None]] = []
    schema = m.TransactionLogValue.PartitionsSchema
    partitions: list[dict[str, list[int]]] = [
        {},
        {"a": [7]},
        {"b": [0, 1, 2, 3, 4], "topic-one": [7, 0, 3, 11, 12, 700]},
        {f"t{topic}": [7, 0, 3, 11, 12] for topic in range(9)},
        {f"t{topic}": [7, 0, 11] for topic in range(20)},
        {"ü": list(range(100)), "a.b": [1], "c": list(range(20, 60)), "d": [8, 9, 10]},
        {},
    ]
    for status, topics in enumerate(partitions):
        value = m.TransactionLogValue(
            producer_id=1000 + status,
            producer_epoch=status,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_partitions=[schema(topic=name, partition_ids=ids) for name, ids in topics.items()]
            if status
            else None,
            transaction_last_update_timestamp_ms=NOW_MS,
            transaction_start_timestamp_ms=NOW_MS,
        )
        key = versioned(m.TransactionLogKey(transactional_id=f"id-{status}-ü"), 0)
        pairs += [(key, versioned(value, 0)), (key, versioned(value, 1))]
    pairs += [(pairs[0][0], None), (struct.pack(">h", 7), b"?")]
    path = write_records(tmp_path / f"{NAME}.log", pairs)
    printed = assert_as_kafka_prints("--transaction-log-decoder", "--files", named(path))
    assert "unknown::version=7" in printed


# -- beside a broker ---------------------------------------------------------------------------------------------------


def use(bootstrap: str) -> None:
    """A group and transactions write the records in the broker's internal topics."""
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    producer = Producer({**settings, "transactional.id": "t"})
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["orders"])
    producer.init_transactions()
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce("orders", "value", "key", headers=[("h", b"1")])
        if commit:
            producer.commit_transaction()
            assert consumer.poll(60) is not None
        else:
            offsets = [TopicPartition("orders", 0, 1)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            producer.flush()
            producer.abort_transaction()
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()


def assert_all_as_kafka_prints(data: Path) -> None:
    kinds = (
        ("orders-", "--print-data-log"),
        ("__consumer", "--offsets-decoder"),
        ("__tr", "--transaction-log-decoder"),
    )
    for prefix, option in kinds:
        folders = [folder for folder in data.iterdir() if folder.name.startswith(prefix)]
        written = [folder for folder in folders if any(log.stat().st_size for log in folder.glob("*.log"))]
        assert written
        for folder in written:
            assert "| offset: 0 " in assert_as_kafka_prints(option, "--files", all_files(folder))
    assert "damaged" not in ours("--verify", "--files", str(data)).stdout


@pytest.mark.jvm
@pytest.mark.slow
def test_the_files_of_a_running_broker(odradek_broker_factory: Callable[..., BrokerProcess]) -> None:
    broker = odradek_broker_factory(
        {
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
        }
    )
    use(broker.bootstrap)
    assert_all_as_kafka_prints(broker.data_dir)


@pytest.mark.jvm
@pytest.mark.slow
def test_the_files_of_a_kafka_that_was_killed(tmp_path: Path) -> None:
    """Its indexes have their full size, and are full of zeros."""
    with running_kafka(tmp_path) as kafka:
        use(kafka.bootstrap)
        kafka.kill()
        assert_all_as_kafka_prints(kafka.data_dir)


# -- beyond Kafka's tool -----------------------------------------------------------------------------------------------


def test_verify_accepts_valid_files(folder: Path) -> None:
    for where in (folder, folder.parent):
        result = ours("--verify", "--files", str(where))
        assert result.exit_code == 0
        lines = result.stdout.splitlines()
        assert len(lines) == len(list(folder.glob("*.log")))
        assert all(": ok, " in line for line in lines)


def test_verify_names_the_first_bad_byte(tmp_path: Path) -> None:
    first, second = bytes(batch(3)), bytes(batch(3, base_offset=3))
    path = tmp_path / f"{NAME}.log"
    start = len(first)
    cases = [
        (start + 40, 1, start, "checksum"),
        (start + len(second) - 1, 1, start, "checksum"),
        (start + 16, 3, start + 16, "magic 1"),
        (start + 10, 0x7F, start, "cut off"),
        (start + 8, 0x80, start + 8, "batch length"),
        (start + 7, 2, start, "base offset 1"),
    ]
    for place, flip, expected, reason in cases:
        data = bytearray(first + second)
        data[place] ^= flip
        path.write_bytes(data)
        result = ours("--verify", "--files", str(path))
        assert result.exit_code == 1
        assert result.stdout.startswith(f"{path}: damaged at byte {expected}: ")
        assert reason in result.stdout
    path.write_bytes(first + second[:-1])
    assert f"damaged at byte {start}: the batch is cut off" in ours("--verify", "--files", str(path)).stdout
    path.write_bytes(first + second[:5])
    assert f"damaged at byte {start}: 5 bytes are left" in ours("--verify", "--files", str(path)).stdout


def sealed(data: bytearray) -> bytes:
    """With a checksum that is valid for any content."""
    struct.pack_into(">I", data, CRC_POSITION, crc32c(bytes(data[CRC_POSITION + 4 :])))
    return bytes(data)


def test_damage_under_a_valid_checksum_is_found(tmp_path: Path) -> None:
    """A writer's mistakes, and the results of compaction, which are none."""
    path = tmp_path / f"{NAME}.log"
    compacted = build([Record(5, NOW_MS, b"k", b"v"), Record(9, NOW_MS, None, None)], base_offset=2, last_offset=12)
    path.write_bytes(compacted + build([], base_offset=13, last_offset=14))
    assert (
        ours("--verify", "--files", str(path)).stdout
        == f"{path}: ok, 138 bytes, 2 batches, 2 records, offsets 2 to 15\n"
    )
    for place, value, expected, reason in (
        (26, 6, 0, "the batch of offsets to 8 has record 9 after 5"),
        (60, 1, 0, "records"),
        (60, 3, 0, "records"),
        (22, 7, 0, "codec 7"),
        (23, 0xFF, 23, "last offset delta"),
        (61, 3, 0, "records"),
    ):
        wrong = bytearray(compacted)
        wrong[place] = value
        path.write_bytes(sealed(wrong))
        with pytest.raises(DamagedLog, match=reason) as caught:
            verify(str(path))
        assert caught.value.position == expected


def test_every_flipped_bit_that_matters_is_found(tmp_path: Path) -> None:
    """All except those of base offsets and leader epochs, which lie outside the checksum and may change."""
    data = bytes(batch(2)) + bytes(batch(2, base_offset=2, codec=Codec.ZSTD))
    path = tmp_path / f"{NAME}.log"
    for place in range(8, len(data)):
        in_batch = place if place < len(batch(2)) else place - len(batch(2))
        if in_batch < 8 or 12 <= in_batch < 16:
            continue
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedLog) as caught:
            verify(str(path))
        assert 0 <= caught.value.position <= place


def test_an_unreadable_file_is_reported_in_one_line(tmp_path: Path) -> None:
    missing = tmp_path / f"{NAME}.log"
    result = ours("--files", str(missing))
    assert (result.exit_code, result.stderr) == (1, f"odradek: there is no file {missing}\n")
    missing.write_bytes(bytes(100))
    result = ours("--files", str(missing))
    assert result.exit_code == 1
    assert "magic 0 where 2 is read" in result.stderr
    assert ours("--verify", "--files", str(tmp_path / "nothing")).exit_code == 1
    (tmp_path / "empty").mkdir()
    assert "no log in it" in ours("--verify", "--files", str(tmp_path / "empty")).stdout
    index = tmp_path / f"{NAME}.index"
    index.write_bytes(struct.pack(">ii", 5, 400))
    assert "no batch at position 400" in ours("--files", str(index)).stderr
    result = ours("--verify", "--files", str(index))
    assert (result.exit_code, "not checked" in result.stdout) == (1, True)


def test_a_closed_pipe_is_no_error(folder: Path) -> None:
    """The locale is C here, which must not affect the output either."""
    command = f"{sys.executable} -m odradek dump-log --print-data-log --files {all_files(folder)} | head -n 1"
    result = subprocess.run(
        command, shell=True, capture_output=True, env={**os.environ, "LC_ALL": "C"}, check=True, timeout=60
    )
    assert result.stdout.decode().startswith("Dumping ")
    assert result.stderr == b""
