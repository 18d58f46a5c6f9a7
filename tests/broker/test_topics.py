"""Topics over the wire: making, describing, deleting, and Kafka's code for everything that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, batch, running_broker

Creatable = m.CreateTopicsRequest.CreatableTopic
Config = m.CreateTopicsRequest.CreatableTopicConfig
Assignment = m.CreateTopicsRequest.CreatableReplicaAssignment


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


async def metadata(client: Client, name: str, *, create: bool, version: int = 12) -> m.MetadataResponse:
    wanted = m.MetadataRequest.MetadataRequestTopic(name=name)
    request = m.MetadataRequest(topics=[wanted], allow_auto_topic_creation=create)
    answer: m.MetadataResponse = await client.ask(request, version)
    return answer


async def test_what_a_new_topic_cannot_be(client: Client) -> None:
    await client.create_topic("taken")
    await client.create_topic("a.b")
    both = topic("both")
    both.assignments = [Assignment(partition_index=0, broker_ids=[0])]
    for wanted, code in (
        (topic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("no spaces"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic("t", factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", nonsense="1"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("t", cleanup_policy="burn"), ErrorCode.INVALID_CONFIG),
        (both, ErrorCode.INVALID_REQUEST),
    ):
        (result,) = await create(client, wanted)
        assert ErrorCode(result.error_code) is code, (wanted, result)
        assert result.error_message
    assert await names(client) == {"taken", "a.b"}


async def test_assignments_by_hand(client: Client) -> None:
    def assigned(*replicas: tuple[int, list[int]]) -> m.CreateTopicsRequest.CreatableTopic:
        wanted = topic("t", -1, -1)
        wanted.assignments = [Assignment(partition_index=index, broker_ids=brokers) for index, brokers in replicas]
        return wanted

    for wrong in (
        assigned((1, [0])),
        assigned((0, [9])),
        assigned((0, [0, 0])),
        assigned((0, [])),
    ):
        (result,) = await create(client, wrong)
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT, wrong
    (result,) = await create(client, assigned((1, [0]), (0, [0])))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


async def test_each_topic_of_a_request_stands_for_itself_and_none_twice(client: Client) -> None:
    results = await create(client, topic("good"), topic("twice"), topic("twice"), topic("bad", partitions=0))
    assert {(result.name, ErrorCode(result.error_code)) for result in results} == {
        ("good", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("bad", ErrorCode.INVALID_PARTITIONS),
    }
    assert await names(client) == {"good"}


async def test_validation_alone_makes_nothing(client: Client) -> None:
    (result,) = await create(client, topic("t", 3, -1, retention_ms="1000"), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 3, bytes(16))
    assert {config.name: config.value for config in result.configs}["retention.ms"] == "1000"
    assert await names(client) == set()


async def test_the_defaults_of_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"num.partitions": "4", "log.retention.hours": "2"}) as broker:
        client = await Client.connect(broker.port)
        (result,) = await create(client, topic("t", -1, -1))
        assert (result.num_partitions, result.replication_factor) == (4, 1)
        assert {config.name: config.value for config in result.configs}["retention.ms"] == str(2 * 3600 * 1000)
        client.close()


async def test_a_topic_is_made_when_somebody_asks_for_it_unless_that_is_off(tmp_path: Path, client: Client) -> None:
    answer = await metadata(client, "wished", create=True)
    assert (answer.topics[0].error_code, len(answer.topics[0].partitions)) == (0, 1)
    assert (await client.produce("wished", batch(b"v"))).error_code == 0
    answer = await metadata(client, "not wished", create=True)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    answer = await metadata(client, "only-looked-for", create=False)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await names(client) == {"wished"}
    async with running_broker(tmp_path / "other", {"auto.create.topics.enable": "false"}) as broker:
        other = await Client.connect(broker.port)
        answer = await metadata(other, "wished", create=True)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        other.close()


async def test_metadata_by_id(client: Client) -> None:
    made = await client.create_topic("t")
    for topic_id, name, code in ((made.topic_id, "t", 0), (bytes(range(16)), None, ErrorCode.UNKNOWN_TOPIC_ID)):
        wanted = m.MetadataRequest.MetadataRequestTopic(name=None, topic_id=topic_id)
        answer = await client.ask(m.MetadataRequest(topics=[wanted]), 12)
        assert (answer.topics[0].name, answer.topics[0].error_code) == (name, code)


async def test_deleting(client: Client, tmp_path: Path) -> None:
    made = {name: await client.create_topic(name) for name in ("by-name", "by-id", "kept")}
    State = m.DeleteTopicsRequest.DeleteTopicState  # noqa: N806 - a class
    request = m.DeleteTopicsRequest(
        topics=[
            State(name="by-name"),
            State(name=None, topic_id=made["by-id"].topic_id),
            State(name="absent"),
            State(name=None, topic_id=bytes(range(16))),
            State(name="kept", topic_id=made["kept"].topic_id),
        ],
        timeout_ms=1000,
    )
    answer = await client.ask(request, 6)
    assert [(result.name, ErrorCode(result.error_code)) for result in answer.responses] == [
        ("by-name", ErrorCode.NONE),
        ("by-id", ErrorCode.NONE),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("kept", ErrorCode.INVALID_REQUEST),
    ]
    assert await names(client) == {"kept"}
    async with running_broker(tmp_path / "other", {"delete.topic.enable": "false"}) as broker:
        other = await Client.connect(broker.port)
        await other.create_topic("t")
        answer = await other.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert answer.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
        other.close()


@pytest.mark.parametrize(("kind", "name", "code"), [(2, "absent", 3), (2, "bad name", 17), (4, "9", 42), (99, "x", 42)])
async def test_configurations_that_are_not_there(client: Client, kind: int, name: str, code: int) -> None:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    answer = await client.ask(m.DescribeConfigsRequest(resources=[resource]), 4)
    assert answer.results[0].error_code == code
    assert answer.results[0].error_message


async def test_where_a_value_comes_from(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"log.segment.bytes": "1000000"}) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs={"retention.ms": "5000"})

        async def describe(kind: int, name: str) -> dict[str, m.DescribeConfigsResponse.DescribeConfigsResourceResult]:
            resource = m.DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
            return {config.name: config for config in (await client.ask(request, 4)).results[0].configs}

        of_topic = await describe(2, "t")
        assert (of_topic["retention.ms"].value, of_topic["retention.ms"].config_source) == ("5000", 1)
        assert (of_topic["segment.bytes"].value, of_topic["segment.bytes"].config_source) == ("1000000", 4)
        assert [s.name for s in of_topic["segment.bytes"].synonyms] == ["log.segment.bytes", "log.segment.bytes"]
        assert of_topic["cleanup.policy"].config_source == 5
        assert all(config.documentation for config in of_topic.values())
        of_broker = await describe(4, "0")
        assert (of_broker["log.segment.bytes"].value, of_broker["log.segment.bytes"].config_source) == ("1000000", 4)
        client.close()
