"""A living group moves from the classic protocol to the consumer protocol and back."""

from __future__ import annotations

import pytest

from odradek.broker.group.state.classic_membership import Membership
from odradek.broker.group.state.classic_requests import JoinResult, SyncResult
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.loading import Loader
from odradek.protocol.errors import ErrorCode
from tests.machines.consumer_world import (
    REBALANCE_MS,
    Client,
    ReplicaManagerDependencies,
    assigned,
    assignment,
    beat,
    facts,
    join,
    membership,
    reloaded,
    settle,
    subscription,
)
from tests.machines.group_world import GROUP, World

SESSION_MS = 10_000


class ClassicClient:
    """A consumer of the classic protocol with cooperative assignments."""

    def __init__(self, world: World, *names: str, instance: str | None = None) -> None:
        self.world = world
        self.names = names
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: ReplicaManagerDependencies = set()
        self.code = ErrorCode.NONE

    def join(self) -> JoinResult:
        protocols = (("cooperative-sticky", subscription(*self.names, owned=self.owned)),)
        slot = self.world.join(self.member_id, instance=self.instance, protocols=protocols, session_ms=SESSION_MS)
        result: JoinResult = slot.answer
        self.code = result.error
        if not result.error:
            self.member_id, self.generation = result.member_id, result.generation
        return result

    def sync(self) -> SyncResult:
        result: SyncResult = self.world.sync(self.member_id, self.generation, instance=self.instance).answer
        self.code = result.error
        if not result.error:
            self.owned = assigned(result)
        return result

    def beat(self) -> ErrorCode:
        return self.world.beat(self.member_id, self.generation, instance=self.instance)

    def poll(self) -> None:
        """What a consumer does in a round: beat, and join and sync when it is told so."""
        if self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            before = set(self.owned)
            self.join()
            self.sync()
            if before - self.owned:  # a cooperative consumer joins again at once when it had to let go
                self.join()
                self.sync()


def classic_group(world: World, *names: str, members: int = 2, partitions: int = 4) -> list[ClassicClient]:
    """A settled group of the classic protocol in which everyone owns a share of the first topic."""
    clients = [ClassicClient(world, *names) for _ in range(members)]
    protocols = (("cooperative-sticky", subscription(*names)),)
    slots = [world.join(protocols=protocols, session_ms=SESSION_MS) for _ in clients]
    world.time.advance(world.settings.group_initial_rebalance_delay_ms * (members + 1))
    for client, slot in zip(clients, slots, strict=True):
        client.member_id, client.generation = slot.answer.member_id, slot.answer.generation
    shares: dict[str, ReplicaManagerDependencies] = {
        client.member_id: {(names[0], index) for index in range(partitions) if index % members == place}
        for place, client in enumerate(clients)
    }
    leader = slots[0].answer.leader
    given = {member_id: assignment(share) for member_id, share in shares.items()}
    for client in sorted(clients, key=lambda each: each.member_id == leader):
        waiting = world.sync(client.member_id, client.generation, given if client.member_id == leader else None)
        client.owned = shares[client.member_id]
        if not waiting.waits:
            assert not waiting.answer.error
    return clients


def settle_all(world: World, classic: list[ClassicClient], *modern: Client, rounds: int = 20) -> None:
    for _ in range(rounds):
        for client in classic:
            client.poll()
        for member in modern:
            member.beat()
        if membership(world).state.value == "Stable":
            return
    raise AssertionError(facts(membership(world).group_members))


def world_with(policy: str = "bidirectional", **topics: int) -> World:
    world = World()
    world.settings.group_consumer_migration_policy = policy
    for name, partitions in topics.items():
        world.topics.put(name, partitions)
    return world


def owners(classic: list[ClassicClient], *modern: Client) -> list[tuple[str, int]]:
    return sorted([part for each in [*classic, *modern] for part in each.owned])


def test_a_member_of_the_new_kind_turns_the_group_and_shares_with_the_old() -> None:
    world = world_with(t=4)
    classic = classic_group(world, "t")
    world.commit({("t", 0): 7}, classic[0].member_id, classic[0].generation)
    generation = classic[0].generation
    a = Client(world, "a", "t")
    result = a.beat()
    assert result is not None
    assert not result.error
    group = membership(world)
    assert group.group_members.epoch == generation + 1
    assert {member.epoch for name, member in group.group_members.members.items() if name != "a"} == {generation}
    assert [each.beat() for each in classic] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    settle_all(world, classic, a)
    assert owners(classic, a) == [("t", index) for index in range(4)]
    assert a.owned
    assert world.offset(("t", 0)) == 7
    assert facts(reloaded(world)) == facts(membership(world).group_members)
    assert [each.beat() for each in classic] == [ErrorCode.NONE] * 2
    for each in classic:
        assert world.commit({("t", 1): 1}, each.member_id, each.generation).answer == [ErrorCode.NONE]
        assert world.commit({("t", 1): 1}, each.member_id, each.generation + 1).answer == [ErrorCode.ILLEGAL_GENERATION]


