"""Groups of the consumer protocol under any sequence of events (G1 of the verification plan).

Members join, send heartbeats, lose responses, leave, fall silent and change their subscriptions; topics come, grow and
go; time passes; the coordinator fails over; the log refuses appends. After every step:

- no partition is used by two members of the group, neither in the coordinator's state nor in the members' state;
- a load finds the state of the coordinator, unless the log has refused an append that was not repeated yet;
- every request has at most one response;
- a commit succeeds only for a member that owns the partition, in an epoch since which it has owned it.

After any history, once all members send heartbeats again, all reach the target, and every partition has an owner.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.broker.group.state import consumer_group_expressions, consumer_group_target
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.consumer_group_members import GroupState
from odradek.protocol.errors import ErrorCode
from tests.machines.consumer_harness import SESSION_MS, Client, facts, reloaded, subscription
from tests.machines.group_harness import GROUP, Harness
from tests.machines.stepwise import Stepwise

TOPICS = ("t1", "t2", "x1")
EXPRESSIONS = ("t.*", "x1|t2")


class ConsumerGroupMachine(RuleBasedStateMachine):
    """One group and its present and former members."""

    def __init__(self, harness: Harness | None = None) -> None:
        super().__init__()
        self.harness = harness or Harness()
        self.harness.topics.put("t1", 4)
        self.clients: dict[str, Client] = {}
        self.made = 0

    # --- members ---

    @rule(
        names=st.lists(st.sampled_from(TOPICS), unique=True, max_size=3),
        expression=st.one_of(st.none(), st.sampled_from(EXPRESSIONS)),
        static=st.booleans(),
    )
    @precondition(lambda self: len(self.clients) < 5)
    def come(self, names: list[str], expression: str | None, static: bool) -> None:
        self.made += 1
        client = Client(self.harness, f"m{self.made}", *names, expression=expression)
        if static:
            client.instance_id = f"i{self.made}"
        self.clients[client.member_id] = client
        client.beat()

    @rule(data=st.data(), lost=st.booleans())
    @precondition(lambda self: self.clients)
    def beat(self, data: st.DataObject, lost: bool) -> None:
        self._any(data).beat(lost=lost)

    @rule()
    def everybody_beats(self) -> None:
        for client in self.clients.values():
            client.beat()

    @rule(data=st.data())
    @precondition(lambda self: self.clients)
    def leave(self, data: st.DataObject) -> None:
        client = self._any(data)
        client.leave()
        del self.clients[client.member_id]

    @rule(data=st.data())
    @precondition(lambda self: any(client.instance_id for client in self.clients.values()))
    def restart(self, data: st.DataObject) -> None:
        """A static member stops, and its successor comes with the same instance id."""
        static = [client for client in self.clients.values() if client.instance_id]
        old = data.draw(st.sampled_from(static))
        del self.clients[old.member_id]
        old.leave(for_a_while=True)
        self.made += 1
        new = Client(self.harness, f"m{self.made}", *old.names, expression=old.expression)
        new.instance_id = old.instance_id
        self.clients[new.member_id] = new
        if data.draw(st.booleans()):
            new.beat()

    @rule(data=st.data())
    @precondition(lambda self: self.clients)
    def vanish(self, data: st.DataObject) -> None:
        """A member falls silent for good."""
        del self.clients[self._any(data).member_id]

    @rule(data=st.data(), names=st.lists(st.sampled_from(TOPICS), unique=True, max_size=3))
    @precondition(lambda self: self.clients)
    def change_mind(self, data: st.DataObject, names: list[str]) -> None:
        client = self._any(data)
        client.names, client.expression = tuple(names), None
        client.epoch = 0
        client.beat()

    @rule(data=st.data(), name=st.sampled_from(TOPICS), syncs=st.booleans())
    @precondition(lambda self: not self.harness.log.hold and not self.harness.log.error and self._group() is not None)
    def classic_member_joins(self, data: st.DataObject, name: str, syncs: bool) -> None:
        """A member that uses the classic protocol: it joins, perhaps syncs, and falls silent."""
        group = self._group()
        if group is None or not group.group_members.members:
            return
        known = sorted(key for key, member in group.group_members.members.items() if member.classic is not None)
        member_id = data.draw(st.sampled_from([*known, f"c{len(known)}"]))
        slot = self.harness.join(member_id, protocols=(("range", subscription(name)),))
        if slot.waits:  # for an append that has timed out
            return
        joined = slot.answer
        if not joined.error and syncs:
            self.harness.sync(member_id, joined.generation)
            self.harness.beat(member_id, joined.generation)

    def _any(self, data: st.DataObject) -> Client:
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    # --- the environment ---

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def topic_grows(self, name: str, more: int) -> None:
        self.harness.topics.put(name, min(self.harness.topics.partition_count(name) + more, 6))

    @rule(name=st.sampled_from(TOPICS))
    def topic_goes(self, name: str) -> None:
        if name in self.harness.topics.counts:
            self.harness.topics.remove(name)

    @rule(ms=st.sampled_from((1_000, 20_000, SESSION_MS, 70_000)))
    def time_passes(self, ms: int) -> None:
        self.harness.time.advance(ms)

    @rule()
    @precondition(lambda self: not self.harness.log.held)
    def fail_over(self) -> None:
        self.harness.fail_over()

    @rule(error=st.sampled_from((ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)))
    def log_refuses(self, error: ErrorCode) -> None:
        self.harness.log.error = error

    @rule(hold=st.booleans(), error=st.sampled_from((ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)))
    def log_is_slow(self, hold: bool, error: ErrorCode) -> None:
        self.harness.log.hold = hold
        self.harness.log.release(error)

    @rule(data=st.data(), offset=st.integers(1, 100), behind=st.integers(0, 2))
    @precondition(lambda self: self.clients and not self.harness.log.hold and not self.harness.log.error)
    def commit(self, data: st.DataObject, offset: int, behind: int) -> None:
        client = self._any(data)
        group = self._group()
        partition = (data.draw(st.sampled_from(TOPICS)), data.draw(st.integers(0, 3)))
        epoch = client.epoch - behind
        if group is None or epoch < 0:
            return
        code = self.harness.commit({partition: offset}, client.member_id, epoch).answer[0]
        member = group.group_members.members.get(client.member_id)
        topic_id = self.harness.topics.id_of(partition[0])
        if member is None:
            assert code is ErrorCode.UNKNOWN_MEMBER_ID
        elif epoch != member.epoch and not code:
            assert topic_id is not None
            assert group.group_members.owner(topic_id, partition[1]) == client.member_id
            since = {**member.assigned.get(topic_id, {}), **member.revoking.get(topic_id, {})}[partition[1]]
            assert since <= epoch <= member.epoch

    # --- invariants ---

    def _group(self) -> ConsumerMembership | None:
        return self.harness.groups.describe_consumers(GROUP)[1]

    @invariant()
    def one_owner_for_each_partition(self) -> None:
        group = self._group()
        if group is None:
            return
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.group_members.members.values():
            for owned in (member.assigned, member.revoking):
                for topic_id, parts in owned.items():
                    for index in parts:
                        assert owners.setdefault((topic_id, index), member.member_id) == member.member_id
                        assert group.group_members.owner(topic_id, index) == member.member_id
        targets = [
            (topic_id, index)
            for each in group.group_members.targets.values()
            for topic_id, parts in each.items()
            for index in parts
        ]
        assert len(targets) == len(set(targets))

    @invariant()
    def no_partition_has_two_users(self) -> None:
        group = self._group()
        if group is None:
            return
        used: dict[tuple[str, int], str] = {}
        for client in self.clients.values():
            member = group.group_members.members.get(client.member_id)
            # A member that was removed is not notified yet; the owner that a successor replaced is a different case,
            # too.
            if member is None or not client.epoch or not member.previous_epoch <= client.epoch <= member.epoch:
                continue
            for partition in client.owned:
                if partition[0] in self.harness.topics.counts:
                    assert used.setdefault(partition, client.member_id) == client.member_id

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self._group()
        if group is not None:
            assert group.group_members.target_epoch <= group.group_members.epoch
            assert all(member.epoch <= group.group_members.epoch for member in group.group_members.members.values())
            assert set(group.group_members.targets) <= set(group.group_members.members)

    @invariant()
    def a_load_finds_the_same(self) -> None:
        group = self._group()
        if group is not None and group.group_members.epoch:
            found, expected = facts(reloaded(self.harness)), facts(group.group_members)
            if not group.steps.target.is_in_log:
                del found["targets"], expected["targets"]
            assert found == expected

    @invariant()
    def timers_are_of_members(self) -> None:
        group = self._group()
        if group is not None:
            assert {name[1] for name in group.armed} <= set(group.group_members.members)
            assert {("session", member_id) for member_id in group.group_members.members} <= set(group.armed)

    def work(self) -> None:
        """Run everything that is computed apart from requests."""

    def teardown(self) -> None:
        """The group always converges."""
        self.harness.log.hold = False
        self.harness.log.error = ErrorCode.NONE
        self.harness.log.release()
        for _ in range(16):  # members that fell silent are removed
            for client in self.clients.values():
                client.beat()
            self.work()
            self.harness.time.advance(SESSION_MS // 9)
        for _ in range(3 * len(self.clients) + 3):
            for client in self.clients.values():
                client.beat()
            self.work()
        group = self._group()
        if not self.clients:
            return
        assert group is not None
        assert group.state is GroupState.STABLE
        assert set(group.group_members.members) == set(self.clients)
        subscribed = {
            name for member in group.group_members.members.values() for name in group.group_members.topics_of(member)
        }
        wanted = {(name, index) for name in subscribed for index in range(self.harness.topics.partition_count(name))}
        owned = [partition for client in self.clients.values() for partition in client.owned]
        assert sorted(owned) == sorted(wanted)


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class LargeGroupMachine(ConsumerGroupMachine):
    """A group that looks expressions up and computes targets apart from requests, one expression and one
    record at a time, with events before each of them.
    """

    def __init__(self) -> None:
        self.stepwise = Stepwise()
        super().__init__(self.stepwise)
        target, expressions = consumer_group_target, consumer_group_expressions
        self.limits = target.AT_ONCE, target.PART_RECORDS, expressions.AT_ONCE
        target.AT_ONCE, target.PART_RECORDS, expressions.AT_ONCE = -1, 1, 0

    @rule()
    @precondition(lambda self: self.stepwise.works)
    def computes(self) -> None:
        self.stepwise.step()

    def work(self) -> None:
        while self.stepwise.works:
            self.stepwise.step()

    def teardown(self) -> None:
        self.work()
        try:
            super().teardown()
        finally:
            target, expressions = consumer_group_target, consumer_group_expressions
            target.AT_ONCE, target.PART_RECORDS, expressions.AT_ONCE = self.limits


TestLargeGroup = LargeGroupMachine.TestCase
TestLargeGroup.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
