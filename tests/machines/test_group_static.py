"""Static members (KIP-345, KIP-814): their return, their fencing, and how long they stay."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode
from tests.machines.group_harness import Harness


def static_pair(harness: Harness) -> tuple[str, str, int]:
    """A stable group of two static members, `a` (the leader) and `b`."""
    slots = [harness.join(instance="a"), harness.join(instance="b")]
    harness.time.advance(9_000)
    leader, follower = (slot.answer.member_id for slot in slots)
    harness.sync(leader, 1, {leader: b"A", follower: b"B"}, instance="a")
    harness.sync(follower, 1, instance="b")
    assert harness.state() == "Stable"
    return leader, follower, 1


def test_a_static_member_comes_back_to_its_assignment_without_a_rebalance() -> None:
    harness = Harness()
    leader, follower, generation = static_pair(harness)
    back = harness.join(instance="b").answer
    assert (back.error, back.generation, back.leader, back.members) == (ErrorCode.NONE, generation, leader, ())
    assert back.member_id not in (leader, follower)
    assert harness.sync(back.member_id, generation, instance="b").answer.assignment == b"B"
    assert harness.beat(follower, generation, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.join(follower, instance="b").answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.sync(follower, generation, instance="b").answer.error is ErrorCode.FENCED_INSTANCE_ID
    fenced = harness.commit({("t", 0): 1}, follower, generation, instance="b").answer
    assert fenced == [ErrorCode.FENCED_INSTANCE_ID]
    assert harness.leave(follower, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    harness.fail_over()
    assert harness.beat(back.member_id, generation, instance="b") is ErrorCode.NONE


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_static_leader_that_comes_back_does_not_assign_again(may_skip: bool) -> None:
    harness = Harness()
    leader, follower, generation = static_pair(harness)
    back = harness.join(instance="a", may_skip=may_skip).answer
    assert back.skip_assignment is may_skip
    assert back.leader == (back.member_id if may_skip else leader)
    assert [member_id for member_id, _, _ in back.members] == ([back.member_id, follower] if may_skip else [])
    assert harness.sync(back.member_id, generation, instance="a").answer.assignment == b"A"


def test_a_static_member_that_comes_back_with_another_protocol_causes_a_rebalance() -> None:
    harness = Harness()
    slots = [
        harness.join(instance="a", protocols=(("x", b""), ("y", b""))),
        harness.join(instance="b", protocols=(("x", b""), ("y", b""))),
    ]
    harness.time.advance(9_000)
    leader = slots[0].answer.member_id
    harness.sync(leader, 1, {}, instance="a")
    harness.sync(slots[1].answer.member_id, 1, instance="b")
    assert slots[0].answer.protocol_name == "x"
    slot = harness.join(instance="b", protocols=(("y", b""),))
    assert slot.waits
    assert harness.state() == "PreparingRebalance"


def test_a_static_member_that_comes_back_before_the_sync_causes_a_rebalance() -> None:
    harness = Harness()
    slots = [harness.join(instance="a"), harness.join(instance="b")]
    harness.time.advance(9_000)
    waiting = harness.sync(slots[1].answer.member_id, 1, instance="b")
    back = harness.join(instance="b")
    assert waiting.answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert back.waits
    assert harness.state() == "PreparingRebalance"


def test_a_static_member_that_comes_back_twice_fences_its_waiting_instance() -> None:
    harness = Harness()
    first, second = harness.join(instance="a"), harness.join(instance="a")
    assert first.answer.error is ErrorCode.FENCED_INSTANCE_ID
    harness.time.advance(3_000)
    assert second.answer.error is ErrorCode.NONE
    assert len(second.answer.members) == 1


def test_a_return_that_cannot_be_stored_is_reverted() -> None:
    harness = Harness()
    leader, follower, generation = static_pair(harness)
    harness.log.error = ErrorCode.MESSAGE_TOO_LARGE
    refused = harness.join(instance="b", protocols=(("range", b"new"),)).answer
    assert (refused.error, refused.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert refused.leader == leader
    assert harness.beat(follower, generation, instance="b") is ErrorCode.NONE
    harness.log.error = ErrorCode.NONE
    assert harness.join(follower, instance="b").answer.generation == generation, "its metadata is the old one again"


def test_static_members_stay_until_their_session_ends() -> None:
    harness = Harness()
    leader, follower, generation = static_pair(harness)
    slot = harness.join(leader, instance="a", rebalance_ms=5_000)
    harness.time.advance(9_000)
    assert slot.waits or slot.answer
    harness.time.advance(100_000)
    assert harness.beat(follower, generation + 1, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_ends_without_a_static_member_that_is_away_and_keeps_it() -> None:
    harness = Harness()
    slots = [harness.join(instance=name, session_ms=1_000_000, rebalance_ms=10_000) for name in "ab"]
    harness.time.advance(9_000)
    leader, away = (slot.answer.member_id for slot in slots)
    harness.sync(leader, 1, {}, instance="a")
    harness.sync(away, 1, instance="b")
    slot = harness.join(leader, instance="a", session_ms=1_000_000, rebalance_ms=10_000)
    harness.time.advance(10_000)
    assert [member_id for member_id, _, _ in slot.answer.members] == [leader, away]


def test_when_no_static_member_is_back_in_time_the_rebalance_waits() -> None:
    harness = Harness()
    (dynamic,), _ = harness.stable(1, session_ms=1_000_000)
    static = harness.join(instance="a", session_ms=1_000_000)
    harness.join(dynamic, session_ms=1_000_000)
    static_id = static.answer.member_id
    assert harness.leave(dynamic) is ErrorCode.NONE
    harness.time.advance(200_000)
    assert harness.state() == "PreparingRebalance"
    assert harness.join(static_id, instance="a").answer.leader == static_id


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    harness = Harness()
    leader, _, _ = static_pair(harness)
    assert harness.leave(instance="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.leave(instance="b") is ErrorCode.NONE
    assert harness.join(leader, instance="a").answer.members == ((leader, "a", b"meta"),)
