"""The rules of the classic group protocol, case by case, as in Kafka's GroupCoordinatorTest."""

from __future__ import annotations

import pytest

from odradek.broker.group.state.classic_requests import JoinResult
from odradek.protocol.errors import ErrorCode
from tests.machines.group_harness import GROUP, Harness

# --- joining ---


def test_a_first_member_leads_after_the_initial_delay() -> None:
    harness = Harness()
    slot = harness.join()
    harness.time.advance(2_999)
    assert slot.waits
    assert harness.state() == "PreparingRebalance"
    harness.time.advance(1)
    result: JoinResult = slot.answer
    assert result == JoinResult(
        ErrorCode.NONE, "client-id1", 1, "consumer", "range", "client-id1", (("client-id1", None, b"meta"),)
    )
    assert harness.state() == "CompletingRebalance"


def test_the_initial_delay_is_prolonged_while_members_arrive_but_not_beyond_the_rebalance_timeout() -> None:
    harness = Harness()
    slots = [harness.join(rebalance_ms=7_000)]
    for _ in range(2):
        harness.time.advance(2_900)
        slots.append(harness.join(rebalance_ms=7_000))
    harness.time.advance(1_199)
    assert all(slot.waits for slot in slots)
    harness.time.advance(1)
    assert {slot.answer.generation for slot in slots} == {1}
    assert len(slots[0].answer.members) == 3


def test_without_a_delay_the_generation_comes_at_once() -> None:
    harness = Harness(group_initial_rebalance_delay_ms=0)
    slot = harness.join()
    harness.time.advance(0)
    assert slot.answer.generation == 1


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    assert Harness().join(session_ms=session_ms).answer == JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, "")


def test_an_empty_group_id_is_refused_except_for_offsets() -> None:
    harness = Harness()
    assert harness.join(group="").answer.error is ErrorCode.INVALID_GROUP_ID
    assert harness.sync("x", 1, group="").answer.error is ErrorCode.INVALID_GROUP_ID
    assert harness.beat("x", 1, group="") is ErrorCode.INVALID_GROUP_ID
    assert harness.groups.leave("", [("x", None)]) == (ErrorCode.INVALID_GROUP_ID, [])
    assert harness.offsets.delete_offsets("", []) == (ErrorCode.INVALID_GROUP_ID, [])
    assert harness.commit({("t", 0): 5}, group="").answer == [ErrorCode.NONE]
    assert harness.offset(("t", 0), group="") == 5
    assert harness.groups.delete_group("") is ErrorCode.NONE


def test_an_unknown_member_of_an_unknown_group_is_unknown() -> None:
    harness = Harness()
    assert harness.join("ghost").answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    assert harness.sync("ghost", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.beat("ghost", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.leave("ghost") is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.groups.list_groups() == (ErrorCode.NONE, [])


def test_a_member_must_support_the_protocol_of_the_group() -> None:
    harness = Harness()
    assert harness.join(protocols=()).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(protocol_type="").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness.stable(1)
    assert harness.join(protocol_type="connect").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(protocols=(("sticky", b""),)).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_one_that_all_support_and_most_prefer() -> None:
    harness = Harness()
    slots = [
        harness.join(protocols=(("a", b""), ("b", b"1"), ("c", b""))),
        harness.join(protocols=(("b", b"2"), ("c", b""))),
        harness.join(protocols=(("c", b""), ("b", b"3"))),
    ]
    harness.time.advance(20_000)
    assert {slot.answer.protocol_name for slot in slots} == {"b"}
    assert [metadata for _, _, metadata in slots[0].answer.members] == [b"1", b"2", b"3"]


def test_a_new_member_gets_an_id_first_and_joins_with_it() -> None:
    harness = Harness()
    first = harness.join(id_required=True).answer
    assert first == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "client-id1")
    slot = harness.join(first.member_id, id_required=True)
    harness.time.advance(3_000)
    assert slot.answer.member_id == first.member_id
    assert slot.answer.generation == 1


def test_an_unused_id_expires_and_delays_the_others_only_until_then() -> None:
    harness = Harness()
    (leader,), generation = harness.stable(1)
    given = harness.join(id_required=True, session_ms=6_000).answer.member_id
    rejoined = harness.join(leader)
    assert rejoined.waits, "the rebalance waits for a pending member"
    harness.time.advance(6_000)
    assert rejoined.answer.generation == generation + 1
    assert harness.join(given, id_required=True).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_member_may_leave() -> None:
    harness = Harness()
    (leader,), generation = harness.stable(1)
    given = harness.join(id_required=True).answer.member_id
    rejoined = harness.join(leader)
    assert harness.leave(given) is ErrorCode.NONE
    assert rejoined.answer.generation == generation + 1


def test_a_group_has_a_size_limit() -> None:
    harness = Harness(group_max_size=2)
    harness.stable(2)
    assert harness.join().answer == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert harness.state() == "Stable"


def test_a_group_loaded_above_its_size_rebalances_and_leaves_the_last_outside() -> None:
    harness = Harness()
    ids, _ = harness.stable(3)
    harness.settings.group_max_size = 2
    harness.fail_over()
    assert harness.state() == "PreparingRebalance"
    slots = [harness.join(member_id) for member_id in ids]
    assert slots[2].answer == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert [slot.answer.error for slot in slots[:2]] == [ErrorCode.NONE] * 2


def test_a_new_member_that_falls_silent_in_its_join_is_removed() -> None:
    harness = Harness()
    (leader,), generation = harness.stable(1, rebalance_ms=600_000, session_ms=1_000_000)
    newcomer = harness.join(rebalance_ms=600_000)
    harness.time.advance(299_999)
    assert newcomer.waits
    harness.time.advance(1)
    assert newcomer.answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert harness.join(leader).answer.generation == generation + 1


def test_a_second_join_of_a_member_answers_the_first() -> None:
    harness = Harness()
    (leader, other), generation = harness.stable(2)
    first = harness.join(leader)
    second = harness.join(leader)
    assert first.answer == JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, leader)
    third = harness.join(other)
    assert second.answer.generation == third.answer.generation == generation + 1


