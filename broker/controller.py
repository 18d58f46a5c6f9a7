"""The controller: topics come and go, partitions get leaders, producers get ids.

What a cluster is stands in the registry, in the nodes and formats of Kafka 3.9 with ZooKeeper; this shell reads and
writes them and tells the replica host what follows. It runs one change at a time, in the order of arrival. This is
the controller of a cluster of one broker: it elects itself, and every partition is led here.

A topic is made in three steps, as Kafka makes it: its configuration, its assignment, the state of each partition. A
stop in between leaves an assignment whose missing states are written at the next start. A topic is deleted by a node
under /admin/delete_topics, which stays until everything else of the topic is gone, so a deletion that a stop
interrupts is finished at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

from odradek.broker.cluster_view import ClusterView, PartitionView, TopicView
from odradek.broker.config import BrokerConfig
from odradek.broker.config_types import ConfigEntry, ConfigError
from odradek.broker.machines.topics import (
    CLUSTER_METADATA,
    Assignment,
    check_assignment,
    collision,
    is_internal,
    name_problem,
    place,
)
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    RegistryError,
    Set,
    ensure_path,
)
from odradek.broker.replica import Replica
from odradek.broker.replica_host import ReplicaHost
from odradek.broker.topic_config import check_topic, describe_topic
from odradek.broker.waiting import Clock
from odradek.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

BROKER_DEFAULT: Final = -1
OPERATIONS_AT_A_TIME: Final = 500
PRODUCER_IDS_IN_BLOCK: Final = 1000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that somebody wants; -1 leaves a number to the broker's configuration."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What became of the wish."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = bytes(16)
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[ConfigEntry, ...] = ()


class PartitionEvents(Protocol):
    """Who wants to know what becomes of partitions."""

    def led(self, replica: Replica) -> None:
        """This broker begins to lead a partition."""
        ...

    def deleted(self, topic: TopicView) -> None:
        """A topic is gone."""
        ...


class Controller:
    """The shell around the registry."""

    def __init__(
        self,
        config: BrokerConfig,
        registry: Registry,
        view: ClusterView,
        host: ReplicaHost,
        clock: Clock,
        random: Random,
        events: PartitionEvents,
    ) -> None:
        """Nothing is read or written before `start`."""
        self._config = config
        self._registry = registry
        self._view = view
        self._host = host
        self._clock = clock
        self._random = random
        self._events = events
        self._epoch = 0
        self._topic_configs: dict[str, dict[str, str]] = {}
        self._producer_ids: range = range(0)
        self._queue: asyncio.Queue[tuple[Coroutine[Any, Any, None], Callable[[], None]]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    # ---- start and stop

    async def start(self, registration: znodes.BrokerRegistration) -> None:
        """Register this broker, take the controller's place and lead every partition.

        Raises RegistryError, and KafkaError with DUPLICATE_BROKER_REGISTRATION when the id is taken.
        """
        registry, broker_id = self._registry, self._config.broker_id
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(registry, path)
        try:
            await registry.create(znodes.broker_path(broker_id), registration.encode(), ephemeral=True)
        except NodeExistsError as error:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"a broker with id {broker_id} is registered already; give this one another broker.id",
            ) from error
        controller = znodes.Controller(broker_id, self._clock.now_ms())
        await registry.create(znodes.CONTROLLER, controller.encode(), ephemeral=True)
        await self._begin_epoch()
        self._view.controller_id = broker_id
        await self._finish_deletions()
        topics, _ = await registry.children(znodes.TOPICS)
        await self._lead_all(topics)
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Finish what was submitted and take nothing more."""
        if self._worker is not None:
            await self._queue.join()
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _begin_epoch(self) -> None:
        try:
            data, stat = await self._registry.get(znodes.CONTROLLER_EPOCH)
            self._epoch = znodes.decode_controller_epoch(data) + 1
            await self._registry.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(self._epoch), stat.version)
        except NoNodeError:
            self._epoch = 1
            await self._registry.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(self._epoch))

    def submit(self, work: Coroutine[Any, Any, None], abandon: Callable[[], None] = lambda: None) -> None:
        """Do this after what was submitted before; `abandon` is called when it fails and nobody else will answer."""
        self._queue.put_nowait((work, abandon))

    async def _work(self) -> None:
        while True:
            work, abandon = await self._queue.get()
            try:
                await work
            except Exception as error:
                if isinstance(error, RegistryError):
                    log.error("the registry failed; the request behind it gets no answer: %s", error)
                else:
                    log.exception("a change to the cluster failed; the request behind it gets no answer")
                abandon()
            finally:
                self._queue.task_done()

    # ---- leading

    async def _lead_all(self, topics: Iterable[str]) -> None:
        """Lead every partition of these topics in a new epoch: the old leader, whoever it was, is gone."""
        operations: list[Operation] = []
        led: list[TopicView] = []
        for name in topics:
            data, _ = await self._registry.get(znodes.topic_path(name))
            assignment = znodes.TopicAssignment.decode(data)
            self._topic_configs[name] = await self._read_config(name)
            partitions = []
            for index, replicas in sorted(assignment.partitions.items()):
                state, operation = await self._next_state(name, index)
                operations.extend(operation)
                partitions.append(PartitionView(index, state.leader, state.leader_epoch, replicas.replicas, state.isr))
            led.append(TopicView(name, assignment.topic_id or bytes(16), is_internal(name), tuple(partitions)))
        await self._write(operations)
        for topic in led:
            self._lead(topic)

    async def _next_state(self, topic: str, index: int) -> tuple[znodes.PartitionState, list[Operation]]:
        """The state of a partition under this controller, and how to write it."""
        broker_id, path = self._config.broker_id, znodes.partition_state_path(topic, index)
        try:
            data, stat = await self._registry.get(path)
        except NoNodeError:
            state = znodes.PartitionState(broker_id, 0, (broker_id,), self._epoch)
            return state, await self._missing_parents(topic, index) + [Create(path, state.encode())]
        old = znodes.PartitionState.decode(data)
        state = znodes.PartitionState(broker_id, old.leader_epoch + 1, (broker_id,), self._epoch)
        return state, [Set(path, state.encode(), stat.version)]

    async def _missing_parents(self, topic: str, index: int) -> list[Operation]:
        paths = [znodes.partitions_path(topic)] if index == 0 else []
        paths.append(znodes.partition_path(topic, index))
        return [Create(path, None) for path in paths if await self._registry.exists(path) is None]

    async def _write(self, operations: list[Operation]) -> None:
        for start in range(0, len(operations), OPERATIONS_AT_A_TIME):
            await self._registry.multi(operations[start : start + OPERATIONS_AT_A_TIME])

    def _lead(self, topic: TopicView) -> None:
        """Make the replicas of a topic and show the topic to clients."""
        self._view.put_topics([topic])
        for partition in topic.partitions:
            try:
                replica = self._host.lead(topic, partition, self._topic_configs.get(topic.name, {}))
            except KafkaError as error:
                log.error("%s-%d cannot be led: %s", topic.name, partition.index, error.message)
                self._view.take_offline(topic.name, partition.index)
                continue
            self._events.led(replica)

    # ---- topics

    async def create_topics(self, wanted: list[NewTopic], *, validate_only: bool = False) -> list[TopicOutcome]:
        """Make topics; each succeeds or fails by itself. Raises RegistryError."""
        outcomes = []
        for topic in wanted:
            try:
                outcomes.append(await self._create(topic, validate_only=validate_only))
            except ConfigError as error:
                outcomes.append(TopicOutcome(topic.name, ErrorCode.INVALID_CONFIG, error.message))
            except KafkaError as error:
                outcomes.append(TopicOutcome(topic.name, error.code, error.message))
        return outcomes

    async def _create(self, wanted: NewTopic, *, validate_only: bool) -> TopicOutcome:
        self._check_name(wanted.name)
        assignment = self._place(wanted)
        configs = check_topic(self._config, wanted.configs)
        topic_id = bytes(16) if validate_only else self._random.randbytes(16)
        outcome = TopicOutcome(
            wanted.name,
            topic_id=topic_id,
            partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=tuple(describe_topic(self._config, configs)),
        )
        if not validate_only:
            await self._write_topic(wanted.name, topic_id, assignment, configs)
        return outcome

    def _check_name(self, name: str) -> None:
        if name == CLUSTER_METADATA:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the name {name!r} is kept for the cluster itself")
        problem = name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in self._view.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = collision(name, self._view.topics)
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic {name!r} collides with {other!r}: names that differ only by '.' and '_' cannot both exist",
            )

    def _place(self, wanted: NewTopic) -> Assignment:
        brokers = sorted(self._view.brokers)
        if wanted.assignments:
            if wanted.partitions != BROKER_DEFAULT or wanted.replication_factor != BROKER_DEFAULT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "give either an assignment, or a number of partitions and a replication factor, not both",
                )
            check_assignment(wanted.assignments, brokers)
            return dict(wanted.assignments)
        partitions, factor = wanted.partitions, wanted.replication_factor
        if partitions == BROKER_DEFAULT:
            partitions = int(self._config["num.partitions"])
        if factor == BROKER_DEFAULT:
            factor = int(self._config["default.replication.factor"])
        return place(partitions, factor, brokers, first=self._random.randrange(max(1, len(brokers))))

    async def _write_topic(
        self, name: str, topic_id: bytes, assignment: Assignment, configs: Mapping[str, str]
    ) -> None:
        registry = self._registry
        config_path, config_data = znodes.config_path(f"topics/{name}"), znodes.encode_config(configs)
        if await registry.exists(config_path) is None:
            await registry.create(config_path, config_data)
        else:
            await registry.set(config_path, config_data)
        self._topic_configs[name] = dict(configs)
        replicas = {index: znodes.Replicas(brokers) for index, brokers in assignment.items()}
        operations: list[Operation] = [
            Create(znodes.topic_path(name), znodes.TopicAssignment(topic_id, replicas).encode()),
            Create(znodes.partitions_path(name), None),
        ]
        partitions = []
        for index, brokers in sorted(assignment.items()):
            state = znodes.PartitionState(brokers[0], 0, brokers, self._epoch)
            operations.append(Create(znodes.partition_path(name, index), None))
            operations.append(Create(znodes.partition_state_path(name, index), state.encode()))
            partitions.append(PartitionView(index, state.leader, state.leader_epoch, brokers, state.isr))
        await self._write(operations)
        self._lead(TopicView(name, topic_id, is_internal(name), tuple(partitions)))

    async def delete_topic(self, name: str) -> ErrorCode:
        """Remove a topic with everything of it. Raises RegistryError."""
        if name not in self._view.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            await self._registry.create(znodes.delete_topic_path(name), None)
        except NodeExistsError:
            log.info("the deletion of topic %s had begun before", name)
        await self._delete(name)
        return ErrorCode.NONE

    async def _delete(self, name: str) -> None:
        topic = self._view.topics.get(name)
        self._view.remove_topic(name)
        self._topic_configs.pop(name, None)
        self._host.remove_topic(name)
        if topic is not None:
            self._events.deleted(topic)
        await self._remove_tree(znodes.topic_path(name))
        await self._remove_tree(znodes.config_path(f"topics/{name}"))
        await self._remove_tree(znodes.delete_topic_path(name))

    async def _finish_deletions(self) -> None:
        names, _ = await self._registry.children(znodes.DELETE_TOPICS)
        for name in names:
            log.info("the deletion of topic %s, begun before the last stop, goes on", name)
            await self._delete(name)

    async def _remove_tree(self, path: str) -> None:
        """Delete a node and everything below it."""
        try:
            children, _ = await self._registry.children(path)
            for child in children:
                await self._remove_tree(f"{path}/{child}")
            await self._registry.delete(path)
        except NoNodeError:
            return

    def topic_config(self, name: str) -> Mapping[str, str]:
        """The properties that were set for a topic."""
        return self._topic_configs.get(name, {})

    async def _read_config(self, topic: str) -> dict[str, str]:
        try:
            data, _ = await self._registry.get(znodes.config_path(f"topics/{topic}"))
        except NoNodeError:
            return {}
        return znodes.decode_config(data)

    # ---- producer ids

    def next_producer_id(self) -> int | None:
        """An unused producer id, None when a new block has to be allocated first."""
        if not self._producer_ids:
            return None
        producer_id = self._producer_ids[0]
        self._producer_ids = self._producer_ids[1:]
        return producer_id

    async def allocate_producer_id(self) -> int:
        """An unused producer id, from a new block where the last one is used up. Raises RegistryError."""
        producer_id = self.next_producer_id()
        while producer_id is None:
            await self._allocate_block()
            producer_id = self.next_producer_id()
        return producer_id

    async def _allocate_block(self) -> None:
        data, stat = await self._registry.get(znodes.PRODUCER_ID_BLOCK)
        first = znodes.ProducerIdBlock.decode(data).last + 1 if data else 0
        last = first + PRODUCER_IDS_IN_BLOCK - 1
        block = znodes.ProducerIdBlock(self._config.broker_id, first, last)
        await self._registry.set(znodes.PRODUCER_ID_BLOCK, block.encode(), stat.version)
        self._producer_ids = range(first, last + 1)


async def cluster_id(registry: Registry, proposal: str) -> str:
    """The id of the cluster; `proposal` becomes it when the cluster is new. Raises RegistryError."""
    try:
        data, _ = await registry.get(znodes.CLUSTER_ID)
    except NoNodeError:
        await ensure_path(registry, znodes.CLUSTER_ID.rpartition("/")[0])
        await registry.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(proposal))
        return proposal
    return znodes.decode_cluster_id(data)
