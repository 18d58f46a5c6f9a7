"""Rules between a group and its offsets: which members may commit, which offsets expire, which may be deleted."""

from __future__ import annotations

import pytest

from odradek.broker.group.state.offsets import CommitRequest, OffsetAndMetadata
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.machines.group_harness import GROUP, Harness, Slot


def subscription(*topics: str) -> tuple[tuple[str, bytes], ...]:
    """The subscription that a consumer sends under the protocol `range`."""
    return (("range", b"\0\0" + m.ConsumerProtocolSubscription(topics=list(topics)).encode(0)),)


# --- commits ---


def test_commits_of_members_and_of_others() -> None:
    harness = Harness()
    assert harness.commit({("t", 0): 1}, "ghost", 3).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert harness.commit({("t", 0): 1}).answer == [ErrorCode.NONE]
    (member_id,), generation = harness.stable(1)
    assert harness.commit({("t", 0): 2}).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.commit({("t", 0): 2}, "ghost", generation).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.commit({("t", 0): 2}, member_id, generation - 1).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert harness.commit({("t", 0): 2}, member_id).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert harness.commit({("t", 0): 2}, member_id, generation).answer == [ErrorCode.NONE]
    harness.join(member_id)
    assert harness.state() == "CompletingRebalance"
    assert harness.commit({("t", 0): 3}, member_id, generation).answer == [ErrorCode.ILLEGAL_GENERATION]
    assert harness.commit({("t", 0): 3}, member_id, generation + 1).answer == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert harness.offset(("t", 0)) == 2


def test_the_old_generation_commits_until_the_new_one_begins() -> None:
    harness = Harness()
    (leader, follower), generation = harness.stable(2)
    harness.join(leader)
    assert harness.commit({("t", 0): 7}, follower, generation).answer == [ErrorCode.NONE]


def test_a_commit_counts_as_a_heartbeat() -> None:
    harness = Harness()
    (member_id,), generation = harness.stable(1)
    for offset in range(5):
        harness.time.advance(9_000)
        assert harness.commit({("t", 0): offset}, member_id, generation).answer == [ErrorCode.NONE]
    assert harness.state() == "Stable"


def test_oversized_metadata_is_refused_and_the_other_partitions_are_committed() -> None:
    harness = Harness(offset_metadata_max_bytes=4)
    assert harness.commit({("t", 0): 1}, metadata="\N{BUTTERFLY}" * 2).answer == [ErrorCode.NONE]
    assert harness.commit({("t", 0): 2}, metadata="\N{BUTTERFLY}" * 2 + "x").answer == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    ]
    assert harness.offset(("t", 0)) == 1


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
    harness = Harness()
    harness.commit({("t", 0): 1})
    harness.log.error = log_says
    assert harness.commit({("t", 0): 2}).answer == [client_hears]
    assert harness.offset(("t", 0)) == 1


def test_a_commit_that_times_out_counts_once_it_is_committed() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    harness.log.error = ErrorCode.REQUEST_TIMED_OUT
    assert harness.commit({("t", 0): 2}).answer == [ErrorCode.REQUEST_TIMED_OUT]
    _, (found,) = harness.offsets.fetch(GROUP, [("t", 0)], require_stable=True)
    assert found.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    harness.log.release()
    assert harness.offset(("t", 0)) == 2
    harness.fail_over()
    assert harness.offset(("t", 0)) == 2


def test_a_commit_that_is_committed_with_too_few_replicas_counts_although_its_response_is_an_error() -> None:
    harness = Harness()
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert harness.commit({("t", 0): 2}).answer == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert harness.offset(("t", 0)) == 2
    harness.fail_over()
    assert harness.offset(("t", 0)) == 2


