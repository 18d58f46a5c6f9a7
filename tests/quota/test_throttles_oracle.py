"""Throttled requests on Odradek and on Apache Kafka 3.9.2: the same errors, empty responses and throttle times."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from odradek.broker.metadata.state.topics import TRANSACTION_STATE
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.admin_scripts import alter_quotas
from tests.broker.wire import Client, batch, fetch_request, produce_request
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ADDRESS = {"ip": "127.0.0.1"}
WINDOW_S = 10
"""The quota window of Kafka's defaults but the sample that is being filled."""
MANY = 1000


class Side:
    """One broker, and an administrator that has no quota."""

    def __init__(self, port: int, admin: Client) -> None:
        self.port, self.admin = port, admin

    async def ask(self, request: Any, version: int, client_id: str) -> Any:
        """The response to a request on a connection of its own, which is not muted."""
        client = await Client.connect(self.port)
        try:
            await client.send(request, version, client_id=client_id)
            return await client.receive()
        finally:
            client.close()

    @contextlib.asynccontextmanager
    async def quota(self, entity: dict[str, str | None], **quotas: float) -> AsyncIterator[None]:
        """Quotas of an entity within the block; the broker applies them a little later."""
        removed: dict[str, float | None] = dict.fromkeys(quotas)
        for ops, is_last in ((dict[str, float | None](quotas), False), (removed, True)):
            (entry,) = (await self.admin.ask(alter_quotas((entity, ops)), 1)).entries
            assert entry.error_code == ErrorCode.NONE
            if not is_last:
                yield


@pytest.fixture
async def sides(broker: Broker, kafka: Kafka) -> AsyncIterator[tuple[Side, Side]]:
    ports = broker.port, int(kafka.bootstrap.rpartition(":")[2])
    ours, theirs = [Side(port, await Client.connect(port)) for port in ports]
    yield ours, theirs
    ours.admin.close()
    theirs.admin.close()


def create(name: str, partitions: int) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=20_000)


def grow(name: str, total: int) -> m.CreatePartitionsRequest:
    request = m.CreatePartitionsRequest
    return request(topics=[request.CreatePartitionsTopic(name=name, count=total, assignments=None)], timeout_ms=20_000)


def delete(name: str, version: int) -> m.DeleteTopicsRequest:
    if version >= 6:
        return m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=20_000)
    return m.DeleteTopicsRequest(topic_names=[name], timeout_ms=20_000)


async def mutations(side: Side) -> list[tuple[str, int, str | None, bool]]:
    """What a client over its quota gets for each request and version: error code, message, whether it is throttled."""
    client_id = f"mutator-{uuid.uuid4().hex}"
    names = [f"{client_id}-{number}" for number in range(20)]
    for name in names[:2]:
        await side.admin.ask(create(name, 1), 7)
    found = []
    async with side.quota({"client-id": client_id}, controller_mutation_rate=1):
        fresh = iter(names[2:])
        await eventually_async(
            lambda: side.ask(create(next(fresh), 15), 7, client_id),
            lambda answer: answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        )
        steps: list[tuple[str, Any, int, Callable[[Any], Any]]] = [
            ("create", create(f"{client_id}-new", 1), 6, lambda answer: answer.topics[0]),
            ("create", create(f"{client_id}-old", 20), 5, lambda answer: answer.topics[0]),
            ("grow", grow(names[0], 2), 3, lambda answer: answer.results[0]),
            ("grow", grow(names[0], 10), 2, lambda answer: answer.results[0]),
            ("delete", delete(names[1], 6), 6, lambda answer: answer.responses[0]),
            ("delete", delete(names[1], 5), 5, lambda answer: answer.responses[0]),
            ("delete", delete(names[1], 4), 4, lambda answer: answer.responses[0]),
        ]
        for what, request, version, of in steps:
            answer = await side.ask(request, version, client_id)
            result = of(answer)
            message = getattr(result, "error_message", None)
            found.append((f"{what} {version}", result.error_code, message, answer.throttle_time_ms > 0))
    return found


async def test_mutations_over_the_quota_are_answered_as_kafka_answers_them(sides: tuple[Side, Side]) -> None:
    ours, theirs = await asyncio.gather(*map(mutations, sides))
    assert ours == theirs
    assert {code for _, code, _, _ in ours} == {ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED}


async def bytes_over_the_quota(side: Side) -> tuple[list[int], list[int], Any]:
    """Throttle times of Produce requests and Fetch requests over the quota, and the last Fetch response."""
    topic = f"t-{uuid.uuid4().hex}"
    await side.admin.ask(create(topic, 1), 7)
    writer, reader = f"writer-{topic}", f"reader-{topic}"
    async with (
        side.quota({"client-id": writer}, producer_byte_rate=1000),
        side.quota({"client-id": reader}, consumer_byte_rate=2000),
    ):
        await eventually_async(
            lambda: side.ask(produce_request(topic, batch(bytes(20_000))), 9, writer),
            lambda answer: answer.throttle_time_ms > 0,
        )
        produced = [
            (await side.ask(produce_request(topic, batch(bytes(50_000))), version, writer)).throttle_time_ms
            for version in (3, 9, 11)
        ]
        answer = await eventually_async(
            lambda: side.ask(fetch_request(topic, 0, max_bytes=20_500, session_epoch=0), 12, reader),
            lambda answer: answer.throttle_time_ms > 0,
        )
    return produced, [answer.throttle_time_ms], (answer.error_code, answer.session_id, answer.responses)


