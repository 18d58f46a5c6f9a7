"""What the controller orders, carried out: lead, follow, stop, and know the cluster.

LeaderAndIsr makes leaders and followers, StopReplica ends replicas, UpdateMetadata says what clients are told. Every
order names the controller's epoch and the epoch of the broker it is meant for; an order of a controller that has been
followed by another, or for an earlier incarnation of this broker, is refused (KIP-380, KIP-570). Within LeaderAndIsr
each partition has its leader epoch, which only ever grows. Kafka's class is ReplicaManager.

Orders are carried out one after the other, in the order of their arrival. The only thing that any of them waits for is
the configuration of a topic that is new here, which stands in the registry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from odradek.broker.metadata.cache import BrokerMetadata, Endpoint, MetadataCache, PartitionMetadata, TopicMetadata
from odradek.broker.metadata.state.topics import is_internal
from odradek.broker.registry.interface import RegistryError
from odradek.broker.replication.fetcher import Fetchers
from odradek.broker.replication.partition import Replica, Replicas
from odradek.broker.replication.replicas import ReplicaHost
from odradek.broker.replication.state.partition import LeaderAndIsr, Role
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.descriptors import NoDescriptor

log = logging.getLogger(__name__)

NO_EPOCH: Final = -1
NO_TOPIC_ID: Final = bytes(16)
EPOCH_DURING_DELETE: Final = -2
LEADER_DURING_DELETE: Final = -2
ANY_BROKER_EPOCH: Final = -1
REGISTRY_TRIES: Final = 50
REGISTRY_RETRY_S: Final = 0.1
DESCRIPTOR_RETRY_S: Final = 0.5
Name = tuple[str, int]
ControlRequest = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState


class PartitionEvents(Protocol):
    """Who wants to know what becomes of partitions."""

    def led(self, replica: Replica) -> None:
        """This broker leads a partition, in an epoch that has just begun."""
        ...

    def left(self, topic: str, partition: int) -> None:
        """This broker does not lead a partition any more, if it ever did."""
        ...

    def deleted(self, topic: TopicMetadata) -> None:
        """A topic is gone; `topic` has the partitions that it had."""
        ...


class TopicConfigs(Protocol):
    """What is set for topics."""

    async def load(self, topics: list[str]) -> Mapping[str, Mapping[str, str]]:
        """The properties of these topics, from the registry where they are not known yet. Raises RegistryError."""
        ...

    def forget(self, topic: str) -> None:
        """The topic is gone; one of the same name starts anew."""
        ...


class ReplicaManagerDependencies(NamedTuple):
    """Whom the orders are about."""

    broker_id: int
    broker_epoch: Callable[[], int]
    host: ReplicaHost
    replicas: Replicas
    fetchers: Fetchers
    metadata_cache: MetadataCache
    events: PartitionEvents
    configs: TopicConfigs
    inter_broker_listener: str


class ReplicaManager:
    """Carries out the controller's orders."""

    def __init__(self, dependencies: ReplicaManagerDependencies) -> None:
        """Takes orders at once; `close` ends that."""
        self._dependencies = dependencies
        self._controller_epoch = 0
        self._queue: asyncio.Queue[tuple[Any, Callable[[Any], None]]] = asyncio.Queue()
        self._registered = asyncio.Event()
        self.unmade: dict[Name, Callable[[], ErrorCode]] = {}
        """What is to be tried again for partitions whose files could not be opened for want of descriptors."""
        self._retry: asyncio.TimerHandle | None = None
        self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def controller_epoch(self) -> int:
        """The highest epoch of a controller that has given orders."""
        return self._controller_epoch

    def submit(self, control_request: Any, done: Callable[[Any], None]) -> None:
        """Carry out an order after those before it; `done` gets the response."""
        self._queue.put_nowait((control_request, done))

    def session_lost(self) -> None:
        """The broker keeps its roles: it may be a leader that others have replaced, and epochs will tell."""

    async def session_begun(self, registry: object) -> None:
        """The broker is registered, so that orders for the process before it can be told from its own (KIP-380)."""
        self._registered.set()

    async def close(self) -> None:
        """Take no more orders."""
        if self._retry is not None:
            self._retry.cancel()
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        carry_out: dict[type, Callable[[Any], Awaitable[Any]]] = {
            m.LeaderAndIsrRequest: self._leader_and_isr,
            m.StopReplicaRequest: self._stop_replica,
            m.UpdateMetadataRequest: self._update_metadata,
        }
        await self._registered.wait()
        while True:
            control_request, done = await self._queue.get()
            try:
                done(await carry_out[type(control_request)](control_request))
            except Exception:
                # No answer: the controller gives the order again.
                log.exception("an order of controller %d could not be carried out", control_request.controller_id)

    def _refusal(self, control_request: Any) -> ErrorCode:
        """Why an order is not for this broker, as it is now, from its controller, as it is now."""
        if (
            control_request.broker_epoch != ANY_BROKER_EPOCH
            and control_request.broker_epoch < self._dependencies.broker_epoch()
        ):
            log.warning("an order for epoch %d of this broker comes too late", control_request.broker_epoch)
            return ErrorCode.STALE_BROKER_EPOCH
        if control_request.controller_epoch < self._controller_epoch:
            log.warning(
                "controller %d of epoch %d is over; the epoch is %d",
                control_request.controller_id,
                control_request.controller_epoch,
                self._controller_epoch,
            )
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self._controller_epoch = control_request.controller_epoch
        self._dependencies.metadata_cache.controller_id = control_request.controller_id
        return ErrorCode.NONE

    # ---- LeaderAndIsr

    async def _leader_and_isr(self, control_request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
        topics = _grouped(control_request)
        refusal = self._refusal(control_request)
        if refusal is ErrorCode.NONE:
            configs = await self._configs_of([name for name, _, _ in topics])
            refusal = self._refusal(control_request)  # reading may have taken its time
        if refusal is not ErrorCode.NONE:
            return _refused(topics, refusal)
        addresses = {each.broker_id: (each.host_name, each.port) for each in control_request.live_leaders}
        answer = m.LeaderAndIsrResponse()
        for name, topic_id, states in topics:
            result = m.LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id)
            for state in states:
                code = self._take(name, topic_id, state, configs[name], addresses)
                error = m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                    topic_name=name, partition_index=state.partition_index, error_code=code
                )
                result.partition_errors.append(error)
                answer.partition_errors.append(error)
            answer.topics.append(result)
        self._dependencies.fetchers.close_idle()
        self._dependencies.metadata_cache.partition_states_changed()
        return answer

    async def _configs_of(self, topics: list[str]) -> Mapping[str, Mapping[str, str]]:
        """What is set for these topics. Raises RegistryError.

        A topic that is new here is read from the registry, whose connection may be lost just now: its return is waited
        for, or else the controller would give the order again only when it is tired of waiting for an answer.
        """
        for _ in range(REGISTRY_TRIES):
            try:
                return await self._dependencies.configs.load(topics)
            except RegistryError as error:
                log.debug("what is set for topics %s cannot be read yet: %s", topics, error)
                await asyncio.sleep(REGISTRY_RETRY_S)
        return await self._dependencies.configs.load(topics)

    def _take(
        self,
        topic: str,
        topic_id: bytes,
        control_request: ControlRequest,
        config: Mapping[str, str],
        addresses: Mapping[int, tuple[str, int]],
    ) -> ErrorCode:
        dependencies = self._dependencies
        was_unmade = self.unmade.pop((topic, control_request.partition_index), None) is not None
        replica = dependencies.replicas.get(topic, control_request.partition_index)
        if replica is not None:
            if replica.machine.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if NO_TOPIC_ID not in (topic_id, replica.topic_id) and topic_id != replica.topic_id:
                return ErrorCode.INCONSISTENT_TOPIC_ID
            if control_request.leader_epoch <= replica.machine.leader_epoch:
                return self._stale(replica, topic_id, control_request)
        if dependencies.broker_id not in control_request.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        state = LeaderAndIsr(
            control_request.leader,
            control_request.leader_epoch,
            tuple(control_request.isr),
            tuple(control_request.replicas),
            control_request.partition_epoch,
            bool(control_request.leader_recovery_state),
        )
        try:
            name = (topic, control_request.partition_index)
            replica = dependencies.host.obtain(name, topic_id, config, is_new=control_request.is_new)
            if control_request.leader == dependencies.broker_id:
                dependencies.fetchers.leave(replica)
                replica.lead(state)
                dependencies.events.led(replica)
            else:
                replica.follow(state)
                dependencies.events.left(topic, control_request.partition_index)
                address = addresses.get(control_request.leader) or self._address(control_request.leader)
                dependencies.fetchers.follow(replica, control_request.leader, control_request.leader_epoch, address)
        except NoDescriptor as error:
            # No error for the controller, which would count the disk as failed until this broker starts anew.
            if not was_unmade:
                log.error("%s-%d cannot be served yet: %s", topic, control_request.partition_index, error.message)
            self.unmade[name] = partial(self._take, topic, topic_id, control_request, config, addresses)
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(DESCRIPTOR_RETRY_S, self._make_the_unmade)
        except KafkaError as error:
            log.error("%s-%d cannot be served: %s", topic, control_request.partition_index, error.message)
            return error.code
        return ErrorCode.NONE

    def _make_the_unmade(self) -> None:
        """Try again what had no descriptors; the first that has none ends the round."""
        self._retry = None
        for name, take in list(self.unmade.items()):
            take()
            if name in self.unmade:
                break
        self._dependencies.metadata_cache.partition_states_changed()

    @staticmethod
    def _stale(replica: Replica, topic_id: bytes, control_request: ControlRequest) -> ErrorCode:
        """The answer for a leader epoch that is not new.

        A controller that has begun to send no topic ids repeats the current epoch to its followers (KIP-516). They have
        nothing to change: what a leader can be asked with is in its ApiVersions.
        """
        repeated = (
            control_request.leader_epoch == replica.machine.leader_epoch and replica.machine.role is Role.FOLLOWER
        )
        if repeated and topic_id == NO_TOPIC_ID != replica.topic_id:
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._dependencies.metadata_cache.brokers.get(broker_id)
        endpoint = broker.endpoint(self._dependencies.inter_broker_listener) if broker is not None else None
        return (endpoint.host, endpoint.port) if endpoint is not None else None

    # ---- StopReplica

    async def _stop_replica(self, control_request: m.StopReplicaRequest) -> m.StopReplicaResponse:
        refusal = self._refusal(control_request)
        if refusal is not ErrorCode.NONE:
            return m.StopReplicaResponse(error_code=refusal)
        answer = m.StopReplicaResponse()
        for topic, index, epoch, delete in _stops(control_request):
            answer.partition_errors.append(
                m.StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=topic, partition_index=index, error_code=self._stop((topic, index), epoch, delete=delete)
                )
            )
        self._dependencies.fetchers.close_idle()
        return answer

    def _stop(self, name: Name, leader_epoch: int, *, delete: bool) -> ErrorCode:
        dependencies = self._dependencies
        self.unmade.pop(name, None)
        replica = dependencies.replicas.get(*name)
        if replica is not None:
            if replica.machine.role is Role.OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if leader_epoch not in (EPOCH_DURING_DELETE, NO_EPOCH) and leader_epoch < replica.machine.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            dependencies.fetchers.leave(replica)
        dependencies.events.left(*name)
        if not delete:
            return ErrorCode.NONE  # it stays what it is and fetches no more, until the next order
        try:
            dependencies.host.release(name, delete=True)
        except KafkaError as error:
            log.error("%s-%d cannot be deleted: %s", *name, error.message)
            return error.code
        return ErrorCode.NONE

    # ---- UpdateMetadata

    async def _update_metadata(self, control_request: m.UpdateMetadataRequest) -> m.UpdateMetadataResponse:
        refusal = self._refusal(control_request)
        if refusal is not ErrorCode.NONE:
            return m.UpdateMetadataResponse(error_code=refusal)
        metadata_cache = self._dependencies.metadata_cache
        metadata_cache.brokers = {each.id: _broker(each) for each in control_request.live_brokers}
        changed = []
        for name, topic_id, states in _metadata(control_request):
            known = metadata_cache.topics.get(name)
            gone = {each.partition_index for each in states if each.leader == LEADER_DURING_DELETE}
            old = {each.index: each for each in known.partitions} if known is not None else {}
            if known is not None and gone >= old.keys():
                metadata_cache.remove_topic(name)
                self._dependencies.configs.forget(name)
                self._dependencies.events.deleted(known)
                continue
            merged = {**old, **{each.partition_index: _partition(each) for each in states}}
            in_order = tuple(merged[index] for index in sorted(merged) if index not in gone)
            if in_order:
                changed.append(TopicMetadata(name, topic_id, is_internal(name), in_order))
        metadata_cache.put_topics(changed)
        return m.UpdateMetadataResponse()


