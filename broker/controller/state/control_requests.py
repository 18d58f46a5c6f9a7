"""Control request batch: gathers the control requests of one event for each broker (Kafka:
ControllerBrokerRequestBatch).

A broker gets at most one LeaderAndIsr, one UpdateMetadata and one StopReplica for an event, in this order, in the form
of their newest versions. Where brokers have come, UpdateMetadata goes first: an Apache Kafka broker refuses to follow a
leader that is not yet among the live brokers of its metadata cache.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from odradek.broker.controller.state.context import LEADER_DURING_DELETE, Context
from odradek.broker.controller.state.steps import PAUSE, Pause, Send, is_pause_due
from odradek.broker.registry.znodes import Endpoint
from odradek.protocol import messages as m
from odradek.protocol.topic_partition import TopicPartition

UNKNOWN_TYPE: Final = 0
INCREMENTAL: Final = 1
FULL: Final = 2
EPOCH_DURING_DELETE: Final = -2
NO_TOPIC_ID: Final = bytes(16)
PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
PartitionMetadata = m.UpdateMetadataRequest.UpdateMetadataPartitionState
T = TypeVar("T")
Making: TypeAlias = Generator[Pause, None, T]
"""Makes a request, with pauses."""


class ControlRequestBatch:
    """The pending control requests of all brokers."""

    def __init__(self, broker_id: int, listener: str, context: Context) -> None:
        """`broker_id` is the controller's; `listener` is the name of the inter-broker listener."""
        self._broker_id = broker_id
        self._listener = listener
        self._context = context
        self._leader_and_isrs: dict[int, dict[TopicPartition, bool]] = {}
        self._full: dict[int, None] = {}
        self._stops: dict[int, dict[TopicPartition, bool]] = {}
        self._metadata: dict[int, dict[TopicPartition, None]] = {}

    # ---- gathering

    def add_leader_and_isr(self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False) -> None:
        """Send the partition's state to these brokers, as far as they are live, and its metadata to every broker."""
        for broker_id in brokers:
            if broker_id in self._context.brokers:
                partitions = self._leader_and_isrs.setdefault(broker_id, {})
                partitions[partition] = is_new or partitions.get(partition, False)
        self.add_update_metadata_for_all([partition])

    def add_full_leader_and_isr(self, broker_id: int) -> None:
        """Send a broker that has just come a full LeaderAndIsr, which has all of its replicas."""
        self._full[broker_id] = None
        self._leader_and_isrs.setdefault(broker_id, {})

    def add_stop_replica(self, broker_id: int, partition: TopicPartition, *, delete: bool) -> None:
        """Send a broker a request to stop a replica, and with `delete` to delete it."""
        if broker_id in self._context.brokers:
            self._stops.setdefault(broker_id, {})[partition] = delete

    def add_update_metadata_for_all(self, partitions: Iterable[TopicPartition]) -> None:
        """Send every broker the metadata of these partitions, and of the live brokers."""
        self.add_update_metadata(self._context.brokers, partitions)

    def add_update_metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition]) -> None:
        """Send these brokers the metadata of these partitions, and of the live brokers."""
        known = list(partitions)
        for broker_id in brokers:
            self._metadata.setdefault(broker_id, {}).update(dict.fromkeys(known))

    # ---- sending

    def drain(self) -> Iterator[Send | Pause]:
        """The control requests, in the order in which they are sent, with pauses where there are many partitions."""
        brokers, entries = self._live_brokers(), dict[TopicPartition, PartitionMetadata | None]()
        leader_and_isrs = {broker_id: each for broker_id, each in self._leader_and_isrs.items() if each}
        full, stops, metadata = self._full, self._stops, self._metadata
        self._leader_and_isrs, self._full, self._stops, self._metadata = {}, {}, {}, {}
        requests: list[tuple[int, Making[Any]]] = [
            (broker_id, self._leader_and_isr(broker_id, partitions, FULL if broker_id in full else INCREMENTAL))
            for broker_id, partitions in leader_and_isrs.items()
        ]
        updates = [
            (broker_id, self._update_metadata(broker_id, partitions, brokers, entries))
            for broker_id, partitions in metadata.items()
        ]
        requests = [*updates, *requests] if full else [*requests, *updates]
        requests.extend(
            (broker_id, self._stop_replica(broker_id, partitions)) for broker_id, partitions in stops.items()
        )
        for broker_id, making in requests:
            if broker_id in self._context.brokers:
                message = yield from making
                yield Send(broker_id, message)

    def _leader_and_isr(
        self, broker_id: int, partitions: Mapping[TopicPartition, bool], type_: int
    ) -> Making[m.LeaderAndIsrRequest]:
        context = self._context
        topics: dict[str, m.LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
        leaders: dict[int, None] = {}
        for number, ((topic, index), is_new) in enumerate(partitions.items()):
            if is_pause_due(number):
                yield PAUSE
            known, replicas = context.states.get((topic, index)), context.replicas((topic, index))
            if known is None or replicas is None:
                continue
            state = known.state
            entry = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=known.version,
                replicas=list(replicas.replicas),
                adding_replicas=list(replicas.adding),
                removing_replicas=list(replicas.removing),
                is_new=is_new,
                leader_recovery_state=int(state.is_recovering),
            )
            group = topics.get(topic)
            if group is None:
                group = topics[topic] = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=context.topic_ids.get(topic, NO_TOPIC_ID)
                )
            group.partition_states.append(entry)
            leaders[state.leader] = None
        return m.LeaderAndIsrRequest(
            controller_id=self._broker_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            type=type_,
            topic_states=list(topics.values()),
            live_leaders=[
                m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                    broker_id=leader, host_name=endpoint.host, port=endpoint.port
                )
                for leader in leaders
                if (endpoint := self._endpoint(leader)) is not None
            ],
        )

    def _endpoint(self, broker_id: int) -> Endpoint | None:
        broker = self._context.brokers.get(broker_id)
        if broker is None:
            return None
        return next((each for each in broker.registration.endpoints if each.listener == self._listener), None)

    def _live_brokers(self) -> list[m.UpdateMetadataRequest.UpdateMetadataBroker]:
        return [
            m.UpdateMetadataRequest.UpdateMetadataBroker(
                id=broker_id,
                v0_host=plain.host if (plain := _plaintext(broker.registration.endpoints)) else "",
                v0_port=plain.port if plain else -1,
                endpoints=[
                    m.UpdateMetadataRequest.UpdateMetadataEndpoint(
                        port=each.port,
                        host=each.host,
                        listener=each.listener,
                        security_protocol=PROTOCOLS.get(each.security_protocol, 0),
                    )
                    for each in broker.registration.endpoints
                ],
                rack=broker.registration.rack,
            )
            for broker_id, broker in self._context.brokers.items()
        ]

    def _update_metadata(
        self,
        broker_id: int,
        partitions: Iterable[TopicPartition],
        brokers: list[m.UpdateMetadataRequest.UpdateMetadataBroker],
        entries: dict[TopicPartition, PartitionMetadata | None],
    ) -> Making[m.UpdateMetadataRequest]:
        """`entries` are those that another broker's request has already: they are the same for all."""
        context = self._context
        topics: dict[str, m.UpdateMetadataRequest.UpdateMetadataTopicState] = {}
        for number, partition in enumerate(partitions):
            if is_pause_due(number):
                yield PAUSE
            topic, index = partition
            if partition not in entries:
                entries[partition] = self._partition(topic, index)
            entry = entries[partition]
            if entry is None:
                continue
            group = topics.get(topic)
            if group is None:
                group = topics[topic] = m.UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name=topic, topic_id=context.topic_ids.get(topic, NO_TOPIC_ID)
                )
            group.partition_states.append(entry)
        return m.UpdateMetadataRequest(
            controller_id=self._broker_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=list(topics.values()),
            live_brokers=brokers,
        )

    def _partition(self, topic: str, index: int) -> PartitionMetadata | None:
        context = self._context
        known, replicas = context.states.get((topic, index)), context.replicas((topic, index))
        if replicas is None or known is None:
            return None
        state = known.state
        return m.UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if topic in context.deleting else state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=known.version,
            replicas=list(replicas.replicas),
            offline_replicas=[each for each in replicas.replicas if not context.is_online(each, (topic, index))],
        )

    def _stop_replica(self, broker_id: int, partitions: Mapping[TopicPartition, bool]) -> Making[m.StopReplicaRequest]:
        context = self._context
        topics: dict[str, m.StopReplicaRequest.StopReplicaTopicState] = {}
        for number, ((topic, index), delete) in enumerate(partitions.items()):
            if is_pause_due(number):
                yield PAUSE
            known = context.states.get((topic, index))
            epoch = known.state.leader_epoch if known is not None else EPOCH_DURING_DELETE
            group = topics.get(topic)
            if group is None:
                group = topics[topic] = m.StopReplicaRequest.StopReplicaTopicState(topic_name=topic)
            group.partition_states.append(
                m.StopReplicaRequest.StopReplicaPartitionState(
                    partition_index=index,
                    leader_epoch=EPOCH_DURING_DELETE if topic in context.deleting else epoch,
                    delete_partition=delete,
                )
            )
        return m.StopReplicaRequest(
            controller_id=self._broker_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=list(topics.values()),
        )


def _plaintext(endpoints: Iterable[Endpoint]) -> Endpoint | None:
    return next((each for each in endpoints if each.security_protocol == "PLAINTEXT"), None)
