"""The rules of the classic group protocol, case by case, as Kafka's GroupCoordinatorTest asks for them."""

from __future__ import annotations

import pytest
from odradek.broker.machines.group_requests import JoinResult
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

from tests.machines.group_world import GROUP, World


def subscription(*topics: str) -> tuple[tuple[str, bytes], ...]:
    """What a consumer says under the protocol `range`."""
    return (("range", b"\0\0" + m.ConsumerProtocolSubscription(topics=list(topics)).encode(0)),)


# --- joining ---


def test_a_first_member_leads_after_the_initial_delay() -> None:
    world = World()
    slot = world.join()
    world.time.advance(2_999)
    assert slot.waits
    assert world.state() == "PreparingRebalance"
    world.time.advance(1)
    result: JoinResult = slot.answer
    assert result == JoinResult(
        ErrorCode.NONE, "client-id1", 1, "consumer", "range", "client-id1", (("client-id1", None, b"meta"),)
    )
    assert world.state() == "CompletingRebalance"


def test_the_initial_delay_is_prolonged_while_members_arrive_but_not_beyond_the_rebalance_timeout() -> None:
    world = World()
    slots = [world.join(rebalance_ms=7_000)]
    for _ in range(2):
        world.time.advance(2_900)
        slots.append(world.join(rebalance_ms=7_000))
    world.time.advance(1_199)
    assert all(slot.waits for slot in slots)
    world.time.advance(1)
    assert {slot.answer.generation for slot in slots} == {1}
    assert len(slots[0].answer.members) == 3


def test_without_a_delay_the_generation_comes_at_once() -> None:
    world = World(group_initial_rebalance_delay_ms=0)
    slot = world.join()
    world.time.advance(0)
    assert slot.answer.generation == 1


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    assert World().join(session_ms=session_ms).answer == JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, "")


def test_an_empty_group_id_is_refused_except_for_offsets() -> None:
    world = World()
    assert world.join(group="").answer.error is ErrorCode.INVALID_GROUP_ID
    assert world.sync("x", 1, group="").answer.error is ErrorCode.INVALID_GROUP_ID
    assert world.beat("x", 1, group="") is ErrorCode.INVALID_GROUP_ID
    assert world.groups.leave("", [("x", None)]) == (ErrorCode.INVALID_GROUP_ID, [])
    assert world.groups.delete_offsets("", []) == (ErrorCode.INVALID_GROUP_ID, [])
    assert world.commit({("t", 0): 5}, group="").answer == [ErrorCode.NONE]
    assert world.offset(("t", 0), group="") == 5
    assert world.groups.delete_group("") is ErrorCode.NONE


def test_an_unknown_member_of_an_unknown_group_is_unknown() -> None:
    world = World()
    assert world.join("ghost").answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    assert world.sync("ghost", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat("ghost", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave("ghost") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.groups.list_groups() == (ErrorCode.NONE, [])


def test_a_member_speaks_what_the_group_speaks() -> None:
    world = World()
    assert world.join(protocols=()).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.stable(1)
    assert world.join(protocol_type="connect").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols=(("sticky", b""),)).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_one_that_all_support_and_most_prefer() -> None:
    world = World()
    slots = [
        world.join(protocols=(("a", b""), ("b", b"1"), ("c", b""))),
        world.join(protocols=(("b", b"2"), ("c", b""))),
        world.join(protocols=(("c", b""), ("b", b"3"))),
    ]
    world.time.advance(20_000)
    assert {slot.answer.protocol_name for slot in slots} == {"b"}
    assert [metadata for _, _, metadata in slots[0].answer.members] == [b"1", b"2", b"3"]


def test_a_newcomer_is_sent_away_with_an_id_and_is_let_in_with_it() -> None:
    world = World()
    first = world.join(id_required=True).answer
    assert first == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "client-id1")
    slot = world.join(first.member_id, id_required=True)
    world.time.advance(3_000)
    assert slot.answer.member_id == first.member_id
    assert slot.answer.generation == 1


