"""Controller election over the embedded registry: which broker is active, its writes, and the state after a stop in the
middle.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.controller.channel_manager import ControlEndpoint
from odradek.broker.controller.controller import Controller, NewPartitions, NewTopic
from odradek.broker.controller.topics import TopicMaker
from odradek.broker.metadata.broker_registration import Registration
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ConnectionLossError, NoNodeError, Registry
from odradek.broker.runtime.timers import LoopTimers, SystemClock
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.disk import OsDisk
from tests.support.eventually import eventually_async


class Brokers:
    """Brokers that apply every control request at once, and record the partitions that they lead."""

    def __init__(self) -> None:
        self.live: Mapping[int, ControlEndpoint] = {}
        self.led: dict[tuple[str, int], int] = {}
        self.control_requests: list[tuple[int, Any]] = []

    def update(self, live: Mapping[int, ControlEndpoint]) -> None:
        self.live = dict(live)

    def send(self, broker_id: int, message: Any, on_response: Callable[[Any], None]) -> None:
        self.control_requests.append((broker_id, message))
        response: Any = m.UpdateMetadataResponse()
        if isinstance(message, m.LeaderAndIsrRequest):
            response = m.LeaderAndIsrResponse()
            for topic in message.topic_states:
                for state in topic.partition_states:
                    self.led[topic.topic_name, state.partition_index] = state.leader_epoch
        elif isinstance(message, m.StopReplicaRequest):
            response = m.StopReplicaResponse()
            for stopped in message.topic_states:
                for each in stopped.partition_states:
                    self.led.pop((stopped.topic_name, each.partition_index), None)
                    response.partition_errors.append(
                        m.StopReplicaResponse.StopReplicaPartitionError(
                            topic_name=stopped.topic_name, partition_index=each.partition_index
                        )
                    )
        on_response(response)


class Failing:
    """A registry whose session is lost at one of its writes, for good."""

    def __init__(self, registry: Registry, at: int) -> None:
        self._registry, self._left = registry, at

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Any] = getattr(self._registry, name)
        if name not in ("create", "set", "delete", "multi"):
            return call

        async def counted(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise ConnectionLossError("/", "planted")
            return await call(*arguments, **options)

        return counted


class Harness:
    """One broker's controller with its session."""

    def __init__(self, ensemble: EmbeddedEnsemble, broker_id: int = 0, port: int = 9092) -> None:
        clock = SystemClock()
        timers = LoopTimers(clock, asyncio.get_running_loop())
        self.metadata_cache, self.brokers = MetadataCache("cluster"), Brokers()
        endpoint = znodes.Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")
        registration = znodes.BrokerRegistration((endpoint,), 1)
        self.session = RegistrySession(ensemble.connect)
        self.registration = Registration(broker_id, registration, 0, clock, timers)
        config = BrokerConfig({"broker.id": str(broker_id)})
        maker = TopicMaker(config, Random(1), lambda partition: True)
        self.controller = Controller(config, self.session, self.metadata_cache, self.brokers, maker, clock, timers)

    @property
    def registry(self) -> Registry:
        return self.session.registry

    @property
    def topics(self) -> set[str]:
        active_controller = self.controller.active_controller
        assert active_controller is not None
        return set(active_controller.machine.context.assignments)

    async def start(self) -> None:
        await self.session.start()
        await self.session.begin([self.registration, self.controller])

    async def close(self) -> None:
        await self.controller.close()
        await self.session.close()

    def lose_registry_at(self, write: int) -> None:
        active_controller = self.controller.active_controller
        assert active_controller is not None
        active_controller.registry = Failing(self.registry, write)


@asynccontextmanager
async def tree(folder: Path) -> AsyncIterator[EmbeddedEnsemble]:
    ensemble = EmbeddedEnsemble(OsDisk(), str(folder), now_ms=SystemClock().now_ms)
    try:
        yield ensemble
    finally:
        await ensemble.close()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Harness]:
    async with tree(folder) as ensemble:
        harness = Harness(ensemble)
        await harness.start()
        try:
            yield harness
        finally:
            await harness.close()


async def nodes(registry: Registry, path: str) -> set[str]:
    try:
        children, _ = await registry.children(path)
    except NoNodeError:
        return set()
    return {path}.union(*[await nodes(registry, f"{path}/{child}") for child in children])


async def outcome_of(work: Awaitable[Any]) -> ErrorCode:
    try:
        await work
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


