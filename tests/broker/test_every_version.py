"""Every advertised API, in every advertised version, over a real socket."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from tests.broker.cluster_requests import CLUSTER_APIS
from tests.broker.message_sets import message
from tests.broker.wire import Client, batch, fetch_request, produce_request, running_broker

GROUP = "group"
ENVELOPE = 58
"""Advertised, and never answered: see `test_admin_apis`."""


def produce(version: int, topic_id: bytes) -> m.ProduceRequest:
    request = produce_request("there", batch(b"value"))
    request.topic_data[0].topic_id = topic_id
    if version < 13:
        return request
    request.topic_data[0].name = ""
    return request


def fetch(version: int, topic_id: bytes) -> m.FetchRequest:
    request = fetch_request("there", 0)
    if version >= 13:
        request.topics[0].topic, request.topics[0].topic_id = "", topic_id
    return request


def list_offsets(version: int, topic_id: bytes) -> m.ListOffsetsRequest:
    wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name="there", partitions=[wanted])
    return m.ListOffsetsRequest(replica_id=-1, topics=[topic])


def metadata(version: int, topic_id: bytes) -> m.MetadataRequest:
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="there")])


def offset_commit(version: int, topic_id: bytes) -> m.OffsetCommitRequest:
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(partitions=[partition])
    if version < 10:
        topic.name = "there"
    else:
        topic.topic_id = topic_id
    return m.OffsetCommitRequest(group_id=GROUP, topics=[topic])


def offset_fetch(version: int, topic_id: bytes) -> m.OffsetFetchRequest:
    if version < 8:
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="there", partition_indexes=[0])
        return m.OffsetFetchRequest(group_id=GROUP, topics=[topic])
    wanted = m.OffsetFetchRequest.OffsetFetchRequestTopics(partition_indexes=[0])
    if version < 10:
        wanted.name = "there"
    else:
        wanted.topic_id = topic_id
    return m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=[wanted])])


def find_coordinator(version: int, topic_id: bytes) -> m.FindCoordinatorRequest:
    if version < 4:
        return m.FindCoordinatorRequest(key=GROUP)
    return m.FindCoordinatorRequest(coordinator_keys=[GROUP])


def join_group(version: int, topic_id: bytes) -> m.JoinGroupRequest:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return m.JoinGroupRequest(
        group_id=f"joined-{version}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def leave_group(version: int, topic_id: bytes) -> m.LeaveGroupRequest:
    if version < 3:
        return m.LeaveGroupRequest(group_id=GROUP, member_id="nobody")
    return m.LeaveGroupRequest(group_id=GROUP, members=[m.LeaveGroupRequest.MemberIdentity(member_id="nobody")])


def create_topics(version: int, topic_id: bytes) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name=f"made-{version}", num_partitions=1, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def delete_records(version: int, topic_id: bytes) -> m.DeleteRecordsRequest:
    partition = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    return m.DeleteRecordsRequest(
        topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name="absent", partitions=[partition])], timeout_ms=1000
    )


def delete_topics(version: int, topic_id: bytes) -> m.DeleteTopicsRequest:
    if version < 6:
        return m.DeleteTopicsRequest(topic_names=["absent"], timeout_ms=10_000)
    return m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name="absent")], timeout_ms=10_000)


def init_producer_id(version: int, topic_id: bytes) -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


def offset_for_leader_epoch(version: int, topic_id: bytes) -> m.OffsetForLeaderEpochRequest:
    wanted = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="there", partitions=[wanted])
    return m.OffsetForLeaderEpochRequest(topics=[topic])


def describe_configs(version: int, topic_id: bytes) -> m.DescribeConfigsRequest:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="there", configuration_keys=None
    )
    return m.DescribeConfigsRequest(resources=[resource])


def offset_delete(version: int, topic_id: bytes) -> m.OffsetDeleteRequest:
    partition = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name="there", partitions=[partition])
    return m.OffsetDeleteRequest(group_id=GROUP, topics=[topic])


def elect_leaders(version: int, topic_id: bytes) -> m.ElectLeadersRequest:
    wanted = m.ElectLeadersRequest.TopicPartitions(topic="there", partitions=[0])
    return m.ElectLeadersRequest(topic_partitions=[wanted])


def add_partitions_to_txn(version: int, topic_id: bytes) -> m.AddPartitionsToTxnRequest:
    topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="there", partitions=[0])
    if version < 4:
        return m.AddPartitionsToTxnRequest(v3_and_below_transactional_id="id", v3_and_below_topics=[topic])
    entry = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(transactional_id="id", topics=[topic])
    return m.AddPartitionsToTxnRequest(transactions=[entry])


def write_txn_markers(version: int, topic_id: bytes) -> m.WriteTxnMarkersRequest:
    topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="there", partition_indexes=[0])
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(producer_id=1, producer_epoch=version, topics=[topic])
    return m.WriteTxnMarkersRequest(markers=[marker])


def txn_offset_commit(version: int, topic_id: bytes) -> m.TxnOffsetCommitRequest:
    partition = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="there", partitions=[partition])
    return m.TxnOffsetCommitRequest(group_id="", transactional_id="id", topics=[topic])


def describe_producers(version: int, topic_id: bytes) -> m.DescribeProducersRequest:
    topic = m.DescribeProducersRequest.TopicRequest(name="there", partition_indexes=[0])
    return m.DescribeProducersRequest(topics=[topic])


Make = Callable[[int, bytes], Any]
NONE, E = ErrorCode.NONE, ErrorCode

# key -> (how to make a request, the place of the error code in the response, the expected error)
APIS: dict[int, tuple[Make, Callable[[Any, int], int], Callable[[int], ErrorCode]]] = {
    0: (
        produce,
        lambda r, v: r.responses[0].partition_responses[0].error_code,
        lambda v: NONE,
    ),
    1: (
        fetch,
        lambda r, v: r.responses[0].partitions[0].error_code,
        lambda v: NONE,
    ),
    2: (list_offsets, lambda r, v: r.topics[0].partitions[0].error_code, lambda v: NONE),
    3: (metadata, lambda r, v: r.topics[0].error_code, lambda v: NONE),
    8: (offset_commit, lambda r, v: r.topics[0].partitions[0].error_code, lambda v: NONE),
    9: (
        offset_fetch,
        lambda r, v: (r.topics if v < 8 else r.groups[0].topics)[0].partitions[0].error_code,
        lambda v: NONE if v else E.UNKNOWN_TOPIC_OR_PARTITION,  # version 0 was made for offsets in ZooKeeper
    ),
    10: (find_coordinator, lambda r, v: (r if v < 4 else r.coordinators[0]).error_code, lambda v: NONE),
    11: (join_group, lambda r, v: r.error_code, lambda v: NONE if v < 4 else E.MEMBER_ID_REQUIRED),
    12: (
        lambda v, i: m.HeartbeatRequest(group_id=GROUP, member_id="nobody", generation_id=1),
        lambda r, v: r.error_code,
        lambda v: E.UNKNOWN_MEMBER_ID,
    ),
    13: (
        leave_group,
        lambda r, v: r.error_code if v < 3 else r.members[0].error_code,
        lambda v: E.UNKNOWN_MEMBER_ID,
    ),
    14: (
        lambda v, i: m.SyncGroupRequest(
            group_id=GROUP,
            member_id="nobody",
            generation_id=1,
            protocol_type="consumer" if v >= 5 else None,
            protocol_name="range" if v >= 5 else None,
        ),
        lambda r, v: r.error_code,
        lambda v: E.UNKNOWN_MEMBER_ID,
    ),
    15: (
        lambda v, i: m.DescribeGroupsRequest(groups=["nowhere"]),
        lambda r, v: r.groups[0].error_code,
        lambda v: NONE if v < 6 else E.GROUP_ID_NOT_FOUND,
    ),
    16: (lambda v, i: m.ListGroupsRequest(), lambda r, v: r.error_code, lambda v: NONE),
    18: (
        lambda v, i: m.ApiVersionsRequest(client_software_name="test", client_software_version="1"),
        lambda r, v: r.error_code,
        lambda v: NONE,
    ),
    19: (create_topics, lambda r, v: r.topics[0].error_code, lambda v: NONE),
    20: (delete_topics, lambda r, v: r.responses[0].error_code, lambda v: E.UNKNOWN_TOPIC_OR_PARTITION),
    21: (delete_records, lambda r, v: r.topics[0].partitions[0].error_code, lambda v: E.UNKNOWN_TOPIC_OR_PARTITION),
    22: (init_producer_id, lambda r, v: r.error_code, lambda v: NONE),
    23: (offset_for_leader_epoch, lambda r, v: r.topics[0].partitions[0].error_code, lambda v: NONE),
    24: (
        add_partitions_to_txn,
        lambda r, v: (
            (r.results_by_topic_v3_and_below if v < 4 else r.results_by_transaction[0].topic_results)[0]
            .results_by_partition[0]
            .partition_error_code
        ),
        lambda v: E.NOT_COORDINATOR,
    ),
    25: (
        lambda v, i: m.AddOffsetsToTxnRequest(transactional_id="id", group_id=GROUP),
        lambda r, v: r.error_code,
        lambda v: E.NOT_COORDINATOR,
    ),
    26: (
        lambda v, i: m.EndTxnRequest(transactional_id="id"),
        lambda r, v: r.error_code,
        lambda v: E.NOT_COORDINATOR,
    ),
    65: (
        lambda v, i: m.DescribeTransactionsRequest(transactional_ids=["id"]),
        lambda r, v: r.transaction_states[0].error_code,
        lambda v: E.NOT_COORDINATOR,
    ),
    66: (lambda v, i: m.ListTransactionsRequest(), lambda r, v: r.error_code, lambda v: NONE),
    27: (write_txn_markers, lambda r, v: r.markers[0].topics[0].partitions[0].error_code, lambda v: NONE),
    28: (txn_offset_commit, lambda r, v: r.topics[0].partitions[0].error_code, lambda v: E.INVALID_GROUP_ID),
    68: (
        lambda v, i: m.ConsumerGroupHeartbeatRequest(group_id="", member_id="m"),
        lambda r, v: r.error_code,
        lambda v: E.INVALID_REQUEST,
    ),
    69: (
        lambda v, i: m.ConsumerGroupDescribeRequest(group_ids=["nowhere"]),
        lambda r, v: r.groups[0].error_code,
        lambda v: E.GROUP_ID_NOT_FOUND,
    ),
    61: (describe_producers, lambda r, v: r.topics[0].partitions[0].error_code, lambda v: NONE),
    32: (describe_configs, lambda r, v: r.results[0].error_code, lambda v: NONE),
    42: (
        lambda v, i: m.DeleteGroupsRequest(groups_names=["nowhere"]),
        lambda r, v: r.results[0].error_code,
        lambda v: E.GROUP_ID_NOT_FOUND,
    ),
    # Control requests of a controller whose epoch has ended: a broker answers them, and applies none.
    4: (
        lambda v, i: m.LeaderAndIsrRequest(controller_id=9, controller_epoch=0),
        lambda r, v: r.error_code,
        lambda v: E.STALE_CONTROLLER_EPOCH,
    ),
    5: (
        lambda v, i: m.StopReplicaRequest(controller_id=9, controller_epoch=0),
        lambda r, v: r.error_code,
        lambda v: E.STALE_CONTROLLER_EPOCH,
    ),
    6: (
        lambda v, i: m.UpdateMetadataRequest(controller_id=9, controller_epoch=0),
        lambda r, v: r.error_code,
        lambda v: E.STALE_CONTROLLER_EPOCH,
    ),
    7: (
        lambda v, i: m.ControlledShutdownRequest(broker_id=9),
        lambda r, v: r.error_code,
        lambda v: E.BROKER_NOT_AVAILABLE,
    ),
    37: (
        lambda v, i: m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="there", count=1, assignments=None)]
        ),
        lambda r, v: r.results[0].error_code,
        lambda v: E.INVALID_PARTITIONS,
    ),
    43: (
        elect_leaders,
        lambda r, v: r.replica_election_results[0].partition_result[0].error_code,
        lambda v: E.ELECTION_NOT_NEEDED,
    ),
    45: (
        lambda v, i: m.AlterPartitionReassignmentsRequest(topics=[]),
        lambda r, v: r.error_code,
        lambda v: NONE,
    ),
    46: (
        lambda v, i: m.ListPartitionReassignmentsRequest(topics=None),
        lambda r, v: r.error_code,
        lambda v: NONE,
    ),
    56: (
        lambda v, i: m.AlterPartitionRequest(broker_id=9, broker_epoch=1),
        lambda r, v: r.error_code,
        lambda v: E.STALE_BROKER_EPOCH,
    ),
    67: (
        lambda v, i: m.AllocateProducerIdsRequest(broker_id=9, broker_epoch=1),
        lambda r, v: r.error_code,
        lambda v: E.BROKER_ID_NOT_REGISTERED,
    ),
    47: (offset_delete, lambda r, v: r.error_code, lambda v: E.GROUP_ID_NOT_FOUND),
    60: (lambda v, i: m.DescribeClusterRequest(), lambda r, v: r.error_code, lambda v: NONE),
    **CLUSTER_APIS,
}


async def announced(client: Client) -> dict[int, tuple[int, int]]:
    answer = await client.ask(m.ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


@pytest.fixture
async def ready(tmp_path: Path) -> AsyncIterator[tuple[Client, bytes]]:
    """A client of a broker that has a topic with a record and a group coordinator; and the topic's id."""
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        topic = await client.create_topic("there")
        assert (await client.produce("there", batch(b"first"))).error_code == 0
        while (await client.ask(m.FindCoordinatorRequest(key=GROUP), 3)).error_code:
            pass  # the topic of the coordinator is made after the first request for it
        yield client, topic.topic_id
        client.close()


