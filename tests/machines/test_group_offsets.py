"""What a group and its offsets ask of each other: who commits, what expires, what may be deleted."""

from __future__ import annotations

import pytest

from odradek.broker.group.state.offsets import CommitRequest, Committed
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.machines.group_world import GROUP, Slot, World


def subscription(*topics: str) -> tuple[tuple[str, bytes], ...]:
    """What a consumer says under the protocol `range`."""
    return (("range", b"\0\0" + m.ConsumerProtocolSubscription(topics=list(topics)).encode(0)),)


# --- commits ---


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
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),  # it is in the log, and is not committed yet
    ],
)
def test_a_commit_that_cannot_be_stored_leaves_the_old_offset(log_says: ErrorCode, client_hears: ErrorCode) -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.log.error = log_says
    assert world.commit({("t", 0): 2}).answer == [client_hears]
    assert world.offset(("t", 0)) == 1


def test_a_commit_that_the_log_takes_too_late_counts_once_it_is_committed() -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.log.error = ErrorCode.REQUEST_TIMED_OUT
    assert world.commit({("t", 0): 2}).answer == [ErrorCode.REQUEST_TIMED_OUT]
    _, (found,) = world.groups.fetch(GROUP, [("t", 0)], require_stable=True)
    assert found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    world.log.release()
    assert world.offset(("t", 0)) == 2
    world.fail_over()
    assert world.offset(("t", 0)) == 2


def test_a_commit_that_is_committed_with_too_few_replicas_counts_although_its_answer_is_an_error() -> None:
    world = World()
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert world.commit({("t", 0): 2}).answer == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert world.offset(("t", 0)) == 2
    world.fail_over()
    assert world.offset(("t", 0)) == 2


def test_a_group_whose_deletion_the_log_refuses_stays() -> None:
    world = World()
    world.commit({("t", 0): 1})
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.groups.delete_offsets(GROUP, [("t", 0)])[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.groups.delete_group(GROUP) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.groups.forget_partitions([("t", 0)])
    assert world.offset(("t", 0)) == 1
    world.log.error = ErrorCode.NONE
    assert world.groups.delete_group(GROUP) is ErrorCode.NONE
    assert world.state() == "Dead"


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


def test_of_two_commits_of_a_partition_in_one_request_the_last_counts() -> None:
    world = World()
    slot = Slot()
    entries = [(("t", 0), Committed(offset, -1, "", 0)) for offset in (1, 2)]
    world.groups.commit(GROUP, CommitRequest("", None, -1, entries), slot)
    assert slot.answer == [ErrorCode.NONE, ErrorCode.NONE]
    assert world.offset(("t", 0)) == 2
    world.fail_over()
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