async def test_replicas_of_a_topic_are_placed_as_by_kafka(tmp_path: Path) -> None:
    async with running(tmp_path) as harness:
        (outcome,) = await harness.controller.create_topics(
            [NewTopic("t", partitions=2, replication_factor=1, configs={"retention.ms": "1000"})]
        )
        assert outcome.error is ErrorCode.NONE
        registry = harness.registry
        assignment = znodes.TopicAssignment.decode((await registry.get("/brokers/topics/t"))[0])
        assert assignment.topic_id == outcome.topic_id
        assert {index: replicas.replicas for index, replicas in assignment.partitions.items()} == {0: (0,), 1: (0,)}
        state = znodes.PartitionState.decode((await registry.get("/brokers/topics/t/partitions/1/state"))[0])
        assert (state.leader, state.leader_epoch, state.isr, state.controller_epoch) == (0, 0, (0,), 1)
        assert znodes.decode_config((await registry.get("/config/topics/t"))[0]) == {"retention.ms": "1000"}
        assert znodes.ControllerZNode.decode((await registry.get("/controller"))[0]).broker_id == 0
        assert harness.brokers.led == {("t", 0): 0, ("t", 1): 0}


async def test_each_start_begins_new_epochs(tmp_path: Path) -> None:
    async with running(tmp_path) as harness:
        await harness.controller.create_topics([NewTopic("t", partitions=2)])
    for start in (1, 2, 3):
        async with running(tmp_path) as harness:
            assert harness.brokers.led == {("t", 0): start, ("t", 1): start}
            data, _ = await harness.registry.get(znodes.CONTROLLER_EPOCH)
            assert znodes.decode_controller_epoch(data) == start + 1


@pytest.mark.slow
async def test_a_second_broker_of_the_same_id_is_refused(tmp_path: Path) -> None:
    async with tree(tmp_path) as ensemble:
        first, second = Harness(ensemble, port=9092), Harness(ensemble, port=9093)
        await first.start()
        with pytest.raises(KafkaError) as refused:
            await second.start()
        assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await second.close()
        await first.close()


async def test_a_broker_replaces_the_registration_of_its_predecessor(tmp_path: Path) -> None:
    """Same id, same address: the process before it is dead, although its session is not over yet."""
    async with tree(tmp_path) as ensemble:
        first, second = Harness(ensemble), Harness(ensemble)
        await first.start()
        epoch = first.registration.broker_epoch
        await second.start()
        assert second.registration.broker_epoch > epoch
        # The process before is not dead here, so either may win the vacated controller znode.
        await eventually_async(lambda: second.controller.is_active is not first.controller.is_active)
        await second.close()
        await first.close()


async def test_another_broker_takes_over_the_controller_znode_with_the_session(tmp_path: Path) -> None:
    async with tree(tmp_path) as ensemble:
        first, second = Harness(ensemble, 0, 9092), Harness(ensemble, 1, 9093)
        await first.start()
        await second.start()
        assert (first.controller.is_active, second.controller.is_active) == (True, False)
        assert second.metadata_cache.controller_id == 0
        await first.controller.create_topics([NewTopic("t", partitions=1, replication_factor=2)])
        with pytest.raises(KafkaError) as refused:
            await second.controller.create_topics([NewTopic("other")])
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        await first.close()
        await eventually_async(lambda: second.controller.is_active)
        await eventually_async(lambda: second.brokers.led.get(("t", 0), 0) > 0)
        data, _ = await second.registry.get("/brokers/topics/t/partitions/0/state")
        state = znodes.PartitionState.decode(data)
        assert (state.leader, state.isr) == (1, (1,))
        await second.close()


async def deletion_of(controller: Controller) -> ErrorCode:
    """The outcome of the deletion of the topic `t`."""
    return (await controller.delete_topics(["t"]))["t"]


@pytest.mark.parametrize("at", range(8))
async def test_an_interrupted_creation_is_complete_or_absent(tmp_path: Path, at: int) -> None:
    async with running(tmp_path) as harness:
        harness.lose_registry_at(at)
        created = await outcome_of(harness.controller.create_topics([NewTopic("t", partitions=2)]))
        assert created is ErrorCode.NOT_CONTROLLER or at >= 2, "a creation takes at least two writes"
    async with running(tmp_path) as harness:
        assert harness.topics in (set(), {"t"})
        assert set(harness.brokers.led) == {(name, index) for name in harness.topics for index in (0, 1)}
        if not harness.topics:
            (outcome,) = await harness.controller.create_topics([NewTopic("t", partitions=2)])
            assert outcome.error is ErrorCode.NONE


