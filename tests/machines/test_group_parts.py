"""A rebalance of many members is handled in parts: no event answers or removes more than AT_ONCE of them."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from odradek.broker.group.state.classic_group import ClassicGroup
from odradek.broker.group.state.classic_membership import Membership
from odradek.broker.group.state.classic_rebalance import ANSWER, AT_ONCE, JOIN, STORE, SYNC
from odradek.broker.group.state.classic_requests import (
    ClassicGroupState,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
    Terms,
)
from odradek.broker.group.state.records import read_group
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import Append, Effect, Now, Reply, TimerName
from odradek.broker.runtime.turns import Turns
from odradek.protocol import messages as m
from odradek.protocol.encoded import EncodedArray
from odradek.protocol.errors import ErrorCode
from tests.broker.stepping_turns import SteppingClock
from tests.machines.group_harness import GROUP, Harness, Slot
from tests.support.call_counter import CallCounter
from tests.support.eventually import eventually_async

MEMBERS = 3 * AT_ONCE + 1
PROTOCOLS = (("range", b""),)
STEP_MS = 10_000
CONSUMERS = 4 * AT_ONCE
MOST_CALLS = 7 * CONSUMERS
"""Before, the end of the join phase made 14 calls for each member in one event, and the leader's sync 8."""


class LargeGroup:
    """A classic group, its log and its timers; `parts` are the answers of each event that had some."""

    def __init__(self, size: int = MEMBERS, protocol_type: str = "x") -> None:
        self.now = Now(0, 0)
        self.machine = Membership("g", GroupSettings(group_max_size=size), self.now)
        self.parts: list[list[JoinResult | SyncResult]] = []
        self.counter = CallCounter()
        for index in range(size):
            terms = Terms(None, "c", "h", 1_000_000, STEP_MS, self.protocols(index))
            request = JoinRequest("", protocol_type, terms)
            self.perform(self.machine.join(("join", index), request, str(index), self.now))

    def protocols(self, index: int) -> tuple[tuple[str, bytes], ...]:
        """The protocols of one of the members."""
        return PROTOCOLS

    @property
    def ids(self) -> list[str]:
        """The ids of the members."""
        return [member.member_id for member in self.machine.group.group_members]

    def perform(self, effects: list[Effect]) -> None:
        """Commit appends at once, and record the answers."""
        events = deque([effects])
        while events:
            event = events.popleft()
            answers = [effect.answer for effect in event if isinstance(effect, Reply)]
            self.parts += [answers] if answers else []
            for effect in event:
                if isinstance(effect, Append):
                    events.append(self.machine.stored(effect.token, ErrorCode.NONE, self.now))

    def fire(self, name: TimerName) -> None:
        """The timer fires at its deadline."""
        deadline_ms = max(self.machine.armed[name], self.now.monotonic_ms)
        self.now = Now(deadline_ms, deadline_ms)
        with self.counter.counting():
            self.perform(self.machine.timer(name, self.now))

    def end_join(self) -> None:
        """End the initial delay; the group then has a generation, whose joins are answered in part."""
        while self.machine.state is ClassicGroupState.PREPARING:
            self.fire(JOIN)

    def sync(self, member_id: str) -> None:
        """The sync of a member; the leader's contains an assignment for all."""
        assignments = dict.fromkeys(self.ids, b"assigned") if member_id == self.ids[0] else {}
        request = SyncRequest(member_id, None, self.machine.group.generation, None, None, assignments)
        with self.counter.counting():
            self.perform(self.machine.sync(("sync", member_id), request, self.now))

    def store(self) -> None:
        """Store the leader's assignments."""
        while STORE in self.machine.armed:
            self.fire(STORE)

    def answers(self) -> list[ErrorCode]:
        """The errors of all answers since the last call, which came in parts."""
        while ANSWER in self.machine.armed:
            self.fire(ANSWER)
        parts, self.parts = self.parts, []
        assert all(len(part) <= AT_ONCE for part in parts)
        return [each.error for part in parts for each in part]


def stable() -> LargeGroup:
    group = LargeGroup()
    group.end_join()
    assert group.answers() == [ErrorCode.NONE] * MEMBERS
    for member_id in reversed(group.ids):
        group.sync(member_id)
    group.store()
    return group


