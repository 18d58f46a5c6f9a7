"""What the requests of administrators and of brokers need, beside Apache Kafka 3.9.2: with no right, without each of
the rights, and with all of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.security.state.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from tests.comparison.data import batch_of
from tests.security.authorization_oracle import AuthorizedPair, Right, User, cluster, topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ADMIN_TOPIC = "admin"
TOKEN_TYPES = (0, 1)


def new_topic(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, **changes}


async def make(s: User, *names: str) -> dict[str, bytes]:
    """Topics that the administrator creates; their ids."""
    wanted = [new_topic(name) for name in names]
    answer = await s.admin.quietly("CreateTopics", 7, topics=wanted, timeout_ms=20_000)
    assert {each.error_code for each in answer.topics} <= {0, 36}, answer
    for name in names:
        await s.admin.wait(
            lambda metadata: all(part.leader_id >= 0 for part in metadata.topics[0].partitions),
            "Metadata",
            9,
            topics=[{"name": name}],
            allow_auto_topic_creation=False,
        )
    described = await s.admin.quietly("Metadata", 12, topics=[{"name": name} for name in names])
    return {each.name: each.topic_id for each in described.topics}


# ---- topics


async def create_topics(s: User) -> None:
    mine, other = f"create-{s.tag}-{{v}}", f"other-{s.tag}-{{v}}"
    configs = [{"name": "retention.ms", "value": "1000"}]
    await s.ask("CreateTopics", topics=[new_topic(mine, configs=configs), new_topic(other)], timeout_ms=20_000)
    twice = [new_topic(f"twice-{s.tag}"), new_topic(f"twice-{s.tag}"), new_topic(mine)]
    await s.ask("CreateTopics", topics=twice, timeout_ms=20_000)
    for name in ("a b", "", "__cluster_metadata", "__consumer_offsets"):
        await s.ask("CreateTopics", topics=[new_topic(name)], timeout_ms=20_000)
    await s.ask("CreateTopics", "1+", topics=[new_topic(f"v-{s.tag}-{{v}}")], timeout_ms=20_000, validate_only=True)
    await s.ask("CreateTopics", "1+", topics=[new_topic(f"bad-{s.tag}", num_partitions=-7)], timeout_ms=20_000)


def test_create_topics_by_the_cluster(authorized: AuthorizedPair) -> None:
    authorized.check(create_topics, cluster(AclOperation.CREATE))


def test_create_topics_by_name(authorized: AuthorizedPair) -> None:
    created = Right(AclOperation.CREATE, ResourceType.TOPIC, "create-", PatternType.PREFIXED)
    described = Right(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "create-", PatternType.PREFIXED)
    twice = Right(AclOperation.CREATE, ResourceType.TOPIC, "twice-", PatternType.PREFIXED)
    authorized.check(create_topics, created, described, twice, decisive=False)


async def delete_topics(s: User) -> None:
    names = [f"delete-{s.tag}-{number}" for number in range(8)]
    ids = await make(s, *names)
    for version in range(1, 6):
        await s.ask("DeleteTopics", version, topic_names=[names[version], "absent", names[version]], timeout_ms=20_000)
    by_id = {"name": None, "topic_id": ids[names[6]]}
    by_name = {"name": names[7], "topic_id": bytes(16)}
    unknown = {"name": None, "topic_id": b"x" * 16}
    await s.ask("DeleteTopics", 6, topics=[unknown, {**by_name, "name": "absent"}], timeout_ms=20_000, label="unknown")
    both = {"name": names[6], "topic_id": ids[names[6]]}
    await s.ask("DeleteTopics", 6, topics=[both, by_name], timeout_ms=20_000, label="both")
    await s.ask("DeleteTopics", 6, topics=[by_id, by_name], timeout_ms=20_000, label="by id and by name")
    left = [name for name in names if (await s.admin.quietly("Metadata", 9, topics=[{"name": name}])).topics]
    await s.admin.quietly("DeleteTopics", 5, topic_names=left, timeout_ms=20_000)


def test_delete_topics(authorized: AuthorizedPair) -> None:
    def prefixed(operation: AclOperation, permission: AclPermissionType = AclPermissionType.ALLOW) -> Right:
        return Right(operation, ResourceType.TOPIC, "delete-", PatternType.PREFIXED, permission)

    absent = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, "absent")
    authorized.check(delete_topics, prefixed(AclOperation.DELETE), absent, decisive=False)
    authorized.check(delete_topics, prefixed(AclOperation.DESCRIBE))
    hidden = prefixed(AclOperation.DESCRIBE, AclPermissionType.DENY)
    authorized.check(delete_topics, prefixed(AclOperation.DELETE), hidden, decisive=False)


async def create_partitions(s: User) -> None:
    mine, other = f"grow-{s.tag}", f"fixed-{s.tag}"
    await make(s, mine, other)
    for version, count in ((0, 2), (1, 3), (2, 4), (3, 5)):
        wanted = [{"name": name, "count": count, "assignments": None} for name in (mine, other, "absent")]
        twice = {"name": f"twice-{s.tag}", "count": 2, "assignments": None}
        await s.ask("CreatePartitions", version, topics=[*wanted, twice, twice], timeout_ms=20_000)


def test_create_partitions(authorized: AuthorizedPair) -> None:
    mine = Right(AclOperation.ALTER, ResourceType.TOPIC, "grow-", PatternType.PREFIXED)
    authorized.check(create_partitions, mine, topic(AclOperation.ALTER, "absent"))


async def delete_records(s: User) -> None:
    mine, other = f"cut-{s.tag}", f"kept-{s.tag}"
    await make(s, mine, other)
    for name in (mine, other):
        data = [{"name": name, "partition_data": [{"index": 0, "records": batch_of(b"a", b"b")}]}]
        await s.admin.quietly("Produce", 9, acks=-1, timeout_ms=5000, topic_data=data)
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "offset": 1} for index in (0, 7)]}
        for name in (mine, other, "absent", "__consumer_offsets")
    ]
    await s.ask("DeleteRecords", topics=topics, timeout_ms=5000)


def test_delete_records(authorized: AuthorizedPair) -> None:
    mine = Right(AclOperation.DELETE, ResourceType.TOPIC, "cut-", PatternType.PREFIXED)
    authorized.check(delete_records, mine, topic(AclOperation.DELETE, "absent"))


async def offset_for_leader_epoch(s: User) -> None:
    await make(s, ADMIN_TOPIC)
    partitions = [{"partition": index, "leader_epoch": 0} for index in (0, 7)]
    topics = [{"topic": name, "partitions": partitions} for name in (ADMIN_TOPIC, "absent")]
    await s.ask("OffsetForLeaderEpoch", topics=topics)


def test_offset_for_leader_epoch(authorized: AuthorizedPair) -> None:
    authorized.check(
        offset_for_leader_epoch,
        topic(AclOperation.DESCRIBE, ADMIN_TOPIC),
        topic(AclOperation.DESCRIBE, "absent"),
    )
    authorized.check(offset_for_leader_epoch, cluster(AclOperation.CLUSTER_ACTION))


# ---- configurations


async def describe_configs(s: User) -> None:
    await make(s, ADMIN_TOPIC)
    for kind, name in ((2, ADMIN_TOPIC), (2, "absent"), (2, "a b"), (4, "0"), (4, ""), (4, "7"), (4, "x")):
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms", "broker.rack"]}
        await s.ask("DescribeConfigs", resources=[resource])
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms", "broker.rack"]}
        for kind, name in ((2, ADMIN_TOPIC), (4, "0"), (2, "absent"))
    ]
    await s.ask("DescribeConfigs", resources=resources)
    loggers = {"resource_type": 8, "resource_name": "x", "configuration_keys": ["none"]}
    await s.ask("DescribeConfigs", resources=[loggers])
    await s.ask("DescribeConfigs", resources=[{**loggers, "resource_type": 16}])


def test_describe_configs(authorized: AuthorizedPair) -> None:
    authorized.check(
        describe_configs,
        topic(AclOperation.DESCRIBE_CONFIGS, ADMIN_TOPIC),
        topic(AclOperation.DESCRIBE_CONFIGS, "absent"),
        cluster(AclOperation.DESCRIBE_CONFIGS),
    )


RESOURCES = (
    (2, ADMIN_TOPIC, "retention.ms", "70000"),
    (2, ADMIN_TOPIC, "retention.ms", "x"),
    (2, ADMIN_TOPIC, "none.such", "1"),
    (2, "absent", "retention.ms", "70000"),
    (2, "", "retention.ms", "70000"),
    (2, ADMIN_TOPIC, "retention.ms", None),
    (4, "0", "log.cleaner.threads", "1"),
    (4, "0", "log.cleaner.threads", "x"),
    (4, "0", "broker.id", "1"),
    (4, "7", "log.cleaner.threads", "1"),
    (4, "x", "log.cleaner.threads", "1"),
    (4, "", "log.cleaner.threads", None),
    (8, "0", "none.such", "INFO"),
    (8, "x", "root", "INFO"),
    (0, "x", "a", "b"),
)


async def alter_configs(s: User) -> None:
    await make(s, ADMIN_TOPIC)
    for kind, name, key, value in RESOURCES:
        configs = [{"name": key, "value": value}]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        if kind != 8:
            await s.ask("AlterConfigs", resources=[resource], validate_only=True)
        await s.ask("IncrementalAlterConfigs", resources=[resource], validate_only=True)
        await s.ask("IncrementalAlterConfigs", resources=[{**resource, "configs": configs * 2}], validate_only=True)
    several = [
        {"resource_type": kind, "resource_name": name, "configs": [{"name": key, "value": "2"}]}
        for kind, name, key in (
            (2, ADMIN_TOPIC, "segment.ms"),
            (4, "0", "background.threads"),
            (2, "absent", "segment.ms"),
            (2, "absent", "segment.ms"),
        )
    ]
    await s.ask("AlterConfigs", resources=several[:3], validate_only=True)  # Kafka does not answer where one is twice
    await s.ask("IncrementalAlterConfigs", resources=several)


def test_alter_configs(authorized: AuthorizedPair) -> None:
    authorized.check(
        alter_configs,
        topic(AclOperation.ALTER_CONFIGS, ADMIN_TOPIC),
        topic(AclOperation.ALTER_CONFIGS, "absent"),
        cluster(AclOperation.ALTER_CONFIGS),
    )


# ---- the cluster, for administrators


async def log_dirs(s: User) -> None:
    await make(s, ADMIN_TOPIC)
    await s.ask("DescribeLogDirs", topics=[{"topic": ADMIN_TOPIC, "partitions": [0, 7]}])
    dirs = [
        {"path": "/none/such", "topics": [{"name": name, "partitions": [0, 7]} for name in (ADMIN_TOPIC, "absent")]}
    ]
    await s.ask("AlterReplicaLogDirs", dirs=dirs)


def test_log_dirs(authorized: AuthorizedPair) -> None:
    authorized.check(log_dirs, cluster(AclOperation.DESCRIBE), decisive=False)
    authorized.check(log_dirs, cluster(AclOperation.ALTER))


async def elections(s: User) -> None:
    await make(s, ADMIN_TOPIC)
    partitions = [{"topic": name, "partitions": [0, 7]} for name in (ADMIN_TOPIC, "absent")]
    await s.ask("ElectLeaders", topic_partitions=partitions, timeout_ms=5000)
    await s.ask("ElectLeaders", "1+", election_type=1, topic_partitions=partitions, timeout_ms=5000)
    await s.ask("ElectLeaders", topic_partitions=None, timeout_ms=5000)
    moved = [
        {"name": name, "partitions": [{"partition_index": 7, "replicas": [0]}]} for name in (ADMIN_TOPIC, "absent")
    ]
    await s.ask("AlterPartitionReassignments", topics=moved, timeout_ms=5000)
    topics = [{"name": name, "partition_indexes": [0, 7]} for name in (ADMIN_TOPIC, "absent")]
    await s.ask("ListPartitionReassignments", topics=topics, timeout_ms=5000)
    await s.ask("ListPartitionReassignments", topics=None, timeout_ms=5000)


def test_elections_and_reassignments(authorized: AuthorizedPair) -> None:
    authorized.check(elections, cluster(AclOperation.ALTER), decisive=False)
    authorized.check(elections, cluster(AclOperation.DESCRIBE))


async def quotas(s: User) -> None:
    entity = [{"entity_type": "user", "entity_name": s.tag}]
    op = {"key": "producer_byte_rate", "value": 5.0, "remove": False}
    await s.ask("AlterClientQuotas", entries=[{"entity": entity, "ops": [op]}], validate_only=False)
    await s.ask("AlterClientQuotas", entries=[{"entity": entity, "ops": [{**op, "key": "x"}]}], validate_only=True)
    for match_type in (0, 1, 9):
        named = {"entity_type": "user", "match_type": match_type, "match": s.tag if match_type == 0 else None}
        await s.ask("DescribeClientQuotas", components=[named], strict=True)


def test_quotas(authorized: AuthorizedPair) -> None:
    authorized.check(quotas, cluster(AclOperation.ALTER_CONFIGS), decisive=False)
    authorized.check(quotas, cluster(AclOperation.DESCRIBE_CONFIGS))


async def scram(s: User) -> None:
    insertion = {"name": s.tag, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"password"}
    await s.ask("AlterUserScramCredentials", deletions=[], upsertions=[insertion])
    await s.ask("AlterUserScramCredentials", deletions=[{"name": "none", "mechanism": 1}], upsertions=[])
    await s.ask("DescribeUserScramCredentials", users=[{"name": s.tag}, {"name": "none"}])
    await s.ask("DescribeUserScramCredentials", users=[{"name": "none"}, {"name": "none"}])


def test_scram_credentials(authorized: AuthorizedPair) -> None:
    authorized.check(scram, cluster(AclOperation.ALTER), cluster(AclOperation.DESCRIBE), decisive=False)
    authorized.check(scram, cluster(AclOperation.DESCRIBE))


async def cluster_requests(s: User) -> None:
    await s.ask("DescribeCluster", include_cluster_authorized_operations=True)
    await s.ask("DescribeCluster", include_cluster_authorized_operations=False)
    update = [{"feature": "none", "max_version_level": 1}]
    await s.ask("UpdateFeatures", timeout_ms=5000, feature_updates=update)
    await s.ask("UpdateFeatures", timeout_ms=5000, feature_updates=[])


def test_cluster_requests(authorized: AuthorizedPair) -> None:
    authorized.check(cluster_requests, cluster(AclOperation.ALTER))
    authorized.check(cluster_requests, cluster(AclOperation.DESCRIBE))
    authorized.check(
        cluster_requests,
        cluster(AclOperation.DESCRIBE),
        cluster(AclOperation.CREATE),
        cluster(AclOperation.IDEMPOTENT_WRITE),
        cluster(AclOperation.ALTER_CONFIGS),
        cluster(AclOperation.CLUSTER_ACTION),
    )


# ---- transactions


async def transactions(s: User) -> None:
    await make(s, ADMIN_TOPIC, "second")
    identity = f"transactional-{s.tag}"
    await s.admin.wait(
        lambda answer: answer.coordinators[0].error_code == 0,
        "FindCoordinator",
        4,
        key_type=1,
        coordinator_keys=[identity],
    )
    found = await s.admin.wait(
        lambda answer: answer.error_code == 0,
        "InitProducerId",
        4,
        transactional_id=identity,
        transaction_timeout_ms=60_000,
    )
    producer = {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
    topics = [{"name": name, "partitions": [0]} for name in (ADMIN_TOPIC, "second")]
    await s.admin.wait(
        lambda answer: (
            {
                one.partition_error_code
                for each in answer.results_by_topic_v3_and_below
                for one in each.results_by_partition
            }
            == {0}
        ),
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id=identity,
        v3_and_below_producer_id=producer["producer_id"],
        v3_and_below_producer_epoch=producer["producer_epoch"],
        v3_and_below_topics=topics,
    )
    await s.ask("DescribeTransactions", transactional_ids=[identity, f"absent-{s.tag}"])
    await s.ask("ListTransactions", 0, state_filters=["Ongoing"], producer_id_filters=[producer["producer_id"]])
    partitions = [{"name": name, "partition_indexes": [0, 7]} for name in (ADMIN_TOPIC, "absent", "a b")]
    await s.ask("DescribeProducers", topics=partitions)
    await s.admin.wait(
        lambda answer: answer.error_code == 0, "EndTxn", 3, transactional_id=identity, committed=False, **producer
    )


def test_transactions(authorized: AuthorizedPair) -> None:
    described = Right(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "transactional-", PatternType.PREFIXED)
    authorized.check(
        transactions,
        described,
        topic(AclOperation.DESCRIBE, "second"),
        topic(AclOperation.READ, ADMIN_TOPIC),
        topic(AclOperation.READ, "absent"),
    )


# ---- brokers


async def brokers(s: User) -> None:
    """Requests of brokers, which have to fail by themselves where the client may send them."""
    stale: dict[str, Any] = {"controller_id": 7, "controller_epoch": -1}
    state = {
        "partition_index": 0,
        "controller_epoch": -1,
        "leader": 7,
        "leader_epoch": 0,
        "isr": [7],
        "partition_epoch": 0,
        "replicas": [7],
    }
    ungrouped = [{**state, "topic_name": "x"}, {**state, "topic_name": "y", "partition_index": 1}]
    await s.ask("LeaderAndIsr", "0-1", **stale, ungrouped_partition_states=ungrouped, live_leaders=[])
    grouped = [{"topic_name": name, "partition_states": [state]} for name in ("x", "y")]
    await s.ask("LeaderAndIsr", "2-4", **stale, topic_states=grouped, live_leaders=[])
    with_ids = [{**each, "topic_id": b"i" * 16} for each in grouped]
    await s.ask("LeaderAndIsr", "5+", **stale, topic_states=with_ids, live_leaders=[])
    stopped = [{"topic_name": "x", "partition_index": 0}, {"topic_name": "y", "partition_index": 1}]
    await s.ask("StopReplica", 0, **stale, delete_partitions=False, ungrouped_partitions=stopped)
    topics = [{"name": "x", "partition_indexes": [0, 1]}]
    await s.ask("StopReplica", "1-2", **stale, delete_partitions=False, topics=topics)
    states = [{"topic_name": "x", "partition_states": [{"partition_index": 0}]}]
    await s.ask("StopReplica", "3+", **stale, topic_states=states)
    await s.ask("UpdateMetadata", "5+", **stale, topic_states=[], live_brokers=[])
    await s.ask("ControlledShutdown", "0-1", broker_id=7)
    await s.ask("ControlledShutdown", "2+", broker_id=7, broker_epoch=-1)
    await s.ask("AllocateProducerIds", broker_id=0, broker_epoch=-5)
    await s.ask("AlterPartition", "0-1", broker_id=7, broker_epoch=-1, topics=[])
    await s.ask("AlterPartition", "2+", broker_id=7, broker_epoch=-1, topics=[])


def test_requests_of_brokers(authorized: AuthorizedPair) -> None:
    authorized.check(brokers, cluster(AclOperation.CLUSTER_ACTION))
    authorized.check(brokers, cluster(AclOperation.ALTER), decisive=False)


async def markers(s: User) -> None:
    await make(s, ADMIN_TOPIC)
    wanted = [
        {
            "producer_id": number,
            "producer_epoch": 0,
            "transaction_result": False,
            "topics": [{"name": name, "partition_indexes": [7, 8]} for name in (ADMIN_TOPIC, "absent")],
            "coordinator_epoch": 0,
        }
        for number in (5000, 5001)
    ]
    await s.ask("WriteTxnMarkers", markers=wanted)


def test_write_txn_markers(authorized: AuthorizedPair) -> None:
    authorized.check(markers, cluster(AclOperation.CLUSTER_ACTION))
    authorized.check(markers, cluster(AclOperation.ALTER))
