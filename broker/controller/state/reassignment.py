"""Partition reassignment (KIP-455): the assignment during and after the move of replicas (Kafka: ReplicaAssignment and
KafkaController.onPartitionReassignment, whose phases A and B this module follows).

A partition under reassignment has the replicas of both assignments; `adding` and `removing` mark the difference. When
all replicas of the target are in sync, the controller removes the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.broker.controller.state import election
from odradek.broker.controller.state.context import Context
from odradek.broker.controller.state.control_requests import ControlRequestBatch
from odradek.broker.controller.state.partition_state_machine import Decide, PartitionStateMachine
from odradek.broker.controller.state.steps import PAUSE, Steps, is_pause_due, with_pauses
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Set
from odradek.broker.registry.znodes import PartitionState, ReplicaAssignment, TopicAssignment
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition


def origin(replicas: ReplicaAssignment) -> tuple[int, ...]:
    """The replicas before the reassignment."""
    return tuple(each for each in replicas.replicas if each not in replicas.adding)


def target(replicas: ReplicaAssignment) -> tuple[int, ...]:
    """The replicas after the reassignment."""
    return tuple(each for each in replicas.replicas if each not in replicas.removing)


def towards(replicas: ReplicaAssignment, wanted: Sequence[int]) -> ReplicaAssignment:
    """The assignment during the move to `wanted`; the preferred leader of the target comes first."""
    before = origin(replicas)
    full = tuple(dict.fromkeys((*wanted, *before)))
    return ReplicaAssignment(
        full,
        tuple(each for each in full if each not in before),
        tuple(each for each in full if each not in wanted),
    )


MOST_SHOWN: Final = 10_000
"""Replicas of a reassignment that an error message names: the text of 250,000 takes 20 ms to make, and is cut."""


def check_target(wanted: Sequence[int], live: Sequence[int]) -> None:
    """Raise KafkaError with INVALID_REPLICA_ASSIGNMENT unless these are valid replicas of a partition."""
    if not wanted:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Empty replica list specified in partition reassignment")
    replicas = set(wanted)
    if len(replicas) != len(wanted):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Duplicate replica ids in partition reassignment replica list: {_shown(wanted)}",
        )
    if min(replicas) < 0:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Invalid broker id in replica list: {_shown(wanted)}")
    if not replicas.issubset(live):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Replica assignment has brokers that are not alive. Replica list: {_shown(wanted)}, "
            f"live broker list: {sorted(live)}",
        )


def _shown(replicas: Sequence[int]) -> str:
    """The replicas as a list, of which an error message has room for MOST_SHOWN."""
    if len(replicas) <= MOST_SHOWN:
        return str(list(replicas))
    return f"{str(list(replicas[:MOST_SHOWN]))[:-1]}, …]"


class Reassignments:
    """The reassignments of a cluster."""

    def __init__(
        self, context: Context, control_requests: ControlRequestBatch, partitions: PartitionStateMachine
    ) -> None:
        """`context` is the controller's copy of the cluster's state."""
        self._context = context
        self._control_requests = control_requests
        self._partitions = partitions

    def under_way(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Every partition that is being reassigned."""
        return {
            (topic, index): replicas
            for topic, assignment in self._context.assignments.items()
            for index, replicas in assignment.items()
            if replicas.adding or replicas.removing
        }

    def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Steps[dict[TopicPartition, KafkaError | None]]:
        """Reassign partitions; None cancels a reassignment (KIP-455). Each succeeds or fails by itself."""
        results: dict[TopicPartition, KafkaError | None] = {}
        for number, (partition, replicas) in enumerate(wanted.items()):
            if is_pause_due(number):
                yield PAUSE
            try:
                yield from self._begin(partition, replicas)
            except KafkaError as error:
                results[partition] = error.with_traceback(None)  # it refers to the frames of this event
            else:
                results[partition] = None
        return results

    def _begin(self, partition: TopicPartition, wanted: Sequence[int] | None) -> Steps[None]:
        """Move a partition to these replicas; None cancels its reassignment.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICA_ASSIGNMENT.
        """
        context = self._context
        replicas = context.replicas(partition)
        if wanted is None and not context.is_reassigning(partition):
            raise KafkaError(
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                f"No reassignment in progress for partition {partition[0]}-{partition[1]}",
            )
        if replicas is None or partition[0] in context.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if wanted is None:
            wanted = origin(replicas)
        else:
            check_target(wanted, list(context.brokers))
        new = towards(replicas, wanted)
        if new != replicas:
            unneeded = [each for each in replicas.replicas if each not in new.replicas]
            # Leave the ISR before the assignment: if the controller dies in between, the leader is one that the next
            # controller finds in the assignment.
            yield from self._drop(partition, unneeded)
            self._check_dropped(partition, unneeded)
            yield from self._write(partition, new)
            self._delete(partition, unneeded)
            yield from self._partitions.change([partition], self._partitions.bump)
        yield from self.go_on(partition)

    def _check_dropped(self, partition: TopicPartition, unneeded: Sequence[int]) -> None:
        """Raise KafkaError with INVALID_REPLICA_ASSIGNMENT while one of these replicas is the leader or in the ISR: no
        other replica has every record. (KRaft rejects this, too; Kafka with ZooKeeper deletes the last good copy.)
        """
        known = self._context.states.get(partition)
        needed = [] if known is None else [each for each in unneeded if each in (known.state.leader, *known.state.isr)]
        if needed:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The replicas {needed} of {partition[0]}-{partition[1]} cannot be given up: no other replica that "
                "could lead is in sync, so that this would need an unclean leader election.",
            )

    def go_on(self, partition: TopicPartition) -> Steps[None]:
        """Finish the reassignment if all replicas of its target are in sync."""
        context = self._context
        known, replicas = context.states.get(partition), context.replicas(partition)
        if known is None or replicas is None or not (replicas.adding or replicas.removing):
            return
        wanted = target(replicas)
        if not all(each in known.state.isr and context.is_online(each, partition) for each in wanted):
            return
        removed = [each for each in replicas.replicas if each not in wanted]
        failed = yield from self._partitions.change([partition], self._elect_in_target(wanted))
        if failed:
            return
        known = context.states[partition]
        if known.state.leader not in wanted:
            return  # no replica of the target can lead at present
        yield from self._drop(partition, removed)
        yield from self._write(partition, ReplicaAssignment(wanted))
        self._delete(partition, removed)
        # Only now do the replicas receive the final assignment; the removed ones receive StopReplica.
        yield from self._partitions.change([partition], self._partitions.bump)

    def _elect_in_target(self, wanted: Sequence[int]) -> Decide:
        """Elect a leader of the target where the present leader is not in the target."""

        def decide(
            partition: TopicPartition, state: PartitionState, replicas: ReplicaAssignment
        ) -> PartitionState | None:
            if state.leader in wanted:
                return None
            chosen = election.reassigned(wanted, state.isr, self._context.can_lead(partition))
            if chosen is None:
                return None
            rest = tuple(each for each in state.isr if each in wanted)  # one leader epoch for election and removal
            return self._partitions.next_state(state, election.Elected(chosen.leader, rest))

        return decide

    def _drop(self, partition: TopicPartition, removed: Sequence[int]) -> Steps[None]:
        """Remove replicas from the ISR, as far as others are left in it to lead."""

        def decide(
            partition: TopicPartition, state: PartitionState, replicas: ReplicaAssignment
        ) -> PartitionState | None:
            rest = tuple(each for each in state.isr if each not in removed)
            if not rest or rest == state.isr:
                return None
            if state.leader in removed:
                chosen = election.reassigned(replicas.replicas, rest, self._context.can_lead(partition))
                return self._partitions.next_state(state, chosen) if chosen is not None else None
            return self._partitions.next_state(state, election.Elected(state.leader, rest))

        yield from self._partitions.change([partition] if removed else [], decide)

    def _delete(self, partition: TopicPartition, removed: Sequence[int]) -> None:
        """Delete replicas that are no longer in the assignment."""
        for broker_id in removed:
            self._control_requests.add_stop_replica(broker_id, partition, delete=True)

    def _write(self, partition: TopicPartition, new: ReplicaAssignment) -> Steps[None]:
        topic, index = partition
        context = self._context
        assignment = {**context.assignments[topic], index: new}
        data = yield from with_pauses(TopicAssignment(context.topic_ids.get(topic), assignment).encode_in_parts())
        yield from self._partitions.write([Set(znodes.topic_path(topic), data)])
        context.assignments[topic] = assignment
        self._control_requests.add_update_metadata_for_all([partition])
