"""Several topics in one request, each handled on its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.registry.interface import ConnectionLossError
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, batch, running_broker

Creatable = m.CreateTopicsRequest.CreatableTopic
Config = m.CreateTopicsRequest.CreatableTopicConfig


async def create(
    client: Client, *topics: m.CreateTopicsRequest.CreatableTopic, validate_only: bool = False
) -> list[m.CreateTopicsResponse.CreatableTopicResult]:
    request = m.CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
    results: list[m.CreateTopicsResponse.CreatableTopicResult] = (await client.ask(request, 7)).topics
    return results


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> m.CreateTopicsRequest.CreatableTopic:
    return Creatable(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[Config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


async def names(client: Client) -> set[str]:
    answer = await client.ask(m.MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
    return {each.name for each in answer.topics}


async def test_each_topic_of_a_request_is_handled_on_its_own_and_none_twice(client: Client) -> None:
    results = await create(client, topic("good"), topic("twice"), topic("twice"), topic("bad", partitions=0))
    assert {(result.name, ErrorCode(result.error_code)) for result in results} == {
        ("good", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("bad", ErrorCode.INVALID_PARTITIONS),
    }
    assert await names(client) == {"good"}


async def test_the_defaults_of_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"num.partitions": "4", "log.retention.hours": "2"}) as broker:
        client = await Client.connect(broker.port)
        (result,) = await create(client, topic("t", -1, -1))
        assert (result.num_partitions, result.replication_factor) == (4, 1)
        assert {config.name: config.value for config in result.configs or ()}["retention.ms"] == str(2 * 3600 * 1000)
        client.close()


async def test_deleting(client: Client, tmp_path: Path) -> None:
    made = {name: await client.create_topic(name) for name in ("by-name", "by-id", "kept")}
    State = m.DeleteTopicsRequest.DeleteTopicState  # noqa: N806 - a class
    request = m.DeleteTopicsRequest(
        topics=[
            State(name="by-name"),
            State(name=None, topic_id=made["by-id"].topic_id),
            State(name="absent"),
            State(name=None, topic_id=bytes(range(16))),
        ],
        timeout_ms=1000,
    )
    answer = await client.ask(request, 6)
    assert [(result.name, ErrorCode(result.error_code)) for result in answer.responses] == [
        ("by-name", ErrorCode.NONE),
        ("by-id", ErrorCode.NONE),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    request.topics = [State(name="kept", topic_id=made["kept"].topic_id), State(name="kept")]
    answer = await client.ask(request, 6)
    assert [result.error_code for result in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert await names(client) == {"kept"}
    async with running_broker(tmp_path / "other", {"delete.topic.enable": "false"}) as broker:
        other = await Client.connect(broker.port)
        await other.create_topic("t")
        answer = await other.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
        other.close()


async def test_a_control_request_waits_for_a_registry_that_is_briefly_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a response the controller would send it again after half a minute."""
    read, lost = TopicConfigs.read, Counter[str]()

    async def read_at_last(configs: TopicConfigs, topic: str) -> dict[str, str]:
        lost[topic] += 1
        if lost[topic] < 4:
            raise ConnectionLossError(topic, "there is no connection")
        return await read(configs, topic)

    monkeypatch.setattr(TopicConfigs, "read", read_at_last)
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        async with asyncio.timeout(20):
            await client.create_topic("t")
            assert (await client.produce("t", batch(b"one"))).error_code == ErrorCode.NONE
        client.close()
    assert lost["t"] == 4