def test_joins_and_syncs_are_answered_in_parts() -> None:
    group = stable()
    assert group.machine.state is ClassicGroupState.STABLE
    assert group.answers() == [ErrorCode.NONE] * MEMBERS
    assert set(group.machine.armed) == {("member", each) for each in group.ids}


def test_members_that_do_not_rejoin_are_removed_in_parts() -> None:
    group = stable()
    group.answers()
    group.perform(group.machine.leave(group.ids[0], None, group.now)[1])
    group.fire(JOIN)
    assert len(group.ids) == MEMBERS - 1 - AT_ONCE
    while group.ids:
        left = len(group.ids)
        group.fire(JOIN)
        assert left - len(group.ids) <= AT_ONCE
    assert group.machine.state is ClassicGroupState.EMPTY
    assert not group.machine.armed


def test_members_that_do_not_sync_are_removed_in_parts() -> None:
    group = LargeGroup()
    group.end_join()
    group.answers()
    group.fire(SYNC)
    assert group.machine.state is ClassicGroupState.PREPARING
    assert len(group.ids) == MEMBERS - AT_ONCE
    while group.ids:
        left = len(group.ids)
        group.fire(SYNC)
        assert left - len(group.ids) <= AT_ONCE
    assert group.machine.state is ClassicGroupState.EMPTY


def test_a_member_that_leaves_between_two_parts_does_not_change_the_answers_of_syncs() -> None:
    group = stable()
    group.perform(group.machine.leave(group.ids[0], None, group.now)[1])
    assert group.machine.state is ClassicGroupState.PREPARING
    # The member that has left has received its answer in the first part, or receives UNKNOWN_MEMBER_ID for its sync.
    assert sorted(group.answers())[:-1] == [ErrorCode.NONE] * (MEMBERS - 1)


def test_joins_without_an_answer_wait_for_the_next_generation() -> None:
    group = LargeGroup()
    group.end_join()
    assert group.machine.state is ClassicGroupState.COMPLETING
    group.fire(ANSWER)
    group.perform(group.machine.leave(group.ids[0], None, group.now)[1])
    assert group.answers() == [ErrorCode.NONE] * AT_ONCE
    assert group.machine.group.group_members.joining == MEMBERS - AT_ONCE
    group.end_join()
    assert group.answers() == [ErrorCode.NONE] * (MEMBERS - AT_ONCE)
    assert group.machine.group.generation == 2


class Consumers(LargeGroup):
    """Consumers that each subscribe to another topic."""

    def __init__(self) -> None:
        super().__init__(CONSUMERS, "consumer")

    def protocols(self, index: int) -> tuple[tuple[str, bytes], ...]:
        subscription = m.ConsumerProtocolSubscription(topics=[f"topic-{index}"])
        return (("range", b"\0\0" + subscription.encode(0)), ("roundrobin", b"\0\0" + subscription.encode(0)))


def test_no_event_of_a_rebalance_examines_or_encodes_all_members() -> None:
    group = Consumers()
    group.end_join()
    group.answers()
    assert group.counter.most < MOST_CALLS
    for member_id in reversed(group.ids):
        group.sync(member_id)
    group.store()
    assert group.answers() == [ErrorCode.NONE] * CONSUMERS
    assert group.machine.state is ClassicGroupState.STABLE
    names = [f"topic-{index}" for index in range(CONSUMERS)]
    assert group.machine.subscribed([*names, "another"]) == set(names)
    assert group.counter.most < MOST_CALLS


def test_a_member_that_joins_while_the_others_are_examined_is_in_the_generation() -> None:
    group = Consumers()
    group.machine._settings.group_max_size += 1
    group.fire(JOIN)
    while JOIN in group.machine.armed and group.machine.armed[JOIN] > group.now.monotonic_ms:
        group.fire(JOIN)  # the initial delay
    assert group.machine.state is ClassicGroupState.PREPARING
    terms = Terms(None, "c", "h", 1_000_000, STEP_MS, (("roundrobin", b""),))
    group.perform(group.machine.join("late", JoinRequest("", "consumer", terms), "late", group.now))
    group.end_join()
    assert group.answers() == [ErrorCode.NONE] * (CONSUMERS + 1)
    assert group.machine.group.generation == 1
    assert group.machine.group.protocol_name == "roundrobin"
    assert group.machine.subscribed(["another"])  # the subscription of the last member is unreadable


