"""A broker that has just started, or has lost the controller, has incomplete metadata: clients must get retriable
errors.

Another session holds the controller znode here and sends no control requests, as a controller that is paused or cut
off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message, Producer

from odradek.broker.apis.metadata import Metadata
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.controller.auto_topic_creation import AutoCreatedTopic, Outcomes, TopicCreator
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.topic_responses import TopicAnswers
from odradek.broker.network.dispatcher import Call
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.quota.state.rates import QuotaConfig
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ensure_path
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.server import Broker, Environment
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.storage.disk import OsDisk
from tests.broker.pair import running_pair
from tests.broker.topic_requests import metadata
from tests.broker.wire import DEADLINE_S, Client, batch
from tests.support.eventually import eventually_async

SILENT_CONTROLLER = 9
LEADER_NOT_AVAILABLE, UNKNOWN = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Incarnations:
    """A broker that is stopped and started again at the same port, over a registry that stays."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._ensemble = EmbeddedEnsemble(OsDisk(), str(folder / "registry"), now_ms=SystemClock().now_ms)

    def broker(self) -> Broker:
        properties = {
            "broker.id": "0",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.num.partitions": "1",
        }
        return Broker(BrokerConfig(properties), Environment(open_session=self._ensemble.connect))

    @asynccontextmanager
    async def not_notified(self) -> AsyncIterator[tuple[Broker, Callable[[], Any]]]:
        """The broker starts, and no controller sends it a request until the second item is called and awaited."""
        silent = await self._ensemble.connect()
        await ensure_path(silent, "/")
        await silent.create(znodes.CONTROLLER, znodes.ControllerZNode(SILENT_CONTROLLER, 0).encode(), ephemeral=True)
        broker = self.broker()
        starting = asyncio.create_task(broker.start())

        async def speak() -> None:
            await silent.close()
            await starting

        try:
            yield broker, speak
        finally:
            await speak()
            await broker.stop()

    async def close(self) -> None:
        await self._ensemble.close()


@pytest.fixture
async def incarnations(tmp_path: Path) -> AsyncIterator[Incarnations]:
    made = Incarnations(tmp_path)
    first = made.broker()
    await first.start()
    client = await Client.connect(first.port)
    await client.create_topic("known")
    client.close()
    await first.stop()
    yield made
    await made.close()


async def connected(port: int) -> Client:
    """A client, as soon as the broker listens."""
    return await eventually_async(lambda: Client.connect(port), retry_on=(ConnectionRefusedError,))


async def codes(client: Client, *, auto_create: bool, version: int = 12) -> list[ErrorCode]:
    topics = await metadata(client, "known", "unknown", "a b", auto_create=auto_create, version=version)
    return [ErrorCode(each.error_code) for each in topics]


async def test_a_broker_without_metadata_does_not_return_unknown_topic(incarnations: Incarnations) -> None:
    async with incarnations.not_notified() as (_, speak):
        client = await connected(incarnations.port)
        not_yet = [LEADER_NOT_AVAILABLE, LEADER_NOT_AVAILABLE, ErrorCode.INVALID_TOPIC_EXCEPTION]
        for version in (1, 4, 12):
            assert await codes(client, auto_create=True, version=version) == not_yet
        assert await codes(client, auto_create=False) == not_yet
        answer = await client.ask(m.MetadataRequest(topics=[]), 12)
        assert [(each.node_id, each.port) for each in answer.brokers] == [(0, incarnations.port)]
        wanted = [m.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in ("a b", "known")]
        described = await client.ask(m.DescribeTopicPartitionsRequest(topics=wanted), 0)
        assert [each.error_code for each in described.topics] == [not_yet[2], LEADER_NOT_AVAILABLE]
        # Kafka answers these errors in this place, and clients retry after each.
        assert (await client.produce("known", batch(b"v"))).error_code == UNKNOWN
        assert (await client.fetch("known", 0)).error_code == UNKNOWN
        find = await client.ask(m.FindCoordinatorRequest(key="g"), 2)
        assert find.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        by_id = m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=bytes(15) + b"x")
        deleted = await client.ask(m.DeleteTopicsRequest(topics=[by_id], timeout_ms=100), 6)
        assert deleted.responses[0].error_code == ErrorCode.NOT_CONTROLLER
        await speak()
        assert (await codes(client, auto_create=False))[:2] == [ErrorCode.NONE, UNKNOWN]
        assert (await codes(client, auto_create=True))[:2] == [ErrorCode.NONE, ErrorCode.NONE]
        client.close()


