"""Requests of clients and operators, API by API: each scenario repeats a series of timed requests.

Names and ids of a repetition follow from the scenario's `name` and its number, so no repetition finds data of another.
The requests of a repetition follow each other at once or after the session's pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.protocol.errors import ErrorCode
from tests.benchmarks.latency_session import Session

TOPIC: Final = "latency"
DELETED: Final = "latency-deleted"
MOVED: Final = "latency-moved"
VALUE: Final = b"v" * 100
TIMEOUT_MS: Final = 30_000
LONG_POLL_MS: Final = 500
GROUP, TRANSACTION = 0, 1
TOPIC_RESOURCE: Final = 2
SUBSCRIPTION: Final = b"\x00\x01" + m.ConsumerProtocolSubscription(topics=[TOPIC]).encode(1)

Scenario = Callable[[Session, str, int], None]


def reads(session: Session, name: str, times: int) -> None:
    """The metadata that clients read, and an operator's requests."""
    first, controller = min(session.brokers), session.controller
    leader, coordinator = session.leader(TOPIC), session.coordinator(name, GROUP)
    session.prepare(leader, produce(TOPIC, -1))
    topics = [m.MetadataRequest.MetadataRequestTopic(name=TOPIC)]
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC)
    producers = m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])
    asked: Sequence[tuple[str, int, Any]] = (
        ("ApiVersions", first, m.ApiVersionsRequest(client_software_name="bench", client_software_version="1")),
        ("Metadata", first, m.MetadataRequest(topics=topics)),
        ("FindCoordinator", first, m.FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[name])),
        ("DescribeCluster", first, m.DescribeClusterRequest()),
        ("ListOffsets", leader, list_offsets()),
        ("OffsetForLeaderEpoch", leader, offset_for_leader_epoch()),
        ("Fetch of a batch", leader, fetch(TOPIC, 0, 0)),
        ("DescribeProducers", leader, m.DescribeProducersRequest(topics=[producers])),
        ("DescribeConfigs", first, m.DescribeConfigsRequest(resources=[resource])),
        ("DescribeLogDirs", first, m.DescribeLogDirsRequest(topics=None)),
        ("ListGroups", first, m.ListGroupsRequest()),
        ("DescribeGroups", coordinator, m.DescribeGroupsRequest(groups=[name])),
        ("OffsetFetch", coordinator, offset_fetch(name)),
        ("ListTransactions", first, m.ListTransactionsRequest()),
        ("ListPartitionReassignments", controller, m.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS)),
        ("DescribeClientQuotas", first, m.DescribeClientQuotasRequest()),
        ("DescribeUserScramCredentials", first, m.DescribeUserScramCredentialsRequest(users=[])),
    )
    for _ in range(times):
        for what, broker, request in asked:
            session.ask(what, broker, request)


def writes(session: Session, name: str, times: int) -> None:
    """Produce and fetch records, also with a consumer that waits for them; and delete them."""
    leader = session.leader(DELETED)
    consumer = session.second_connection(leader)
    for _ in range(times):
        session.ask("Produce acks=1", leader, produce(DELETED, 1))
        written = session.ask("Produce acks=all", leader, produce(DELETED, -1))
        end = written.responses[0].partition_responses[0].base_offset + 1
        session.ask("DeleteRecords", leader, delete_records(end - 1))
        poll, record = fetch(DELETED, end, LONG_POLL_MS), produce(DELETED, -1)
        consumer.send(poll)
        began = session.brokers[leader].send(record)
        answer, ended = consumer.receive(poll)
        session.brokers[leader].receive(record)
        if not answer.responses[0].partitions[0].records:
            raise RuntimeError("the waiting consumer received no record")
        session.times_ms["Produce until a waiting Fetch"].append((ended - began) * 1000)


