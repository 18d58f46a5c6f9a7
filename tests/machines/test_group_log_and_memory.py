"""After every step, the memory of a group coordinator is the replay of its log and of the appends in flight.

Groups of both protocols, during conversions between them, with offsets and transactions. The log refuses appends, times
out, commits with too few replicas, or holds appends back, in any combination; a held append is written or refused with
all behind it. Members take arbitrary actions.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.group.state import consumer_group_pending_writes as consumer_group_writes
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.group import Group
from odradek.broker.group.state.loading import Loader
from odradek.broker.group.state.offsets import NO_OFFSET, Offsets
from odradek.protocol.errors import ErrorCode
from tests.machines.consumer_harness import beat, facts, subscription
from tests.machines.group_harness import GROUP, Harness, Slot

OUTCOMES = (
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.MESSAGE_TOO_LARGE,
)
TOPICS = ("t1", "t2")
PARTITIONS = [(topic, index) for topic in TOPICS for index in range(2)]
WEEK_MS = 7 * 24 * 3600 * 1000


def remembered(group: Group | None) -> dict[str, Any]:
    """The state of a group that its log has to contain."""
    kind: Any = None
    if group is not None:
        membership = group.membership
        if not isinstance(membership, ConsumerMembership):
            kind = membership.group.in_log
        elif membership.group_members.epoch or membership.group_members.members:
            kind = facts(membership.group_members)
    return {"membership": kind, **offsets_of(group.offsets if group is not None else Offsets())}


def offsets_of(offsets: Offsets) -> dict[str, Any]:
    """The offsets, and those of the one producer that has a transaction."""
    places = {partition: dict([entry]) for found in offsets._by_producer.values() for partition, entry in found.items()}
    for partition, staged in offsets._staged_in_transaction.items():
        places.setdefault(partition, {}).update(staged)
    return {
        "offsets": {partition: each.offset for partition, each in offsets.latest().items()},
        "in transaction": {partition: found[max(found)].offset for partition, found in places.items()},
    }


class Coordinator(RuleBasedStateMachine):
    """One group, members of both protocols, and a log with arbitrary outcomes."""

    @initialize(largest=st.sampled_from((900_000, 900_000, 300)), delay=st.sampled_from((0, 3_000)))
    def begin(self, largest: int, delay: int) -> None:
        self.largest, consumer_group_writes.LARGEST_APPEND = consumer_group_writes.LARGEST_APPEND, largest
        self.harness = Harness(group_initial_rebalance_delay_ms=delay)
        for topic in TOPICS:
            self.harness.topics.put(topic, 2)
        self.slots: list[Slot] = []
        self.joins: dict[str, Slot] = {}
        self.value = 0

    def keep(self, slot: Slot) -> Slot:
        self.slots.append(slot)
        return slot

    @property
    def group(self) -> Group | None:
        return self.harness.coordinator.runtime.find(0, GROUP)

    # --- members ---

    @rule(
        name=st.sampled_from("abc"),
        behind=st.sampled_from((0, 0, 0, 1)),
        topics=st.sampled_from((("t1",), ("t1", "t2"))),
        static=st.booleans(),
        joins=st.booleans(),
    )
    def consumer_beats(self, name: str, behind: int, topics: tuple[str, ...], static: bool, joins: bool) -> None:
        _, group = self.harness.groups.describe_consumers(GROUP)
        known = group.group_members.members.get(name) if group is not None else None
        epoch = max(known.epoch - behind, 0) if known is not None and not joins else 0
        owned = {topic: frozenset(parts) for topic, parts in known.assigned.items()} if known is not None else {}
        instance_id = f"i{name}" if static else None
        fields: dict[str, Any] = {"instance_id": instance_id, "rebalance_timeout_ms": 60_000, "names": topics}
        self.keep(beat(self.harness, name, epoch, owned=owned if epoch else {}, **fields))

    @rule(name=st.sampled_from("abc"), for_a_while=st.booleans())
    def consumer_leaves(self, name: str, for_a_while: bool) -> None:
        instance_id = f"i{name}" if for_a_while else None
        self.keep(beat(self.harness, name, -2 if for_a_while else -1, instance_id=instance_id))

    @rule(name=st.sampled_from(("x", "y", "static")), topic=st.sampled_from(TOPICS), fresh=st.booleans())
    def classic_joins(self, name: str, topic: str, fresh: bool) -> None:
        before = self.joins.get(name)
        known = before.answers[0].member_id if before is not None and before.answers and not fresh else ""
        instance = name if name == "static" else None
        slot = self.harness.join(known, instance=instance, protocols=(("range", subscription(topic)),))
        self.joins[name] = self.keep(slot)

    @rule(name=st.sampled_from(("x", "y", "static")))
    def classic_syncs(self, name: str) -> None:
        if name in self.joins and self.joins[name].answers:
            joined = self.joins[name].answer
            assignments = {member_id: b"" for member_id, _, _ in joined.members}
            instance = name if name == "static" else None
            self.keep(self.harness.sync(joined.member_id, joined.generation, assignments, instance=instance))

    @rule(name=st.sampled_from(("x", "y", "static")), leaves=st.booleans())
    def classic_beats_or_leaves(self, name: str, leaves: bool) -> None:
        if name in self.joins and self.joins[name].answers:
            joined = self.joins[name].answer
            if leaves:
                self.harness.leave(joined.member_id)
            else:
                self.harness.beat(joined.member_id, joined.generation)

    # --- offsets ---

    @rule(partition=st.sampled_from(PARTITIONS), member=st.sampled_from(("", "a", "b")))
    def commit(self, partition: tuple[str, int], member: str) -> None:
        self.value += 1
        _, group = self.harness.groups.describe_consumers(GROUP)
        known = group.group_members.members.get(member) if group is not None else None
        self.keep(self.harness.commit({partition: self.value}, member, known.epoch if known is not None else -1))

    @rule(partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def commit_in_transaction(self, partitions: set[tuple[str, int]]) -> None:
        self.value += 1
        self.keep(self.harness.commit_in_transaction(dict.fromkeys(sorted(partitions), self.value)))

    @precondition(lambda self: not self.harness.log.held and not self.harness.log.late)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        self.harness.end_transaction(commit=commit)

    @rule(partition=st.sampled_from(PARTITIONS), topic_goes=st.booleans())
    def delete_offsets(self, partition: tuple[str, int], topic_goes: bool) -> None:
        group = self.group
        # The offsets that an open transaction has of a deleted topic go from memory only, as with Kafka.
        if topic_goes and (group is None or not offsets_of(group.offsets)["in transaction"]):
            self.harness.offsets.forget_partitions([partition])
        else:
            self.harness.offsets.delete_offsets(GROUP, [partition])

    @rule()
    def delete_group(self) -> None:
        self.harness.groups.delete_group(GROUP)

    # --- the environment ---

    @rule(ms=st.sampled_from((1, 500, 3_000, 45_000, 60_000, WEEK_MS)))
    def time_passes(self, ms: int) -> None:
        # While the log rejects appends, the coordinator retries every second: a week of that is 600,000 retries.
        works = self.harness.log.error is ErrorCode.NONE
        self.harness.time.advance(ms if works else min(ms, 60_000))

    @rule(error=st.sampled_from(OUTCOMES))
    def log_answers(self, error: ErrorCode) -> None:
        self.harness.log.error = error

    @rule(hold=st.booleans(), error=st.sampled_from(OUTCOMES))
    def log_holds(self, hold: bool, error: ErrorCode) -> None:
        self.harness.log.hold = hold
        self.harness.log.release(error)

    @rule()
    def log_is_later_still(self) -> None:
        self.harness.log.time_out()

    @rule()
    def fail_over(self) -> None:
        self.harness.fail_over()

    # --- invariants ---

    @invariant()
    def memory_is_the_log_and_what_is_in_flight(self) -> None:
        loader = Loader()
        for header, record in self.harness.log.pending(0):
            loader.feed(header, record)
        harness = self.harness
        found = loader.groups(harness.settings, harness.coordinator.runtime.now(), harness.topics)
        assert remembered(self.group) == remembered(next(iter(found), None))

    @invariant()
    def nothing_is_committed_that_the_log_lacks(self) -> None:
        group = self.group
        if group is None:
            return
        latest = group.offsets.latest()
        for partition, committed in group.offsets.items():
            assert latest.get(partition, committed).offset >= committed.offset > NO_OFFSET

    @invariant()
    def indexes_agree(self) -> None:
        group = self.group
        if group is None or not isinstance(group.membership, ConsumerMembership):
            return
        group_members = group.membership.group_members
        owners = {
            (topic_id, index): member.member_id
            for member in group_members.members.values()
            for owned in (member.assigned, member.revoking)
            for topic_id, parts in owned.items()
            for index in parts
        }
        assert group_members._owners == owners
        instances = {each.instance_id: each.member_id for each in group_members.members.values() if each.instance_id}
        assert group_members._static == instances

    @invariant()
    def members_have_sessions(self) -> None:
        group = self.group
        if group is None:
            assert self.harness.time.waiting == 0
        elif isinstance(group.membership, ConsumerMembership):
            sessions = {name[1] for name in group.membership.armed if name[0] == "session"}
            assert sessions == set(group.membership.group_members.members)
        if group is not None:
            assert self.harness.time.waiting == len(group.membership.armed)

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        consumer_group_writes.LARGEST_APPEND = self.largest
        self.harness.log.hold, self.harness.log.error = False, ErrorCode.NONE
        self.harness.log.release()
        for _ in range(6):
            self.harness.time.advance(WEEK_MS)
        assert self.group is None or self.group.is_empty or self.group.is_dead
        self.harness.coordinator.close()
        assert not any(slot.waits for slot in self.slots), "a request without an answer"


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
