"""Creates topics and partitions: validation, placement and the nodes of the metadata store (Kafka: AdminZkClient).

A topic's configuration is written first, then its assignment. The controller elects the partitions' leaders when it is
notified of the assignment. Tools of older versions write the same nodes themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.policies import CREATE_TOPIC, NewTopicRequest, load_policy
from odradek.broker.config.topic_config import check_topic, describe_topic
from odradek.broker.config.types import ConfigEntry, ConfigError
from odradek.broker.controller.descriptor_budget import DescriptorBudget
from odradek.broker.controller.state.context import Context
from odradek.broker.metadata.state.topics import (
    CLUSTER_METADATA,
    Assignment,
    check_assignment,
    collision,
    name_problem,
    place,
    place_over_racks,
)
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    BadArgumentsError,
    Check,
    Create,
    NodeExistsError,
    Operation,
    Registry,
    Set,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

BROKER_DEFAULT: Final = -1
PARTITIONS_WITHOUT_PAUSE: Final = 1000


class NewTopic(NamedTuple):
    """A topic to create; -1 leaves a number to the broker's configuration."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    configs: Mapping[str, str | None] = MappingProxyType({})


class TopicOutcome(NamedTuple):
    """The result of a topic's creation."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = bytes(16)
    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[ConfigEntry, ...] = ()


RecordMutations = Callable[[int], None]
"""Counts partitions that are created or deleted next. Raises KafkaError where a quota forbids it (KIP-599)."""


def unbounded(partitions: int) -> None:
    """Allow every mutation."""


class NewPartitions(NamedTuple):
    """A request for more partitions: the new total, and for each new partition its replicas, or None."""

    topic: str
    total: int
    assignments: tuple[tuple[int, ...], ...] | None


class TopicMaker:
    """Writes topics and partitions to the metadata store, whose watches notify the controller's machine."""

    def __init__(self, config: BrokerConfig, random: Random, has_log: Callable[[TopicPartition], bool]) -> None:
        """`random` draws topic ids and the start of placement; `has_log` returns whether a log is open on this broker.

        Raises ConfigError for a policy that does not exist.
        """
        self._config = config
        self._random = random
        self.budget = DescriptorBudget(config.broker_id, has_log)
        self._judge = load_policy(config, CREATE_TOPIC)

    def topic_ids(self, count: int) -> list[bytes]:
        """Random ids for topics."""
        return [self._random.randbytes(16) for _ in range(count)]

    async def create(
        self,
        registry: Registry,
        context: Context,
        wanted: NewTopic,
        *,
        made: Collection[str] = (),
        validate_only: bool,
        record: RecordMutations = unbounded,
    ) -> TopicOutcome:
        """Create a topic, or only validate it; `made` are topics that the context does not have yet.

        `record` is called before the topic is created. Raises RegistryError.
        """
        try:
            other = collision(wanted.name, made)
            if other is not None:
                raise _collides(wanted.name, other)
            return await self._create(registry, context, wanted, made, None if validate_only else record)
        except ConfigError as error:
            return TopicOutcome(wanted.name, ErrorCode.INVALID_CONFIG, error.message)
        except KafkaError as error:
            return TopicOutcome(wanted.name, error.code, error.message or None)

    async def _create(
        self,
        registry: Registry,
        context: Context,
        wanted: NewTopic,
        made: Collection[str],
        record: RecordMutations | None,
    ) -> TopicOutcome:
        _check_existence(wanted.name, context)
        if without_value := [name for name, value in wanted.configs.items() if value is None]:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"no value is given for {', '.join(without_value)}")
        assignment = self._place(wanted, context)
        await _pause_after(assignment)
        _check_name(wanted.name, context)
        configs = check_topic(self._config, wanted.configs)
        if wanted.assignments:
            self._judge(NewTopicRequest(wanted.name, None, None, assignment, configs))
        else:
            self._judge(NewTopicRequest(wanted.name, len(assignment), len(assignment[0]), None, configs))
        logs = self.budget.check(wanted.name, assignment, lambda: (*context.assignments, *made))
        topic_id = bytes(16)
        if record is not None:
            record(len(assignment))
            topic_id = self._random.randbytes(16)
            await self._write_topic(registry, context, wanted.name, topic_id, assignment, configs)
            self.budget.promise(logs)
        return TopicOutcome(
            wanted.name,
            topic_id=topic_id,
            partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=tuple(describe_topic(self._config, configs)),
        )

    def _place(self, wanted: NewTopic, context: Context) -> Assignment:
        if wanted.assignments:
            if wanted.partitions != BROKER_DEFAULT or wanted.replication_factor != BROKER_DEFAULT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "give either an assignment, or a number of partitions and a replication factor, not both",
                )
            check_assignment(wanted.assignments, sorted(context.brokers))
            return dict(wanted.assignments)
        partitions, factor = wanted.partitions, wanted.replication_factor
        if partitions == BROKER_DEFAULT:
            partitions = int(self._config["num.partitions"])
        if factor == BROKER_DEFAULT:
            factor = int(self._config["default.replication.factor"])
        count = max(1, len(context.brokers))
        first, shift = self._random.randrange(count), self._random.randrange(count)
        return _spread(context, partitions, factor, first=first, shift=shift)

    @staticmethod
    async def _write_topic(
        registry: Registry,
        context: Context,
        name: str,
        topic_id: bytes,
        assignment: Assignment,
        configs: Mapping[str, str],
    ) -> None:
        path, data = znodes.config_path(f"topics/{name}"), znodes.encode_config(configs)
        try:
            await _write(registry, context, Create(path, data))
        except NodeExistsError:
            await _write(registry, context, Set(path, data))
        replicas = {index: znodes.ReplicaAssignment(brokers) for index, brokers in sorted(assignment.items())}
        await _pause_after(assignment)
        node = await _encode(znodes.TopicAssignment(topic_id, replicas))
        try:
            await _write(registry, context, Create(znodes.topic_path(name), node))
        except NodeExistsError as error:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from error
        except BadArgumentsError as error:
            raise _too_many(len(assignment)) from error

    async def grow(
        self,
        registry: Registry,
        context: Context,
        wanted: NewPartitions,
        *,
        validate_only: bool,
        record: RecordMutations = unbounded,
    ) -> None:
        """Add partitions to a topic, or only validate the request; `record` is called before.

        Raises RegistryError, the exceptions of `record`, and KafkaError: UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, REASSIGNMENT_IN_PROGRESS, POLICY_VIOLATION.
        """
        topic, old = wanted.topic, context.assignments.get(wanted.topic)
        if old is None or topic in context.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
        if any(context.is_reassigning((topic, index)) for index in old):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{topic}'."
            )
        more = wanted.total - len(old)
        if more < 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic} currently has {len(old)} partition(s); {wanted.total} would not be an increase.",
            )
        if more == 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(old)} partition(s).")
        new = self._new_partitions(context, old, wanted, more)
        await _pause_after(new)
        logs = self.budget.check(topic, new, lambda: context.assignments)
        if validate_only:
            return
        record(more)
        assignment = {**old, **{index: znodes.ReplicaAssignment(brokers) for index, brokers in new.items()}}
        data = await _encode(znodes.TopicAssignment(context.topic_ids.get(topic), assignment))
        try:
            await _write(registry, context, Set(znodes.topic_path(topic), data))
        except BadArgumentsError as error:
            raise _too_many(len(assignment)) from error
        self.budget.promise(logs)

    @staticmethod
    def _new_partitions(
        context: Context, old: Mapping[int, znodes.ReplicaAssignment], wanted: NewPartitions, more: int
    ) -> Assignment:
        factor = len(old[0].replicas)
        if wanted.assignments is None:
            # Continue from partition 0, as if the topic had them from its creation (AdminZkClient.createPartitions).
            at = next((at for at, each in enumerate(sorted(context.brokers)) if each >= old[0].replicas[0]), 0)
            return _spread(context, more, factor, first=at, shift=at, start=len(old))
        if len(wanted.assignments) != more:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {more} but {len(wanted.assignments)} assignments provided.",
            )
        check_assignment(dict(enumerate(wanted.assignments)), sorted(context.brokers))
        if len(wanted.assignments[0]) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"the topic has {factor} replicas of each partition, the new ones would have "
                f"{len(wanted.assignments[0])}",
            )
        return {len(old) + index: brokers for index, brokers in enumerate(wanted.assignments)}