def test_a_group_between_two_assignments_is_turned_as_well_and_who_waits_is_told() -> None:
    world = world_with(t=4)
    classic = classic_group(world, "t")
    waiting = world.join(
        classic[0].member_id, protocols=(("cooperative-sticky", subscription("t", "u")),), session_ms=SESSION_MS
    )
    assert waiting.waits
    a = Client(world, "a", "t")
    a.beat()
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    classic[0].join()
    classic[0].sync()
    settle_all(world, classic, a)
    assert owners(classic, a) == [("t", index) for index in range(4)]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_group_that_may_not_be_turned_stays(policy: str) -> None:
    world = world_with(policy, t=2)
    classic = classic_group(world, "t")
    assert join(world, "a", "t").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert [each.beat() for each in classic] == [ErrorCode.NONE] * 2


def test_a_group_of_something_else_stays() -> None:
    world = world_with(t=2)
    world.stable(1, protocol_type="connect")
    assert join(world, "a", "t").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.state() == "Stable"


def test_a_group_whose_members_cannot_be_read_stays() -> None:
    world = world_with(t=2)
    world.stable(1, protocols=(("range", b"\0"),))
    assert join(world, "a", "t").error is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("policy", ["disabled", "bidirectional"])
def test_an_empty_group_of_either_kind_becomes_what_comes(policy: str) -> None:
    world = world_with(policy, t=2)
    classic = classic_group(world, "t", members=1)
    world.commit({("t", 0): 3}, classic[0].member_id, classic[0].generation)
    world.leave(classic[0].member_id)
    a = Client(world, "a", "t")
    a.beat()
    assert a.epoch == 1
    assert world.offset(("t", 0)) == 3
    a.leave()
    (again,) = classic_group(world, "t", members=1, partitions=2)
    assert again.generation == 1
    assert world.state() == "Stable"
    world.fail_over()
    assert world.state() == "Stable"
    assert world.offset(("t", 0)) == 3


def test_when_the_last_of_the_new_kind_leaves_the_old_ones_go_on_among_themselves() -> None:
    world = world_with(t=4)
    classic = classic_group(world, "t")
    a = Client(world, "a", "t")
    settle_all(world, classic, a)
    epoch = membership(world).group_members.epoch
    a.leave()
    assert world.groups.list_groups()[1] == [(GROUP, "consumer", "PreparingRebalance", "classic")]
    assert [world.beat(each.member_id, epoch) for each in classic] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    world.fail_over()
    assert world.state() == "Stable"
    _, described = world.groups.describe(GROUP)
    assert described is not None
    assert described.generation >= epoch
    assert sorted(member.member_id for member in described.group_members) == sorted(each.member_id for each in classic)


def kind_in(world: World) -> type | None:
    """What a load would find."""
    loader = Loader()
    for header, record in world.log.read_all(0):
        loader.feed(header, record)
    groups = loader.groups(world.settings, world.groups._now(), world.topics)
    return next((type(group.membership) for group in groups if group.group_id == GROUP), None)


