"""Topics, configurations and ids over the wire: created, refused, described, deleted, created again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.topic_requests import metadata
from tests.broker.wire import Client, batch, running_broker

Topic = m.CreateTopicsRequest.CreatableTopic
TOPIC, BROKER = 2, 4
DYNAMIC_TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5


def new_topic(
    name: str, partitions: int = 1, factor: int = 1, **configs: str | None
) -> m.CreateTopicsRequest.CreatableTopic:
    config = m.CreateTopicsRequest.CreatableTopicConfig
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def assigned(name: str, assignment: dict[int, list[int]], partitions: int = -1) -> m.CreateTopicsRequest.CreatableTopic:
    entry = m.CreateTopicsRequest.CreatableReplicaAssignment
    return Topic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        assignments=[entry(partition_index=index, broker_ids=ids) for index, ids in assignment.items()],
    )


async def create(client: Client, *topics: m.CreateTopicsRequest.CreatableTopic, **options: Any) -> list[ErrorCode]:
    answer = await client.ask(m.CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, **options), 7)
    return [ErrorCode(topic.error_code) for topic in answer.topics]


async def all_topics(client: Client, version: int = 12) -> list[str | None]:
    request = m.MetadataRequest(topics=None if version else [])
    return sorted(topic.name for topic in (await client.ask(request, version)).topics)


async def delete(client: Client, *names: str, version: int = 5) -> list[ErrorCode]:
    answer = await client.ask(m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000), version)
    return [ErrorCode(topic.error_code) for topic in answer.responses]


async def describe(
    client: Client, kind: int, name: str, *keys: str, version: int = 4, **options: Any
) -> m.DescribeConfigsResponse.DescribeConfigsResult:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    answer = await client.ask(m.DescribeConfigsRequest(resources=[resource], **options), version)
    result: m.DescribeConfigsResponse.DescribeConfigsResult = answer.results[0]
    return result


async def test_a_deleted_topic_is_gone_from_the_disk_after_its_delay(tmp_path: Path) -> None:
    """The broker deletes files every log.segment.delete.delay.ms, not every ten seconds."""
    async with running_broker(tmp_path / "data", {"log.segment.delete.delay.ms": "200"}) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        assert await delete(client, "t") == [ErrorCode.NONE]
        async with asyncio.timeout(5):
            while [*(tmp_path / "data").glob("t-0*")]:
                await all_topics(client)
        client.close()


# ---- Metadata


async def test_metadata_creates_a_topic_with_the_defaults_of_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"num.partitions": "3"}) as broker:
        client = await Client.connect(broker.port)
        for version, name in ((0, "oldest"), (3, "old"), (4, "asked"), (13, "newest")):
            (topic,) = await metadata(client, name, version=version, auto_create=True)
            assert (topic.error_code, topic.name, topic.is_internal) == (0, name, False)
            assert [(each.partition_index, each.leader_id) for each in topic.partitions] == [(0, 0), (1, 0), (2, 0)]
            assert all(each.replica_nodes == each.isr_nodes == [0] for each in topic.partitions)
        assert (await client.produce("newest", batch(b"v"), partition=2)).error_code == 0
        client.close()


@pytest.mark.parametrize("asked", [True, False])
async def test_metadata_creates_a_topic_only_when_broker_and_client_allow_it(tmp_path: Path, asked: bool) -> None:
    allowed = {"auto.create.topics.enable": "false" if asked else "true"}
    async with running_broker(tmp_path / "data", allowed) as broker:
        client = await Client.connect(broker.port)
        (topic,) = await metadata(client, "absent", auto_create=asked)
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await all_topics(client) == []
        client.close()


async def test_invalid_creations_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"default.replication.factor": "3"}) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("a.b")
        for name, code in (
            ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("a_b", ErrorCode.INVALID_REPLICATION_FACTOR),  # this error precedes the collision of names
            ("three-replicas", ErrorCode.INVALID_REPLICATION_FACTOR),
        ):
            (topic,) = await metadata(client, name, auto_create=True)
            assert (topic.name, ErrorCode(topic.error_code)) == (name, code)
        assert await all_topics(client) == ["a.b"]
        client.close()


async def test_the_topic_of_group_offsets_is_created_as_groups_need_it(client: Client) -> None:
    (topic,) = await metadata(client, "__consumer_offsets", auto_create=True)
    assert (topic.error_code, topic.is_internal, len(topic.partitions)) == (0, True, 3)
    (policy,) = (await describe(client, TOPIC, "__consumer_offsets", "cleanup.policy")).configs
    assert policy.value == "compact"


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 3, 4, 6])
@pytest.mark.parametrize("kind", [0, 1])
async def test_the_first_coordinator_lookup_is_answered_once_there_is_a_coordinator(
    tmp_path: Path, version: int, kind: int
) -> None:
    if kind and not version:
        kind = 0  # version 0 supports groups only
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        asked = {"coordinator_keys": ["k", "l"]} if version >= 4 else {"key": "k"}
        answer = await client.ask(m.FindCoordinatorRequest(key_type=kind, **asked), version)
        for found in answer.coordinators or [answer]:
            assert (found.error_code, found.node_id, found.port) == (ErrorCode.NONE, 0, broker.port)
        client.close()


async def test_a_coordinator_lookup_does_not_wait_where_the_topic_cannot_be_created(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "2000000"}
    async with running_broker(tmp_path / "data", settings) as broker:
        client = await Client.connect(broker.port)
        answer = await client.ask(m.FindCoordinatorRequest(key="k"), 3)
        assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        client.close()


async def test_a_topic_by_its_id(client: Client) -> None:
    made = await client.create_topic("t", partitions=2)
    wanted = m.MetadataRequest.MetadataRequestTopic
    request = m.MetadataRequest(
        topics=[wanted(topic_id=made.topic_id, name=None), wanted(topic_id=bytes(range(16)), name=None)]
    )
    known, unknown = (await client.ask(request, 12)).topics
    assert (known.name, known.topic_id, len(known.partitions)) == ("t", made.topic_id, 2)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_all_topics_or_none(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.create_topic(name)
    for version in (0, 1, 12):
        assert await all_topics(client, version) == ["a", "b", "c"]
    for version in (1, 12):
        assert await metadata(client, version=version) == []


# ---- CreateTopics


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new_topic("not a name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("dotted_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (new_topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (new_topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("t", no_such_property="1"), ErrorCode.INVALID_CONFIG),
        (new_topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (new_topic("t", segment_bytes="13"), ErrorCode.INVALID_CONFIG),
        (new_topic("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
        (assigned("t", {0: [0]}, partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned("t", {0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned("t", {1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else value.name[:12] or "empty",
)
async def test_a_refused_topic_leaves_nothing_behind(
    client: Client, topic: m.CreateTopicsRequest.CreatableTopic, code: ErrorCode
) -> None:
    assert await create(client, new_topic("there"), new_topic("dotted.name")) == [ErrorCode.NONE] * 2
    for validate_only in (True, False):
        answer = await client.ask(
            m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only), 7
        )
        (result,) = answer.topics
        assert (ErrorCode(result.error_code), result.topic_id) == (code, bytes(16))
        assert result.error_message
    assert await all_topics(client) == ["dotted.name", "there"]


async def test_the_name_of_the_registry_cannot_be_a_topic(broker: Broker, client: Client) -> None:
    """A log of that name would lie in the folder of the registry."""
    name = "__cluster_metadata"
    assert await create(client, new_topic(name)) == [ErrorCode.INVALID_REQUEST]
    (topic,) = await metadata(client, name, auto_create=True)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await all_topics(client) == []


async def test_a_topic_named_twice_is_not_created_and_the_others_are(client: Client) -> None:
    answer = await client.ask(
        m.CreateTopicsRequest(topics=[new_topic("twice"), new_topic("once"), new_topic("twice", 2)], timeout_ms=1000), 7
    )
    codes = sorted((topic.name, ErrorCode(topic.error_code)) for topic in answer.topics)
    assert codes == [("once", ErrorCode.NONE), *[("twice", ErrorCode.INVALID_REQUEST)] * 2]
    assert await all_topics(client) == ["once"]


async def test_validation_creates_nothing(client: Client) -> None:
    request = m.CreateTopicsRequest(topics=[new_topic("t", 4)], timeout_ms=1000, validate_only=True)
    (result,) = (await client.ask(request, 7)).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)
    assert result.topic_id == bytes(16)
    assert await all_topics(client) == []


async def test_the_response_describes_the_created_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"num.partitions": "2"}) as broker:
        client = await Client.connect(broker.port)
        request = m.CreateTopicsRequest(
            topics=[new_topic("defaults", -1, -1, retention_ms="1000"), assigned("by-hand", {0: [0], 1: [0], 2: [0]})],
            timeout_ms=1000,
        )
        defaults, by_hand = (await client.ask(request, 7)).topics
        assert (defaults.num_partitions, defaults.replication_factor) == (2, 1)
        assert (by_hand.num_partitions, by_hand.replication_factor) == (3, 1)
        assert len({defaults.topic_id, by_hand.topic_id, bytes(16)}) == 3
        configs = {config.name: (config.value, config.config_source) for config in defaults.configs}
        assert configs["retention.ms"] == ("1000", DYNAMIC_TOPIC_CONFIG)
        assert configs["cleanup.policy"] == ("delete", DEFAULT_CONFIG)
        by_name = await metadata(client, "defaults", "by-hand")
        assert [topic.topic_id for topic in by_name] == [defaults.topic_id, by_hand.topic_id]
        client.close()


# ---- DeleteTopics


async def test_a_deleted_topic_is_unknown(client: Client) -> None:
    await client.create_topic("kept")
    await client.create_topic("gone", partitions=2)
    await client.produce("gone", batch(b"v"))
    assert await delete(client, "gone", "absent", "not a name") == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (await client.produce("gone", batch(b"v"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await client.fetch("gone", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await describe(client, TOPIC, "gone")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await all_topics(client) == ["kept"]


async def test_deletion_by_id(client: Client) -> None:
    made = await client.create_topic("t")
    state = m.DeleteTopicsRequest.DeleteTopicState
    both = m.DeleteTopicsRequest(topics=[state(name="t", topic_id=made.topic_id)], timeout_ms=1000)
    assert (await client.ask(both, 6)).responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert await all_topics(client) == ["t"]
    request = m.DeleteTopicsRequest(
        topics=[state(name=None, topic_id=made.topic_id), state(name=None, topic_id=bytes(range(16)))], timeout_ms=1000
    )
    known, unknown = (await client.ask(request, 6)).responses
    assert (known.name, known.topic_id, known.error_code) == ("t", made.topic_id, 0)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert await all_topics(client) == []


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED), (5, ErrorCode.TOPIC_DELETION_DISABLED)],
)
async def test_deletion_can_be_disabled(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async with running_broker(tmp_path / "data", {"delete.topic.enable": "false"}) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        assert await delete(client, "t", version=version) == [code]
        assert (await client.produce("t", batch(b"v"))).error_code == 0
        client.close()


async def test_a_recreated_topic_is_another_topic(client: Client) -> None:
    ids = set()
    for _ in range(3):
        made = await client.create_topic("t", configs={"retention.ms": "1000"} if not ids else None)
        ids.add(made.topic_id)
        empty = await client.fetch("t", 0)
        assert (empty.error_code, empty.high_watermark, bytes(empty.records)) == (0, 0, b"")
        (retention,) = (await describe(client, TOPIC, "t", "retention.ms")).configs
        assert retention.config_source == (DYNAMIC_TOPIC_CONFIG if len(ids) == 1 else DEFAULT_CONFIG)
        assert (await client.produce("t", batch(b"v"))).base_offset == 0
        assert await delete(client, "t") == [ErrorCode.NONE]
    assert len(ids) == 3


async def test_a_long_poll_on_a_topic_ends_with_the_topic(broker: Broker, client: Client) -> None:
    await client.create_topic("t")
    reader = await Client.connect(broker.port)
    waiting = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic="t", partitions=[waiting])
    await reader.send(m.FetchRequest(max_wait_ms=15_000, min_bytes=1, max_bytes=1 << 20, topics=[topic]), 12)
    assert await delete(client, "t") == [ErrorCode.NONE]
    answer = (await reader.receive()).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reader.close()


# ---- configurations, the cluster, ids and epochs


async def test_a_configuration_names_the_source_of_each_value(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", {"log.segment.bytes": "1048576"}) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs={"segment.bytes": "2097152"})
        await client.create_topic("plain")
        own = await describe(client, TOPIC, "t", "segment.bytes", include_synonyms=True, include_documentation=True)
        (entry,) = own.configs
        assert (entry.name, entry.value, entry.config_source) == ("segment.bytes", "2097152", DYNAMIC_TOPIC_CONFIG)
        assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
            ("segment.bytes", "2097152", DYNAMIC_TOPIC_CONFIG),
            ("log.segment.bytes", "1048576", STATIC_BROKER_CONFIG),
            ("log.segment.bytes", "1073741824", DEFAULT_CONFIG),
        ]
        assert entry.documentation
        inherited = {entry.name: entry for entry in (await describe(client, TOPIC, "plain")).configs}
        assert (inherited["segment.bytes"].value, inherited["segment.bytes"].config_source) == (
            "1048576",
            STATIC_BROKER_CONFIG,
        )
        assert inherited["retention.ms"].config_source == DEFAULT_CONFIG
        assert not inherited["retention.ms"].synonyms
        old = {entry.name: entry.is_default for entry in (await describe(client, TOPIC, "t", version=0)).configs}
        assert set(old.values()) == {False}  # as from Kafka since 2.6
        client.close()


async def test_the_configuration_of_a_broker(client: Client) -> None:
    configs = {entry.name: entry for entry in (await describe(client, BROKER, "0")).configs}
    assert (configs["broker.id"].value, configs["broker.id"].read_only) == ("0", True)
    assert configs["offsets.topic.num.partitions"].config_source == STATIC_BROKER_CONFIG
    assert configs["num.partitions"].config_source == DEFAULT_CONFIG
    assert (await describe(client, BROKER, "")).error_code == 0
    for kind, name, code in (
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "zero", ErrorCode.INVALID_REQUEST),
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ):
        refused = await describe(client, kind, name)
        assert (ErrorCode(refused.error_code), refused.configs) == (code, [])
        assert refused.error_message or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_cluster(broker: Broker, client: Client) -> None:
    cluster = await client.ask(m.DescribeClusterRequest(), 1)
    assert (cluster.error_code, cluster.controller_id) == (0, 0)
    assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == [(0, "127.0.0.1", broker.port)]
    assert len(cluster.cluster_id) == 22
    assert (await client.ask(m.MetadataRequest(topics=[]), 12)).cluster_id == cluster.cluster_id
    controllers = await client.ask(m.DescribeClusterRequest(endpoint_type=2), 1)
    assert (controllers.error_code, controllers.brokers) == (ErrorCode.MISMATCHED_ENDPOINT_TYPE, [])


async def test_no_two_producers_share_an_id(client: Client) -> None:
    request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    for _ in range(1_100):  # more than one block of the registry holds
        await client.send(request, 4)
    answers = [await client.receive() for _ in range(1_100)]
    assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    assert len({answer.producer_id for answer in answers}) == 1_100


async def test_end_offsets_of_leader_epochs(tmp_path: Path) -> None:
    async def ask(epoch: int, current: int = -1, topic: str = "t") -> tuple[ErrorCode, int, int]:
        wanted = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = [m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        answer = await client.ask(m.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)
        end = answer.topics[0].partitions[0]
        return ErrorCode(end.error_code), end.leader_epoch, end.end_offset

    for start in range(3):
        async with running_broker(tmp_path / "data") as broker:
            client = await Client.connect(broker.port)
            if start == 0:
                await client.create_topic("t")
            for _ in range(start + 1):
                assert (await client.produce("t", batch(b"a", b"b"))).error_code == 0
            client.close()
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        assert await ask(0) == (ErrorCode.NONE, 0, 2)
        assert await ask(1) == (ErrorCode.NONE, 1, 6)
        assert await ask(2) == (ErrorCode.NONE, 2, 12)
        assert await ask(3, current=3) == (ErrorCode.NONE, 3, 12)
        assert await ask(9) == (ErrorCode.NONE, -1, -1)
        assert await ask(0, current=2) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await ask(0, current=4) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert await ask(0, topic="absent") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        client.close()
