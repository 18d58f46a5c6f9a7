"""AlterPartition: changes the ISR of a partition as its leader requests (KIP-497, KIP-841, KIP-903; Kafka:
KafkaController.processAlterPartition).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.controller.state.context import Context, KnownState
from odradek.broker.controller.state.control_requests import ControlRequestBatch
from odradek.broker.controller.state.partition_state_machine import PartitionStateMachine
from odradek.broker.controller.state.reassignment import Reassignments
from odradek.broker.controller.state.steps import Read, Steps
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import RegistryError
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition


class AlterPartitionHandler:
    """Handles AlterPartition requests."""

    def __init__(
        self,
        context: Context,
        control_requests: ControlRequestBatch,
        partitions: PartitionStateMachine,
        reassignments: Reassignments,
    ) -> None:
        """A changed ISR is sent to every broker, and may complete one of `reassignments`."""
        self._context = context
        self._control_requests = control_requests
        self._partitions = partitions
        self._reassignments = reassignments

    def handle(self, request: m.AlterPartitionRequest, *, by_id: bool) -> Steps[m.AlterPartitionResponse]:
        """Handle a leader's request for another ISR (KIP-497, KIP-841, KIP-903).

        `by_id` is whether the request names topics by id.
        """
        context = self._context
        broker = context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return m.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        names = {topic_id: name for name, topic_id in context.topic_ids.items()}
        present = yield from self._present_epochs(_members(request))
        response = m.AlterPartitionResponse()
        changed: list[TopicPartition] = []
        for topic in request.topics:
            name = names.get(topic.topic_id) if by_id else topic.topic_name
            answer = m.AlterPartitionResponse.TopicData(topic_name=name or "", topic_id=topic.topic_id)
            response.topics.append(answer)
            for pending in topic.partitions:
                result = m.AlterPartitionResponse.PartitionData(partition_index=pending.partition_index)
                answer.partitions.append(result)
                try:
                    if name is None:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                    partition = (name, pending.partition_index)
                    before = context.states.get(partition)
                    known = yield from self._alter(request.broker_id, partition, pending, present)
                except KafkaError as error:
                    result.error_code = error.code
                    if error.code is ErrorCode.INELIGIBLE_REPLICA and not by_id:
                        result.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED  # version 1 does not have the other
                    continue
                if known is not before:
                    changed.append(partition)
                result.leader_id, result.leader_epoch = known.state.leader, known.state.leader_epoch
                result.isr, result.partition_epoch = list(known.state.isr), known.version
                result.leader_recovery_state = int(known.state.is_recovering)
        if changed:
            self._control_requests.add_update_metadata_for_all(changed)
        for partition in changed:
            yield from self._reassignments.go_on(partition)
        return response

    def _present_epochs(self, brokers: Sequence[int]) -> Steps[dict[int, int]]:
        """Read the present registrations: a broker may have come back before the controller was notified of it, and an
        ISR that is written after that would hide the restart from the next controller.
        """
        found = yield Read(tuple(znodes.broker_path(each) for each in brokers))
        return {each: node[1].czxid for each, node in zip(brokers, found, strict=True) if node is not None}

    def _check_members(self, pending: m.AlterPartitionRequest.PartitionData, present: Mapping[int, int]) -> None:
        """Raise INELIGIBLE_REPLICA unless every broker of the requested ISR is live, in the requested incarnation."""
        for each, epoch in _isr(pending):
            broker = self._context.brokers.get(each)
            if broker is None or each in self._context.leaving or present.get(each) != broker.epoch:
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
            if epoch not in (-1, broker.epoch):
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)

    def _alter(
        self,
        broker_id: int,
        partition: TopicPartition,
        pending: m.AlterPartitionRequest.PartitionData,
        present: Mapping[int, int],
    ) -> Steps[KnownState]:
        """Set an ISR if the requesting leader has the present partition epoch. Raises KafkaError."""
        context = self._context
        known = context.states.get(partition)
        if known is None or partition[0] in context.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = known.state
        isr = tuple(each for each, _ in _isr(pending))
        is_recovering = bool(pending.leader_recovery_state)
        if pending.leader_epoch > state.leader_epoch or pending.partition_epoch > known.version:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER
            )  # the leader has newer state than this controller, which must then be an old one
        if pending.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if broker_id != state.leader or not isr or broker_id not in isr:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if isr == state.isr and is_recovering == state.is_recovering:
            return known  # a repeated request
        if pending.partition_epoch != known.version:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
        if is_recovering and (len(isr) > 1 or not state.is_recovering):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not set(isr) <= set(context.assigned(partition)):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._check_members(pending, present)
        new = state._replace(isr=isr, controller_epoch=context.epoch, is_recovering=is_recovering)
        try:
            yield from self._partitions.write_states({partition: new})
        except RegistryError as error:
            if error.index is None:
                raise
            yield from self._partitions.read_states([partition])
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION) from error
        return context.states[partition]


def _isr(pending: m.AlterPartitionRequest.PartitionData) -> list[tuple[int, int]]:
    """The ISR that a leader requests, with the broker epochs that the request has (-1 where it has none)."""
    with_epochs = [(each.broker_id, each.broker_epoch) for each in pending.new_isr_with_epochs]
    return with_epochs or [(each, -1) for each in pending.new_isr]


def _members(request: m.AlterPartitionRequest) -> list[int]:
    """Every broker that a request adds to or keeps in some ISR."""
    pending = [pending for topic in request.topics for pending in topic.partitions]
    return sorted({broker_id for pending in pending for broker_id, _ in _isr(pending)})
