"""The I/O part of the group coordinator: loading, responses during a load, and Kafka's reading of its records."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.coordinator import runtime
from odradek.broker.group.state.classic_requests import JoinRequest
from odradek.broker.group.state.offsets import OffsetAndMetadata
from odradek.broker.group.state.records import offset_record
from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.runtime.state.effects import KeyValue
from odradek.protocol.batch import Header, Record, build, control_batch, headers
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.jvm.process import java_command, run_java
from tests.jvm.tools import run_tool
from tests.machines.group_harness import GROUP, START_MS, Harness, MemoryLog


def transaction(producer_id: int, *records: KeyValue, base_offset: int = 0) -> bytearray:
    """A batch of a transaction."""
    items = [Record(base_offset + n, START_MS, key, value, []) for n, (key, value) in enumerate(records)]
    return build(
        items, base_offset=base_offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(log: MemoryLog, producer_id: int, *, commit: bool) -> bytearray:
    return control_batch(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_offset=log.next_offset.get(0, 0),
        timestamp_ms=START_MS,
        leader_epoch=0,
    )


def record(index: int, offset: int) -> KeyValue:
    return offset_record(GROUP, ("t", index), OffsetAndMetadata(offset, 3, "", START_MS))


# --- loading ---


def test_offsets_of_a_transaction_count_from_its_marker_on() -> None:
    harness = Harness()
    harness.log.write(0, transaction(1, record(0, 10), record(1, 10)))
    harness.log.write(0, transaction(2, record(2, 10), base_offset=2))
    harness.log.write(0, marker(harness.log, 1, commit=True))
    harness.log.write(0, marker(harness.log, 2, commit=False))
    harness.log.write(0, transaction(3, record(3, 10), base_offset=harness.log.next_offset[0]))
    harness.fail_over()
    assert [harness.offset(("t", index)) for index in range(4)] == [10, 10, None, None]
    _, found = harness.offsets.fetch(GROUP, [("t", 3)], require_stable=True)
    assert found[0].error is ErrorCode.UNSTABLE_OFFSET_COMMIT, "the third transaction is open"


def test_unreadable_records_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    strange: list[KeyValue] = [(b"\0", b""), (b"\0\1", b"x"), (b"\0\2\0\1g", b"\0\x63"), (b"\0\x0b\0\1g", b"\0\0")]
    for key, value in strange:
        items = [Record(harness.log.next_offset[0], START_MS, key, value, [])]
        harness.log.write(0, build(items, base_offset=harness.log.next_offset[0]))
    items = [Record(harness.log.next_offset[0], START_MS, None, b"", [])]
    harness.log.write(0, build(items, base_offset=harness.log.next_offset[0]))
    harness.commit({("t", 1): 2})
    harness.fail_over()
    assert (harness.offset(("t", 0)), harness.offset(("t", 1))) == (1, 2)
    assert caplog.text.count("skipping invalid record") == 4, "kinds of later releases cause no warning"


def test_a_long_partition_is_read_in_parts_and_requests_return_load_in_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "AT_ONCE", 3)
    harness = Harness()
    harness.defers_turns = True
    for offset in range(10):
        harness.commit({("t", offset): offset})
    harness.fail_over()
    assert harness.join().answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.sync("x", 1).answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.beat("x", 1) is ErrorCode.NONE
    assert harness.commit({("t", 0): 1}).answer == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert harness.offsets.fetch(GROUP, None, require_stable=False) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert harness.groups.leave(GROUP, [("x", None)])[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.groups.list_groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.time.advance(0)
    assert harness.groups.list_groups()[0] is ErrorCode.NONE
    assert harness.offset(("t", 9)) == 9


def test_a_load_overtaken_by_an_unload_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "AT_ONCE", 1)
    harness = Harness()
    harness.defers_turns = True
    harness.commit({("t", 0): 1, ("t", 1): 1})
    harness.coordinator.close()
    harness.coordinator.runtime.load(0, 0)
    harness.coordinator.runtime.unload(0)
    harness.time.advance(0)
    assert harness.time.waiting == 0
    assert not list(harness.coordinator.runtime.machines())
    assert harness.commit({("t", 0): 1}).answer == [ErrorCode.NOT_COORDINATOR]


def test_a_partition_that_cannot_be_read_to_its_end_is_not_served() -> None:
    class Broken(MemoryLog):
        broken = False

        def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
            yield from super().read_all(partition)
            if self.broken:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

    harness = Harness()
    harness.log = broken = Broken()
    broken.broken = True
    harness.fail_over()
    assert harness.join().answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broken.broken = False
    harness.coordinator.runtime.load(0, 0)
    assert harness.commit({("t", 0): 1}).answer == [ErrorCode.NONE]


def test_sessions_begin_anew_with_a_load() -> None:
    harness = Harness()
    (member_id,), generation = harness.stable(1)
    harness.time.advance(9_000)
    harness.fail_over()
    harness.time.advance(9_000)
    assert harness.beat(member_id, generation) is ErrorCode.NONE
    harness.time.advance(10_000)
    assert harness.beat(member_id, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_waiting_requests_return_not_coordinator_when_the_partition_moves() -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2)
    join = harness.join(leader)
    harness.log.hold = True
    commit = harness.commit({("t", 0): 1}, follower, generation)
    harness.coordinator.runtime.unload(0)
    assert join.answer.error is ErrorCode.NOT_COORDINATOR
    assert harness.time.waiting == 0
    harness.log.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert commit.answer == [ErrorCode.NOT_COORDINATOR]
    assert harness.beat(leader, generation) is ErrorCode.NOT_COORDINATOR


def test_a_response_that_fails_does_not_delay_the_others() -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2)

    def fail(_: object) -> None:
        raise ValueError("cannot be encoded")

    _, membership = harness.groups.describe(GROUP)
    assert membership is not None
    member = membership.group_members.get(leader)
    assert member is not None
    harness.groups.join(GROUP, JoinRequest(leader, "consumer", member.terms), fail)
    assert harness.join(follower).answer.generation == generation + 1


def test_an_exception_of_the_log_counts_as_a_refusal() -> None:
    class Refusing(MemoryLog):
        def append(self, *_: object, **__: object) -> None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk has failed")

    harness = Harness()
    harness.log = Refusing()
    harness.fail_over()
    assert harness.commit({("t", 0): 1}).answer == [ErrorCode.NOT_COORDINATOR]
    assert harness.offset(("t", 0)) is None


# --- Kafka as witness ---

HASHING = """
import org.apache.kafka.common.utils.Utils;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Scanner;

