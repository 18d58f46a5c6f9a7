"""When offsets of a group of the consumer protocol expire, and the group with them (KIP-211, KIP-848).

Each offset counts from its own commit, whether members are there or not; what a member subscribes to does not expire.
A classic group that has become empty counts from that moment instead.
"""

from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode
from tests.machines.consumer_world import Client, beat, membership
from tests.machines.group_world import GROUP, World

MINUTE_MS = 60_000
RETENTION_MS = 5 * MINUTE_MS
CHECK_MS = 10_000
BEAT_MS = 20_000


@pytest.fixture
def world() -> World:
    world = World(offsets_retention_minutes=5, offsets_retention_check_interval_ms=CHECK_MS)
    for name in ("t", "u"):
        world.topics.put(name, 2)
    world.groups.start()
    return world


def live(world: World, ms: int, *clients: Client) -> None:
    """Time passes while the members beat."""
    for _ in range(ms // BEAT_MS):
        for client in clients:
            client.beat()
        world.time.advance(BEAT_MS)


def listed(world: World) -> list[str]:
    return [group_id for group_id, *_ in world.groups.list_groups()[1]]


def test_offsets_of_an_empty_group_expire_one_by_one_and_the_group_with_the_last(world: World) -> None:
    a = Client(world, "a", "t")
    a.beat()
    world.commit({("t", 0): 1}, "a", a.epoch)
    live(world, 2 * MINUTE_MS, a)
    world.commit({("t", 1): 2}, "a", a.epoch)
    live(world, 2 * MINUTE_MS, a)
    a.leave()
    world.time.advance(MINUTE_MS - 1)
    assert world.offset(("t", 0)) == 1
    world.time.advance(CHECK_MS)
    assert world.offset(("t", 0)) is None, "it counts from its commit, not from when the group became empty"
    assert (world.offset(("t", 1)), listed(world)) == (2, [GROUP])
    world.time.advance(2 * MINUTE_MS)
    assert (world.offset(("t", 1)), listed(world)) == (None, [])
    world.fail_over()
    assert listed(world) == [], "its tombstones are in the log"
    assert world.groups.describe_consumers(GROUP) == (ErrorCode.NONE, None)


def test_a_failover_does_not_begin_a_new_retention(world: World) -> None:
    a = Client(world, "a", "t")
    a.beat()
    world.commit({("t", 0): 1}, "a", a.epoch)
    a.leave()
    world.time.advance(RETENTION_MS - 1)
    world.fail_over()
    world.groups.start()
    assert world.offset(("t", 0)) == 1
    world.time.advance(CHECK_MS + 1)
    assert (world.offset(("t", 0)), listed(world)) == (None, [])


@pytest.mark.parametrize(("names", "expression"), [(("t",), None), ((), "t|v")])
def test_what_a_member_subscribes_to_does_not_expire(
    world: World, names: tuple[str, ...], expression: str | None
) -> None:
    a = Client(world, "a", *names, expression=expression)
    for _ in range(3):
        a.beat()
    world.commit({("t", 0): 1, ("u", 0): 2}, "a", a.epoch)
    live(world, RETENTION_MS + MINUTE_MS, a)
    assert (world.offset(("t", 0)), world.offset(("u", 0))) == (1, None)
    assert a.epoch > 0
    assert not any(a.errors)


def test_a_group_with_members_outlives_its_offsets(world: World) -> None:
    a = Client(world, "a", "t")
    a.beat()
    world.commit({("u", 0): 1}, "a", a.epoch)
    live(world, RETENTION_MS + MINUTE_MS, a)
    assert world.offset(("u", 0)) is None
    assert listed(world) == [GROUP]
    a.leave()
    world.time.advance(CHECK_MS)
    assert listed(world) == [], "nothing is left of it"


def test_a_static_member_that_is_away_holds_what_it_subscribes_to(world: World) -> None:
    a = Client(world, "a", "t")
    a.instance_id = "i"
    a.beat()
    world.commit({("t", 0): 1}, "a", a.epoch)
    live(world, RETENTION_MS - BEAT_MS, a)
    a.beat()
    a.leave(for_a_while=True)
    world.time.advance(BEAT_MS + CHECK_MS)
    assert world.offset(("t", 0)) == 1
    world.time.advance(MINUTE_MS)
    assert listed(world) == [], "its session has ended, so the group is empty and the offset is old"


def test_an_offset_in_a_transaction_keeps_the_group(world: World) -> None:
    a = Client(world, "a", "t")
    a.beat()
    world.commit({("t", 0): 1}, "a", a.epoch)
    world.commit_in_transaction({("t", 0): 5}, member_id="a", generation=a.epoch)
    a.leave()
    world.time.advance(2 * RETENTION_MS)
    assert (world.offset(("t", 0)), listed(world)) == (1, [GROUP])
    world.end_transaction(commit=False)
    world.time.advance(CHECK_MS)
    assert (world.offset(("t", 0)), listed(world)) == (None, [])


def test_a_group_that_expired_begins_anew(world: World) -> None:
    a = Client(world, "a", "t")
    a.beat()
    world.commit({("t", 0): 1}, "a", a.epoch)
    a.leave()
    world.time.advance(RETENTION_MS + CHECK_MS)
    assert beat(world, "a", 1).answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    b = Client(world, "b", "t")
    b.beat()
    assert (b.epoch, sorted(membership(world).group_members.members)) == (1, ["b"])
    assert world.offset(("t", 0)) is None


def test_an_epoch_that_is_over_is_a_generation_that_is_over_to_a_producer(world: World) -> None:
    """STALE_MEMBER_EPOCH would be fatal: producers do not know it as an answer to TxnOffsetCommit."""
    a = Client(world, "a", "t")
    a.beat()
    for epoch in (a.epoch - 1, a.epoch + 1):
        answer = world.commit_in_transaction({("t", 0): 5}, member_id="a", generation=epoch).answer
        assert answer == [ErrorCode.ILLEGAL_GENERATION]