async def test_the_table_of_this_test_has_every_advertised_api(ready: tuple[Client, bytes]) -> None:
    assert set(await announced(ready[0])) == set(APIS) | {ENVELOPE}


@pytest.mark.parametrize("key", APIS)
async def test_every_version_is_answered(ready: tuple[Client, bytes], key: int) -> None:
    client, topic_id = ready
    make, error_of, expected = APIS[key]
    low, high = (await announced(client))[key]
    assert (low, high) == (m.request_class(key).MIN_VERSION, m.request_class(key).MAX_VERSION)
    for version in range(low, high + 1):
        if key == 0 and version < 3:
            continue  # message sets: see the test below
        answer = await client.ask(make(version, topic_id), version)
        assert ErrorCode(error_of(answer, version)) is expected(version), f"version {version}: {answer}"


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_message_sets_are_written(ready: tuple[Client, bytes], version: int) -> None:
    answer = await ready[0].produce("there", message(magic=min(version, 1)), acks=1, version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)


async def test_an_unsupported_future_version_returns_the_supported_ones(client: Client) -> None:
    body = m.ApiVersionsRequest(client_software_name="test", client_software_version="1").encode(4)
    await client.send_bytes(frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0" + body))
    client._owed.append((18, 0, 7))
    answer = await client.receive()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [(18, 0, 4)]
    assert (await announced(client))[18] == (0, 4)  # the connection stays open


@pytest.mark.parametrize(("key", "version"), [(0, 14), (3, -1), (3, 99), (55, 0), (999, 0), (-1, 0), (32767, 32767)])
async def test_an_unsupported_api_or_version_closes_the_connection(
    broker: Broker, client: Client, key: int, version: int
) -> None:
    await client.send_bytes(frame(struct.pack(">hhih", key, version, 1, -1) + bytes(20)))
    assert await client.is_closed()
    other = await Client.connect(broker.port)
    assert await announced(other)
    other.close()


@pytest.mark.parametrize("version", [1, 9, 12])
@pytest.mark.parametrize("client_id", [None, "", "a client", "ü"])
async def test_any_client_id_is_accepted(client: Client, version: int, client_id: str | None) -> None:
    await client.send(m.MetadataRequest(topics=[]), version, client_id=client_id)
    assert (await client.receive()).brokers[0].node_id == 0


async def test_unknown_tags_in_a_header_are_skipped(client: Client) -> None:
    head = request_header(3, 12, 5, "tagged")
    assert head.endswith(b"\0")
    tagged = head[:-1] + b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00"
    await client.send_bytes(frame(tagged + m.MetadataRequest(topics=[]).encode(12)))
    client._owed.append((3, 12, 5))
    assert (await client.receive()).brokers[0].node_id == 0


async def test_responses_keep_the_order_of_requests_around_a_long_poll(broker: Broker, client: Client) -> None:
    await client.create_topic("polled")
    await client.send(m.MetadataRequest(topics=[]), 12)
    await client.send(fetch_request("polled", 0, max_wait_ms=15_000), 12)
    await client.send(m.DescribeClusterRequest(), 1)
    assert (await client.receive()).brokers
    other = await Client.connect(broker.port)
    assert (await other.produce("polled", batch(b"wakes the poll"))).error_code == 0
    assert (await client.receive()).responses[0].partitions[0].high_watermark == 1
    assert (await client.receive()).controller_id == 0
    other.close()