# --- rebalancing ---


def test_in_a_stable_group_only_the_leader_or_new_metadata_cause_a_rebalance() -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2)
    again = harness.join(follower).answer
    assert (again.generation, again.leader, again.members) == (generation, leader, ())
    assert harness.state() == "Stable"
    assert harness.join(follower, protocols=(("range", b"other"),)).waits
    assert harness.state() == "PreparingRebalance"
    harness = Harness()
    (leader, _), generation = harness.stable(2)
    assert harness.join(leader).waits
    assert harness.state() == "PreparingRebalance"


def test_a_repeated_join_before_the_sync_gets_the_same_generation() -> None:
    harness = Harness()
    slots = [harness.join(), harness.join()]
    harness.time.advance(9_000)
    leader, follower = (slot.answer for slot in slots)
    assert harness.join(leader.member_id).answer == leader
    assert harness.join(follower.member_id).answer == follower
    assert harness.state() == "CompletingRebalance"
    assert harness.join(follower.member_id, protocols=(("range", b"other"),)).waits
    assert harness.state() == "PreparingRebalance"


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2, session_ms=100_000)
    slot = harness.join(leader, session_ms=100_000)
    assert harness.beat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.time.advance(60_000)
    assert slot.answer.members == ((leader, None, b"meta"),)
    assert harness.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_member_leads_when_the_leader_does_not_come_back() -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2, session_ms=100_000)
    slot = harness.join(follower, protocols=(("range", b"new"),))
    harness.time.advance(60_000)
    assert slot.answer.leader == follower
    assert slot.answer.generation == generation + 1
    assert harness.beat(leader, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_ends_causes_a_rebalance_and_an_empty_group_stays() -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2)
    harness.time.advance(9_999)
    assert harness.beat(leader, generation) is ErrorCode.NONE
    harness.time.advance(1)
    assert harness.state() == "PreparingRebalance"
    assert harness.beat(follower, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.beat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.time.advance(100_000)
    assert harness.state() == "Empty"
    assert harness.groups.list_groups()[1][0][:2] == (GROUP, "consumer")


def test_leaving_starts_a_rebalance() -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2)
    assert harness.leave(leader) is ErrorCode.NONE
    assert harness.leave(leader) is ErrorCode.UNKNOWN_MEMBER_ID
    slot = harness.join(follower)
    assert slot.answer.leader == follower
    assert slot.answer.generation == generation + 1


def test_a_waiting_join_is_answered_when_its_member_is_removed() -> None:
    harness = Harness()
    ids, _ = harness.stable(2, instance=None)
    slot = harness.join(ids[0])
    assert harness.leave(ids[0]) is ErrorCode.NONE
    assert slot.answer == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")


# --- syncing ---