def test_a_group_whose_deletion_the_log_refuses_stays() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.offsets.delete_offsets(GROUP, [("t", 0)])[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.groups.delete_group(GROUP) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.offsets.forget_partitions([("t", 0)])
    assert harness.offset(("t", 0)) == 1
    harness.log.error = ErrorCode.NONE
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    assert harness.state() == "Dead"


def test_a_commit_in_flight_is_not_visible_and_makes_its_partition_unstable() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    harness.log.hold = True
    slot = harness.commit({("t", 0): 2})
    assert slot.waits
    assert harness.offset(("t", 0)) == 1
    _, found = harness.offsets.fetch(GROUP, [("t", 0), ("t", 1)], require_stable=True)
    assert [each.error for each in found] == [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NONE]
    harness.log.release()
    assert slot.answer == [ErrorCode.NONE]
    assert harness.offset(("t", 0)) == 2


def test_of_two_commits_of_a_partition_in_one_request_the_last_counts() -> None:
    harness = Harness()
    slot = Slot()
    entries = [(("t", 0), OffsetAndMetadata(offset, -1, "", 0)) for offset in (1, 2)]
    harness.offsets.commit(GROUP, CommitRequest("", None, -1, entries), slot)
    assert slot.answer == [ErrorCode.NONE, ErrorCode.NONE]
    assert harness.offset(("t", 0)) == 2
    harness.fail_over()
    assert harness.offset(("t", 0)) == 2


# --- the end of groups and offsets ---


def test_a_group_is_deleted_when_it_is_empty() -> None:
    harness = Harness()
    (member_id,), generation = harness.stable(1)
    harness.commit({("t", 0): 1}, member_id, generation)
    assert harness.groups.delete_group("other") is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.groups.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
    harness.leave(member_id)
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    assert harness.state() == "Dead"
    assert harness.offset(("t", 0)) is None
    harness.fail_over()
    assert harness.groups.list_groups() == (ErrorCode.NONE, [])


def test_a_group_deleted_during_a_commit_stays_deleted() -> None:
    harness = Harness()
    harness.commit({("t", 0): 1})
    harness.log.hold = True
    slot = harness.commit({("t", 1): 1})
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    harness.log.release()
    assert slot.answer == [ErrorCode.NONE]
    harness.log.hold = False
    harness.fail_over()
    assert harness.groups.list_groups() == (ErrorCode.NONE, [])


def test_offsets_of_topics_that_are_not_consumed_can_be_deleted() -> None:
    harness = Harness()
    (member_id,), generation = harness.stable(1, protocols=subscription("used"))
    harness.commit({("used", 0): 1, ("unused", 0): 1}, member_id, generation)
    answer = harness.offsets.delete_offsets(GROUP, [("used", 0), ("unused", 0)])
    assert answer == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE])
    assert harness.offset(("used", 0)) == 1
    assert harness.offset(("unused", 0)) is None
    assert harness.offsets.delete_offsets("other", [("t", 0)]) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_offsets_of_a_group_that_does_not_consume_are_not_deleted_while_it_has_members() -> None:
    harness = Harness()
    harness.stable(1, protocol_type="connect")
    assert harness.offsets.delete_offsets(GROUP, [("t", 0)]) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_an_unreadable_subscription_counts_as_one_to_everything() -> None:
    harness = Harness()
    harness.stable(1, protocols=(("range", b"\0\0\xff"),))
    assert harness.offsets.delete_offsets(GROUP, [("t", 0)])[1] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    harness = Harness()
    harness.commit({("gone", 0): 1, ("kept", 0): 1})
    harness.offsets.forget_partitions([("gone", 0), ("gone", 1)])
    harness.fail_over()
    assert harness.offset(("gone", 0)) is None
    assert harness.offset(("kept", 0)) == 1


DAY_MS = 24 * 3600 * 1000


def test_offsets_of_a_simple_consumer_expire_after_the_commit_and_the_group_with_them() -> None:
    harness = Harness()
    harness.coordinator.start()
    harness.commit({("t", 0): 1})
    harness.time.advance(4 * DAY_MS)
    harness.commit({("t", 1): 1})
    harness.time.advance(3 * DAY_MS + 600_000)
    assert harness.offset(("t", 0)) is None
    assert harness.offset(("t", 1)) == 1
    harness.time.advance(4 * DAY_MS)
    assert harness.groups.list_groups() == (ErrorCode.NONE, [])
    harness.fail_over()
    assert harness.groups.list_groups() == (ErrorCode.NONE, [])


def test_offsets_of_a_group_with_members_expire_once_no_member_consumes_the_topic() -> None:
    harness = Harness()
    harness.coordinator.start()
    (member_id,), generation = harness.stable(1, protocols=subscription("used"), session_ms=1_800_000)
    harness.commit({("used", 0): 1, ("unused", 0): 1}, member_id, generation)
    for _ in range(8 * 48):
        harness.time.advance(1_799_000)
        assert harness.beat(member_id, generation) is ErrorCode.NONE
    assert harness.offset(("used", 0)) == 1
    assert harness.offset(("unused", 0)) is None


def test_offsets_of_a_group_that_became_empty_expire_from_then_on() -> None:
    harness = Harness()
    harness.coordinator.start()
    (member_id,), generation = harness.stable(1, session_ms=1_800_000)
    harness.commit({("t", 0): 1}, member_id, generation)
    for _ in range(3 * 48):
        harness.time.advance(1_799_000)
        harness.beat(member_id, generation)
    harness.leave(member_id)
    harness.time.advance(6 * DAY_MS)
    harness.fail_over()
    harness.coordinator.start()
    assert harness.offset(("t", 0)) == 1, "a failover does not begin a new retention"
    harness.time.advance(DAY_MS + 600_000)
    assert harness.state() == "Dead"


def test_a_commit_may_set_its_own_retention() -> None:
    harness = Harness()
    harness.coordinator.start()
    harness.commit({("t", 0): 1}, expire_ms=harness.time.now_ms() + 3_600_000)
    harness.fail_over()
    harness.coordinator.start()
    harness.time.advance(3_000_000)
    assert harness.offset(("t", 0)) == 1
    harness.time.advance(1_200_000)
    assert harness.offset(("t", 0)) is None
