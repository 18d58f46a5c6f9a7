"""Responses of a broker that is the wrong one: it has no replica of the partition, or is not the controller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.admin_requests import PREFERRED, elect
from tests.broker.cluster_in_process import Cluster, running_cluster
from tests.broker.wire import batch, fetch_request, produce_request

Asked = tuple[Any, int, Callable[[Any], int]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with running_cluster(tmp_path) as running:
        yield running


def asked(index: int) -> dict[str, Asked]:
    """One request of each API about a partition of the topic `t`, and the place of the error in its response."""
    listed = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=-1)
    cut = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=0)
    ended = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=index, leader_epoch=0)
    return {
        "Produce": (
            produce_request("t", batch(b"v"), partition=index),
            9,
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        ),
        "Fetch": (
            fetch_request("t", 0, partition=index),
            12,
            lambda answer: answer.responses[0].partitions[0].error_code,
        ),
        "ListOffsets": (
            m.ListOffsetsRequest(
                replica_id=-1, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[listed])]
            ),
            7,
            lambda answer: answer.topics[0].partitions[0].error_code,
        ),
        "DeleteRecords": (
            m.DeleteRecordsRequest(
                topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[cut])], timeout_ms=1000
            ),
            2,
            lambda answer: answer.topics[0].partitions[0].error_code,
        ),
        "OffsetForLeaderEpoch": (
            m.OffsetForLeaderEpochRequest(
                topics=[m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[ended])]
            ),
            4,
            lambda answer: answer.topics[0].partitions[0].error_code,
        ),
    }


@pytest.mark.parametrize("api", asked(0))
async def test_a_broker_without_a_replica_is_not_the_leader(cluster: Cluster, api: str) -> None:
    """The partition exists, so the client looks for its leader; one that does not exist is unknown."""
    await cluster.create("t", [1, 2])
    for index, code in ((0, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        request, version, found = asked(index)[api]
        assert found(await cluster.clients[3].ask(request, version)) == code


@pytest.mark.parametrize("at", [2, 3])
async def test_a_producer_is_redirected_to_the_leader(cluster: Cluster, at: int) -> None:
    """KIP-951: a follower, and a broker without a replica, name the leader and its address."""
    await cluster.create("t", [1, 2])
    answer = await cluster.clients[at].ask(produce_request("t", batch(b"v")), 10)
    partition = answer.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 0)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(1, cluster.brokers[1].port)]


async def test_an_invalid_batch_is_refused_before_the_leader_is_looked_up(cluster: Cluster) -> None:
    await cluster.create("t", [1, 2])
    for at in (2, 3):
        answer = await cluster.clients[at].ask(produce_request("t", b"nonsense"), 10)
        partition = answer.responses[0].partition_responses[0]
        assert (partition.error_code, partition.log_start_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert not answer.node_endpoints


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_elections_of_all_partitions_requested_from_another_broker(cluster: Cluster, version: int) -> None:
    """Version 0 has no top-level error; the broker once closed the connection there."""
    await cluster.create("t", [1, 2], [2, 3])
    answer = await cluster.clients[cluster.others[0]].ask(elect(PREFERRED, None), version)
    (topic,) = answer.replica_election_results
    codes = {each.partition_id: each.error_code for each in topic.partition_result}
    assert (topic.topic, codes) == ("t", dict.fromkeys((0, 1), ErrorCode.NOT_CONTROLLER))
    assert not answer.error_code