def test_followers_wait_for_the_leader_and_unassigned_members_get_nothing() -> None:
    harness = Harness()
    slots = [harness.join(), harness.join()]
    harness.time.advance(9_000)
    leader, follower = (slot.answer.member_id for slot in slots)
    early = harness.sync(follower, 1)
    assert early.waits
    assert harness.sync(leader, 1, {leader: b"all"}).answer.assignment == b"all"
    assert early.answer.assignment == b""
    assert harness.state() == "Stable"
    assert harness.sync(follower, 1).answer.error is ErrorCode.NONE


def test_a_sync_is_checked() -> None:
    harness = Harness()
    slot = harness.join()
    harness.time.advance(3_000)
    member_id = slot.answer.member_id
    assert harness.sync("ghost", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync(member_id, 2).answer.error is ErrorCode.ILLEGAL_GENERATION
    assert harness.sync(member_id, 1, protocol_type="x").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.sync(member_id, 1, protocol_name="x").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    answer = harness.sync(member_id, 1, {member_id: b"a"}, protocol_type="consumer", protocol_name="range").answer
    assert answer == (ErrorCode.NONE, "consumer", "range", b"a")


def test_a_rebalance_sends_waiting_syncs_back() -> None:
    harness = Harness()
    slots = [harness.join(), harness.join()]
    harness.time.advance(9_000)
    waiting = harness.sync(slots[1].answer.member_id, 1)
    harness.join()
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.sync(slots[0].answer.member_id, 1).answer.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_sync_of_a_member_answers_the_first() -> None:
    harness = Harness()
    slots = [harness.join(), harness.join()]
    harness.time.advance(9_000)
    first, second = (harness.sync(slots[1].answer.member_id, 1) for _ in range(2))
    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    harness.sync(slots[0].answer.member_id, 1, {slots[1].answer.member_id: b"x"})
    assert second.answer.assignment == b"x"


def test_a_member_that_leaves_while_its_sync_waits_gets_an_answer() -> None:
    harness = Harness()
    slots = [harness.join(), harness.join()]
    harness.time.advance(9_000)
    waiting = harness.sync(slots[1].answer.member_id, 1)
    harness.leave(slots[1].answer.member_id)
    assert waiting.answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_sync_in_time_is_removed_even_if_it_sends_heartbeats() -> None:
    harness = Harness()
    slots = [harness.join(rebalance_ms=20_000), harness.join(rebalance_ms=20_000)]
    harness.time.advance(9_000)
    leader, follower = (slot.answer.member_id for slot in slots)
    assert harness.sync(leader, 1, {}).answer.error is ErrorCode.NONE
    for _ in range(3):
        harness.time.advance(5_000)
        assert harness.beat(leader, 1) is ErrorCode.NONE
        assert harness.beat(follower, 1) is ErrorCode.NONE
    harness.time.advance(2_000)
    assert harness.state() == "PreparingRebalance"
    assert harness.beat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.join(leader).answer.generation == 2


def test_an_assignment_is_returned_only_when_it_is_durable() -> None:
    harness = Harness()
    slot = harness.join()
    harness.time.advance(3_000)
    member_id = slot.answer.member_id
    harness.log.hold = True
    sync = harness.sync(member_id, 1, {member_id: b"a"})
    again = harness.sync(member_id, 1, {member_id: b"other"})
    assert sync.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert again.waits
    assert harness.log.held == 1, "one assignment for a generation"
    assert harness.state() == "CompletingRebalance"
    harness.log.release()
    assert again.answer.assignment == b"a"
    assert harness.state() == "Stable"


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
    harness = Harness()
    slot = harness.join()
    harness.time.advance(3_000)
    member_id = slot.answer.member_id
    harness.log.error = log_says
    assert harness.sync(member_id, 1, {member_id: b"a"}).answer.error is client_hears
    harness.log.error = ErrorCode.NONE
    if log_says is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        assert harness.join(member_id).answer.error is ErrorCode.NOT_COORDINATOR, "its state may be old"
        return
    assert harness.state() == "PreparingRebalance"
    assert harness.join(member_id).answer.generation == 2


def test_an_assignment_overtaken_by_a_rebalance_is_not_returned() -> None:
    harness = Harness()
    slot = harness.join()
    harness.time.advance(3_000)
    member_id = slot.answer.member_id
    harness.log.hold = True
    sync = harness.sync(member_id, 1, {member_id: b"a"})
    harness.join()
    assert sync.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    harness.log.release()
    assert harness.state() == "PreparingRebalance"