public class PartitionOf {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in, StandardCharsets.US_ASCII);
        while (lines.hasNextLine()) {
            String key = new String(HexFormat.of().parseHex(lines.nextLine().strip()), StandardCharsets.UTF_8);
            System.out.println(Utils.abs(key.hashCode()) % 50);
        }
    }
}
"""


@pytest.mark.jvm
def test_groups_map_to_the_partitions_that_java_computes(tmp_path: Path) -> None:
    source = tmp_path / "PartitionOf.java"
    source.write_text(HASHING)
    draw = random.Random(39)
    keys = ["", "g", "polygenelubricants", "\N{BUTTERFLY}\N{BUTTERFLY}"]
    ranges = [(1, 0xD7FF), (0x10000, 0x10FFFF)]
    keys += ["".join(chr(draw.randint(*draw.choice(ranges))) for _ in range(length)) for length in range(60)]
    lines = "".join(key.encode().hex() + "\n" for key in keys)
    result = run_java(java_command("3.9.2", str(source), [], []), stdin=lines, timeout_s=60)
    assert [partition_for(key, 50) for key in keys] == [int(line) for line in result.stdout.split()]


@pytest.mark.jvm
def test_kafka_reads_the_records_of_the_coordinator(tmp_path: Path) -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2)
    harness.commit({("t", 0): 41, ("t", 1): 42}, leader, generation, metadata="note")
    harness.commit({("old", 0): 7}, group="simple", expire_ms=START_MS + 5)
    harness.leave(leader)
    harness.leave(follower)
    harness.time.advance(20_000)
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    segment = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(b"".join(harness.log.batches[0]))
    assert sum(header.record_count for _, header in headers(segment.read_bytes())) == 8
    arguments = ["--offsets-decoder", "--deep-iteration", "--files", str(segment)]
    lines = [line for line in run_tool("3.9.2", "kafka-dump-log", arguments).stdout.splitlines() if "key:" in line]
    notified = [re.sub(r"^.*?key: ", "", line) for line in lines]
    assert len(notified) == 8, notified
    assert '"group":"g"' in notified[0]
    assert f'"generation":{generation}' in notified[0]
    assert f'"leader":"{leader}"' in notified[0]
    assert f'"memberId":"{follower}"' in notified[0]
    assert '"version":"3"' in notified[0]
    assert '"topic":"t","partition":1' in notified[2]
    assert '"offset":42' in notified[2]
    assert '"metadata":"note"' in notified[2]
    assert '"version":"1"' in notified[3].split("payload:")[1], "an offset with an expiry of its own"
    assert f'"expireTimestamp":{START_MS + 5}' in notified[3]
    assert '"members":[]' in notified[4], "the group became empty"
    assert sum("<DELETE>" in line or line.endswith("payload: null") for line in notified) == 3, notified
