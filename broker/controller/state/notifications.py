"""Notifications: requests that brokers and tools make by creating a node of the metadata store (Kafka:
IsrChangeNotificationHandler, LogDirEventNotificationHandler, PreferredReplicaElectionHandler,
PartitionReassignmentHandler).

The controller removes each node once it has handled the request.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from odradek.broker.controller.state.context import Context
from odradek.broker.controller.state.control_requests import ControlRequestBatch
from odradek.broker.controller.state.leader_elections import LeaderElections
from odradek.broker.controller.state.partition_state_machine import PartitionStateMachine
from odradek.broker.controller.state.reassignment import Reassignments
from odradek.broker.controller.state.steps import PAUSE, Children, Read, Steps, Watch, is_pause_due
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Delete, NoNodeError
from odradek.broker.registry.znodes import ZnodeError
from odradek.protocol.topic_partition import TopicPartition


class Notifications:
    """Handles requests that are nodes of the metadata store."""

    def __init__(
        self,
        context: Context,
        control_requests: ControlRequestBatch,
        partitions: PartitionStateMachine,
        elections: LeaderElections,
        reassignments: Reassignments,
    ) -> None:
        """`elections` and `reassignments` carry out the requests."""
        self._context = context
        self._control_requests = control_requests
        self._partitions = partitions
        self._elections = elections
        self._reassignments = reassignments

    def isr_changed(self) -> Steps[None]:
        """Handle ISRs that leaders with an older protocol wrote themselves."""
        notices = yield Children(znodes.ISR_CHANGES)
        paths = tuple(f"{znodes.ISR_CHANGES}/{each}" for each in notices)
        changed: dict[TopicPartition, None] = {}
        for node in (yield Read(paths)):
            if node is not None:
                try:
                    changed.update(dict.fromkeys(znodes.decode_partitions(node[0])))
                except ZnodeError:
                    continue
        known = [each for each in changed if self._context.replicas(each) is not None]
        yield from self._partitions.read_states(known)
        if known:
            self._control_requests.add_update_metadata_for_all(known)
        yield from self._remove(paths)
        for partition in known:
            yield from self._reassignments.go_on(partition)

    def log_dirs_changed(self) -> Steps[None]:
        """Handle failed disks: send LeaderAndIsr to those brokers, whose response names lost replicas (KIP-112)."""
        notices = yield Children(znodes.LOG_DIR_EVENTS)
        paths = tuple(f"{znodes.LOG_DIR_EVENTS}/{each}" for each in notices)
        brokers: dict[int, None] = {}
        for node in (yield Read(paths)):
            if node is not None:
                try:
                    brokers[znodes.decode_log_dir_event(node[0])] = None
                except ZnodeError:
                    continue
        yield from self._remove(paths)
        for broker_id in brokers:
            for number, partition in enumerate(self._context.on_brokers([broker_id])):
                if is_pause_due(number):
                    yield PAUSE
                self._control_requests.add_leader_and_isr([broker_id], partition)

    def preferred_election_requested(self) -> Steps[None]:
        """Handle a request of an older tool to elect preferred leaders, made by a node of the metadata store."""
        if (yield Watch(znodes.PREFERRED_REPLICA_ELECTION)) is None:
            return
        (node,) = yield Read((znodes.PREFERRED_REPLICA_ELECTION,))
        if node is not None:
            with suppress(ZnodeError):
                yield from self._elections.elect_preferred(znodes.decode_partitions(node[0]))
            yield from self._remove([znodes.PREFERRED_REPLICA_ELECTION])
            yield Watch(znodes.PREFERRED_REPLICA_ELECTION)

    def reassignment_requested(self) -> Steps[None]:
        """Handle a request of an older tool to reassign partitions, made by a node of the metadata store."""
        if (yield Watch(znodes.REASSIGN_PARTITIONS)) is None:
            return
        (node,) = yield Read((znodes.REASSIGN_PARTITIONS,))
        if node is not None:
            with suppress(ZnodeError):
                yield from self._reassignments.reassign(znodes.decode_reassignment(node[0]))
            yield from self._remove([znodes.REASSIGN_PARTITIONS])
            yield Watch(znodes.REASSIGN_PARTITIONS)

    def _remove(self, paths: Iterable[str]) -> Steps[None]:
        """Remove nodes that the controller has handled."""
        for path in paths:
            try:
                yield from self._partitions.write([Delete(path)])
            except NoNodeError:
                continue
