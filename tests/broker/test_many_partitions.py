"""Topics with many partitions, and many topics in one request: the broker serves other clients meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from tests.broker.wire import Client

PARTITIONS = 40


async def answers_during(broker: Broker, work: asyncio.Future[object]) -> int:
    """How many requests of another client, one after the other, are answered while `work` is not done."""
    other = await Client.connect(broker.port)
    answered = 0
    while not work.done():
        await other.ask(m.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        answered += 1
    other.close()
    return answered


def new_topics(count: int, partitions: int) -> m.CreateTopicsRequest:
    topics = [
        m.CreateTopicsRequest.CreatableTopic(name=f"topic-{n}", num_partitions=partitions, replication_factor=1)
        for n in range(count)
    ]
    return m.CreateTopicsRequest(topics=topics, timeout_ms=20_000)


async def test_others_are_served_while_the_logs_of_a_new_topic_are_created(broker: Broker, client: Client) -> None:
    creation = asyncio.ensure_future(client.ask(new_topics(1, PARTITIONS), 7))
    assert await answers_during(broker, creation) > PARTITIONS // 3
    assert creation.result().topics[0].error_code == 0


@pytest.mark.slow
async def test_others_are_served_while_many_topics_are_created(broker: Broker, client: Client) -> None:
    creation = asyncio.ensure_future(client.ask(new_topics(PARTITIONS, 1), 7))
    assert await answers_during(broker, creation) > PARTITIONS // 3
    assert {each.error_code for each in creation.result().topics} == {0}