def _refused(topics: list[tuple[str, bytes, list[ControlRequest]]], refusal: ErrorCode) -> m.LeaderAndIsrResponse:
    """The answer to an order of which nothing is carried out: every partition is told, too."""
    answer = m.LeaderAndIsrResponse(error_code=refusal)
    for name, topic_id, states in topics:
        errors = [
            m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                topic_name=name, partition_index=state.partition_index, error_code=refusal
            )
            for state in states
        ]
        answer.partition_errors += errors
        answer.topics.append(m.LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors))
    return answer


def _grouped(control_request: m.LeaderAndIsrRequest) -> list[tuple[str, bytes, list[ControlRequest]]]:
    """The partitions of an order by topic, in all of its versions."""
    if control_request.topic_states:
        return [(topic.topic_name, topic.topic_id, topic.partition_states) for topic in control_request.topic_states]
    topics: dict[str, list[ControlRequest]] = {}
    for state in control_request.ungrouped_partition_states:
        topics.setdefault(state.topic_name, []).append(state)
    return [(name, bytes(16), states) for name, states in topics.items()]


def _stops(control_request: m.StopReplicaRequest) -> list[tuple[str, int, int, bool]]:
    """Topic, index, leader epoch and whether to delete, in all versions of the order."""
    delete = control_request.delete_partitions
    return [
        *((each.topic_name, each.partition_index, NO_EPOCH, delete) for each in control_request.ungrouped_partitions),
        *(
            (topic.name, index, NO_EPOCH, delete)
            for topic in control_request.topics
            for index in topic.partition_indexes
        ),
        *(
            (topic.topic_name, each.partition_index, each.leader_epoch, each.delete_partition)
            for topic in control_request.topic_states
            for each in topic.partition_states
        ),
    ]


def _metadata(
    control_request: m.UpdateMetadataRequest,
) -> list[tuple[str, bytes, list[m.UpdateMetadataRequest.UpdateMetadataPartitionState]]]:
    if control_request.topic_states:
        return [(topic.topic_name, topic.topic_id, topic.partition_states) for topic in control_request.topic_states]
    topics: dict[str, list[m.UpdateMetadataRequest.UpdateMetadataPartitionState]] = {}
    for state in control_request.ungrouped_partition_states:
        topics.setdefault(state.topic_name, []).append(state)
    return [(name, bytes(16), states) for name, states in topics.items()]


def _partition(state: m.UpdateMetadataRequest.UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.replicas),
        tuple(state.isr),
        tuple(state.offline_replicas),
    )


def _broker(broker: m.UpdateMetadataRequest.UpdateMetadataBroker) -> BrokerMetadata:
    if not broker.endpoints:
        endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", broker.v0_host, broker.v0_port),)
    else:
        names = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
        endpoints = tuple(
            # Before listeners had names, the protocol was the name.
            Endpoint(each.listener or names.get(each.security_protocol, ""), each.host, each.port)
            for each in broker.endpoints
        )
    return BrokerMetadata(broker.id, endpoints, broker.rack)
