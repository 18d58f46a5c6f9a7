"""Authorization of clients in versions that Apache Kafka has only with KRaft, beside Apache Kafka 4.3.0.

The scenarios run as those of `test_client_authorization`. Topics are named by their ids where these versions do so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker_process import BrokerProcess
from odradek.protocol.errors import ErrorCode
from tests.comparison.data import batch_of
from tests.comparison.pair import PROPERTIES, Ports
from tests.comparison.scenarios_groups import serves
from tests.comparison.scenarios_logs import make
from tests.comparison.scenarios_transactions import begun
from tests.jvm.kraft import running_kraft
from tests.security.authorization_oracle import AuthorizedPair, Right, User, cluster, topic
from tests.support.eventually import eventually_async

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPICS = ("one", "two")
UNKNOWN = b"\7" * 16
SAME = {
    **PROPERTIES,
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.coordinator.append.linger.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
}
ZOOKEEPER_MODE = {"broker.id": "1", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
KRAFT_MODE = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
ONLY_WITH_KRAFT = {name for name in SAME if name.endswith(("linger.ms", "interval.ms"))}
ONLY_WITH_ZOOKEEPER = {name for name in SAME if name.startswith("zookeeper.")}


def group(operation: AclOperation) -> Right:
    """A right on the group of a run."""
    return Right(operation, ResourceType.GROUP, "{tag}")


def without(names: set[str]) -> dict[str, str]:
    """The common properties without these."""
    return {name: value for name, value in SAME.items() if name not in names}


async def prepare(s: User) -> None:
    """The topics of all scenarios, with a record each, and the coordinators."""
    for name in TOPICS:
        await make(s.admin, name, 2)
        data = [{"name": name, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}]
        await s.admin.until(
            lambda answer: not answer.responses[0].partition_responses[0].error_code,
            "Produce",
            9,
            acks=1,
            timeout_ms=5_000,
            topic_data=data,
        )
    await serves(s.admin, "any")
    await s.admin.until(lambda answer: not answer.error_code, "FindCoordinator", 3, key="any", key_type=1)
    await begun(s.admin, "any")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedPair]:
    """Both brokers with the topics of the scenarios."""
    folder = tmp_path_factory.mktemp("newest")
    with (
        BrokerProcess(folder / "odradek", {**without(ONLY_WITH_KRAFT), **ZOOKEEPER_MODE}) as odradek,
        asyncio.Runner() as runner,
    ):
        kraft = running_kraft(folder / "kafka", {**without(ONLY_WITH_ZOOKEEPER), **KRAFT_MODE})
        port = runner.run(kraft.__aenter__())
        try:
            authorized = AuthorizedPair(Ports(odradek.port, port), runner)
            authorized.run(prepare, ())
            yield authorized
        finally:
            runner.run(kraft.__aexit__(None, None, None))


async def ids_of(s: User) -> list[bytes]:
    """The ids of the topics, and one that no topic has."""
    answer = await s.admin.quietly("Metadata", 12, topics=[{"name": name} for name in TOPICS])
    ids = {each.name: each.topic_id for each in answer.topics}
    return [*(ids[name] for name in TOPICS), UNKNOWN]


async def writes(s: User) -> None:
    """Produce by topic id."""
    for topic_id in await ids_of(s):
        data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch_of(b"a")}]}]
        await s.ask("Produce", 13, acks=1, timeout_ms=5_000, topic_data=data)


def test_writes(pair: AuthorizedPair) -> None:
    pair.check(writes, *(topic(AclOperation.WRITE, name) for name in TOPICS))


async def commits(s: User) -> None:
    """OffsetCommit and OffsetFetch by topic id."""
    ids = await ids_of(s)
    for wanted in (ids, ids[:1], ids[1:]):
        partitions = [{"partition_index": 0, "committed_offset": 3}]
        topics = [{"topic_id": each, "partitions": partitions} for each in wanted]
        await s.ask("OffsetCommit", 10, group_id=s.tag, topics=topics)
        asked = [{"topic_id": each, "partition_indexes": [0, 1]} for each in wanted]
        await s.ask("OffsetFetch", 10, groups=[{"group_id": s.tag, "topics": asked}])
    await s.ask("OffsetFetch", 10, groups=[{"group_id": s.tag, "topics": None}])


def test_committed_offsets(pair: AuthorizedPair) -> None:
    pair.check(commits, group(AclOperation.READ), *(topic(AclOperation.READ, name) for name in TOPICS))
    pair.check(commits, group(AclOperation.DESCRIBE), topic(AclOperation.DESCRIBE, "one"))


def joining(tag: str, *names: str) -> dict[str, Any]:
    """A member that joins a consumer group."""
    return {
        "group_id": tag,
        "member_id": f"member-of-{tag}",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": list(names),
        "topic_partitions": [],
    }


async def joins(s: User) -> None:
    """ConsumerGroupHeartbeat of a member that joins and leaves."""
    for names in (TOPICS, ("one",), ("absent",), ("two", "absent")):
        answer = await s.quietly("ConsumerGroupHeartbeat", 1, **joining(s.tag, *names))
        s.note("ConsumerGroupHeartbeat", 1, f"{names}", answer.error_code)
        leaving = {**joining(s.tag), "member_epoch": -1, "subscribed_topic_names": None}
        answer = await s.quietly("ConsumerGroupHeartbeat", 1, **leaving)
        s.note("ConsumerGroupHeartbeat", 1, "leave", answer.error_code)


def test_members(pair: AuthorizedPair) -> None:
    pair.check(joins, group(AclOperation.READ), *(topic(AclOperation.DESCRIBE, name) for name in TOPICS))


async def subscribes(s: User) -> None:
    """ConsumerGroupHeartbeat with an expression, until the group has looked the expression up."""
    ids = dict(zip(await ids_of(s), TOPICS, strict=False))
    fields = {**joining(s.tag), "subscribed_topic_names": None, "subscribed_topic_regex": "one|two|absent"}

    async def assigned() -> tuple[int, set[str]]:
        """The error and the topics of the response to a member that joins again, as after an error."""
        answer = await s.quietly("ConsumerGroupHeartbeat", 1, **fields)
        parts = answer.assignment.topic_partitions if answer.assignment is not None else []
        return answer.error_code, {ids[each.topic_id] for each in parts}

    metadata = await s.quietly("Metadata", 9, topics=[{"name": name} for name in TOPICS])
    readable = {each.name for each in metadata.topics if not each.error_code}
    found = await eventually_async(assigned, lambda each: bool(each[0]) or each[1] == readable)
    s.note("ConsumerGroupHeartbeat", 1, "expression", (found[0], sorted(found[1])))


def test_subscriptions_by_expression(pair: AuthorizedPair) -> None:
    pair.check(subscribes, group(AclOperation.READ), *(topic(AclOperation.DESCRIBE, name) for name in TOPICS))


async def describes_groups(s: User) -> None:
    """ConsumerGroupDescribe of a group with a member, and of one that does not exist."""
    await s.admin.quietly("ConsumerGroupHeartbeat", 1, **joining(s.tag, *TOPICS))
    for groups in ([s.tag], [f"absent-{s.tag}", s.tag]):
        for asked in (False, True):
            answer = await s.quietly("ConsumerGroupDescribe", 1, group_ids=groups, include_authorized_operations=asked)
            described = [
                (each.group_id, each.error_code, each.authorized_operations, len(each.members))
                for each in answer.groups
            ]
            s.note("ConsumerGroupDescribe", 1, f"{groups}", described)
    await s.ask("DescribeGroups", 6, groups=["any", f"absent-{s.tag}"], include_authorized_operations=True)


def test_descriptions_of_groups(pair: AuthorizedPair) -> None:
    pair.check(describes_groups, group(AclOperation.DESCRIBE), *(topic(AclOperation.DESCRIBE, name) for name in TOPICS))
    pair.check(describes_groups, group(AclOperation.DELETE), topic(AclOperation.READ, "*"))


async def describes_topics(s: User) -> None:
    """DescribeTopicPartitions."""
    for names in ((*TOPICS, "absent"), ("absent",), ("two",), ()):
        asked = [{"name": name} for name in names]
        for limit in (2_000, 3, 1):
            answer = await s.quietly("DescribeTopicPartitions", 0, topics=asked, response_partition_limit=limit)
            answer.topics.sort(key=lambda each: each.name)  # the refused ones have the order of a hash table
            s.note("DescribeTopicPartitions", 0, f"{names} {limit}", answer)
    cursor = {"topic_name": "two", "partition_index": 1}
    for asked in ([], [{"name": name} for name in TOPICS]):
        await s.ask("DescribeTopicPartitions", 0, topics=asked, response_partition_limit=9, cursor=cursor)


def test_topics(pair: AuthorizedPair) -> None:
    pair.check(describes_topics, topic(AclOperation.DESCRIBE, "one"), topic(AclOperation.READ, "two"))


async def coordinates(s: User) -> None:
    """FindCoordinator of a share group."""
    answer = await s.quietly("FindCoordinator", 6, coordinator_keys=[f"{s.tag}:AAAAAAAAAAAAAAAAAAAAAA:0"], key_type=2)
    refused = answer.coordinators[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    s.note("FindCoordinator", 6, "share group", refused)


def test_coordinators(pair: AuthorizedPair) -> None:
    pair.check(coordinates, cluster(AclOperation.CLUSTER_ACTION))
