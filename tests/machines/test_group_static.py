"""Static members (KIP-345, KIP-814): who comes back, who is fenced, who keeps a place."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode
from tests.machines.group_world import World


def static_pair(world: World) -> tuple[str, str, int]:
    """A stable group of two static members, `a` (the leader) and `b`."""
    slots = [world.join(instance="a"), world.join(instance="b")]
    world.time.advance(9_000)
    leader, follower = (slot.answer.member_id for slot in slots)
    world.sync(leader, 1, {leader: b"A", follower: b"B"}, instance="a")
    world.sync(follower, 1, instance="b")
    assert world.state() == "Stable"
    return leader, follower, 1


def test_a_static_member_comes_back_to_its_assignment_without_a_rebalance() -> None:
    world = World()
    leader, follower, generation = static_pair(world)
    back = world.join(instance="b").answer
    assert (back.error, back.generation, back.leader, back.members) == (ErrorCode.NONE, generation, leader, ())
    assert back.member_id not in (leader, follower)
    assert world.sync(back.member_id, generation, instance="b").answer.assignment == b"B"
    assert world.beat(follower, generation, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert world.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(follower, instance="b").answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert world.sync(follower, generation, instance="b").answer.error is ErrorCode.FENCED_INSTANCE_ID
    fenced = world.commit({("t", 0): 1}, follower, generation, instance="b").answer
    assert fenced == [ErrorCode.FENCED_INSTANCE_ID]
    assert world.leave(follower, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    world.fail_over()
    assert world.beat(back.member_id, generation, instance="b") is ErrorCode.NONE


@pytest.mark.parametrize("may_skip", [True, False])
def test_a_static_leader_that_comes_back_does_not_assign_again(may_skip: bool) -> None:
    world = World()
    leader, follower, generation = static_pair(world)
    back = world.join(instance="a", may_skip=may_skip).answer
    assert back.skip_assignment is may_skip
    assert back.leader == (back.member_id if may_skip else leader)
    assert [member_id for member_id, _, _ in back.members] == ([back.member_id, follower] if may_skip else [])
    assert world.sync(back.member_id, generation, instance="a").answer.assignment == b"A"


def test_a_static_member_that_comes_back_with_another_protocol_causes_a_rebalance() -> None:
    world = World()
    slots = [
        world.join(instance="a", protocols=(("x", b""), ("y", b""))),
        world.join(instance="b", protocols=(("x", b""), ("y", b""))),
    ]
    world.time.advance(9_000)
    leader = slots[0].answer.member_id
    world.sync(leader, 1, {}, instance="a")
    world.sync(slots[1].answer.member_id, 1, instance="b")
    assert slots[0].answer.protocol_name == "x"
    slot = world.join(instance="b", protocols=(("y", b""),))
    assert slot.waits
    assert world.state() == "PreparingRebalance"


def test_a_static_member_that_comes_back_before_the_sync_causes_a_rebalance() -> None:
    world = World()
    slots = [world.join(instance="a"), world.join(instance="b")]
    world.time.advance(9_000)
    waiting = world.sync(slots[1].answer.member_id, 1, instance="b")
    back = world.join(instance="b")
    assert waiting.answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert back.waits
    assert world.state() == "PreparingRebalance"


def test_a_static_member_that_comes_back_twice_fences_its_waiting_self() -> None:
    world = World()
    first, second = world.join(instance="a"), world.join(instance="a")
    assert first.answer.error is ErrorCode.FENCED_INSTANCE_ID
    world.time.advance(3_000)
    assert second.answer.error is ErrorCode.NONE
    assert len(second.answer.members) == 1


def test_a_return_that_cannot_be_stored_is_undone() -> None:
    world = World()
    leader, follower, generation = static_pair(world)
    world.log.error = ErrorCode.MESSAGE_TOO_LARGE
    refused = world.join(instance="b", protocols=(("range", b"new"),)).answer
    assert (refused.error, refused.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert refused.leader == leader
    assert world.beat(follower, generation, instance="b") is ErrorCode.NONE
    world.log.error = ErrorCode.NONE
    assert world.join(follower, instance="b").answer.generation == generation, "its metadata is the old one again"


def test_static_members_keep_their_place_until_their_session_ends() -> None:
    world = World()
    leader, follower, generation = static_pair(world)
    slot = world.join(leader, instance="a", rebalance_ms=5_000)
    world.time.advance(9_000)
    assert slot.waits or slot.answer
    world.time.advance(100_000)
    assert world.beat(follower, generation + 1, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_ends_without_a_static_member_that_is_away_and_keeps_it() -> None:
    world = World()
    slots = [world.join(instance=name, session_ms=1_000_000, rebalance_ms=10_000) for name in "ab"]
    world.time.advance(9_000)
    leader, away = (slot.answer.member_id for slot in slots)
    world.sync(leader, 1, {}, instance="a")
    world.sync(away, 1, instance="b")
    slot = world.join(leader, instance="a", session_ms=1_000_000, rebalance_ms=10_000)
    world.time.advance(10_000)
    assert [member_id for member_id, _, _ in slot.answer.members] == [leader, away]


def test_when_no_static_member_is_back_in_time_the_rebalance_waits() -> None:
    world = World()
    (dynamic,), _ = world.stable(1, session_ms=1_000_000)
    static = world.join(instance="a", session_ms=1_000_000)
    world.join(dynamic, session_ms=1_000_000)
    static_id = static.answer.member_id
    assert world.leave(dynamic) is ErrorCode.NONE
    world.time.advance(200_000)
    assert world.state() == "PreparingRebalance"
    assert world.join(static_id, instance="a").answer.leader == static_id


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    world = World()
    leader, _, _ = static_pair(world)
    assert world.leave(instance="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(instance="b") is ErrorCode.NONE
    assert world.join(leader, instance="a").answer.members == ((leader, "a", b"meta"),)