async def test_throttle_times_of_bytes_are_those_of_kafka(sides: tuple[Side, Side]) -> None:
    ours, theirs = await asyncio.gather(*map(bytes_over_the_quota, sides))
    for mine, kafkas in zip(ours[0], theirs[0], strict=True):
        assert mine == pytest.approx(kafkas, rel=0.02, abs=1500)
    assert ours[0] == sorted(ours[0])
    assert ours[2] == theirs[2] == (ErrorCode.NONE, 0, [])


async def connections(side: Side) -> int:
    """How many connections of an address are served, one after the other, until one is refused for its quota.

    The broker applies a quota some time after it has responded, so these are at least a window's connections.
    """
    served = 0
    async with side.quota(dict(ADDRESS), connection_creation_rate=1):
        while served < MANY:
            client = await Client.connect(side.port)
            try:
                await client.ask(m.ApiVersionsRequest(), 0)
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            finally:
                client.close()
            served += 1
    return served


async def test_connections_over_the_quota_of_their_address_are_closed(sides: tuple[Side, Side]) -> None:
    for served in await asyncio.gather(*map(connections, sides)):
        assert WINDOW_S - 3 <= served < MANY


def created(name: str) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


async def zeros(side: Side) -> list[tuple[int, int]]:
    """Throttle times and errors of a client whose quotas are 0."""
    name, client_id = f"zero-{uuid.uuid4()}", f"c-{uuid.uuid4()}"
    await side.admin.create_topic(name)
    answers = []
    quotas = {"producer_byte_rate": 0, "consumer_byte_rate": 0, "controller_mutation_rate": 0}
    async with side.quota({"client-id": client_id}, **quotas):

        async def refused() -> Any:
            return await side.ask(created(f"{name}-{uuid.uuid4()}"), 7, client_id)

        found = await eventually_async(
            refused, lambda answer: answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        )
        answers.append((found.throttle_time_ms, found.topics[0].error_code))
        found = await side.ask(created(f"{name}-old"), 5, client_id)
        answers.append((found.throttle_time_ms, found.topics[0].error_code))
        for _ in range(2):
            found = await side.ask(produce_request(name, batch(b"v")), 9, client_id)
            answers.append((found.throttle_time_ms, found.responses[0].partition_responses[0].error_code))
            found = await side.ask(fetch_request(name, 0), 4, client_id)
            answers.append((found.throttle_time_ms, found.responses[0].partitions[0].error_code))
    return answers


async def test_quotas_of_0_throttle_as_kafkas_do(sides: tuple[Side, Side]) -> None:
    ours, theirs = await asyncio.gather(*map(zeros, sides))
    assert ours == theirs


async def coordinators(side: Side) -> tuple[int, int, int]:
    """Throttle times of a client: of CreateTopics over its quota, of the FindCoordinator that creates the topic of
    transactions, and of another CreateTopics.
    """
    name, client_id = f"coordinator-{uuid.uuid4()}", f"c-{uuid.uuid4()}"
    fresh = (create(f"{name}-{number}", 1) for number in itertools.count())
    of_topic = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=TRANSACTION_STATE)], allow_auto_topic_creation=False
    )
    await side.admin.ask(delete(TRANSACTION_STATE, 6), 6)
    await eventually_async(
        lambda: side.admin.ask(of_topic, 9),
        lambda answer: answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    async with side.quota({"client-id": client_id}, controller_mutation_rate=0.1):
        before = await eventually_async(
            lambda: side.ask(next(fresh), 7, client_id),
            lambda answer: answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        )
        found = await eventually_async(
            lambda: side.ask(m.FindCoordinatorRequest(key=name, key_type=1), 3, client_id),
            lambda answer: answer.error_code == ErrorCode.NONE,
        )
        after = await side.ask(next(fresh), 7, client_id)
        assert after.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return before.throttle_time_ms, found.throttle_time_ms, after.throttle_time_ms


async def test_the_topic_of_a_coordinator_is_charged_to_the_client_that_finds_it_first(
    sides: tuple[Side, Side],
) -> None:
    for before, finding, after in await asyncio.gather(*map(coordinators, sides)):
        assert finding == 0
        # Four partitions (50 in the process of the test), of which ten seconds allow one.
        assert after > before + 25_000


async def automatic(side: Side) -> list[tuple[int, int]]:
    """CreateTopics requests of a client before and after topics were created automatically for it."""
    name, client_id = f"automatic-{uuid.uuid4()}", f"c-{uuid.uuid4()}"
    answers = []
    async with side.quota({"client-id": client_id}, controller_mutation_rate=0.1):  # 1.1 tokens
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=f"{name}-{number}") for number in range(5)]
        request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        await eventually_async(
            lambda: side.ask(request, 9, client_id), lambda answer: not any(each.error_code for each in answer.topics)
        )
        for version in (7, 5):
            found = await side.ask(created(f"{name}-v{version}"), version, client_id)
            answers.append((found.throttle_time_ms > 0, found.topics[0].error_code))
    return answers


async def test_topics_that_are_created_automatically_are_charged_as_kafka_charges_them(
    sides: tuple[Side, Side],
) -> None:
    ours = await automatic(sides[0])
    # Kafka applies a quota some time after its response: the first clients may have none yet.
    theirs = await eventually_async(lambda: automatic(sides[1]), lambda answers: answers[0][0])
    assert ours == theirs
    assert ours[0] == (True, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