def groups(session: Session, name: str, times: int) -> None:
    """A member of a classic group from its first request to the deletion of the group."""
    for number in range(times):
        group = f"{name}-{number}"
        at = session.coordinator(group, GROUP)
        member, generation = _join(session, at, group)
        owner: dict[str, Any] = {"group_id": group, "member_id": member}
        assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=bytes(10))
        protocol: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
        sync = m.SyncGroupRequest(**owner, **protocol, generation_id=generation, assignments=[assignment])
        session.ask("SyncGroup", at, sync)
        session.ask("Heartbeat", at, m.HeartbeatRequest(**owner, generation_id=generation))
        session.ask("OffsetCommit", at, offset_commit(group, generation, member))
        session.ask("OffsetFetch after a commit", at, offset_fetch(group))
        leaving = m.LeaveGroupRequest.MemberIdentity(member_id=member)
        session.ask("LeaveGroup", at, m.LeaveGroupRequest(group_id=group, members=[leaving]))
        session.ask("OffsetDelete", at, offset_delete(group))
        session.prepare(at, offset_commit(group, -1, ""))
        session.ask("DeleteGroups", at, m.DeleteGroupsRequest(groups_names=[group]))


def transactions(session: Session, name: str, times: int) -> None:
    """Transactions with a record and an offset, one at once after the other."""
    group = f"{name}-group"
    leader, at, group_at = (
        session.leader(TOPIC),
        session.coordinator(name, TRANSACTION),
        session.coordinator(group, GROUP),
    )
    init = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
    started = session.ask("InitProducerId", at, init)
    producer_id, epoch = started.producer_id, started.producer_epoch
    owner: dict[str, Any] = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    partitions = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    added = {f"v3_and_below_{key}": value for key, value in owner.items()}
    for number in range(times):
        add = m.AddPartitionsToTxnRequest(**added, v3_and_below_topics=[partitions])
        session.ask("AddPartitionsToTxn", at, add)
        data = build([_record()], transactional=True, base_sequence=number, **_ids(owner))
        session.ask("Produce in a transaction", leader, produce(TOPIC, -1, data, name))
        session.ask("AddOffsetsToTxn", at, m.AddOffsetsToTxnRequest(**owner, group_id=group))
        offset = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(committed_offset=number)
        offsets = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[offset])
        commit = m.TxnOffsetCommitRequest(**owner, group_id=group, topics=[offsets])
        session.ask("TxnOffsetCommit", group_at, commit)
        session.ask("EndTxn", at, m.EndTxnRequest(**owner, committed=True))
        session.ask("DescribeTransactions", at, m.DescribeTransactionsRequest(transactional_ids=[name]))


def topics(session: Session, name: str, times: int) -> None:
    """A topic from its creation to its deletion, with its first record and its first read."""
    at, replicas = session.controller, min(3, len(session.brokers))
    for number in range(times):
        topic = f"{name}-{number}"
        created = m.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=replicas)
        session.ask("CreateTopics", at, m.CreateTopicsRequest(topics=[created], timeout_ms=TIMEOUT_MS))
        leader = session.leader(topic)
        session.ask("Produce to a new topic", leader, produce(topic, -1))
        session.ask("Fetch from a new topic", leader, fetch(topic, 0, LONG_POLL_MS))
        config = m.IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", value="3600000")
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config]
        )
        session.ask("IncrementalAlterConfigs", at, m.IncrementalAlterConfigsRequest(resources=[resource]))
        more = m.CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=2, assignments=None)
        session.ask("CreatePartitions", at, m.CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS))
        session.ask("DeleteTopics", at, m.DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS))


