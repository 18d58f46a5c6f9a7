"""DeleteRecords over the wire, on one broker: its effects and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.cluster_in_process import running_cluster
from tests.broker.pair import running_pair
from tests.broker.wire import Client, batch

NO_LOW_WATERMARK = -1


async def delete(
    client: Client, topic: str, offset: int, *, partition: int = 0, version: int = 2, timeout_ms: int = 1000
) -> tuple[int, int]:
    """Low watermark and error of the response."""
    asked = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = [m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[asked])]
    response = await client.ask(m.DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), version)
    answer = response.topics[0].partitions[0]
    return answer.low_watermark, answer.error_code


async def earliest(client: Client, topic: str) -> int:
    asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    response = await client.ask(m.ListOffsetsRequest(replica_id=-1, topics=topics), 7)
    return int(response.topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_log_start_moves_and_never_goes_back(client: Client, version: int) -> None:
    await client.create_topic("t")
    for _ in range(5):
        await client.produce("t", batch(b"a", b"b"))
    assert await delete(client, "t", 3, version=version) == (3, ErrorCode.NONE)
    assert await earliest(client, "t") == 3
    assert await delete(client, "t", 2, version=version) == (3, ErrorCode.NONE)
    fetched = await client.fetch("t", 2)
    assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert await delete(client, "t", -1, version=version) == (10, ErrorCode.NONE)
    assert await earliest(client, "t") == 10


async def test_invalid_requests_are_refused(client: Client) -> None:
    await client.create_topic("t")
    await client.create_topic("compacted", configs={"cleanup.policy": "compact"})
    await client.create_topic("both", configs={"cleanup.policy": "compact,delete"})
    await client.create_topic("__consumer_offsets")
    await client.produce("t", batch(b"a"))
    for topic, partition, offset, error in (
        ("t", 0, 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nobody", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, 0, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        assert await delete(client, topic, offset, partition=partition) == (NO_LOW_WATERMARK, error), topic
    assert await delete(client, "both", -1) == (0, ErrorCode.NONE)


async def test_followers_receive_a_new_log_start_at_once(tmp_path: Path) -> None:
    """A waiting fetch of a follower ends with it; by itself it would wait for five minutes."""
    waits = {
        "replica_fetch_wait_max_ms": "300000",
        "replica_socket_timeout_ms": "600000",
        "replica_lag_time_max_ms": "600000",
    }
    async with running_cluster(tmp_path, **waits) as cluster:
        await cluster.create("t", [1, 2, 3])
        client = cluster.clients[1]
        for number in range(3):
            assert (await client.produce("t", batch(b"a", b"b"), acks=-1)).error_code == ErrorCode.NONE
            offset = 2 * number + 1
            assert await delete(client, "t", offset, timeout_ms=60_000) == (offset, ErrorCode.NONE)


async def test_a_live_follower_that_does_not_fetch_lets_the_request_time_out(tmp_path: Path) -> None:
    """The leader has moved its own start, and returns the lowest one."""
    async with running_pair(tmp_path) as pair:
        await pair.create("t", [1, 2])
        client = pair.clients[1]
        assert (await client.produce("t", batch(b"a", b"b", b"c"), acks=-1)).error_code == ErrorCode.NONE
        assert await delete(client, "t", 2, timeout_ms=30_000) == (2, ErrorCode.NONE)
        pair.dialing[2].silence()
        assert await delete(client, "t", 3, timeout_ms=100) == (2, ErrorCode.REQUEST_TIMED_OUT)
        assert await earliest(client, "t") == 3
