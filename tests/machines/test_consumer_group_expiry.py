"""Expiration of offsets of a group of the consumer protocol, and of the group with them (KIP-211, KIP-848).

Each offset counts from its own commit, with and without members; offsets of topics that a member subscribes to do not
expire. In a classic group that has become empty offsets count from that moment instead.
"""

from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode
from tests.machines.consumer_harness import Client, beat, membership
from tests.machines.group_harness import GROUP, Harness

MINUTE_MS = 60_000
RETENTION_MS = 5 * MINUTE_MS
CHECK_MS = 10_000
BEAT_MS = 20_000


@pytest.fixture
def harness() -> Harness:
    harness = Harness(offsets_retention_minutes=5, offsets_retention_check_interval_ms=CHECK_MS)
    for name in ("t", "u"):
        harness.topics.put(name, 2)
    harness.coordinator.start()
    return harness


def live(harness: Harness, ms: int, *clients: Client) -> None:
    """Time passes while the members send heartbeats."""
    for _ in range(ms // BEAT_MS):
        for client in clients:
            client.beat()
        harness.time.advance(BEAT_MS)


def listed(harness: Harness) -> list[str]:
    return [group_id for group_id, *_ in harness.groups.list_groups()[1]]


def test_offsets_of_an_empty_group_expire_one_by_one_and_the_group_with_the_last(harness: Harness) -> None:
    a = Client(harness, "a", "t")
    a.beat()
    harness.commit({("t", 0): 1}, "a", a.epoch)
    live(harness, 2 * MINUTE_MS, a)
    harness.commit({("t", 1): 2}, "a", a.epoch)
    live(harness, 2 * MINUTE_MS, a)
    a.leave()
    harness.time.advance(MINUTE_MS - 1)
    assert harness.offset(("t", 0)) == 1
    harness.time.advance(CHECK_MS)
    assert harness.offset(("t", 0)) is None, "it counts from its commit, not from when the group became empty"
    assert (harness.offset(("t", 1)), listed(harness)) == (2, [GROUP])
    harness.time.advance(2 * MINUTE_MS)
    assert (harness.offset(("t", 1)), listed(harness)) == (None, [])
    harness.fail_over()
    assert listed(harness) == [], "its tombstones are in the log"
    assert harness.groups.describe_consumers(GROUP) == (ErrorCode.NONE, None)


def test_a_failover_does_not_begin_a_new_retention(harness: Harness) -> None:
    a = Client(harness, "a", "t")
    a.beat()
    harness.commit({("t", 0): 1}, "a", a.epoch)
    a.leave()
    harness.time.advance(RETENTION_MS - 1)
    harness.fail_over()
    harness.coordinator.start()
    assert harness.offset(("t", 0)) == 1
    harness.time.advance(CHECK_MS + 1)
    assert (harness.offset(("t", 0)), listed(harness)) == (None, [])


@pytest.mark.parametrize(("names", "expression"), [(("t",), None), ((), "t|v")])
def test_offsets_of_subscribed_topics_do_not_expire(
    harness: Harness, names: tuple[str, ...], expression: str | None
) -> None:
    a = Client(harness, "a", *names, expression=expression)
    for _ in range(3):
        a.beat()
    harness.commit({("t", 0): 1, ("u", 0): 2}, "a", a.epoch)
    live(harness, RETENTION_MS + MINUTE_MS, a)
    assert (harness.offset(("t", 0)), harness.offset(("u", 0))) == (1, None)
    assert a.epoch > 0
    assert not any(a.errors)


def test_a_group_with_members_outlives_its_offsets(harness: Harness) -> None:
    a = Client(harness, "a", "t")
    a.beat()
    harness.commit({("u", 0): 1}, "a", a.epoch)
    live(harness, RETENTION_MS + MINUTE_MS, a)
    assert harness.offset(("u", 0)) is None
    assert listed(harness) == [GROUP]
    a.leave()
    harness.time.advance(CHECK_MS)
    assert listed(harness) == [], "no state of it is left"


def test_an_absent_static_member_keeps_offsets_of_its_subscription(harness: Harness) -> None:
    a = Client(harness, "a", "t")
    a.instance_id = "i"
    a.beat()
    harness.commit({("t", 0): 1}, "a", a.epoch)
    live(harness, RETENTION_MS - BEAT_MS, a)
    a.beat()
    a.leave(for_a_while=True)
    harness.time.advance(BEAT_MS + CHECK_MS)
    assert harness.offset(("t", 0)) == 1
    harness.time.advance(MINUTE_MS)
    assert listed(harness) == [], "its session has ended, so the group is empty and the offset is old"


def test_an_offset_in_a_transaction_keeps_the_group(harness: Harness) -> None:
    a = Client(harness, "a", "t")
    a.beat()
    harness.commit({("t", 0): 1}, "a", a.epoch)
    harness.commit_in_transaction({("t", 0): 5}, member_id="a", generation=a.epoch)
    a.leave()
    harness.time.advance(2 * RETENTION_MS)
    assert (harness.offset(("t", 0)), listed(harness)) == (1, [GROUP])
    harness.end_transaction(commit=False)
    harness.time.advance(CHECK_MS)
    assert (harness.offset(("t", 0)), listed(harness)) == (None, [])


def test_an_expired_group_can_be_created_again(harness: Harness) -> None:
    a = Client(harness, "a", "t")
    a.beat()
    harness.commit({("t", 0): 1}, "a", a.epoch)
    a.leave()
    harness.time.advance(RETENTION_MS + CHECK_MS)
    assert beat(harness, "a", 1).answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    b = Client(harness, "b", "t")
    b.beat()
    assert (b.epoch, sorted(membership(harness).group_members.members)) == (1, ["b"])
    assert harness.offset(("t", 0)) is None


def test_a_producer_with_a_stale_epoch_gets_illegal_generation(harness: Harness) -> None:
    """STALE_MEMBER_EPOCH would be fatal: producers do not support it as an error of TxnOffsetCommit."""
    a = Client(harness, "a", "t")
    a.beat()
    for epoch in (a.epoch - 1, a.epoch + 1):
        answer = harness.commit_in_transaction({("t", 0): 5}, member_id="a", generation=epoch).answer
        assert answer == [ErrorCode.ILLEGAL_GENERATION]