@pytest.mark.parametrize("count", [3, AT_ONCE + 1])
def test_the_record_of_a_generation_has_new_assignments_of_members_that_did_not_rejoin(count: int) -> None:
    """Members keep their part of the last record, for static members that return under another id."""
    harness = Harness(group_initial_rebalance_delay_ms=10)
    fields: dict[str, Any] = {"session_ms": 1_000_000, "rebalance_ms": 1_000}

    def assign(slots: list[Slot], generation: int, assignment: bytes) -> list[str]:
        """End the join phase and store an assignment for every member; returns the ids of those that have joined."""
        harness.time.advance(1_000)
        ids = [slot.answer.member_id for slot in slots]
        assignments = dict.fromkeys((*ids, absent.answer.member_id), assignment)
        synced = [harness.sync(each, generation, assignments) for each in ids]
        harness.time.advance(0)
        assert {slot.answer.assignment for slot in synced} == {assignment}
        return ids

    absent = harness.join(instance="static", **fields)
    ids = assign([absent, *(harness.join(**fields) for _ in range(count))], 1, b"first")
    assign([harness.join(**fields), *(harness.join(each, **fields) for each in ids[1:])], 2, b"second")
    harness.fail_over()
    _, group = harness.groups.describe(GROUP)
    assert group is not None
    assert group.generation == 2
    assert [member.assignment for member in group.group_members] == [b"second"] * (count + 2)


def test_a_rebalance_that_begins_while_a_generation_is_encoded_stores_nothing() -> None:
    group = LargeGroup()
    group.end_join()
    group.answers()
    for member_id in reversed(group.ids):
        group.sync(member_id)
    assert STORE in group.machine.armed
    group.perform(group.machine.leave(group.ids[-1], None, group.now)[1])
    assert STORE not in group.machine.armed
    assert group.machine.group.in_log is None
    assert group.answers() == [ErrorCode.UNKNOWN_MEMBER_ID, *[ErrorCode.REBALANCE_IN_PROGRESS] * (MEMBERS - 1)]
    assert group.machine.state is ClassicGroupState.PREPARING


def consumers(harness: Harness, count: int) -> list[str]:
    """A stable group of static members; their ids."""
    slots = [harness.join(instance=f"i{index}", session_ms=1_000_000) for index in range(count)]
    harness.time.advance(1_000)
    ids = [slot.answer.member_id for slot in slots]
    assignments = dict.fromkeys(ids, b"assigned")
    synced = [harness.sync(ids[at], 1, assignments, instance=f"i{at}") for at in reversed(range(count))]
    harness.time.advance(0)
    assert {slot.answer.assignment for slot in synced} == {b"assigned"}
    return ids


@pytest.mark.parametrize("rebalances", [False, True])
def test_the_record_of_a_large_group_is_made_in_one_event_and_appended_in_the_next(
    monkeypatch: pytest.MonkeyPatch, rebalances: bool
) -> None:
    made: list[int] = []
    make = ClassicGroup.record_with

    def record_with(group: ClassicGroup, members: EncodedArray) -> tuple[bytes, bytes]:
        made.append(len(members))
        return make(group, members)

    monkeypatch.setattr(ClassicGroup, "record_with", record_with)
    group = LargeGroup()
    group.end_join()
    group.answers()
    for member_id in reversed(group.ids):
        group.sync(member_id)
    while not made:
        group.fire(STORE)
    assert (made, group.machine.group.in_log, group.machine.state.value) == ([MEMBERS], None, "CompletingRebalance")
    if rebalances:
        group.perform(group.machine.leave(group.ids[1], None, group.now)[1])
    assert (STORE in group.machine.armed) is not rebalances
    group.store()
    stored = group.machine.group.in_log
    assert (stored is None) is rebalances
    if stored is not None:
        value = read_group(stored)
        assert [each.assignment for each in value.members] == [b"assigned"] * MEMBERS
        assert [each.member_id for each in value.members] == group.ids


