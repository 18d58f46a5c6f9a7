"""Authorization of clients beside Apache Kafka 3.9.2: records, metadata, groups and transactions, in every version.

Each scenario runs as a user without rights, as users that lack one right each, and as a user with all of them
(`authorization_oracle`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.security.state.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.protocol.errors import ErrorCode
from tests.comparison.data import batch_of, message_set
from tests.comparison.scenarios_groups import joining, serves
from tests.comparison.scenarios_logs import make
from tests.comparison.scenarios_transactions import begun, first
from tests.comparison.side import Side
from tests.security.authorization_oracle import AuthorizedPair, Right, User, cluster, running_authorized_pair, topic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPICS = ("one", "two")
INTERNAL = "__consumer_offsets"
FIRST_FETCH_BY_ID = 13
FIRST_FETCH_IN_SESSION = 7
FIRST_THAT_FORBIDS_CREATION = 4
FIRST_METADATA_BY_ID = 12
FIRST_WITH_OPERATIONS = 8
LAST_WITH_OPERATIONS_OF_CLUSTER = 10
LATEST = {"partition_index": 0, "timestamp": -1}


def group(operation: AclOperation) -> Right:
    """A right on the group of a run."""
    return Right(operation, ResourceType.GROUP, "{tag}")


def transactional_id(operation: AclOperation) -> Right:
    """A right on the transactional id of a run."""
    return Right(operation, ResourceType.TRANSACTIONAL_ID, "{tag}")


async def prepare(s: User) -> None:
    """The topics of all scenarios, with a record each, and the coordinators."""
    for name in (*TOPICS, "three"):
        await make(s.admin, name, 2)
        await produce(s.admin, name, versions=9)
    await serves(s.admin, "any")
    await s.admin.until(lambda answer: not answer.error_code, "FindCoordinator", 3, key="any", key_type=1)
    await begun(s.admin, "any")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedPair]:
    """Both brokers with the topics of the scenarios and no others: clients list all of them."""
    with running_authorized_pair(tmp_path_factory.mktemp("clients")) as running:
        running.run(prepare, ())
        yield running


# ---- records


async def produce(s: Side, *names: str, versions: str | int, index: int = 0, **fields: Any) -> None:
    """One batch for each topic, in one request."""
    old = versions == "0-2"
    records = message_set(b"a", magic=0) if old else batch_of(b"a")
    data = [{"name": name, "partition_data": [{"index": index, "records": records}]} for name in names]
    await s.ask("Produce", versions, acks=1, timeout_ms=5_000, topic_data=data, **fields)


async def writes(s: User) -> None:
    """Produce to topics of all kinds, alone and together."""
    for versions in ("0-2", "3+"):
        await produce(s, *TOPICS, versions=versions)
    await produce(s, "one", "absent", "a b", INTERNAL, versions="3+")
    await produce(s, "one", index=7, versions="3+")
    await produce(s, *TOPICS, "three", versions="3+", transactional_id=s.tag)  # no batch is transactional
    data = [{"name": "one", "partition_data": [{"index": 0, "records": batch_of(b"a")}]}]
    for version in s.span("Produce", "3+"):
        await s.send("Produce", version, at="unanswered", acks=0, timeout_ms=5_000, topic_data=data)
        answer = await s.quietly("ApiVersions", 0, at="unanswered")
        s.note("Produce", version, "acks=0", answer if isinstance(answer, str) else "the connection stays open")
    await s.ask("Produce", "3+", acks=7, timeout_ms=5_000, topic_data=data)
    malformed = [{"name": "two", "partition_data": [{"index": 0, "records": b"nothing"}]}]
    await s.ask("Produce", "3+", acks=1, timeout_ms=5_000, topic_data=malformed)


def test_writes(pair: AuthorizedPair) -> None:
    pair.check(writes, *(topic(AclOperation.WRITE, name) for name in TOPICS))


async def transactional_writes(s: User) -> None:
    """Batches of a transaction."""
    me: dict[str, Any] = await begun(s.admin, s.tag)
    topics = [{"name": "one", "partitions": [0]}]
    await s.admin.ask("AddPartitionsToTxn", 3, **first({"transactional_id": s.tag, **me, "topics": topics}))
    for number, version in enumerate(s.span("Produce", "3+")):
        records = batch_of(b"a", base_sequence=number, transactional=True, **me)
        data = [
            {"name": "one", "partition_data": [{"index": 0, "records": records}]},
            {"name": "absent", "partition_data": [{"index": 0, "records": records}]},
        ]
        write: dict[str, Any] = {"acks": 1, "timeout_ms": 5_000, "topic_data": data[:1]}
        await s.ask("Produce", version, **write, transactional_id=s.tag)
        await s.ask("Produce", version, **{**write, "topic_data": data[1:]}, transactional_id=s.tag)
        await s.ask("Produce", version, **write, transactional_id=f"not-{s.tag}")
        await s.ask("Produce", version, **write, transactional_id=None)
    await s.unanswered("Produce", 9, **{**write, "acks": 0}, transactional_id=f"not-{s.tag}")
    await s.admin.ask("EndTxn", 3, transactional_id=s.tag, **me, committed=False)


def test_transactional_writes(pair: AuthorizedPair) -> None:
    pair.check(transactional_writes, transactional_id(AclOperation.WRITE), topic(AclOperation.WRITE, "one"))


async def ids_of(s: User) -> dict[str, bytes]:
    """The ids of the topics, and one that no topic has."""
    answer = await s.admin.quietly("Metadata", 12, topics=[{"name": name} for name in TOPICS])
    ids = {each.name: each.topic_id for each in answer.topics}
    return {**{name: ids[name] for name in TOPICS}, "absent": b"\7" * 16}


def fetching(version: int, ids: dict[str, bytes], *names: str) -> list[dict[str, Any]]:
    """A partition of each topic, by name or by id."""
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 300}]
    if version < FIRST_FETCH_BY_ID:
        return [{"topic": name, "partitions": partitions} for name in names]
    return [{"topic_id": ids[name], "partitions": partitions} for name in names]


async def reads(s: User) -> None:
    """Fetch as a consumer, by name and by id, without and within sessions."""
    ids = await ids_of(s)
    for version in s.span("Fetch", None):
        for names in ((*TOPICS, "absent"), ("absent", "one"), ("two",)):
            topics = fetching(version, ids, *names)
            fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, "topics": topics}
            answer = await s.ask("Fetch", version, **fields)
            if version >= FIRST_FETCH_IN_SESSION:
                answer = await s.ask("Fetch", version, **fields, session_id=0, session_epoch=0)
                more = {**fields, "topics": [], "session_id": answer.session_id, "session_epoch": 1}
                await s.take(await s.send("Fetch", version, **more, label="next"))


def test_reads(pair: AuthorizedPair) -> None:
    pair.check(reads, *(topic(AclOperation.READ, name) for name in TOPICS))


async def follows(s: User) -> None:
    """Fetch as a follower."""
    ids = await ids_of(s)
    for version in s.span("Fetch", None):
        topics = fetching(version, ids, "one", "absent")
        fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, "topics": topics}
        replica = {"replica_id": 9} if version < 15 else {"replica_state": {"replica_id": 9, "replica_epoch": 1}}
        await s.ask("Fetch", version, **fields, **replica)


def test_follows(pair: AuthorizedPair) -> None:
    pair.check(follows, cluster(AclOperation.CLUSTER_ACTION))
    pair.check(follows, topic(AclOperation.READ, "one"), decisive=False)


async def lists_offsets(s: User) -> None:
    """ListOffsets."""
    for names in (TOPICS, ("one", "absent"), ("one", "one"), ("two",)):
        topics = [{"name": name, "partitions": [LATEST]} for name in names]
        await s.ask("ListOffsets", "1+", replica_id=-1, topics=topics)
        old = [{"name": name, "partitions": [{**LATEST, "max_num_offsets": 3}]} for name in names]
        await s.ask("ListOffsets", 0, replica_id=-1, topics=old)


def test_offsets_of_logs(pair: AuthorizedPair) -> None:
    pair.check(lists_offsets, *(topic(AclOperation.DESCRIBE, name) for name in TOPICS))


# ---- metadata


async def describes_topics(s: User) -> None:
    """Metadata by name, by id, and of all topics, with the operations that are allowed."""
    ids = await ids_of(s)
    for version in s.span("Metadata", None):
        named = [{"name": name} for name in (*TOPICS, "three", "a b", INTERNAL)]
        flags: dict[str, Any] = {}
        if version >= FIRST_THAT_FORBIDS_CREATION:
            named.append({"name": "absent"})
            flags["allow_auto_topic_creation"] = False
        asked: list[list[dict[str, Any]] | None] = [named, []]
        if version:
            asked.append(None)
        if version >= FIRST_METADATA_BY_ID:
            asked.append([{"name": None, "topic_id": each} for each in ids.values()])
        if version >= FIRST_WITH_OPERATIONS:
            flags["include_topic_authorized_operations"] = True
        if FIRST_WITH_OPERATIONS <= version <= LAST_WITH_OPERATIONS_OF_CLUSTER:
            flags["include_cluster_authorized_operations"] = True
        for topics in asked:
            await s.ask("Metadata", version, topics=topics, **flags)
    await s.ask("Metadata", 9, topics=named, allow_auto_topic_creation=False)


async def creates_topics(s: User) -> None:
    """Metadata of topics that do not exist."""
    for version in s.span("Metadata", None):
        asked = [{"name": f"{name}-{s.tag}-{version}"} for name in ("new", "other")]
        await s.ask("Metadata", version, topics=asked)
        if version >= FIRST_THAT_FORBIDS_CREATION:
            more = [{"name": f"new-{s.tag}-{version}-too"}]
            await s.ask("Metadata", version, topics=more, allow_auto_topic_creation=False)
    await s.ask("Metadata", 9, topics=[{"name": "a b"}, {"name": "new\u00fc"}])


def test_created_topics(pair: AuthorizedPair) -> None:
    describe = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, "new", PatternType.PREFIXED)
    create = Right(AclOperation.CREATE, ResourceType.TOPIC, "new", PatternType.PREFIXED)
    pair.check(creates_topics, describe, create)
    pair.check(creates_topics, topic(AclOperation.DESCRIBE, "*"), cluster(AclOperation.CREATE))


def test_metadata(pair: AuthorizedPair) -> None:
    pair.check(describes_topics, topic(AclOperation.DESCRIBE, "one"), topic(AclOperation.READ, "two"))
    pair.check(describes_topics, cluster(AclOperation.DESCRIBE), topic(AclOperation.ALL, "*"))
    denied = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, "one", permission=AclPermissionType.DENY)
    pair.check(describes_topics, topic(AclOperation.DESCRIBE, "*"), denied)


async def finds(s: User) -> None:
    """FindCoordinator of groups and of transactional ids."""
    await s.ask("FindCoordinator", 0, key=s.tag)
    for kind in (0, 1, 2):
        await s.ask("FindCoordinator", "1-3", key=s.tag, key_type=kind)
        await s.ask("FindCoordinator", "4+", coordinator_keys=[s.tag], key_type=kind)
        await s.ask("FindCoordinator", "4+", coordinator_keys=["other", s.tag], key_type=kind)


def test_coordinators(pair: AuthorizedPair) -> None:
    pair.check(finds, group(AclOperation.DESCRIBE), transactional_id(AclOperation.DESCRIBE))
    pair.check(finds, group(AclOperation.READ), transactional_id(AclOperation.WRITE))


# ---- groups


async def joins(s: User) -> None:
    """A member from join to leave, in every version."""
    for version in s.span("JoinGroup", None):
        joined = await s.ask("JoinGroup", version, **joining(s.tag))
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = await s.ask("JoinGroup", version, **joining(s.tag, joined.member_id))
        me = {"group_id": s.tag, "member_id": joined.member_id, "generation_id": joined.generation_id}
        syncs = min(version, s.versions[14][1])
        named = {"protocol_type": "consumer", "protocol_name": "range"} if syncs >= 5 else {}
        shares = [{"member_id": joined.member_id, "assignment": b"mine"}]
        await s.ask("SyncGroup", syncs, **me, assignments=shares, **named)
        if syncs >= 5:
            await s.ask("SyncGroup", syncs, **me, assignments=shares)
        await s.ask("Heartbeat", min(version, s.versions[12][1]), **me)
        leaves = min(version, s.versions[13][1])
        leaver = {"member_id": joined.member_id}
        await s.ask("LeaveGroup", leaves, group_id=s.tag, **(leaver if leaves < 3 else {"members": [leaver]}))
    await s.ask("JoinGroup", **joining(s.tag, session_timeout_ms=1))
    await s.ask("JoinGroup", **joining(""))
    await s.ask("Heartbeat", group_id="", member_id="x", generation_id=1)


def test_members(pair: AuthorizedPair) -> None:
    pair.check(joins, group(AclOperation.READ))


def committing(*names: str) -> list[dict[str, Any]]:
    """Offsets of topics."""
    return [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 3}]} for name in names]


async def commits(s: User) -> None:
    """OffsetCommit."""
    for names in (TOPICS, ("one", "absent"), ("two",), ()):
        await s.ask("OffsetCommit", "2+", group_id=s.tag, topics=committing(*names))
    await s.ask("OffsetCommit", "2+", group_id="", topics=committing("one"))
    stranger: dict[str, Any] = {"group_id": s.tag, "member_id": "stranger", "generation_id_or_member_epoch": 5}
    await s.ask("OffsetCommit", "2+", **stranger, topics=committing(*TOPICS))


def test_commits(pair: AuthorizedPair) -> None:
    pair.check(commits, group(AclOperation.READ), *(topic(AclOperation.READ, name) for name in TOPICS))


async def fetches_offsets(s: User) -> None:
    """OffsetFetch of one group and of several, of some topics and of all."""
    await s.admin.ask("OffsetCommit", 8, group_id=s.tag, topics=committing(*TOPICS, "three"))
    for names in (TOPICS, ("one", "absent"), ("two",), ()):
        topics = [{"name": name, "partition_indexes": [0, 1]} for name in names]
        await s.ask("OffsetFetch", "1-7", group_id=s.tag, topics=topics)
        groups = [{"group_id": each, "topics": topics} for each in (s.tag, "other")]
        await s.ask("OffsetFetch", "8+", groups=groups)
    await s.ask("OffsetFetch", "2-7", group_id=s.tag, topics=None)
    await s.ask("OffsetFetch", "8+", groups=[{"group_id": each, "topics": None} for each in (s.tag, "other")])


def test_committed_offsets(pair: AuthorizedPair) -> None:
    pair.check(fetches_offsets, group(AclOperation.DESCRIBE), *(topic(AclOperation.DESCRIBE, name) for name in TOPICS))


async def deletes_offsets(s: User) -> None:
    """OffsetDelete."""
    for names in (("one", "absent"), ("two",), TOPICS, ()):
        await s.admin.ask("OffsetCommit", 8, group_id=s.tag, topics=committing(*TOPICS, "three"))
        topics = [{"name": name, "partitions": [{"partition_index": each} for each in (0, 1, 9)]} for name in names]
        await s.ask("OffsetDelete", group_id=s.tag, topics=topics)
        await s.ask("OffsetDelete", group_id=f"absent-{s.tag}", topics=topics)


def test_deleted_offsets(pair: AuthorizedPair) -> None:
    pair.check(deletes_offsets, group(AclOperation.DELETE), *(topic(AclOperation.READ, name) for name in TOPICS))


async def describes_groups(s: User) -> None:
    """DescribeGroups and ListGroups."""
    await s.admin.ask("OffsetCommit", 8, group_id=s.tag, topics=committing("one"))
    for groups in ([s.tag], [f"absent-{s.tag}"], [s.tag, "any", f"absent-{s.tag}"]):
        await s.ask("DescribeGroups", groups=groups)
        await s.ask("DescribeGroups", "3+", groups=groups, include_authorized_operations=True)
    await s.ask("ListGroups")
    await s.ask("ListGroups", "4+", states_filter=["Empty"])


def test_descriptions_of_groups(pair: AuthorizedPair) -> None:
    pair.check(describes_groups, group(AclOperation.DESCRIBE))
    pair.check(describes_groups, group(AclOperation.READ), group(AclOperation.DELETE))
    pair.check(describes_groups, cluster(AclOperation.DESCRIBE))


async def deletes_groups(s: User) -> None:
    """DeleteGroups."""
    for version in s.span("DeleteGroups", None):
        await s.admin.ask("OffsetCommit", 8, group_id=s.tag, topics=committing("one"))
        await s.ask("DeleteGroups", version, groups_names=[s.tag, f"absent-{s.tag}", s.tag])


def test_deleted_groups(pair: AuthorizedPair) -> None:
    pair.check(deletes_groups, group(AclOperation.DELETE))


# ---- transactions


async def begins(s: User) -> None:
    """InitProducerId with a transactional id."""
    await s.ask("InitProducerId", transactional_id=s.tag, transaction_timeout_ms=60_000)
    await s.ask("InitProducerId", transactional_id=s.tag, transaction_timeout_ms=-1)
    await s.ask("InitProducerId", transactional_id="", transaction_timeout_ms=60_000)
    half: dict[str, Any] = {"producer_id": 5, "producer_epoch": -1}
    await s.ask("InitProducerId", "3+", transactional_id=s.tag, transaction_timeout_ms=60_000, **half)


async def numbers(s: User) -> None:
    """InitProducerId of an idempotent producer."""
    await s.ask("InitProducerId", transactional_id=None, transaction_timeout_ms=60_000)
    half: dict[str, Any] = {"producer_id": 5, "producer_epoch": -1}
    await s.ask("InitProducerId", "3+", transactional_id=None, transaction_timeout_ms=60_000, **half)


def test_producer_ids(pair: AuthorizedPair) -> None:
    pair.check(begins, transactional_id(AclOperation.WRITE))
    denied = Right(AclOperation.WRITE, ResourceType.TOPIC, "*", permission=AclPermissionType.DENY)
    pair.check(numbers, denied)
    pair.check(numbers, denied, cluster(AclOperation.IDEMPOTENT_WRITE), decisive=False)


async def adds_partitions(s: User) -> None:
    """AddPartitionsToTxn of producers."""
    me: dict[str, Any] = {"transactional_id": s.tag, **await begun(s.admin, s.tag)}
    for names in (TOPICS, ("one", "absent"), ("one", INTERNAL), ("two",)):
        topics = [{"name": name, "partitions": [0, 1]} for name in names]
        await s.ask("AddPartitionsToTxn", "0-3", **first({**me, "topics": topics}))
        other = {**me, "transactional_id": f"not-{s.tag}"}
        await s.ask("AddPartitionsToTxn", "0-3", **first({**other, "topics": topics}))
    await s.admin.ask("EndTxn", 3, **me, committed=False)


def test_partitions_of_transactions(pair: AuthorizedPair) -> None:
    rights = [topic(AclOperation.WRITE, name) for name in TOPICS]
    pair.check(adds_partitions, transactional_id(AclOperation.WRITE), *rights)


async def verifies(s: User) -> None:
    """AddPartitionsToTxn of brokers."""
    me: dict[str, Any] = {"transactional_id": s.tag, **await begun(s.admin, s.tag)}
    topics = [{"name": name, "partitions": [0]} for name in ("one", "absent")]
    for verify_only in (True, False):
        entries = [{**me, "topics": each, "verify_only": verify_only} for each in (topics, topics[:1])]
        for entry in entries:
            await s.ask("AddPartitionsToTxn", "4+", transactions=[entry])
    await s.admin.ask("EndTxn", 3, **me, committed=False)


def test_verifications(pair: AuthorizedPair) -> None:
    pair.check(verifies, cluster(AclOperation.CLUSTER_ACTION))
    pair.check(verifies, transactional_id(AclOperation.WRITE), topic(AclOperation.WRITE, "one"), decisive=False)


async def commits_in_transactions(s: User) -> None:
    """AddOffsetsToTxn, TxnOffsetCommit and EndTxn."""
    me: dict[str, Any] = {"transactional_id": s.tag, **await begun(s.admin, s.tag)}
    await s.ask("EndTxn", **me, committed=False)  # there is no transaction yet
    await s.ask("EndTxn", **{**me, "transactional_id": f"not-{s.tag}"}, committed=False)
    await s.ask("AddOffsetsToTxn", **me, group_id=s.tag)
    await s.ask("AddOffsetsToTxn", **me, group_id=f"not-{s.tag}")
    await s.ask("AddOffsetsToTxn", **{**me, "transactional_id": f"not-{s.tag}"}, group_id=s.tag)
    await s.admin.ask("AddOffsetsToTxn", 3, **me, group_id=s.tag)
    for names in (TOPICS, ("one", "absent"), ("two",), ()):
        await s.ask("TxnOffsetCommit", "0-4", **me, group_id=s.tag, topics=committing(*names))
    await s.ask("TxnOffsetCommit", "0-4", **me, group_id=f"not-{s.tag}", topics=committing(*TOPICS))
    await s.admin.ask("EndTxn", 3, **me, committed=False)


def test_offsets_of_transactions(pair: AuthorizedPair) -> None:
    rights = [topic(AclOperation.READ, name) for name in TOPICS]
    pair.check(commits_in_transactions, transactional_id(AclOperation.WRITE), group(AclOperation.READ), *rights)
