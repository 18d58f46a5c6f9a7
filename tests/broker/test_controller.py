"""The controller over the embedded registry: what it writes, and what a stop in the middle of it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.broker.cluster_view import BrokerView, ClusterView, Endpoint, PartitionView, TopicView
from odradek.broker.config import BrokerConfig
from odradek.broker.controller import Controller, NewTopic
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ConnectionLossError, NoNodeError, Registry
from odradek.broker.waiting import SystemClock
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.disk import OsDisk


class Host:
    """Keeps account of what it is told to lead, in place of logs."""

    def __init__(self) -> None:
        self.led: dict[tuple[str, int], int] = {}

    def lead(self, topic: TopicView, partition: PartitionView, overrides: object) -> object:
        self.led[topic.name, partition.index] = partition.leader_epoch
        return (topic.name, partition.index)

    def remove_topic(self, name: str) -> None:
        self.led = {key: epoch for key, epoch in self.led.items() if key[0] != name}


class Events:
    def led(self, replica: object) -> None: ...

    def deleted(self, topic: TopicView) -> None: ...


class Failing:
    """A registry that is lost at one of its writes, and stays so."""

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


class World:
    def __init__(self, registry: Registry, view: ClusterView, host: Host, controller: Controller) -> None:
        self.registry, self.view, self.host, self.controller = registry, view, host, controller


def make(registry: Any) -> World:
    view, host = ClusterView("cluster"), Host()
    view.brokers[0] = BrokerView(0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))
    config = BrokerConfig({"broker.id": "0"})
    controller = Controller(config, registry, view, host, SystemClock(), Random(1), Events())  # type: ignore[arg-type]
    return World(registry, view, host, controller)


REGISTRATION = znodes.BrokerRegistration((znodes.Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),), 1)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[World]:
    ensemble = EmbeddedEnsemble(OsDisk(), str(folder), now_ms=SystemClock().now_ms)
    registry = await ensemble.connect()
    world = make(registry)
    await world.controller.start(REGISTRATION)
    try:
        yield world
    finally:
        await world.controller.close()
        await registry.close()
        await ensemble.close()


async def nodes(registry: Registry, path: str) -> set[str]:
    try:
        children, _ = await registry.children(path)
    except NoNodeError:
        return set()
    return {path}.union(*[await nodes(registry, f"{path}/{child}") for child in children])


async def test_a_topic_stands_where_kafka_puts_it(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        (outcome,) = await world.controller.create_topics(
            [NewTopic("t", partitions=2, replication_factor=1, configs={"retention.ms": "1000"})]
        )
        assert outcome.error is ErrorCode.NONE
        registry = world.registry
        assignment = znodes.TopicAssignment.decode((await registry.get("/brokers/topics/t"))[0])
        assert assignment.topic_id == outcome.topic_id
        assert {index: replicas.replicas for index, replicas in assignment.partitions.items()} == {0: (0,), 1: (0,)}
        state = znodes.PartitionState.decode((await registry.get("/brokers/topics/t/partitions/1/state"))[0])
        assert (state.leader, state.leader_epoch, state.isr, state.controller_epoch) == (0, 0, (0,), 1)
        assert znodes.decode_config((await registry.get("/config/topics/t"))[0]) == {"retention.ms": "1000"}
        assert znodes.Controller.decode((await registry.get("/controller"))[0]).broker_id == 0
        assert world.host.led == {("t", 0): 0, ("t", 1): 0}


async def test_each_start_begins_new_epochs(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.controller.create_topics([NewTopic("t", partitions=2)])
    for start in (1, 2, 3):
        async with running(tmp_path) as world:
            assert world.host.led == {("t", 0): start, ("t", 1): start}
            data, _ = await world.registry.get(znodes.CONTROLLER_EPOCH)
            assert znodes.decode_controller_epoch(data) == start + 1


async def test_a_second_broker_of_the_same_id_is_refused(tmp_path: Path) -> None:
    ensemble = EmbeddedEnsemble(OsDisk(), str(tmp_path), now_ms=SystemClock().now_ms)
    first, second = make(await ensemble.connect()), make(await ensemble.connect())
    await first.controller.start(REGISTRATION)
    with pytest.raises(KafkaError) as refused:
        await second.controller.start(REGISTRATION)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    await first.controller.close()
    await ensemble.close()


@pytest.mark.parametrize("at", range(8))
async def test_a_creation_that_is_cut_off_is_there_whole_or_not_at_all(tmp_path: Path, at: int) -> None:
    async with running(tmp_path) as world:
        controller = make(Failing(world.registry, at)).controller
        controller._epoch = 1
        try:
            await controller.create_topics([NewTopic("t", partitions=2)])
        except ConnectionLossError:
            pass
        else:
            assert at >= 2, "a creation takes at least two writes"
    async with running(tmp_path) as world:
        assert set(world.view.topics) in (set(), {"t"})
        assert set(world.host.led) == {(name, index) for name in world.view.topics for index in (0, 1)}
        if not world.view.topics:
            (outcome,) = await world.controller.create_topics([NewTopic("t", partitions=2)])
            assert outcome.error is ErrorCode.NONE


@pytest.mark.parametrize("at", range(14))
async def test_a_deletion_that_is_cut_off_is_finished_at_the_next_start(tmp_path: Path, at: int) -> None:
    async with running(tmp_path) as world:
        await world.controller.create_topics([NewTopic("t", partitions=2), NewTopic("kept")])
        cut = make(Failing(world.registry, at))
        cut.view.put_topics(world.view)
        begun = at > 0
        try:
            await cut.controller.delete_topic("t")
        except ConnectionLossError:
            pass
        else:
            assert at >= 8, "a deletion takes more writes than that"
    async with running(tmp_path) as world:
        assert set(world.view.topics) == ({"kept"} if begun else {"t", "kept"})
        if begun:
            assert not await nodes(world.registry, "/brokers/topics/t")
            assert not await nodes(world.registry, "/config/topics/t")
        assert await world.registry.children(znodes.DELETE_TOPICS) == ([], (await _stat(world.registry)))


async def _stat(registry: Registry) -> Any:
    return (await registry.children(znodes.DELETE_TOPICS))[1]


async def test_producer_ids_never_repeat(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        async with running(tmp_path) as world:
            seen += [await world.controller.allocate_producer_id() for _ in range(1500)]
    assert len(set(seen)) == len(seen)
    assert min(seen) == 0


async def test_changes_run_one_after_the_other_and_a_failing_one_ends_nothing(tmp_path: Path) -> None:
    order: list[str] = []

    async def note(name: str) -> None:
        order.append(f"{name} begins")
        await asyncio.sleep(0)
        order.append(f"{name} ends")

    async def fail() -> None:
        raise ZeroDivisionError

    async with running(tmp_path) as world:
        for name, work in (("one", note("one")), ("bad", fail()), ("two", note("two"))):
            world.controller.submit(work, lambda name=name: order.append(f"{name} abandoned"))
    assert order == ["one begins", "one ends", "bad abandoned", "two begins", "two ends"]