def test_a_way_back_that_the_log_refuses_is_not_taken() -> None:
    world = world_with(t=4)
    classic = classic_group(world, "t")
    a = Client(world, "a", "t")
    settle_all(world, classic, a)
    before = facts(membership(world).group_members)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    a.leave()
    assert facts(membership(world).group_members) == before == facts(reloaded(world))
    world.log.error = ErrorCode.NONE
    assert kind_in(world) is ConsumerMembership
    members = dict(membership(world).group_members.members)
    for _ in range(9):
        world.time.advance(SESSION_MS // 2)
        for each in classic:
            world.beat(each.member_id, members[each.member_id].epoch)
    assert kind_in(world) is Membership, "the session of the member that left ends"


def test_a_way_there_that_the_log_refuses_is_not_taken() -> None:
    world = world_with(t=4)
    classic_group(world, "t")
    before = world.groups.describe(GROUP)[1]
    assert before is not None
    state, generation, armed = before.state, before.generation, sorted(before.armed)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert join(world, "a", "t").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    after = world.groups.describe(GROUP)[1]
    assert after is before
    assert (after.state, after.generation, sorted(after.armed)) == (state, generation, armed)
    assert kind_in(world) is Membership


def test_a_classic_member_of_an_empty_group_whose_end_the_log_refuses_is_not_in() -> None:
    world = world_with(t=4)
    a = Client(world, "a", "t")
    a.beat()
    a.leave()
    before = facts(membership(world).group_members)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    slot = world.join("", protocols=(("range", subscription("t")),))
    assert slot.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert facts(membership(world).group_members) == before == facts(reloaded(world))
    assert not membership(world).armed


def test_the_group_stays_what_it_is_where_it_may_not_go_back() -> None:
    world = world_with("upgrade", t=4)
    classic = classic_group(world, "t")
    a = Client(world, "a", "t")
    settle_all(world, classic, a)
    a.leave()
    settle_all(world, classic)
    assert owners(classic) == [("t", index) for index in range(4)]
    world.topics.put("t", 6)
    settle_all(world, classic)
    assert len(owners(classic)) == 6


def test_a_silent_member_of_the_new_kind_lets_the_group_go_back() -> None:
    world = world_with(t=2)
    classic = classic_group(world, "t")
    settle_all(world, classic, Client(world, "a", "t"))
    for _ in range(10):
        world.time.advance(5_000)
        for each in classic:
            each.beat()
    assert world.groups.list_groups()[1][0][3] == "classic"


def test_members_of_the_old_kind_come_go_and_die() -> None:
    world = world_with(t=4)
    a = Client(world, "a", "t")
    a.beat()
    c = ClassicClient(world, "t")
    required = world.join(protocols=(("cooperative-sticky", subscription("t")),), id_required=True).answer
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    c.member_id = required.member_id
    c.join()
    c.sync()
    settle_all(world, [c], a)
    assert owners([c], a) == [("t", index) for index in range(4)]
    d = ClassicClient(world, "t", instance="i")
    d.join()
    d.sync()
    settle_all(world, [c, d], a)
    assert world.leave(c.member_id) is ErrorCode.NONE
    assert world.leave(c.member_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave(instance="i") is ErrorCode.NONE
    e = ClassicClient(world, "t")
    e.join()
    e.sync()
    settle_all(world, [e], a)
    world.time.advance(SESSION_MS)
    settle(world, a)
    assert len(a.owned) == 4
    assert e.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_comes_back_with_the_other_protocol() -> None:
    world = world_with(t=4)
    a, b = Client(world, "a", "t"), Client(world, "b", "t")
    a.instance_id = "i"
    settle(world, a, b)
    had = set(a.owned)
    c = ClassicClient(world, "t", instance="i")
    c.join()
    c.sync()
    assert c.owned == had
    assert beat(world, "a", a.epoch, instance_id="i").answer.error is ErrorCode.FENCED_INSTANCE_ID
    back = Client(world, "a2", "t")
    back.instance_id = "i"
    back.beat()
    assert back.owned == had


def test_refusals_of_the_old_kind() -> None:
    world = world_with(t=2)
    a = Client(world, "a", "t")
    a.beat()
    assert world.beat("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("a", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    c = ClassicClient(world, "t")
    c.join()
    assert world.beat(c.member_id, c.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.sync(c.member_id, c.generation - 1).answer.error is ErrorCode.ILLEGAL_GENERATION
    wrong = world.sync(c.member_id, c.generation, protocol_type="consumer", protocol_name="range").answer
    assert wrong.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = world.join(protocols=(("range", subscription("t")),)).answer
    assert other.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    malformed = world.join(protocols=(("cooperative-sticky", b"\0\1x"),)).answer
    assert malformed.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    static = world.join("x", instance="nobody's", protocols=(("cooperative-sticky", subscription("t")),)).answer
    assert static.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_told_to_join_and_does_not_is_put_out() -> None:
    world = world_with(t=2)
    a = Client(world, "a", "t")
    a.beat()
    c = ClassicClient(world, "t")
    c.join()
    c.sync()
    settle_all(world, [c], a)
    b = Client(world, "b", "t")
    b.beat()
    for _ in range(REBALANCE_MS // 5_000):
        assert c.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        a.beat()
        b.beat()
        world.time.advance(5_000)
    assert c.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_joins_and_does_not_sync_is_put_out() -> None:
    world = world_with(t=2)
    a = Client(world, "a", "t")
    a.beat()
    c = ClassicClient(world, "t")
    c.join()
    for _ in range(REBALANCE_MS // 5_000):
        a.beat()
        world.time.advance(5_000)
        if c.beat() is ErrorCode.UNKNOWN_MEMBER_ID:
            return
    raise AssertionError("it is still a member")
