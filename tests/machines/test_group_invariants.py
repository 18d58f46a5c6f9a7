"""Groups under arbitrary histories: members join, leave, die, retry and send false data; appends are late or fail;
coordinators move.

Checked all the way: one leader, one protocol and one owner of a partition in a generation; an acknowledged commit came
from a member of the running generation (or from outside while the group was empty) and a fetch returns it, before and
after a failover; a group read back from the log is the group that wrote it. At the end: every request has exactly one
response, and no timer is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.group.state import classic_rebalance
from odradek.broker.group.state.classic_requests import ClassicGroupState, JoinResult, SyncResult
from odradek.protocol.errors import ErrorCode
from tests.machines.group_harness import GROUP, Harness, Slot

PARTITIONS = [("t", index) for index in range(4)]
PROTOCOLS = [
    (("a", b"1"), ("b", b"2")),
    (("b", b"2"), ("a", b"1")),
    (("a", b"3"), ("b", b"3")),
]


@dataclass(eq=False)
class Client:
    """A client and the last response that it received."""

    instance: str | None
    id_required: bool
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    members: tuple[str, ...] = ()
    joining: Slot | None = None


class Groups(RuleBasedStateMachine):
    """One group, six clients (two of them one static member), and a coordinator that moves."""

    @initialize(delay=st.sampled_from([0, 3_000]))
    def begin(self, delay: int) -> None:
        self.harness = Harness(group_initial_rebalance_delay_ms=delay, group_max_size=4)
        self.clients = [
            Client(None, False),
            Client(None, True),
            Client(None, True),
            Client("static", False),
            Client("static", False),
            Client("other", False),
        ]
        self.slots: list[Slot] = []
        self.syncs: list[tuple[Slot, int, str]] = []
        self.commits: list[tuple[Slot, tuple[str, int], int]] = []
        self.committed: dict[tuple[str, int], int] = {}
        self.next_value = 0
        # Facts that are unique within one life of a group: its coordinator (a new one may have missed the last
        # generation).
        self.life = 0
        self.leaders: dict[tuple[int, int], tuple[str, str | None]] = {}
        self.owners: dict[tuple[int, int], dict[str, str]] = {}
        # Whether memory may be ahead of the log: the log refused an append since the coordinator loaded.
        self.refused = False

    def keep(self, slot: Slot) -> Slot:
        self.slots.append(slot)
        return slot

    # --- actions of clients ---

    @rule(index=st.integers(0, 5), protocols=st.sampled_from(PROTOCOLS), may_skip=st.booleans(), fresh=st.booleans())
    def join(self, index: int, protocols: Any, may_skip: bool, fresh: bool) -> None:
        client = self.clients[index]
        if fresh:
            client.member_id = ""
        slot = self.harness.join(
            client.member_id,
            instance=client.instance,
            protocols=protocols,
            id_required=client.id_required,
            may_skip=may_skip,
        )
        client.joining = self.keep(slot)

    @rule(index=st.integers(0, 5), stale=st.booleans())
    def sync(self, index: int, stale: bool) -> None:
        client = self.clients[index]
        generation = client.generation - stale
        assignments = {}
        if client.leads:
            for number, member_id in enumerate(client.members):
                assignments[member_id] = bytes(range(number, len(PARTITIONS), len(client.members)))
        slot = self.harness.sync(client.member_id, generation, assignments, instance=client.instance)
        self.syncs.append((self.keep(slot), generation, client.instance or client.member_id))

    @rule(index=st.integers(0, 5))
    def beat(self, index: int) -> None:
        client = self.clients[index]
        code = self.harness.beat(client.member_id, client.generation, instance=client.instance)
        if code is ErrorCode.NONE:
            assert client.generation == self.generation()

    @rule(index=st.integers(0, 5))
    def leave(self, index: int) -> None:
        client = self.clients[index]
        self.harness.leave(client.member_id, instance=client.instance)
        client.member_id, client.generation = "", -1

    @rule(index=st.integers(0, 5), partition=st.sampled_from(PARTITIONS), stale=st.sampled_from([0, 0, 1]))
    def commit(self, index: int, partition: tuple[str, int], stale: int) -> None:
        client = self.clients[index]
        before, generation = self.harness.state(), self.generation()
        sent = client.generation - stale
        self.next_value += 1
        slot = self.harness.commit({partition: self.next_value}, client.member_id, sent, instance=client.instance)
        self.keep(slot)
        taken = slot.waits or slot.answer == [ErrorCode.NONE]
        if taken:
            assert before in ("Empty", "Dead") or sent == generation, "a stale generation commits"
            assert before != "CompletingRebalance"
        self.commits.append((slot, partition, self.next_value))

    @rule(order=st.permutations([0, 1, 2, 3]), count=st.integers(1, 4), sync=st.sampled_from([True, True, False]))
    def settle(self, order: list[int], count: int, sync: bool) -> None:
        """Some clients follow the protocol: random steps alone seldom bring a group to rest."""
        chosen = order[:count]
        for _ in range(3):
            for index in chosen:
                client = self.clients[index]
                if client.generation != self.generation() or self.harness.state() == "PreparingRebalance":
                    self.join(index, PROTOCOLS[0], True, False)
            self.harness.time.advance(6_000)
            self.answers_agree()
        if sync:
            for index in chosen:
                self.sync(index, False)

    @precondition(lambda self: self.harness.state() == "Stable")
    @rule(may_skip=st.booleans(), protocols=st.sampled_from(PROTOCOLS))
    def static_member_returns(self, may_skip: bool, protocols: Any) -> None:
        self.join(3, protocols, may_skip, True)

    @precondition(lambda self: self.harness.state() in ("Stable", "CompletingRebalance"))
    @rule(index=st.integers(0, 3), partition=st.sampled_from(PARTITIONS), stale=st.sampled_from([0, 1]))
    def member_commits(self, index: int, partition: tuple[str, int], stale: int) -> None:
        self.commit(index, partition, stale)

    @precondition(lambda self: self.harness.state() == "CompletingRebalance")
    @rule(order=st.permutations([0, 1, 2, 3]), shift=st.integers(0, 1))
    def all_sync(self, order: list[int], shift: int) -> None:
        """All members sync; a leader that syncs again may have changed its assignment."""
        for index in order:
            client = self.clients[index]
            client.members = client.members[shift:] + client.members[:shift]
            self.sync(index, False)

    # --- events of the coordinator ---

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 6_000, 300_000]))
    def wait(self, ms: int) -> None:
        self.harness.time.advance(ms)

    @rule()
    def hold(self) -> None:
        self.harness.log.hold = True

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def release(self, error: ErrorCode) -> None:
        self.refused |= bool(error) and self.harness.log.held > 0
        self.harness.log.hold = False
        self.harness.log.release(error)

    @precondition(lambda self: not self.harness.log.held)
    @rule()
    def fail_over(self) -> None:
        before = self.metadata_cache()
        settled = self.harness.state() in ("Stable", "Empty", "Dead") and not self.refused
        self.harness.fail_over()
        if settled:
            assert self.metadata_cache() == before
        self.life += 1
        self.refused = False

    @precondition(lambda self: self.harness.log.held)
    @rule()
    def lose_leadership(self) -> None:
        self.harness.fail_over()
        self.harness.log.hold = False
        self.harness.log.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.life += 1
        self.refused = False

    # Kafka answers a deletion before its tombstones are durable, so one that is held back may be undone by a failover.
    @precondition(lambda self: not self.harness.log.hold)
    @rule()
    def delete(self) -> None:
        if self.harness.groups.delete_group(GROUP) is ErrorCode.NONE:
            self.life += 1
            self.committed.clear()

    # --- invariants ---

    def generation(self) -> int:
        _, membership = self.harness.groups.describe(GROUP)
        return membership.generation if membership is not None else 0

    def metadata_cache(self) -> Any:
        """The state of a stable group that has to survive its coordinator; None for one that leaves nothing behind."""
        _, membership = self.harness.groups.describe(GROUP)
        offsets = {partition: self.harness.offset(partition) for partition in PARTITIONS}
        if membership is None or membership.generation == 0:
            return None if not any(offsets.values()) else (0, None, offsets)
        assignments = {member.member_id: member.assignment for member in membership.group_members}
        return membership.state, membership.generation_value(assignments), offsets

    @invariant()
    def answers_agree(self) -> None:
        for client in self.clients:
            if client.joining is None or client.joining.waits:
                continue
            result: JoinResult = client.joining.answer
            client.joining = None
            if result.error is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = result.member_id
            elif result.error:
                client.generation, client.leads = -1, False
            else:
                client.member_id, client.generation = result.member_id, result.generation
                client.leads = result.leader == result.member_id and not result.skip_assignment
                client.members = tuple(member_id for member_id, _, _ in result.members)
                known = self.leaders.setdefault((self.life, result.generation), ("", result.protocol_name))
                assert known[1] == result.protocol_name, "one protocol in a generation"
                if result.members and not result.skip_assignment:
                    assert known[0] in ("", result.member_id), "one leader in a generation"
                    self.leaders[self.life, result.generation] = (result.member_id, result.protocol_name)

    @invariant()
    def partitions_have_one_owner(self) -> None:
        waiting = []
        for slot, generation, who in self.syncs:
            if slot.waits:
                waiting.append((slot, generation, who))
                continue
            result: SyncResult = slot.answer
            if result.error:
                continue
            owners = self.owners.setdefault((self.life, generation), {})
            for partition in result.assignment:
                owner = owners.setdefault(str(partition), who)
                assert owner == who, f"partition {partition} of generation {generation} belongs to {owner} and {who}"
        self.syncs = waiting

    @invariant()
    def acknowledged_commits_are_there(self) -> None:
        waiting = []
        for slot, partition, value in self.commits:
            if slot.waits:
                waiting.append((slot, partition, value))
            elif slot.answer == [ErrorCode.NONE]:
                self.committed[partition] = value
        self.commits = waiting
        for partition in PARTITIONS:
            assert self.harness.offset(partition) == self.committed.get(partition)

    @invariant()
    def timers_belong_to_someone(self) -> None:
        _, membership = self.harness.groups.describe(GROUP)
        if membership is None:
            assert self.harness.time.waiting == 0
        else:
            known = self.harness.armed()
            assert self.harness.time.waiting == len(known)
            members = {member.member_id for member in membership.group_members}
            assert {name[1] for name in known if name[0] == "member"} <= members
            assert (("join",) in known) == (membership.state is ClassicGroupState.PREPARING)
            for member in membership.group_members:
                assert member.counts_as_alive or ("member", member.member_id) in known, "a session without an end"

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.log.hold = False
        self.harness.log.release()
        for _ in range(20):
            self.harness.time.advance(600_000)
        assert self.harness.state() in ("Empty", "Dead"), "silent members do not stay"
        assert self.harness.time.waiting == 0
        for slot in self.slots:
            assert not slot.waits
        self.harness.coordinator.close()


class GroupsInParts(Groups):
    """The same, and members are answered and removed one by one, with requests in between."""

    def __init__(self) -> None:
        super().__init__()
        self.undo = pytest.MonkeyPatch()
        self.undo.setattr(classic_rebalance, "AT_ONCE", 1)

    @rule()
    def continue_once(self) -> None:
        self.harness.time.advance(0)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.undo.undo()


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestGroupsInParts = GroupsInParts.TestCase
TestGroupsInParts.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
