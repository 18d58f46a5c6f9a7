"""Partition state changes: the only module that writes leaders and in-sync replicas (Kafka: PartitionStateMachine and
ReplicaStateMachine).

The controller writes a state on condition of the version that it has. Where the version has changed (a leader with an
older protocol writes its ISR itself), the controller reads the state again and decides anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from odradek.broker.controller.state import election
from odradek.broker.controller.state.context import NO_LEADER, Context, KnownState
from odradek.broker.controller.state.control_requests import ControlRequestBatch
from odradek.broker.controller.state.steps import PAUSE, ControllerMovedError, Read, Steps, Write, is_pause_due
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    BadVersionError,
    Check,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    OperationResult,
    RegistryError,
    Set,
    Stat,
)
from odradek.broker.registry.znodes import PartitionState, ReplicaAssignment
from odradek.protocol.topic_partition import TopicPartition

PARTITIONS_AT_A_TIME: Final = 100
"""The most partitions of one transaction, whose size ZooKeeper limits (jute.maxbuffer, 1 MiB)."""
Decide = Callable[[TopicPartition, PartitionState, ReplicaAssignment], PartitionState | None]
"""Returns the new state of a partition, or None where the state stays."""


def is_legal(state: PartitionState, replicas: Collection[int]) -> bool:
    """Whether the ISR is within the replicas, and the leader, if there is one, in the ISR."""
    return (
        bool(state.isr)
        and all(each in replicas for each in state.isr)
        and (state.leader == NO_LEADER or state.leader in state.isr)
    )


def check_transition(
    partition: TopicPartition, old: PartitionState, new: PartitionState, replicas: Collection[int]
) -> None:
    """Assert what holds for every state that a controller writes.

    A state of the metadata store that another program wrote may be illegal; then the next one may be, too.
    """
    assert new.leader_epoch - old.leader_epoch in (0, 1), (
        f"leader epoch of {partition}: {old.leader_epoch}, then {new.leader_epoch}"
    )
    assert new.leader == old.leader or new.leader_epoch > old.leader_epoch, (
        f"leader of {partition} changed from {old.leader} to {new.leader} within leader epoch {new.leader_epoch}"
    )
    assert is_legal(new, replicas) or not is_legal(old, replicas), (
        f"state of {partition}: {old}, then {new}, replicas {replicas}"
    )


class PartitionStateMachine:
    """Changes the states of partitions."""

    def __init__(self, context: Context, control_requests: ControlRequestBatch) -> None:
        """`context` is updated with what has been written, `control_requests` with what to send to the brokers."""
        self._context = context
        self._control_requests = control_requests

    def write(self, operations: Sequence[Operation]) -> Steps[list[OperationResult]]:
        """Run one transaction under this controller's epoch.

        Raises ControllerMovedError when the epoch is stale, and RegistryError; `index` then counts `operations`.
        """
        check = Check(znodes.CONTROLLER_EPOCH, self._context.epoch_version)
        try:
            results: list[OperationResult] = yield Write((check, *operations))
        except (BadVersionError, NoNodeError, NodeExistsError) as error:
            if error.path == znodes.CONTROLLER_EPOCH or error.index == 0:
                raise ControllerMovedError(f"controller epoch {self._context.epoch} is over") from error
            if error.index is not None:
                error.index -= 1
            raise
        return results

    # ---- reading

    def read_states(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Read the states of these partitions from the metadata store."""
        wanted = list(partitions)
        found = yield Read(tuple(znodes.partition_state_path(*each) for each in wanted))
        for number, (partition, node) in enumerate(zip(wanted, found, strict=True)):
            if is_pause_due(number):
                yield PAUSE
            if node is None:
                self._context.states.pop(partition, None)
            else:
                data, stat = node
                self._context.states[partition] = KnownState(PartitionState.decode(data), stat.version, stat.mzxid)

    # ---- the first state

    def begin_missing(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Create the first state of partitions that have none, except of topics that are being deleted."""
        topics: dict[str, list[int]] = {}
        for number, (topic, index) in enumerate(partitions):
            if is_pause_due(number):
                yield PAUSE
            if (topic, index) not in self._context.states and topic not in self._context.deleting:
                topics.setdefault(topic, []).append(index)
        for topic, indexes in topics.items():
            yield from self._begin(topic, indexes)

    def _begin(self, topic: str, indexes: Iterable[int]) -> Steps[None]:
        """Elect the first leaders of new partitions; a partition without a live replica stays without a state."""
        context = self._context
        ready: list[tuple[TopicPartition, PartitionState]] = []
        for number, index in enumerate(indexes):
            if is_pause_due(number):
                yield PAUSE
            partition = (topic, index)
            replicas = context.assignments[topic][index].replicas
            live = context.can_lead(partition)
            isr = tuple(each for each in replicas if each in live)
            if isr:
                state = PartitionState(isr[0], 0, isr, context.epoch)
                assert is_legal(state, replicas), f"first state of {partition}: {state}, replicas {replicas}"
                ready.append((partition, state))
        for start in range(0, len(ready), PARTITIONS_AT_A_TIME):
            yield from self._create(topic, ready[start : start + PARTITIONS_AT_A_TIME])

    def _create(self, topic: str, ready: list[tuple[TopicPartition, PartitionState]]) -> Steps[None]:
        paths = [znodes.partitions_path(topic), *(znodes.partition_path(*each) for each, _ in ready)]
        there = yield Read(tuple(paths))
        operations: list[Operation] = [
            Create(path, None) for path, node in zip(paths, there, strict=True) if node is None
        ]
        operations.extend(Create(znodes.partition_state_path(*each), state.encode()) for each, state in ready)
        try:
            yield from self.write(operations)
        except NodeExistsError:
            # The previous controller created some of them.
            yield from self.read_states([each for each, _ in ready])
            missing = [(each, state) for each, state in ready if each not in self._context.states]
            if missing:
                yield from self._create(topic, missing)
            ready = [(each, state) for each, state in ready if (each, state) not in missing]
        else:
            yield from self.read_states([each for each, _ in ready])
        for partition, _ in ready:
            self._control_requests.add_leader_and_isr(self._context.assigned(partition), partition, is_new=True)

    # ---- every later state

    def change(
        self, partitions: Iterable[TopicPartition], decide: Decide
    ) -> Steps[dict[TopicPartition, RegistryError]]:
        """Decide about each of these partitions, write what changes and send it to the brokers.

        Returns the partitions whose state could not be written, with their errors.
        """
        wanted = [each for each in partitions if self._context.replicas(each) is not None]
        failed: dict[TopicPartition, RegistryError] = {}
        for start in range(0, len(wanted), PARTITIONS_AT_A_TIME):
            chunk = wanted[start : start + PARTITIONS_AT_A_TIME]
            if start:
                yield PAUSE
            try:
                yield from self._change(chunk, decide)
            except (BadVersionError, NoNodeError):
                for partition in chunk:  # one of them has changed, so each gets its own transaction
                    yield from self.read_states([partition])
                    try:
                        yield from self._change([partition], decide)
                    except (BadVersionError, NoNodeError) as error:
                        failed[partition] = error
        return failed

    def _change(self, partitions: list[TopicPartition], decide: Decide) -> Steps[None]:
        changes: dict[TopicPartition, PartitionState] = {}
        for partition in partitions:
            known, replicas = self._context.states.get(partition), self._context.replicas(partition)
            if known is None or replicas is None:
                continue
            new = decide(partition, known.state, replicas)
            if new is not None:
                changes[partition] = new
        if not changes:
            return
        yield from self.write_states(changes)
        for partition in changes:
            self._control_requests.add_leader_and_isr(self._context.assigned(partition), partition)

    def write_states(self, changes: Mapping[TopicPartition, PartitionState]) -> Steps[None]:
        """Write new states of partitions in one transaction, on condition of the versions of the present ones.

        Raises ControllerMovedError and RegistryError, in particular BadVersionError.
        """
        context, states = self._context, self._context.states
        operations: list[Operation] = []
        for partition, new in changes.items():
            known = states[partition]
            check_transition(partition, known.state, new, context.assigned(partition))
            operations.append(Set(znodes.partition_state_path(*partition), new.encode(), known.version))
        results = yield from self.write(operations)
        for (partition, new), stat in zip(changes.items(), results, strict=True):
            assert isinstance(stat, Stat)
            # Only now: the transaction has confirmed that this controller's epoch is the newest.
            old = states[partition].state
            assert new.controller_epoch == context.epoch >= old.controller_epoch, (
                f"controller epoch of {partition}: {old.controller_epoch}, then {new.controller_epoch}"
            )
            states[partition] = KnownState(new, stat.version, stat.mzxid)

    # ---- decisions

    def next_state(self, old: PartitionState, elected: election.Elected) -> PartitionState:
        """The state after an election: the next leader epoch."""
        return PartitionState(
            elected.leader,
            old.leader_epoch + 1,
            elected.isr,
            self._context.epoch,
            is_recovering=elected.is_unclean or old.is_recovering,
        )

    def replace_lost(self, unclean: frozenset[str]) -> Decide:
        """Elect new leaders where the leader is offline, and remove offline replicas from the ISR.

        `unclean` are the topics that prefer availability over records (unclean.leader.election.enable). Where no
        replica can lead, the ISR stays: only its members have every committed record.
        """
        context = self._context

        def decide(
            partition: TopicPartition, state: PartitionState, replicas: ReplicaAssignment
        ) -> PartitionState | None:
            live = context.can_lead(partition)
            online = [each for each in state.isr if context.is_online(each, partition)]
            if context.is_online(state.leader, partition):
                if len(online) == len(state.isr):
                    return None
                return self.next_state(state, election.Elected(state.leader, tuple(online)))
            allow_unclean = partition[0] in unclean
            chosen = election.offline(replicas.replicas, state.isr, live, allow_unclean=allow_unclean)
            if chosen is not None:
                return self.next_state(state, chosen)
            if state.leader == NO_LEADER:
                return None
            return self.next_state(state, election.Elected(NO_LEADER, state.isr))

        return decide

    def renew(self, back: Collection[int]) -> Decide:
        """Elect anew where the leader has come back in another incarnation, and remove such followers from the ISR.

        `back` are brokers whose return this controller detected; others are detected by a registration that is younger
        than the state. A replica that restarted may have lost records that were not synced, so ISR members that did not
        restart are elected first. If all ISR members restarted, one of them is elected.
        """

        def decide(
            partition: TopicPartition, state: PartitionState, replicas: ReplicaAssignment
        ) -> PartitionState | None:
            younger = self._context.bounced(partition)
            bounced = [each for each in state.isr if each in back or each in younger]
            return self._renewed(partition, state, replicas, bounced) if bounced else None

        return decide

    def _renewed(
        self, partition: TopicPartition, state: PartitionState, replicas: ReplicaAssignment, bounced: Sequence[int]
    ) -> PartitionState | None:
        context = self._context
        live = context.can_lead(partition)
        stayed = [each for each in live if each not in bounced]
        if state.leader not in bounced and context.is_online(state.leader, partition):
            rest = tuple(each for each in state.isr if each not in bounced and context.is_online(each, partition))
            return self.next_state(state, election.Elected(state.leader, rest))
        chosen = election.offline(replicas.replicas, state.isr, stayed, allow_unclean=False)
        chosen = chosen or election.offline(replicas.replicas, state.isr, live, allow_unclean=False)
        return self.next_state(state, chosen) if chosen is not None else None

    def prefer(
        self, partition: TopicPartition, state: PartitionState, replicas: ReplicaAssignment
    ) -> PartitionState | None:
        """Elect the preferred leader where it can lead and is not the leader."""
        if state.leader == replicas.replicas[0]:
            return None
        chosen = election.preferred(replicas.replicas, state.isr, self._context.can_lead(partition))
        return self.next_state(state, chosen) if chosen is not None else None

    def leave(self, broker_id: int) -> Decide:
        """Remove a broker that is about to stop from leadership and ISR, where other replicas are left."""
        context = self._context

        def decide(
            partition: TopicPartition, state: PartitionState, replicas: ReplicaAssignment
        ) -> PartitionState | None:
            if broker_id not in state.isr and broker_id != state.leader:
                return None
            if state.leader == broker_id:
                online = [each for each in replicas.replicas if context.is_online(each, partition)]
                chosen = election.controlled_shutdown(replicas.replicas, state.isr, online, context.leaving)
                return self.next_state(state, chosen) if chosen is not None else None
            rest = tuple(each for each in state.isr if each != broker_id)
            # Without a leader the last ISR member stays: only it has every committed record.
            return self.next_state(state, election.Elected(state.leader, rest)) if rest else None

        return decide

    def bump(self, partition: TopicPartition, state: PartitionState, replicas: ReplicaAssignment) -> PartitionState:
        """Keep the leader and increment its epoch, so that it applies a changed assignment."""
        return state._replace(leader_epoch=state.leader_epoch + 1, controller_epoch=self._context.epoch)