async def test_a_client_with_topic_metadata_continues_after_the_broker_has_restarted(
    incarnations: Incarnations,
) -> None:
    broker = incarnations.broker()
    await broker.start()
    config = {
        "bootstrap.servers": f"127.0.0.1:{incarnations.port}",
        "topic.metadata.refresh.interval.ms": 20,
        # librdkafka accepts at once that a topic is gone when it has had it for longer than this.
        "topic.metadata.propagation.max.ms": 1,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "retry.backoff.ms": 10,
        "log_level": 0,
    }
    producer = Producer(config)
    outcomes: list[KafkaError | None] = []

    def received(error: KafkaError | None, message: Message) -> None:
        outcomes.append(error)

    producer.produce("known", b"before", on_delivery=received)
    assert await asyncio.to_thread(producer.flush, DEADLINE_S) == 0
    await broker.stop()
    async with incarnations.not_notified() as (broker, speak):
        asked = broker.api_metrics.of("Metadata")

        def sent() -> int:
            producer.produce("known", b"meanwhile", on_delivery=received)
            return asked.count

        await eventually_async(sent, lambda count: count >= 5)
        await speak()
        assert await asyncio.to_thread(producer.flush, DEADLINE_S) == 0
    assert len(outcomes) > 1
    assert set(outcomes) == {None}


async def test_a_broker_that_cannot_reach_the_controller_does_not_return_unknown_topic(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        pair.dialing[2].silence()
        (topic,) = await metadata(pair.clients[2], "fresh", auto_create=True)
        assert topic.error_code == LEADER_NOT_AVAILABLE
        (topic,) = await metadata(pair.clients[2], "fresh", auto_create=False)
        assert topic.error_code == UNKNOWN, "the request does not allow to create it, as in Kafka"
        (topic,) = await metadata(pair.clients[1], "fresh", auto_create=True)
        assert topic.error_code == ErrorCode.NONE


class Creator:
    """Every creation ends with this outcome; the broker receives no metadata of the topic."""

    def __init__(self, outcome: ErrorCode) -> None:
        self._outcome = outcome

    def is_creating(self, name: str) -> bool:
        return False

    def create(self, wanted: list[AutoCreatedTopic], done: Callable[[Outcomes], None]) -> None:
        done({topic.name: self._outcome for topic in wanted})


class Question:
    """The part of a call that Metadata needs."""

    version = 12
    listener = "PLAINTEXT"

    def __init__(self) -> None:
        self.answers: list[m.MetadataResponse] = []

    def reply(self, answer: m.MetadataResponse) -> None:
        self.answers.append(answer)


@pytest.mark.parametrize(
    ("outcome", "notified"),
    [
        (ErrorCode.NONE, LEADER_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, LEADER_NOT_AVAILABLE),
        (ErrorCode.NOT_CONTROLLER, LEADER_NOT_AVAILABLE),
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_topic_that_may_exist_is_not_reported_as_missing(outcome: ErrorCode, notified: ErrorCode) -> None:
    metadata_cache = MetadataCache("cluster")
    metadata_cache.put_topics([])
    metadata_api = Metadata(
        metadata_cache,
        cast(TopicCreator, Creator(outcome)),
        lambda: True,
        AutoCreatedTopic,
        TopicAnswers(metadata_cache),
        AuthHelper(),
        QuotaManagers(QuotaConfig(), QuotaConfig(), SystemClock()),
        lambda call, make: call.reply(make()),
    )
    call = Question()
    wanted = [m.MetadataRequest.MetadataRequestTopic(name="t")]
    metadata_api.handle(cast(Call, call), m.MetadataRequest(topics=wanted))
    answer = m.MetadataResponse.decode(call.answers[0].encode(call.version), call.version)
    assert [each.error_code for each in answer.topics] == [notified]
