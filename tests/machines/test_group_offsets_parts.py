"""Many offsets of groups are deleted in turns with the event loop, and what requests change meanwhile stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import pytest

from odradek.broker.group import group_metadata_manager, groups, offset_metadata_manager
from odradek.broker.group.state import group as group_state
from odradek.broker.group.state.offsets import CommitRequest, OffsetAndMetadata
from odradek.broker.runtime.turns import Turns
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.stepping_turns import SteppingClock, finished
from tests.machines.group_harness import GROUP, START_MS, Harness
from tests.support.eventually import eventually_async

GROUPS = 300
DAY_MS = 24 * 3600 * 1000
PART = 10
MANY = 20 * PART


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    """Works of many groups or offsets run in these turns, interrupted at every second item."""
    running = Turns(SteppingClock(2))
    monkeypatch.setattr(Harness, "_run", lambda _, work, kept=None: running.run(work, kept))
    monkeypatch.setattr(groups, "CHANGED_AT_ONCE", PART)
    monkeypatch.setattr(group_metadata_manager, "DELETED_AT_ONCE", PART)
    monkeypatch.setattr(group_metadata_manager, "DELETED_WITH_GROUP", 2 * PART)
    yield running
    running.close()


def partitions(count: int) -> dict[TopicPartition, int]:
    return {("t", index): index for index in range(count)}


def filled(**settings: Any) -> Harness:
    """A coordinator with an offset of one partition in each of GROUPS groups."""
    harness = Harness(**settings)
    for number in range(GROUPS):
        harness.commit({("t", 0): 1, ("kept", 0): 2}, group=f"g{number}")
    return harness


def offsets_of(harness: Harness, partition: TopicPartition) -> list[int | None]:
    return [harness.offset(partition, group=f"g{number}") for number in range(GROUPS)]


def interrupt(monkeypatch: pytest.MonkeyPatch, module: ModuleType, action: Callable[[], Any], loops: int = 1) -> None:
    """Call `action` once before the third item of a loop that may be interrupted, of the first `loops` loops."""
    left = [loops]

    def interrupted(items: Iterable[Any]) -> Iterator[Any]:
        left[0] -= 1
        is_last = left[0] == 0
        for number, item in enumerate(items):
            if is_last and number == 3:
                action()
            yield item

    monkeypatch.setattr(module, "items_of", interrupted)


async def test_offsets_of_a_deleted_topic_are_removed_in_turns(turns: Turns) -> None:
    harness = filled()
    harness.offsets.forget_partitions([("t", 0)])
    assert offsets_of(harness, ("t", 0)) == [1] * GROUPS, "it begins with the next iteration of the loop"
    await eventually_async(lambda: offsets_of(harness, ("t", 0))[-1], lambda found: found is None, "they are removed")
    assert turns.interruptions > GROUPS / 2
    assert offsets_of(harness, ("t", 0)) == [None] * GROUPS
    assert offsets_of(harness, ("kept", 0)) == [2] * GROUPS


@pytest.mark.parametrize("in_transaction", [False, True])
def test_offsets_of_a_topic_with_the_name_of_a_deleted_one_stay(
    monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    """A consumer commits them before its group has forgotten those of the deleted topic."""
    harness = filled()
    last = f"g{GROUPS - 1}"

    def commit() -> None:
        if in_transaction:
            assert harness.commit_in_transaction({("t", 0): 7}, group=last).answer == [ErrorCode.NONE]
        else:
            assert harness.commit({("t", 0): 7}, group=last).answer == [ErrorCode.NONE]

    interrupt(monkeypatch, groups, commit)
    harness.offsets.forget_partitions([("t", 0)])
    if in_transaction:
        harness.end_transaction(commit=True)
    for _ in range(2):
        assert offsets_of(harness, ("t", 0)) == [None] * (GROUPS - 1) + [7]
        assert offsets_of(harness, ("kept", 0)) == [2] * GROUPS
        harness.fail_over()


def test_a_coordinator_that_is_unloaded_removes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = filled()
    before = len(harness.log.batches[0])
    interrupt(monkeypatch, groups, lambda: harness.coordinator.runtime.unload(0))
    harness.offsets.forget_partitions([("t", 0)])
    assert len(harness.log.batches[0]) == before + 3


def test_offsets_that_are_committed_again_do_not_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CHANGED_AT_ONCE", PART)
    harness = Harness(offsets_retention_minutes=24 * 60, offsets_retention_check_interval_ms=DAY_MS + 1)
    harness.coordinator.start()
    harness.commit(partitions(MANY))
    interrupt(monkeypatch, groups, lambda: harness.commit({("t", MANY - 1): 5}), loops=2)
    harness.time.advance(DAY_MS + 1)
    assert [harness.offset(("t", index)) for index in (0, MANY - 2, MANY - 1)] == [None, None, 5]
    harness.time.advance(DAY_MS + 1)
    assert harness.state() == "Dead", "nothing is left of the group"


async def test_offsets_expire_in_turns_and_the_next_check_follows_the_end_of_the_last(turns: Turns) -> None:
    harness = Harness(offsets_retention_minutes=24 * 60, offsets_retention_check_interval_ms=DAY_MS + 1)
    harness.coordinator.start()
    harness.commit(partitions(MANY))
    harness.time.advance(DAY_MS + 1)
    assert harness.time.waiting == 0
    await eventually_async(harness.state, lambda state: state == "Dead", "nothing is left of the group")
    assert turns.interruptions > MANY / PART / 2
    await eventually_async(lambda: harness.time.waiting, bool, "the next check is planned")
    harness.coordinator.close()
    assert harness.time.waiting == 0


async def test_a_group_is_deleted_with_the_last_batch_of_its_offsets(turns: Turns) -> None:
    harness = Harness()
    harness.commit(partitions(MANY))
    written = len(harness.log.batches[0])
    assert await finished(turns, lambda: harness.groups.delete_group(GROUP)) is ErrorCode.NONE
    assert harness.state() == "Dead"
    assert turns.interruptions > MANY / PART / 2
    assert len(harness.log.batches[0]) - written == (MANY - 2 * PART) / PART + 1
    assert harness.groups.offsets_of([GROUP]) == 0


def test_a_group_that_a_member_joins_during_its_deletion_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metadata_manager, "DELETED_AT_ONCE", PART)
    monkeypatch.setattr(group_metadata_manager, "DELETED_WITH_GROUP", 2 * PART)
    harness = Harness()
    harness.commit(partitions(MANY))
    interrupt(monkeypatch, group_metadata_manager, lambda: harness.join())
    assert harness.groups.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
    assert [harness.offset(("t", index)) for index in (3 * PART - 1, 3 * PART)] == [None, 3 * PART]


def test_a_commit_during_the_last_part_of_a_deletion_is_deleted_with_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_metadata_manager, "DELETED_AT_ONCE", PART)
    harness = Harness()
    harness.commit(partitions(MANY))
    interrupt(monkeypatch, group_metadata_manager, lambda: harness.commit({("other", 0): 1}), loops=2)
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    harness.fail_over()
    assert harness.state() == "Dead"
    assert harness.offset(("other", 0)) is None


async def test_the_deletion_of_a_large_group_ends_with_the_error_of_the_log(turns: Turns) -> None:
    harness = Harness()
    harness.commit(partitions(MANY))
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    outcome = await finished(turns, lambda: harness.groups.delete_group(GROUP))
    assert outcome is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.groups.offsets_of([GROUP]) == MANY


async def test_a_large_commit_is_encoded_in_turns_before_the_group_stores_it(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group checks the member and appends all offsets in one event, in one batch."""
    harness = Harness()
    entries = [(each, OffsetAndMetadata(offset, -1, "", START_MS)) for each, offset in partitions(MANY).items()]
    request = CommitRequest("", None, -1, entries)
    assert harness.offsets.prepared(GROUP, request) is request, "outside of a turn"
    prepared = await finished(turns, lambda: harness.offsets.prepared(GROUP, request))
    assert turns.interruptions > MANY / 3

    def none(*_: object) -> None:
        raise AssertionError("the group encodes a record")

    monkeypatch.setattr(group_state, "offset_record", none)
    answers: list[list[ErrorCode]] = []
    for _ in range(2):  # the first one creates the group; the log may commit the second one at once
        if not harness.offsets.commit_at_once(GROUP, prepared):
            harness.offsets.commit(GROUP, prepared, answers.append)
    assert answers[0] == [ErrorCode.NONE] * MANY
    assert len(harness.log.batches[0]) == 2
    assert harness.offset(("t", 7)) == 7


def test_the_list_of_all_partitions_is_freed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 500,000 offsets of one group, a request that freed it at once held the event loop for 50 ms."""
    kept: list[int] = []

    def keep(items: list[TopicPartition]) -> list[TopicPartition]:
        kept.append(len(items))
        return items

    for module in (groups, group_metadata_manager, offset_metadata_manager):
        monkeypatch.setattr(module, "keep", keep)
    monkeypatch.setattr(group_metadata_manager, "DELETED_AT_ONCE", PART)
    harness = Harness()
    harness.commit(partitions(MANY))
    kept.clear()
    assert len(harness.offsets.fetch(GROUP, None, require_stable=False)[1]) == MANY
    assert kept == [MANY]
    harness.offsets.forget_partitions([("gone", 0)])
    assert len(kept) == 2
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    assert kept[2:] == [MANY]