def _spread(context: Context, partitions: int, factor: int, *, first: int, shift: int, start: int = 0) -> Assignment:
    """Place replicas over racks where every broker has a rack, as Kafka does."""
    racks = {each: broker.registration.rack for each, broker in sorted(context.brokers.items())}
    named = {each: rack for each, rack in racks.items() if rack is not None}
    if named and len(named) == len(racks):
        return place_over_racks(partitions, factor, named, first=first, shift=shift, start=start)
    if named:
        missing = sorted(set(racks) - set(named))
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Not all brokers have rack information; brokers {missing} have none."
        )
    return place(partitions, factor, sorted(racks), first=first, shift=shift, start=start)


async def _write(registry: Registry, context: Context, operation: Operation) -> None:
    """Write under the controller's epoch: a controller with a stale epoch changes no topic (KAFKA-6082).

    Raises RegistryError; BadVersionError means that the epoch is stale.
    """
    await registry.multi([Check(znodes.CONTROLLER_EPOCH, context.epoch_version), operation])


async def _encode(assignment: znodes.TopicAssignment) -> bytes:
    """The node of a topic; others are served between the parts of the work. No other event of the controller runs."""
    parts = assignment.encode_in_parts()
    while True:
        try:
            next(parts)
        except StopIteration as end:
            data: bytes = end.value
            return data
        await asyncio.sleep(0)


async def _pause_after(partitions: Collection[int]) -> None:
    """Serve others if the work on these partitions took long."""
    if len(partitions) > PARTITIONS_WITHOUT_PAUSE:
        await asyncio.sleep(0)


def _too_many(partitions: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PARTITIONS, f"the assignment of {partitions} partitions is larger than a znode may be"
    )


def _check_existence(name: str, context: Context) -> None:
    if name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the name {name!r} is reserved for the cluster metadata")
    if name in context.assignments:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _check_name(name: str, context: Context) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    other = collision(name, context.assignments)
    if other is not None:
        raise _collides(name, other)


def _collides(name: str, other: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"topic {name!r} collides with {other!r}: names that differ only by '.' and '_' cannot both exist",
    )