@pytest.mark.parametrize("at", range(8))
async def test_an_interrupted_deletion_is_finished_at_the_next_start(tmp_path: Path, at: int) -> None:
    async with running(tmp_path) as harness:
        await harness.controller.create_topics([NewTopic("t", partitions=2), NewTopic("kept")])
        harness.lose_registry_at(at)
        begun = at > 0
        assert await outcome_of(deletion_of(harness.controller)) in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER)
    async with running(tmp_path) as harness:
        if begun:
            await eventually_async(lambda: harness.topics == {"kept"})
            assert not await nodes(harness.registry, "/brokers/topics/t")
            assert not await nodes(harness.registry, "/config/topics/t")
        else:
            assert harness.topics == {"t", "kept"}
        assert (await harness.registry.children(znodes.DELETE_TOPICS))[0] == []


async def test_a_controller_that_lost_the_registry_is_elected_again(tmp_path: Path) -> None:
    async with running(tmp_path) as harness:
        harness.lose_registry_at(2)
        with pytest.raises(KafkaError):
            await harness.controller.create_topics([NewTopic("t")])
        await eventually_async(lambda: harness.controller.is_active)
        data, _ = await harness.registry.get(znodes.CONTROLLER_EPOCH)
        assert znodes.decode_controller_epoch(data) == 2
        (outcome,) = await harness.controller.create_topics([NewTopic("u")])
        assert outcome.error is ErrorCode.NONE


@pytest.mark.parametrize("api", ["CreateTopics", "CreatePartitions", "DeleteTopics", "AllocateProducerIds"])
async def test_a_controller_of_an_old_epoch_writes_nothing_and_resigns(tmp_path: Path, api: str) -> None:
    """Another controller was elected while this one stood still, and no watch has fired yet (KAFKA-6082)."""
    async with running(tmp_path) as harness:
        controller, registry = harness.controller, harness.registry
        await controller.create_topics([NewTopic("t", partitions=2)])
        parents = ("/brokers/topics", "/config/topics", "/admin/delete_topics")
        paths = {path for parent in parents for path in await nodes(registry, parent)} | {znodes.PRODUCER_ID_BLOCK}
        before = {path: await registry.get(path) for path in paths}
        await registry.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(9))
        work = {
            "CreateTopics": lambda: controller.create_topics([NewTopic("u")]),
            "CreatePartitions": lambda: controller.create_partitions(
                [NewPartitions("t", 4, None)], validate_only=False
            ),
            "DeleteTopics": lambda: deletion_of(controller),
            "AllocateProducerIds": lambda: controller.allocate_producer_ids(0, harness.registration.broker_epoch),
        }
        assert await outcome_of(work[api]()) is ErrorCode.NOT_CONTROLLER
        assert {path: await registry.get(path) for path in before} == before
        assert {path for parent in parents for path in await nodes(registry, parent)} <= before.keys()
        await eventually_async(lambda: controller.is_active)
        data, _ = await registry.get(znodes.CONTROLLER_EPOCH)
        assert znodes.decode_controller_epoch(data) == 10, "it did not resign, so no election gave it a new epoch"


async def test_a_topic_grows_over_the_brokers_in_turn(tmp_path: Path) -> None:
    async with tree(tmp_path) as ensemble:
        harnesses = [Harness(ensemble, broker_id, 9092 + broker_id) for broker_id in (0, 1, 2)]
        for harness in harnesses:
            await harness.start()
        controller = harnesses[0].controller
        await eventually_async(lambda: len(harnesses[0].brokers.live) == 3)
        await controller.create_topics([NewTopic("t", assignments={0: (1, 2)})])
        for count in range(2, 7):
            grown = await controller.create_partitions([NewPartitions("t", count, None)], validate_only=False)
            assert grown == {"t": (ErrorCode.NONE, None)}
        data, _ = await harnesses[0].registry.get("/brokers/topics/t")
        partitions = znodes.TopicAssignment.decode(data).partitions
        assert [partitions[index].replicas[0] for index in range(6)] == [1, 2, 0, 1, 2, 0]
        for harness in reversed(harnesses):
            await harness.close()


async def test_producer_ids_never_repeat(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        async with running(tmp_path) as harness:
            for _ in range(2):
                seen += await harness.controller.allocate_producer_ids(0, harness.registration.broker_epoch)
    assert len(set(seen)) == len(seen) == 6000
    assert min(seen) == 0
