"""Replica manager: applies control requests to local partitions and the metadata cache (Kafka: ReplicaManager).

LeaderAndIsr makes leaders and followers, StopReplica stops or deletes replicas, UpdateMetadata updates the metadata
cache, from which the broker answers clients. Every control request names the controller epoch and the broker epoch of
its target. The replica manager rejects a request from a controller with an older epoch, or for an earlier incarnation
of this broker (KIP-380, KIP-570). Within LeaderAndIsr each partition has a leader epoch, which only grows.

The replica manager applies control requests one after the other, in order of arrival. A request waits only for the
configuration of a topic that is new on this broker, which is in the metadata store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from odradek.broker.metadata.cache import (
    BrokerMetadata,
    ListenerAddress,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from odradek.broker.metadata.state.topics import is_internal
from odradek.broker.registry.interface import RegistryError
from odradek.broker.replication.fetcher import Fetchers
from odradek.broker.replication.partition import Replica, Replicas
from odradek.broker.replication.replicas import ReplicaHost
from odradek.broker.replication.state.partition import LeaderAndIsr, Role
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import in_turn, keep, steps_of_caller
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
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
AT_ONCE: Final = 2
"""Partitions of one control request after which the loop serves others between two of them: each may create or delete a
log, which takes up to 3 ms."""
METADATA_AT_ONCE: Final = 500
"""Partitions of one UpdateMetadata request after which the loop serves others. It has its effect at the end."""
REMOVED_AT_ONCE: Final = 100
"""Deleted topics of one UpdateMetadata request after which the loop serves others: two milliseconds."""
Steps = Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]
ControlRequest = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState


class PartitionEvents(Protocol):
    """Listener for changes of partition leadership."""

    def led(self, replica: Replica) -> None:
        """This broker leads a partition in a new leader epoch."""
        ...

    def left(self, topic: str, partition: int) -> None:
        """This broker does not lead a partition; it may have led it before."""
        ...

    def deleted(self, topic: TopicMetadata) -> None:
        """A topic was deleted; `topic` has its former partitions."""
        ...


class TopicConfigSource(Protocol):
    """Configuration overrides of topics."""

    async def load(self, topics: list[str]) -> Mapping[str, Mapping[str, str]]:
        """The overrides of these topics; those that are not cached come from the metadata store. Raises
        RegistryError.
        """
        ...

    def forget(self, topic: str) -> None:
        """Remove a deleted topic from the cache, so that a new topic of this name is loaded again."""
        ...


class ReplicaManagerDependencies(NamedTuple):
    """Dependencies of the replica manager."""

    broker_id: int
    broker_epoch: Callable[[], int]
    host: ReplicaHost
    replicas: Replicas
    fetchers: Fetchers
    metadata_cache: MetadataCache
    events: PartitionEvents
    configs: TopicConfigSource
    inter_broker_listener: str


class ReplicaManager:
    """Applies the controller's control requests."""

    def __init__(self, dependencies: ReplicaManagerDependencies) -> None:
        """Accepts control requests at once, until `close`."""
        self._dependencies = dependencies
        self._controller_epoch = 0
        self._queue: asyncio.Queue[tuple[Any, Callable[[Any], None], Steps]] = asyncio.Queue()
        self._registered = asyncio.Event()
        self.unmade: dict[TopicPartition, Callable[[], ErrorCode]] = {}
        """Retries for the partitions whose files could not be opened because no file descriptor was free."""
        self._retry: asyncio.TimerHandle | None = None
        self._worker = asyncio.get_running_loop().create_task(self._work())

    @property
    def controller_epoch(self) -> int:
        """The highest controller epoch of the accepted control requests."""
        return self._controller_epoch

    def submit(self, control_request: Any, done: Callable[[Any], None]) -> None:
        """Apply a control request after the earlier ones, a large one in turns; `done` receives the response."""
        self._queue.put_nowait((control_request, done, steps_of_caller()))

    def session_lost(self) -> None:
        """The broker keeps its roles. Where the controller has elected another leader, leader epochs fence this one."""

    async def session_begun(self, registry: object) -> None:
        """The broker is registered: its broker epoch distinguishes requests for it from requests for its previous
        incarnation (KIP-380).
        """
        self._registered.set()

    async def close(self) -> None:
        """Stop applying control requests."""
        if self._retry is not None:
            self._retry.cancel()
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        await self._registered.wait()
        while True:
            control_request, done, steps = await self._queue.get()
            work = self._apply(control_request, done)
            del control_request, done  # in this frame they would outlive the turns, and be freed at once
            await steps(work)

    async def _apply(self, control_request: Any, done: Callable[[Any], None]) -> None:
        carry_out: dict[type, Callable[[Any], Coroutine[Any, Any, Any]]] = {
            m.LeaderAndIsrRequest: self._leader_and_isr,
            m.StopReplicaRequest: self._stop_replica,
            m.UpdateMetadataRequest: self._update_metadata,
        }
        try:
            done(await carry_out[type(control_request)](control_request))
        except Exception:
            # No response: the controller sends the request again.
            log.exception(
                "control request failed api=%s controller=%d controller_epoch=%d",
                type(control_request).__name__,
                control_request.controller_id,
                control_request.controller_epoch,
            )

    def _refusal(self, control_request: Any) -> ErrorCode:
        """The error of a control request for an earlier broker epoch or from an earlier controller epoch, else NONE."""
        if (
            control_request.broker_epoch != ANY_BROKER_EPOCH
            and control_request.broker_epoch < self._dependencies.broker_epoch()
        ):
            log.warning("rejecting control request with stale broker epoch epoch=%d", control_request.broker_epoch)
            return ErrorCode.STALE_BROKER_EPOCH
        if control_request.controller_epoch < self._controller_epoch:
            log.warning(
                "rejecting control request with stale controller epoch controller=%d epoch=%d current_epoch=%d",
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
            configs = await self._configs_of(keep([name for name, _, _ in items_of(topics)]))
            refusal = self._refusal(control_request)  # epochs may have changed during the read
        if refusal is not ErrorCode.NONE:
            return refused_leader_and_isr(control_request, refusal)
        addresses = {each.broker_id: (each.host_name, each.port) for each in control_request.live_leaders}
        answer = m.LeaderAndIsrResponse()
        taken = 0
        for name, topic_id, states in items_of(topics):
            result = m.LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id)
            for state in items_of(states):
                taken += 1
                if taken > AT_ONCE and not in_turn():
                    await asyncio.sleep(0)
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
        """The configuration overrides of these topics. Raises RegistryError.

        A topic that is new on this broker is read from the metadata store. If the connection is lost, the replica
        manager retries the read: without a response the controller would send the request again only after its timeout.
        """
        for _ in range(REGISTRY_TRIES):
            try:
                return await self._dependencies.configs.load(topics)
            except RegistryError as error:
                log.debug("retrying read of topic configs topics=%s error=%s", topics, error)
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
        # Before the first look at the replica: the loops over the arrays of a large request may be interrupted.
        state = LeaderAndIsr(
            control_request.leader,
            control_request.leader_epoch,
            tuple(control_request.isr),
            tuple(control_request.replicas),
            control_request.partition_epoch,
            bool(control_request.leader_recovery_state),
        )
        dependencies, name = self._dependencies, (topic, control_request.partition_index)
        was_unmade = self.unmade.pop(name, None) is not None
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
        try:
            replica = dependencies.host.obtain(name, topic_id, config, is_new=control_request.is_new)
            if control_request.leader == dependencies.broker_id:
                dependencies.fetchers.leave(replica)
                replica.lead(state)
                dependencies.events.led(replica)
            else:
                replica.follow(state)
                dependencies.events.left(topic, control_request.partition_index)
                # The addresses of the request are those of the controller's listener for brokers, which may differ
                # from this broker's while the listener is being changed.
                address = self._address(control_request.leader) or addresses.get(control_request.leader)
                dependencies.fetchers.follow(replica, control_request.leader, control_request.leader_epoch, address)
        except NoDescriptor as error:
            # No error in the response: the controller would treat the disk as failed until this broker restarts.
            if not was_unmade:
                log.error("partition unavailable, retrying topic=%s partition=%d error=%s", *name, error.message)
            self.unmade[name] = partial(self._take, topic, topic_id, control_request, config, addresses)
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(DESCRIPTOR_RETRY_S, self._make_the_unmade)
        except KafkaError as error:
            log.error("partition unavailable topic=%s partition=%d error=%s", *name, error.message)
            return error.code
        return ErrorCode.NONE

    def _make_the_unmade(self) -> None:
        """Retry the partitions that had no file descriptor; the first that still has none ends the round."""
        self._retry = None
        for name, take in list(self.unmade.items()):
            take()
            if name in self.unmade:
                break
        self._dependencies.metadata_cache.partition_states_changed()

    @staticmethod
    def _stale(replica: Replica, topic_id: bytes, control_request: ControlRequest) -> ErrorCode:
        """The error code for a leader epoch that is not new.

        A controller that has begun to send no topic ids repeats the current epoch to followers (KIP-516). A follower
        has nothing to change: the leader's ApiVersions response states which fetch versions the leader supports.
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
        for number, (topic, index, epoch, delete) in enumerate(items_of(_stops(control_request)), 1):
            if number > AT_ONCE and not in_turn():
                await asyncio.sleep(0)
            answer.partition_errors.append(
                m.StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=topic, partition_index=index, error_code=self._stop((topic, index), epoch, delete=delete)
                )
            )
        self._dependencies.fetchers.close_idle()
        return answer

    def _stop(self, name: TopicPartition, leader_epoch: int, *, delete: bool) -> ErrorCode:
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
            return ErrorCode.NONE  # the replica keeps its role and does not fetch until the next control request
        try:
            dependencies.host.release(name, delete=True)
        except KafkaError as error:
            log.error("failed to delete replica topic=%s partition=%d error=%s", *name, error.message)
            return error.code
        return ErrorCode.NONE

    # ---- UpdateMetadata

    async def _update_metadata(self, control_request: m.UpdateMetadataRequest) -> m.UpdateMetadataResponse:
        refusal = self._refusal(control_request)
        if refusal is not ErrorCode.NONE:
            return m.UpdateMetadataResponse(error_code=refusal)
        metadata_cache = self._dependencies.metadata_cache
        metadata_cache.brokers = {each.id: _broker(each) for each in control_request.live_brokers}
        changed, taken, removed = [], 0, 0
        for name, topic_id, states in items_of(_metadata(control_request)):
            known = metadata_cache.topics.get(name)
            gone = {each.partition_index for each in states if each.leader == LEADER_DURING_DELETE}
            merged = {each.index: each for each in known.partitions} if known is not None else {}
            if known is not None and gone >= merged.keys():
                metadata_cache.remove_topic(name)
                self._dependencies.configs.forget(name)
                self._dependencies.events.deleted(known)
                removed += 1
                if not removed % REMOVED_AT_ONCE and not in_turn():
                    await asyncio.sleep(0)
                continue
            for state in items_of(states):
                merged[state.partition_index] = _partition(state)
                taken += 1
                if not taken % METADATA_AT_ONCE and not in_turn():
                    await asyncio.sleep(0)
            in_order = tuple(merged[index] for index in sorted(merged) if index not in gone)
            if in_order:
                changed.append(TopicMetadata(name, topic_id, is_internal(name), in_order))
        metadata_cache.put_topics(items_of(keep(changed)))
        return m.UpdateMetadataResponse()


def refused_leader_and_isr(control_request: m.LeaderAndIsrRequest, refusal: ErrorCode) -> m.LeaderAndIsrResponse:
    """The response to a rejected LeaderAndIsr request: the error stands at the top and for every partition."""
    answer = m.LeaderAndIsrResponse(error_code=refusal)
    for name, topic_id, states in items_of(_grouped(control_request)):
        errors = [
            m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                topic_name=name, partition_index=state.partition_index, error_code=refusal
            )
            for state in items_of(states)
        ]
        answer.partition_errors += errors
        answer.topics.append(m.LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors))
    return answer


def _grouped(control_request: m.LeaderAndIsrRequest) -> list[tuple[str, bytes, list[ControlRequest]]]:
    """The partitions of a LeaderAndIsr request by topic, for all versions of the request."""
    if control_request.topic_states:
        states = items_of(control_request.topic_states)
        return keep([(topic.topic_name, topic.topic_id, topic.partition_states) for topic in states])
    topics: dict[str, list[ControlRequest]] = {}
    for state in control_request.ungrouped_partition_states:
        topics.setdefault(state.topic_name, []).append(state)
    return [(name, bytes(16), states) for name, states in items_of(keep(topics).items())]


def refused_stop_replica(control_request: m.StopReplicaRequest, refusal: ErrorCode) -> m.StopReplicaResponse:
    """The response to a StopReplica request that was rejected before it was applied, with every partition."""
    return m.StopReplicaResponse(
        error_code=refusal,
        partition_errors=[
            m.StopReplicaResponse.StopReplicaPartitionError(topic_name=topic, partition_index=index, error_code=refusal)
            for topic, index, _, _ in _stops(control_request)
        ],
    )


def _stops(control_request: m.StopReplicaRequest) -> list[tuple[str, int, int, bool]]:
    """Topic, index, leader epoch and whether to delete, for all versions of the StopReplica request."""
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
            for topic in items_of(control_request.topic_states)
            for each in topic.partition_states
        ),
    ]


def _metadata(
    control_request: m.UpdateMetadataRequest,
) -> list[tuple[str, bytes, list[m.UpdateMetadataRequest.UpdateMetadataPartitionState]]]:
    if control_request.topic_states:
        states = items_of(control_request.topic_states)
        return keep([(topic.topic_name, topic.topic_id, topic.partition_states) for topic in states])
    topics: dict[str, list[m.UpdateMetadataRequest.UpdateMetadataPartitionState]] = {}
    for state in control_request.ungrouped_partition_states:
        topics.setdefault(state.topic_name, []).append(state)
    return [(name, bytes(16), states) for name, states in items_of(keep(topics).items())]


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
        endpoints: tuple[ListenerAddress, ...] = (ListenerAddress("PLAINTEXT", broker.v0_host, broker.v0_port),)
    else:
        names = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
        endpoints = tuple(
            # Versions without listener names use the security protocol as the name.
            ListenerAddress(each.listener or names.get(each.security_protocol, ""), each.host, each.port)
            for each in broker.endpoints
        )
    return BrokerMetadata(broker.id, endpoints, broker.rack)