def administration(session: Session, name: str, times: int) -> None:
    """Quotas and credentials; in a cluster also the order of replicas, and their leaders."""
    at = session.controller
    for number in range(times):
        entity = m.AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=f"{name}-{number}")
        op = m.AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1e9)
        entry = m.AlterClientQuotasRequest.EntryData(entity=[entity], ops=[op])
        session.ask("AlterClientQuotas", at, m.AlterClientQuotasRequest(entries=[entry]))
        upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=f"{name}-user", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        session.ask("AlterUserScramCredentials", at, m.AlterUserScramCredentialsRequest(upsertions=[upsertion]))
        if len(session.brokers) > 1:
            first, second = sorted(session.brokers)[:2]
            replicas = [second, first] if number % 2 == 0 else [first, second]
            partition = m.AlterPartitionReassignmentsRequest.ReassignablePartition(replicas=replicas)
            topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=MOVED, partitions=[partition])
            moves = m.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
            session.ask("AlterPartitionReassignments", at, moves)
            chosen = m.ElectLeadersRequest.TopicPartitions(topic=MOVED, partitions=[0])
            elect = m.ElectLeadersRequest(topic_partitions=[chosen], timeout_ms=TIMEOUT_MS)
            session.ask("ElectLeaders", at, elect, ErrorCode.ELECTION_NOT_NEEDED)


SCENARIOS: Mapping[str, tuple[Scenario, int]] = {
    "reads": (reads, 200),
    "writes": (writes, 200),
    "groups": (groups, 100),
    "transactions": (transactions, 100),
    "topics": (topics, 40),
    "administration": (administration, 40),
}
"""By name: the scenario, and how often a round of full size repeats it."""


def make_topics(session: Session) -> None:
    """Create the topics that the scenarios share."""
    brokers = sorted(session.brokers)
    for topic, replicas in ((TOPIC, brokers), (DELETED, brokers), (MOVED, brokers[:2])):
        assignment = m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        created = m.CreateTopicsRequest.CreatableTopic(
            name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        request = m.CreateTopicsRequest(topics=[created], timeout_ms=TIMEOUT_MS)
        session.prepare(session.controller, request, ErrorCode.TOPIC_ALREADY_EXISTS)


def _join(session: Session, at: int, group: str) -> tuple[str, int]:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=TIMEOUT_MS,
        rebalance_timeout_ms=TIMEOUT_MS,
        protocol_type="consumer",
        protocols=[protocol],
    )
    request.member_id = session.prepare(at, request, ErrorCode.MEMBER_ID_REQUIRED).member_id
    joined = session.ask("JoinGroup", at, request)
    return joined.member_id, joined.generation_id


def _ids(owner: Mapping[str, Any]) -> dict[str, Any]:
    return {key: owner[key] for key in ("producer_id", "producer_epoch")}


def _record() -> Record:
    return Record(0, int(time.time() * 1000), None, VALUE, [])


def produce(
    topic: str, acks: int, data: bytearray | None = None, transactional_id: str | None = None
) -> m.ProduceRequest:
    """One batch, by default of one plain record, for partition 0."""
    records = build([_record()]) if data is None else data
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    to = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    return m.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[to])


def fetch(topic: str, offset: int, max_wait_ms: int) -> m.FetchRequest:
    """At least one byte of partition 0 from `offset` on."""
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    wanted = m.FetchRequest.FetchTopic(topic=topic, partitions=[partition])
    return m.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[wanted])


def list_offsets() -> m.ListOffsetsRequest:
    """The end of partition 0."""
    partition = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return m.ListOffsetsRequest(
        replica_id=-1, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    )


def offset_for_leader_epoch() -> m.OffsetForLeaderEpochRequest:
    """Where epoch 0 of partition 0 ends."""
    partition = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=TOPIC, partitions=[partition])
    return m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def delete_records(offset: int) -> m.DeleteRecordsRequest:
    """Delete the records before `offset` in partition 0."""
    partition = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=DELETED, partitions=[partition])
    return m.DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def offset_commit(group: str, generation: int, member: str) -> m.OffsetCommitRequest:
    """Commit offset 1 of partition 0."""
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    return m.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
    )


def offset_fetch(group: str) -> m.OffsetFetchRequest:
    """All offsets of a group."""
    return m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])


def offset_delete(group: str) -> m.OffsetDeleteRequest:
    """Delete the group's offset of partition 0."""
    partition = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=TOPIC, partitions=[partition])
    return m.OffsetDeleteRequest(group_id=group, topics=[topic])
