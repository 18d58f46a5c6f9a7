"""The coordinator's shell: what it reads at a load, whom it answers meanwhile, and what Kafka reads of its records."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.group import coordinator as shell
from odradek.broker.group.state.classic_requests import JoinRequest
from odradek.broker.group.state.offsets import Committed
from odradek.broker.group.state.records import offset_record
from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.runtime.state.effects import KeyValue
from odradek.protocol.batch import Header, Record, build, control_batch, headers
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.jvm.process import java_command, run_java
from tests.jvm.tools import run_tool
from tests.machines.group_world import GROUP, START_MS, MemoryLog, World


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
    return offset_record(GROUP, ("t", index), Committed(offset, 3, "", START_MS))


# --- loading ---


def test_offsets_of_a_transaction_count_from_its_marker_on() -> None:
    world = World()
    world.log.write(0, transaction(1, record(0, 10), record(1, 10)))
    world.log.write(0, transaction(2, record(2, 10), base_offset=2))
    world.log.write(0, marker(world.log, 1, commit=True))
    world.log.write(0, marker(world.log, 2, commit=False))
    world.log.write(0, transaction(3, record(3, 10), base_offset=world.log.next_offset[0]))
    world.fail_over()
    assert [world.offset(("t", index)) for index in range(4)] == [10, 10, None, None]
    _, found = world.groups.fetch(GROUP, [("t", 3)], require_stable=True)
    assert found[0].error is ErrorCode.UNSTABLE_OFFSET_COMMIT, "the third transaction is open"


def test_records_that_cannot_be_read_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.commit({("t", 0): 1})
    strange: list[KeyValue] = [(b"\0", b""), (b"\0\1", b"x"), (b"\0\2\0\1g", b"\0\x63"), (b"\0\x0b\0\1g", b"\0\0")]
    for key, value in strange:
        items = [Record(world.log.next_offset[0], START_MS, key, value, [])]
        world.log.write(0, build(items, base_offset=world.log.next_offset[0]))
    items = [Record(world.log.next_offset[0], START_MS, None, b"", [])]
    world.log.write(0, build(items, base_offset=world.log.next_offset[0]))
    world.commit({("t", 1): 2})
    world.fail_over()
    assert (world.offset(("t", 0)), world.offset(("t", 1))) == (1, 2)
    assert caplog.text.count("is passed over") == 4, "kinds of later releases are no reason to complain"


def test_a_long_partition_is_read_in_parts_and_requests_are_told_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "RECORDS_AT_A_TIME", 3)
    world = World()
    for offset in range(10):
        world.commit({("t", offset): offset})
    world.groups.close()
    world.groups = shell.GroupCoordinator(
        world.settings, world.time, world.time, lambda: "x", world.log, world.transactions, world.topics
    )
    done: list[bool] = []
    world.groups.load(0, lambda: done.append(True))
    assert not done
    assert world.join().answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.sync("x", 1).answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.beat("x", 1) is ErrorCode.NONE
    assert world.commit({("t", 0): 1}).answer == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.groups.fetch(GROUP, None, require_stable=False) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert world.groups.leave(GROUP, [("x", None)])[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.groups.list_groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.time.advance(0)
    assert done == [True]
    assert world.offset(("t", 9)) == 9


def test_a_load_that_is_overtaken_by_an_unload_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "RECORDS_AT_A_TIME", 1)
    world = World()
    world.commit({("t", 0): 1, ("t", 1): 1})
    world.groups.close()
    world.groups.load(0)
    world.groups.unload(0)
    assert world.time.waiting == 0
    assert world.commit({("t", 0): 1}).answer == [ErrorCode.NOT_COORDINATOR]


def test_a_partition_that_cannot_be_read_to_its_end_is_not_served() -> None:
    class Broken(MemoryLog):
        broken = False

        def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
            yield from super().read_all(partition)
            if self.broken:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

    world = World()
    world.log = broken = Broken()
    broken.broken = True
    world.fail_over()
    assert world.join().answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broken.broken = False
    world.groups.load(0)
    assert world.commit({("t", 0): 1}).answer == [ErrorCode.NONE]


def test_sessions_begin_anew_with_a_load() -> None:
    world = World()
    (member_id,), generation = world.stable(1)
    world.time.advance(9_000)
    world.fail_over()
    world.time.advance(9_000)
    assert world.beat(member_id, generation) is ErrorCode.NONE
    world.time.advance(10_000)
    assert world.beat(member_id, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_waits_is_sent_elsewhere_when_the_partition_goes() -> None:
    world = World()
    (leader, follower), generation = world.stable(2)
    join = world.join(leader)
    world.log.hold = True
    commit = world.commit({("t", 0): 1}, follower, generation)
    world.groups.unload(0)
    assert join.answer.error is ErrorCode.NOT_COORDINATOR
    assert world.time.waiting == 0
    world.log.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert commit.answer == [ErrorCode.NOT_COORDINATOR]
    assert world.beat(leader, generation) is ErrorCode.NOT_COORDINATOR


def test_an_answer_that_cannot_be_given_does_not_hold_up_the_others() -> None:
    world = World()
    (leader, follower), generation = world.stable(2)

    def fail(_: object) -> None:
        raise ValueError("cannot be encoded")

    _, membership = world.groups.describe(GROUP)
    assert membership is not None
    member = membership.group_members.get(leader)
    assert member is not None
    world.groups.join(GROUP, JoinRequest(leader, "consumer", member.terms), fail)
    assert world.join(follower).answer.generation == generation + 1


def test_a_log_that_raises_has_refused() -> None:
    class Refusing(MemoryLog):
        def append(self, *_: object) -> None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no longer the leader")

    world = World()
    world.log = Refusing()
    world.fail_over()
    assert world.commit({("t", 0): 1}).answer == [ErrorCode.NOT_COORDINATOR]
    assert world.offset(("t", 0)) is None


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
def test_groups_belong_where_java_puts_them(tmp_path: Path) -> None:
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
def test_kafka_reads_what_the_coordinator_wrote(tmp_path: Path) -> None:
    world = World()
    (leader, follower), generation = world.stable(2)
    world.commit({("t", 0): 41, ("t", 1): 42}, leader, generation, metadata="note")
    world.commit({("old", 0): 7}, group="simple", expire_ms=START_MS + 5)
    world.leave(leader)
    world.leave(follower)
    world.time.advance(20_000)
    assert world.groups.delete_group(GROUP) is ErrorCode.NONE
    segment = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(b"".join(world.log.batches[0]))
    assert sum(header.record_count for _, header in headers(segment.read_bytes())) == 8
    arguments = ["--offsets-decoder", "--deep-iteration", "--files", str(segment)]
    lines = [line for line in run_tool("3.9.2", "kafka-dump-log", arguments).stdout.splitlines() if "key:" in line]
    told = [re.sub(r"^.*?key: ", "", line) for line in lines]
    assert len(told) == 8, told
    assert '"group":"g"' in told[0]
    assert f'"generation":{generation}' in told[0]
    assert f'"leader":"{leader}"' in told[0]
    assert f'"memberId":"{follower}"' in told[0]
    assert '"version":"3"' in told[0]
    assert '"topic":"t","partition":1' in told[2]
    assert '"offset":42' in told[2]
    assert '"metadata":"note"' in told[2]
    assert '"version":"1"' in told[3].split("payload:")[1], "an offset with an expiry of its own"
    assert f'"expireTimestamp":{START_MS + 5}' in told[3]
    assert '"members":[]' in told[4], "the group became empty"
    assert sum("<DELETE>" in line or line.endswith("payload: null") for line in told) == 3, told