def test_a_static_member_returns_to_a_large_group_without_work_for_the_others() -> None:
    """Before, every member was examined and, after a load, encoded."""
    harness = Harness(group_initial_rebalance_delay_ms=10)
    consumers(harness, CONSUMERS)
    counter = CallCounter()
    for _ in range(2):
        with counter.counting():
            returned = harness.join(instance="i7", session_ms=1_000_000)
        assert returned.answer.error is ErrorCode.NONE
        harness.fail_over()
        harness.time.advance(0)
    assert counter.most < CONSUMERS, "a few calls for the one that has returned"
    _, group = harness.groups.describe(GROUP)
    assert group is not None
    assert {member.assignment for member in group.group_members} == {b"assigned"}
    assert returned.answer.member_id in group.group_members.ids()


def test_sessions_begin_in_parts_after_a_load() -> None:
    harness = Harness(group_initial_rebalance_delay_ms=10)
    ids = consumers(harness, CONSUMERS)
    harness.fail_over()
    assert sum(name[0] == "member" for name in harness.armed()) == AT_ONCE
    assert harness.beat(ids[-1], 1, instance=f"i{CONSUMERS - 1}") is ErrorCode.NONE, "its session has not begun"
    assert harness.leave(ids[-2], instance=f"i{CONSUMERS - 2}") is ErrorCode.NONE
    harness.time.advance(0)
    left = [each for each in ids if each != ids[-2]]
    assert {name for name in harness.armed() if name[0] == "member"} == {("member", each) for each in left}


async def test_a_large_group_is_loaded_and_unloaded_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, 5,000 members held the loop for 113 milliseconds in a load, and for 45 in an unload."""
    harness = Harness(group_initial_rebalance_delay_ms=10)
    ids = consumers(harness, CONSUMERS)
    waiting = harness.join(ids[0], instance="i0")  # the leader begins a rebalance
    turns = Turns(SteppingClock(2))
    monkeypatch.setattr(harness, "_run", turns.run)
    harness.coordinator.close()
    assert waiting.answer.error is ErrorCode.NOT_COORDINATOR
    harness.coordinator = harness._new_coordinator()
    harness.coordinator.runtime.load(0, 0)
    assert harness.beat(ids[1], 1) is ErrorCode.NONE, "as while a group is loading"
    await eventually_async(lambda: harness.coordinator.runtime.is_loading, lambda loading: not loading, "it is loaded")
    loading = turns.interruptions
    assert loading > 3 * CONSUMERS / 2, "decoded, restored and examined in turns"
    _, group = harness.groups.describe(GROUP)
    assert group is not None
    assert list(group.group_members.ids()) == ids
    await eventually_async(lambda: harness.time.waiting, bool, "sessions begin")
    harness.time.advance(0)
    waiting = harness.join(ids[0], instance="i0")
    harness.coordinator.runtime.unload(0)
    await eventually_async(lambda: waiting.answers, bool, "the join is answered")
    assert waiting.answer.error is ErrorCode.NOT_COORDINATOR
    await eventually_async(lambda: harness.time.waiting, lambda left: not left, "the timers are cancelled")
    assert turns.interruptions - loading > CONSUMERS
    turns.close()


async def test_a_load_in_turns_that_an_unload_overtakes_serves_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(group_initial_rebalance_delay_ms=10)
    ids = consumers(harness, CONSUMERS)
    turns = Turns(SteppingClock(2))
    monkeypatch.setattr(harness, "_run", turns.run)
    harness.coordinator.close()
    harness.coordinator = harness._new_coordinator()
    harness.coordinator.runtime.load(0, 0)
    await eventually_async(lambda: turns.interruptions, lambda count: count > 10, "the load is interrupted")
    harness.coordinator.runtime.unload(0)
    harness.coordinator.runtime.load(0, 1)
    await eventually_async(lambda: harness.coordinator.runtime.is_loading, lambda loading: not loading, "it is loaded")
    assert len(list(harness.coordinator.runtime.machines())) == 1
    harness.time.advance(0)
    assert harness.beat(ids[1], 1, instance="i1") is ErrorCode.NONE
    turns.close()