def test_an_id_that_is_not_used_in_time_is_forgotten_and_holds_up_the_others_only_so_long() -> None:
    world = World()
    (leader,), generation = world.stable(1)
    given = world.join(id_required=True, session_ms=6_000).answer.member_id
    rejoined = world.join(leader)
    assert rejoined.waits, "a pending member is waited for"
    world.time.advance(6_000)
    assert rejoined.answer.generation == generation + 1
    assert world.join(given, id_required=True).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_may_leave() -> None:
    world = World()
    (leader,), generation = world.stable(1)
    given = world.join(id_required=True).answer.member_id
    rejoined = world.join(leader)
    assert world.leave(given) is ErrorCode.NONE
    assert rejoined.answer.generation == generation + 1


def test_a_group_has_room_for_so_many() -> None:
    world = World(group_max_size=2)
    world.stable(2)
    assert world.join().answer == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert world.state() == "Stable"


def test_a_group_loaded_above_its_size_rebalances_and_leaves_the_last_outside() -> None:
    world = World()
    ids, _ = world.stable(3)
    world.settings.group_max_size = 2
    world.fail_over()
    assert world.state() == "PreparingRebalance"
    slots = [world.join(member_id) for member_id in ids]
    assert slots[2].answer == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert [slot.answer.error for slot in slots[:2]] == [ErrorCode.NONE] * 2


def test_a_new_member_that_goes_silent_in_its_join_does_not_stay_for_ever() -> None:
    world = World()
    (leader,), generation = world.stable(1, rebalance_ms=600_000, session_ms=1_000_000)
    newcomer = world.join(rebalance_ms=600_000)
    world.time.advance(299_999)
    assert newcomer.waits
    world.time.advance(1)
    assert newcomer.answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert world.join(leader).answer.generation == generation + 1


def test_a_second_join_of_a_member_answers_the_first() -> None:
    world = World()
    (leader, other), generation = world.stable(2)
    first = world.join(leader)
    second = world.join(leader)
    assert first.answer == JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, leader)
    third = world.join(other)
    assert second.answer.generation == third.answer.generation == generation + 1


# --- rebalancing ---


def test_in_a_stable_group_only_the_leader_or_new_metadata_cause_a_rebalance() -> None:
    world = World()
    (leader, follower), generation = world.stable(2)
    again = world.join(follower).answer
    assert (again.generation, again.leader, again.members) == (generation, leader, ())
    assert world.state() == "Stable"
    assert world.join(follower, protocols=(("range", b"other"),)).waits
    assert world.state() == "PreparingRebalance"
    world = World()
    (leader, _), generation = world.stable(2)
    assert world.join(leader).waits
    assert world.state() == "PreparingRebalance"


def test_a_repeated_join_before_the_sync_gets_the_same_generation() -> None:
    world = World()
    slots = [world.join(), world.join()]
    world.time.advance(9_000)
    leader, follower = (slot.answer for slot in slots)
    assert world.join(leader.member_id).answer == leader
    assert world.join(follower.member_id).answer == follower
    assert world.state() == "CompletingRebalance"
    assert world.join(follower.member_id, protocols=(("range", b"other"),)).waits
    assert world.state() == "PreparingRebalance"


