"""A living group moves from the classic protocol to the consumer protocol and back."""

from __future__ import annotations

import pytest

from odradek.broker.group.state.classic_membership import Membership
from odradek.broker.group.state.classic_requests import JoinResult, SyncResult
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.loading import Loader
from odradek.protocol.errors import ErrorCode
from tests.machines.consumer_harness import (
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
from tests.machines.group_harness import GROUP, Harness

SESSION_MS = 10_000


class ClassicClient:
    """A consumer of the classic protocol with cooperative assignments."""

    def __init__(self, harness: Harness, *names: str, instance: str | None = None) -> None:
        self.harness = harness
        self.names = names
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: ReplicaManagerDependencies = set()
        self.code = ErrorCode.NONE

    def join(self) -> JoinResult:
        protocols = (("cooperative-sticky", subscription(*self.names, owned=self.owned)),)
        slot = self.harness.join(self.member_id, instance=self.instance, protocols=protocols, session_ms=SESSION_MS)
        result: JoinResult = slot.answer
        self.code = result.error
        if not result.error:
            self.member_id, self.generation = result.member_id, result.generation
        return result

    def sync(self) -> SyncResult:
        result: SyncResult = self.harness.sync(self.member_id, self.generation, instance=self.instance).answer
        self.code = result.error
        if not result.error:
            self.owned = assigned(result)
        return result

    def beat(self) -> ErrorCode:
        return self.harness.beat(self.member_id, self.generation, instance=self.instance)

    def poll(self) -> None:
        """The requests of a consumer in a round: a heartbeat, and JoinGroup and SyncGroup when the response demands
        it.
        """
        if self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            before = set(self.owned)
            self.join()
            self.sync()
            if before - self.owned:  # a cooperative consumer joins again at once after it had to revoke partitions
                self.join()
                self.sync()


def classic_group(harness: Harness, *names: str, members: int = 2, partitions: int = 4) -> list[ClassicClient]:
    """A stable group of the classic protocol in which every member owns a share of the first topic."""
    clients = [ClassicClient(harness, *names) for _ in range(members)]
    protocols = (("cooperative-sticky", subscription(*names)),)
    slots = [harness.join(protocols=protocols, session_ms=SESSION_MS) for _ in clients]
    harness.time.advance(harness.settings.group_initial_rebalance_delay_ms * (members + 1))
    for client, slot in zip(clients, slots, strict=True):
        client.member_id, client.generation = slot.answer.member_id, slot.answer.generation
    shares: dict[str, ReplicaManagerDependencies] = {
        client.member_id: {(names[0], index) for index in range(partitions) if index % members == place}
        for place, client in enumerate(clients)
    }
    leader = slots[0].answer.leader
    given = {member_id: assignment(share) for member_id, share in shares.items()}
    for client in sorted(clients, key=lambda each: each.member_id == leader):
        waiting = harness.sync(client.member_id, client.generation, given if client.member_id == leader else None)
        client.owned = shares[client.member_id]
        if not waiting.waits:
            assert not waiting.answer.error
    return clients


def settle_all(harness: Harness, classic: list[ClassicClient], *modern: Client, rounds: int = 20) -> None:
    for _ in range(rounds):
        for client in classic:
            client.poll()
        for member in modern:
            member.beat()
        if membership(harness).state.value == "Stable":
            return
    raise AssertionError(facts(membership(harness).group_members))


def world_with(policy: str = "bidirectional", **topics: int) -> Harness:
    harness = Harness()
    harness.settings.group_consumer_migration_policy = policy
    for name, partitions in topics.items():
        harness.topics.put(name, partitions)
    return harness


def owners(classic: list[ClassicClient], *modern: Client) -> list[tuple[str, int]]:
    members: tuple[ClassicClient | Client, ...] = (*classic, *modern)
    return sorted([part for each in members for part in each.owned])


def test_a_consumer_protocol_member_converts_the_group_and_shares_with_classic_members() -> None:
    harness = world_with(t=4)
    classic = classic_group(harness, "t")
    harness.commit({("t", 0): 7}, classic[0].member_id, classic[0].generation)
    generation = classic[0].generation
    a = Client(harness, "a", "t")
    result = a.beat()
    assert result is not None
    assert not result.error
    group = membership(harness)
    assert group.group_members.epoch == generation + 1
    assert {member.epoch for name, member in group.group_members.members.items() if name != "a"} == {generation}
    assert [each.beat() for each in classic] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    settle_all(harness, classic, a)
    assert owners(classic, a) == [("t", index) for index in range(4)]
    assert a.owned
    assert harness.offset(("t", 0)) == 7
    assert facts(reloaded(harness)) == facts(membership(harness).group_members)
    assert [each.beat() for each in classic] == [ErrorCode.NONE] * 2
    for each in classic:
        assert harness.commit({("t", 1): 1}, each.member_id, each.generation).answer == [ErrorCode.NONE]
        assert harness.commit({("t", 1): 1}, each.member_id, each.generation + 1).answer == [
            ErrorCode.ILLEGAL_GENERATION
        ]


def test_a_group_in_a_rebalance_is_converted_as_well_and_waiting_members_are_notified() -> None:
    harness = world_with(t=4)
    classic = classic_group(harness, "t")
    waiting = harness.join(
        classic[0].member_id, protocols=(("cooperative-sticky", subscription("t", "u")),), session_ms=SESSION_MS
    )
    assert waiting.waits
    a = Client(harness, "a", "t")
    a.beat()
    assert waiting.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    classic[0].join()
    classic[0].sync()
    settle_all(harness, classic, a)
    assert owners(classic, a) == [("t", index) for index in range(4)]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_group_that_may_not_be_converted_stays(policy: str) -> None:
    harness = world_with(policy, t=2)
    classic = classic_group(harness, "t")
    assert join(harness, "a", "t").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert [each.beat() for each in classic] == [ErrorCode.NONE] * 2


def test_a_group_of_another_protocol_type_stays() -> None:
    harness = world_with(t=2)
    harness.stable(1, protocol_type="connect")
    assert join(harness, "a", "t").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.state() == "Stable"


def test_a_group_with_unreadable_subscriptions_stays() -> None:
    harness = world_with(t=2)
    harness.stable(1, protocols=(("range", b"\0"),))
    assert join(harness, "a", "t").error is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("policy", ["disabled", "bidirectional"])
def test_an_empty_group_takes_the_type_of_its_first_member(policy: str) -> None:
    harness = world_with(policy, t=2)
    classic = classic_group(harness, "t", members=1)
    harness.commit({("t", 0): 3}, classic[0].member_id, classic[0].generation)
    harness.leave(classic[0].member_id)
    a = Client(harness, "a", "t")
    a.beat()
    assert a.epoch == 1
    assert harness.offset(("t", 0)) == 3
    a.leave()
    (again,) = classic_group(harness, "t", members=1, partitions=2)
    assert again.generation == 1
    assert harness.state() == "Stable"
    harness.fail_over()
    assert harness.state() == "Stable"
    assert harness.offset(("t", 0)) == 3


def test_when_the_last_consumer_protocol_member_leaves_the_group_becomes_classic() -> None:
    harness = world_with(t=4)
    classic = classic_group(harness, "t")
    a = Client(harness, "a", "t")
    settle_all(harness, classic, a)
    epoch = membership(harness).group_members.epoch
    a.leave()
    assert harness.groups.list_groups()[1] == [(GROUP, "consumer", "PreparingRebalance", "classic")]
    assert [harness.beat(each.member_id, epoch) for each in classic] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    harness.fail_over()
    assert harness.state() == "Stable"
    _, described = harness.groups.describe(GROUP)
    assert described is not None
    assert described.generation >= epoch
    assert sorted(member.member_id for member in described.group_members) == sorted(each.member_id for each in classic)


def kind_in(harness: Harness) -> type | None:
    """The group that a load would find."""
    loader = Loader()
    for header, record in harness.log.read_all(0):
        loader.feed(header, record)
    groups = loader.groups(harness.settings, harness.coordinator.runtime.now(), harness.topics)
    return next((type(group.membership) for group in groups if group.group_id == GROUP), None)


def test_a_conversion_to_classic_that_the_log_refuses_is_reverted() -> None:
    harness = world_with(t=4)
    classic = classic_group(harness, "t")
    a = Client(harness, "a", "t")
    settle_all(harness, classic, a)
    before = facts(membership(harness).group_members)
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    a.leave()
    assert facts(membership(harness).group_members) == before == facts(reloaded(harness))
    harness.log.error = ErrorCode.NONE
    assert kind_in(harness) is ConsumerMembership
    members = dict(membership(harness).group_members.members)
    for _ in range(9):
        harness.time.advance(SESSION_MS // 2)
        for each in classic:
            harness.beat(each.member_id, members[each.member_id].epoch)
    assert kind_in(harness) is Membership, "the session of the member that left ends"


def test_a_conversion_to_consumer_that_the_log_refuses_is_reverted() -> None:
    harness = world_with(t=4)
    classic_group(harness, "t")
    before = harness.groups.describe(GROUP)[1]
    assert before is not None
    state, generation, armed = before.state, before.generation, sorted(harness.armed())
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert join(harness, "a", "t").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    after = harness.groups.describe(GROUP)[1]
    assert after is before
    assert (after.state, after.generation, sorted(harness.armed())) == (state, generation, armed)
    assert kind_in(harness) is Membership


def test_a_classic_member_is_refused_when_the_log_refuses_the_end_of_its_empty_group() -> None:
    harness = world_with(t=4)
    a = Client(harness, "a", "t")
    a.beat()
    a.leave()
    before = facts(membership(harness).group_members)
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    slot = harness.join("", protocols=(("range", subscription("t")),))
    assert slot.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert facts(membership(harness).group_members) == before == facts(reloaded(harness))
    assert not membership(harness).armed


def test_the_group_keeps_its_type_where_the_policy_forbids_the_downgrade() -> None:
    harness = world_with("upgrade", t=4)
    classic = classic_group(harness, "t")
    a = Client(harness, "a", "t")
    settle_all(harness, classic, a)
    a.leave()
    settle_all(harness, classic)
    assert owners(classic) == [("t", index) for index in range(4)]
    harness.topics.put("t", 6)
    settle_all(harness, classic)
    assert len(owners(classic)) == 6


def test_a_silent_consumer_protocol_member_lets_the_group_become_classic() -> None:
    harness = world_with(t=2)
    classic = classic_group(harness, "t")
    settle_all(harness, classic, Client(harness, "a", "t"))
    for _ in range(10):
        harness.time.advance(5_000)
        for each in classic:
            each.beat()
    assert harness.groups.list_groups()[1][0][3] == "classic"


def test_classic_members_come_go_and_die() -> None:
    harness = world_with(t=4)
    a = Client(harness, "a", "t")
    a.beat()
    c = ClassicClient(harness, "t")
    required = harness.join(protocols=(("cooperative-sticky", subscription("t")),), id_required=True).answer
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    c.member_id = required.member_id
    c.join()
    c.sync()
    settle_all(harness, [c], a)
    assert owners([c], a) == [("t", index) for index in range(4)]
    d = ClassicClient(harness, "t", instance="i")
    d.join()
    d.sync()
    settle_all(harness, [c, d], a)
    assert harness.leave(c.member_id) is ErrorCode.NONE
    assert harness.leave(c.member_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.leave(instance="i") is ErrorCode.NONE
    e = ClassicClient(harness, "t")
    e.join()
    e.sync()
    settle_all(harness, [e], a)
    harness.time.advance(SESSION_MS)
    settle(harness, a)
    assert len(a.owned) == 4
    assert e.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_comes_back_with_the_other_protocol() -> None:
    harness = world_with(t=4)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    a.instance_id = "i"
    settle(harness, a, b)
    had = set(a.owned)
    c = ClassicClient(harness, "t", instance="i")
    c.join()
    c.sync()
    assert c.owned == had
    assert beat(harness, "a", a.epoch, instance_id="i").answer.error is ErrorCode.FENCED_INSTANCE_ID
    back = Client(harness, "a2", "t")
    back.instance_id = "i"
    back.beat()
    assert back.owned == had


def test_refusals_of_classic_members() -> None:
    harness = world_with(t=2)
    a = Client(harness, "a", "t")
    a.beat()
    assert harness.beat("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync("a", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    c = ClassicClient(harness, "t")
    c.join()
    assert harness.beat(c.member_id, c.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert harness.sync(c.member_id, c.generation - 1).answer.error is ErrorCode.ILLEGAL_GENERATION
    wrong = harness.sync(c.member_id, c.generation, protocol_type="consumer", protocol_name="range").answer
    assert wrong.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = harness.join(protocols=(("range", subscription("t")),)).answer
    assert other.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    malformed = harness.join(protocols=(("cooperative-sticky", b"\0\1x"),)).answer
    assert malformed.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(protocol_type="connect").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    static = harness.join("x", instance="nobody's", protocols=(("cooperative-sticky", subscription("t")),)).answer
    assert static.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_join_when_it_must_is_removed() -> None:
    harness = world_with(t=2)
    a = Client(harness, "a", "t")
    a.beat()
    c = ClassicClient(harness, "t")
    c.join()
    c.sync()
    settle_all(harness, [c], a)
    b = Client(harness, "b", "t")
    b.beat()
    for _ in range(REBALANCE_MS // 5_000):
        assert c.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        a.beat()
        b.beat()
        harness.time.advance(5_000)
    assert c.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_and_does_not_sync_is_removed() -> None:
    harness = world_with(t=2)
    a = Client(harness, "a", "t")
    a.beat()
    c = ClassicClient(harness, "t")
    c.join()
    for _ in range(REBALANCE_MS // 5_000):
        a.beat()
        harness.time.advance(5_000)
        if c.beat() is ErrorCode.UNKNOWN_MEMBER_ID:
            return
    raise AssertionError("it is still a member")