def test_who_does_not_join_again_in_time_is_struck_out() -> None:
    world = World()
    (leader, follower), generation = world.stable(2, session_ms=100_000)
    slot = world.join(leader, session_ms=100_000)
    assert world.beat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    world.time.advance(60_000)
    assert slot.answer.members == ((leader, None, b"meta"),)
    assert world.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_member_leads_when_the_leader_does_not_come_back() -> None:
    world = World()
    (leader, follower), generation = world.stable(2, session_ms=100_000)
    slot = world.join(follower, protocols=(("range", b"new"),))
    world.time.advance(60_000)
    assert slot.answer.leader == follower
    assert slot.answer.generation == generation + 1
    assert world.beat(leader, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_ends_causes_a_rebalance_and_an_empty_group_stays() -> None:
    world = World()
    (leader, follower), generation = world.stable(2)
    world.time.advance(9_999)
    assert world.beat(leader, generation) is ErrorCode.NONE
    world.time.advance(1)
    assert world.state() == "PreparingRebalance"
    assert world.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    world.time.advance(100_000)
    assert world.state() == "Empty"
    assert world.groups.list_groups()[1][0][:2] == (GROUP, "consumer")


def test_leaving_starts_a_rebalance() -> None:
    world = World()
    (leader, follower), generation = world.stable(2)
    assert world.leave(leader) is ErrorCode.NONE
    assert world.leave(leader) is ErrorCode.UNKNOWN_MEMBER_ID
    slot = world.join(follower)
    assert slot.answer.leader == follower
    assert slot.answer.generation == generation + 1


def test_a_waiting_join_is_answered_when_its_member_is_removed() -> None:
    world = World()
    ids, _ = world.stable(2, instance=None)
    slot = world.join(ids[0])
    assert world.leave(ids[0]) is ErrorCode.NONE
    assert slot.answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")


# --- syncing ---


def test_followers_wait_for_the_leader_and_whoever_is_left_out_gets_nothing() -> None:
    world = World()
    slots = [world.join(), world.join()]
    world.time.advance(9_000)
    leader, follower = (slot.answer.member_id for slot in slots)
    early = world.sync(follower, 1)
    assert early.waits
    assert world.sync(leader, 1, {leader: b"all"}).answer.assignment == b"all"
    assert early.answer.assignment == b""
    assert world.state() == "Stable"
    assert world.sync(follower, 1).answer.error is ErrorCode.NONE


def test_a_sync_is_checked() -> None:
    world = World()
    slot = world.join()
    world.time.advance(3_000)
    member_id = slot.answer.member_id
    assert world.sync("ghost", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(member_id, 2).answer.error is ErrorCode.ILLEGAL_GENERATION
    assert world.sync(member_id, 1, protocol_type="x").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(member_id, 1, protocol_name="x").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = world.sync(member_id, 1, {member_id: b"a"}, protocol_type="consumer", protocol_name="range").answer
    assert answer == (ErrorCode.NONE, "consumer", "range", b"a")


def test_a_rebalance_sends_waiting_syncs_back() -> None:
    world = World()
    slots = [world.join(), world.join()]
    world.time.advance(9_000)
    waiting = world.sync(slots[1].answer.member_id, 1)
    world.join()
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.sync(slots[0].answer.member_id, 1).answer.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_sync_of_a_member_answers_the_first() -> None:
    world = World()
    slots = [world.join(), world.join()]
    world.time.advance(9_000)
    first, second = (world.sync(slots[1].answer.member_id, 1) for _ in range(2))
    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(slots[0].answer.member_id, 1, {slots[1].answer.member_id: b"x"})
    assert second.answer.assignment == b"x"


def test_a_member_that_leaves_while_its_sync_waits_gets_an_answer() -> None:
    world = World()
    slots = [world.join(), world.join()]
    world.time.advance(9_000)
    waiting = world.sync(slots[1].answer.member_id, 1)
    world.leave(slots[1].answer.member_id)
    assert waiting.answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_sync_in_time_is_struck_out_even_if_it_beats() -> None:
    world = World()
    slots = [world.join(rebalance_ms=20_000), world.join(rebalance_ms=20_000)]
    world.time.advance(9_000)
    leader, follower = (slot.answer.member_id for slot in slots)
    assert world.sync(leader, 1, {}).answer.error is ErrorCode.NONE
    for _ in range(3):
        world.time.advance(5_000)
        assert world.beat(leader, 1) is ErrorCode.NONE
        assert world.beat(follower, 1) is ErrorCode.NONE
    world.time.advance(2_000)
    assert world.state() == "PreparingRebalance"
    assert world.beat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(leader).answer.generation == 2


def test_an_assignment_is_given_out_only_when_it_is_durable() -> None:
    world = World()
    slot = world.join()
    world.time.advance(3_000)
    member_id = slot.answer.member_id
    world.log.hold = True
    sync = world.sync(member_id, 1, {member_id: b"a"})
    again = world.sync(member_id, 1, {member_id: b"other"})
    assert sync.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert again.waits
    assert world.log.held == 1, "one assignment for a generation"
    assert world.state() == "CompletingRebalance"
    world.log.release()
    assert again.answer.assignment == b"a"
    assert world.state() == "Stable"


@pytest.mark.parametrize(
    ("log_says", "client_hears"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored_starts_over(log_says: ErrorCode, client_hears: ErrorCode) -> None:
    world = World()
    slot = world.join()
    world.time.advance(3_000)
    member_id = slot.answer.member_id
    world.log.error = log_says
    assert world.sync(member_id, 1, {member_id: b"a"}).answer.error is client_hears
    assert world.state() == "PreparingRebalance"
    world.log.error = ErrorCode.NONE
    assert world.join(member_id).answer.generation == 2


def test_an_assignment_that_a_rebalance_has_overtaken_is_not_given_out() -> None:
    world = World()
    slot = world.join()
    world.time.advance(3_000)
    member_id = slot.answer.member_id
    world.log.hold = True
    sync = world.sync(member_id, 1, {member_id: b"a"})
    world.join()
    assert sync.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    world.log.release()
    assert world.state() == "PreparingRebalance"


# --- static members ---


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


# --- commits and the group ---


def test_commits_of_members_and_of_others() -> None:
    world = World()
    assert world.commit({("t", 0): 1}, "ghost", 3).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit({("t", 0): 1}).answer == [ErrorCode.NONE]
    (member_id,), generation = world.stable(1)
    assert world.commit({("t", 0): 2}).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit({("t", 0): 2}, "ghost", generation).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.commit({("t", 0): 2}, member_id, generation - 1).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit({("t", 0): 2}, member_id).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit({("t", 0): 2}, member_id, generation).answer == [ErrorCode.NONE]
    world.join(member_id)
    assert world.state() == "CompletingRebalance"
    assert world.commit({("t", 0): 3}, member_id, generation).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert world.commit({("t", 0): 3}, member_id, generation + 1).answer == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert world.offset(("t", 0)) == 2


def test_the_old_generation_commits_until_the_new_one_begins() -> None:
    world = World()
    (leader, follower), generation = world.stable(2)
    world.join(leader)
    assert world.commit({("t", 0): 7}, follower, generation).answer == [ErrorCode.NONE]


def test_a_commit_is_a_sign_of_life() -> None:
    world = World()
    (member_id,), generation = world.stable(1)
    for offset in range(5):
        world.time.advance(9_000)
        assert world.commit({("t", 0): offset}, member_id, generation).answer == [ErrorCode.NONE]
    assert world.state() == "Stable"


def test_metadata_has_a_bound_and_the_other_partitions_are_committed() -> None:
    world = World(offset_metadata_max_bytes=4)
    assert world.commit({("t", 0): 1}, metadata="\N{BUTTERFLY}" * 2).answer == [ErrorCode.NONE]
    assert world.commit({("t", 0): 2}, metadata="\N{BUTTERFLY}" * 2 + "x").answer == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert world.offset(("t", 0)) == 1


@pytest.mark.parametrize(
    ("log_says", "client_hears"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_commit_that_cannot_be_stored_leaves_the_old_offset(log_says: ErrorCode, client_hears: ErrorCode) -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.log.error = log_says
    assert world.commit({("t", 0): 2}).answer == [client_hears]
    assert world.offset(("t", 0)) == 1


def test_a_commit_under_way_is_not_seen_and_makes_its_partition_unstable() -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.log.hold = True
    slot = world.commit({("t", 0): 2})
    assert slot.waits
    assert world.offset(("t", 0)) == 1
    _, found = world.groups.fetch(GROUP, [("t", 0), ("t", 1)], require_stable=True)
    assert [each.error for each in found] == [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]
    world.log.release()
    assert slot.answer == [ErrorCode.NONE]
    assert world.offset(("t", 0)) == 2


# --- the end of groups and offsets ---


def test_a_group_is_deleted_when_it_is_empty() -> None:
    world = World()
    (member_id,), generation = world.stable(1)
    world.commit({("t", 0): 1}, member_id, generation)
    assert world.groups.delete_group("other") is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.groups.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
    world.leave(member_id)
    assert world.groups.delete_group(GROUP) is ErrorCode.NONE
    assert world.state() == "Dead"
    assert world.offset(("t", 0)) is None
    world.fail_over()
    assert world.groups.list_groups() == (ErrorCode.NONE, [])


def test_a_group_that_is_deleted_while_a_commit_is_under_way_stays_deleted() -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.log.hold = True
    slot = world.commit({("t", 1): 1})
    assert world.groups.delete_group(GROUP) is ErrorCode.NONE
    world.log.release()
    assert slot.answer == [ErrorCode.NONE]
    world.log.hold = False
    world.fail_over()
    assert world.groups.list_groups() == (ErrorCode.NONE, [])


def test_offsets_of_topics_that_are_not_consumed_can_be_deleted() -> None:
    world = World()
    (member_id,), generation = world.stable(1, protocols=subscription("used"))
    world.commit({("used", 0): 1, ("unused", 0): 1}, member_id, generation)
    answer = world.groups.delete_offsets(GROUP, [("used", 0), ("unused", 0)])
    assert answer == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])
    assert world.offset(("used", 0)) == 1
    assert world.offset(("unused", 0)) is None
    assert world.groups.delete_offsets("other", [("t", 0)]) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_offsets_of_a_group_that_does_not_consume_are_not_deleted_while_it_has_members() -> None:
    world = World()
    world.stable(1, protocol_type="connect")
    assert world.groups.delete_offsets(GROUP, [("t", 0)]) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_an_unreadable_subscription_counts_as_one_to_everything() -> None:
    world = World()
    world.stable(1, protocols=(("range", b"\0\0\xff"),))
    assert world.groups.delete_offsets(GROUP, [("t", 0)])[1] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    world = World()
    world.commit({("gone", 0): 1, ("kept", 0): 1})
    world.groups.forget_partitions([("gone", 0), ("gone", 1)])
    world.fail_over()
    assert world.offset(("gone", 0)) is None
    assert world.offset(("kept", 0)) == 1


DAY_MS = 24 * 3600 * 1000


def test_offsets_of_a_simple_consumer_expire_after_the_commit_and_the_group_with_them() -> None:
    world = World()
    world.groups.start()
    world.commit({("t", 0): 1})
    world.time.advance(4 * DAY_MS)
    world.commit({("t", 1): 1})
    world.time.advance(3 * DAY_MS + 600_000)
    assert world.offset(("t", 0)) is None
    assert world.offset(("t", 1)) == 1
    world.time.advance(4 * DAY_MS)
    assert world.groups.list_groups() == (ErrorCode.NONE, [])
    world.fail_over()
    assert world.groups.list_groups() == (ErrorCode.NONE, [])


def test_offsets_of_a_group_with_members_expire_once_nobody_consumes_the_topic() -> None:
    world = World()
    world.groups.start()
    (member_id,), generation = world.stable(1, protocols=subscription("used"), session_ms=1_800_000)
    world.commit({("used", 0): 1, ("unused", 0): 1}, member_id, generation)
    for _ in range(8 * 48):
        world.time.advance(1_799_000)
        assert world.beat(member_id, generation) is ErrorCode.NONE
    assert world.offset(("used", 0)) == 1
    assert world.offset(("unused", 0)) is None


def test_offsets_of_a_group_that_became_empty_live_on_from_then() -> None:
    world = World()
    world.groups.start()
    (member_id,), generation = world.stable(1, session_ms=1_800_000)
    world.commit({("t", 0): 1}, member_id, generation)
    for _ in range(3 * 48):
        world.time.advance(1_799_000)
        world.beat(member_id, generation)
    world.leave(member_id)
    world.time.advance(6 * DAY_MS)
    world.fail_over()
    world.groups.start()
    assert world.offset(("t", 0)) == 1, "a failover does not begin a new retention"
    world.time.advance(DAY_MS + 600_000)
    assert world.state() == "Dead"


def test_a_commit_may_bring_its_own_retention() -> None:
    world = World()
    world.groups.start()
    world.commit({("t", 0): 1}, expire_ms=world.time.now_ms() + 3_600_000)
    world.fail_over()
    world.groups.start()
    world.time.advance(3_000_000)
    assert world.offset(("t", 0)) == 1
    world.time.advance(1_200_000)
    assert world.offset(("t", 0)) is None
