"""Clients that disconnect while their requests wait leave nothing behind: no descriptor, no memory, no operation."""

from __future__ import annotations

import gc
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from odradek.broker.group.deferred_response import DeferredResponse
from odradek.broker.replication.partition import Replica
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, batch, fetch_request, produce_request, running_broker
from tests.support.eventually import eventually_async

CLIENTS = 10
LONG_MS = 2**31 - 1
LARGE = 100_000


def long_fetch() -> m.FetchRequest:
    """A fetch of some 400 KB that waits for weeks; Kafka has no cap for the wait."""
    request = fetch_request("t", 0, max_wait_ms=LONG_MS)
    request.forgotten_topics_data = [m.FetchRequest.ForgottenTopic(topic="t", partitions=list(range(LARGE)))]
    return request


def small_fetch() -> m.FetchRequest:
    """A fetch whose connection is read on while it waits."""
    return fetch_request("t", 0, max_wait_ms=LONG_MS)


def produce() -> m.ProduceRequest:
    """A write with acks=all that waits for a replica that does not come."""
    return produce_request("t", batch(bytes(300_000)), timeout_ms=LONG_MS)


def watchers(broker: Broker) -> int:
    """The operations that wait for the partition."""
    replica = broker.replicas.get("t", 0)
    assert replica is not None
    return len(replica.watchers)


def descriptors() -> int:
    """Open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


async def leave(folder: Path, request: Callable[[], Any], version: int) -> None:
    """Clients send a request that waits, and disconnect; then everything is as before."""
    async with running_broker(folder) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")

        async def poll(number: Callable[[], int]) -> int:
            await client.ask(m.ApiVersionsRequest(), 0)
            return number()

        def polled(number: Callable[[], int]) -> Callable[[], Awaitable[int]]:
            return lambda: poll(number)

        before = descriptors()
        clients = [await Client.connect(broker.port) for _ in range(CLIENTS)]
        for each in clients:
            await each.send(request(), version)
        await eventually_async(polled(lambda: watchers(broker)), lambda number: number == CLIENTS)
        for each in clients:
            each.close()
        await eventually_async(polled(lambda: watchers(broker)), lambda number: number == 0)
        await eventually_async(polled(lambda: broker.running.held_bytes), lambda number: number == 0)
        # the hang-up watch and the listener of this process keep one descriptor each
        await eventually_async(polled(descriptors), lambda number: number <= before + 2)
        client.close()


@pytest.mark.parametrize(
    ("request_of", "version"),
    [pytest.param(long_fetch, 12, marks=pytest.mark.slow), (small_fetch, 12), (produce, 9)],
    ids=["large fetch", "small fetch", "produce"],
)
def test_a_client_that_leaves_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_of: Callable[[], Any], version: int
) -> None:
    if request_of is produce:  # a follower is missing: the leader settles no append
        monkeypatch.setattr(Replica, "settled", lambda replica, end_offset, acks: None)
    uvloop.run(leave(tmp_path, request_of, version))


async def test_a_deletion_of_records_whose_client_leaves_waits_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader has deleted them already, and the followers do so whether the client is there or not."""
    async with running_broker(tmp_path) as broker:
        client, other = [await Client.connect(broker.port) for _ in range(2)]
        await client.create_topic("t")
        await client.produce("t", batch(b"a", b"b"))
        monkeypatch.setattr(Replica, "low_watermark", lambda replica, runs: 0)  # a follower does not advance its own
        partition = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
        topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
        await other.send(m.DeleteRecordsRequest(topics=[topic], timeout_ms=LONG_MS), 2)

        async def waiting() -> int:
            await client.ask(m.ApiVersionsRequest(), 0)
            return watchers(broker)

        await eventually_async(waiting, lambda number: number == 1)
        other.close()
        await eventually_async(waiting, lambda number: number == 0)
        replica = broker.replicas.get("t", 0)
        assert replica is not None
        assert replica.log.start_offset == 2
        client.close()


def join(member_id: str = "") -> m.JoinGroupRequest:
    return m.JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x" * 1000)],
    )


async def members(client: Client) -> int:
    answer = await client.ask(m.DescribeGroupsRequest(groups=["g"]), 5)
    return len(answer.groups[0].members)


def held_answers() -> int:
    """The requests of groups that keep their connection."""
    gc.collect()
    return sum(
        each._call is not None and each._call.operation is each
        for each in gc.get_objects()
        if isinstance(each, DeferredResponse)
    )


async def test_a_join_and_a_sync_whose_clients_leave_keep_the_member_but_not_the_connection(tmp_path: Path) -> None:
    """Kafka's coordinator takes no notice of connections: the member stays until the rebalance has ended, and then for
    its session timeout (GroupCoordinator.onExpireHeartbeat).
    """
    async with running_broker(tmp_path, {"group.min.session.timeout.ms": "100"}) as broker:
        client = await Client.connect(broker.port)
        await eventually_async(
            lambda: client.ask(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4),
            lambda answer: not answer.coordinators[0].error_code,
        )
        first = await eventually_async(lambda: client.ask(join(), 3), lambda answer: not answer.error_code)
        leavers = [await Client.connect(broker.port) for _ in range(3)]
        await leavers[0].send(
            m.SyncGroupRequest(group_id="g", generation_id=first.generation_id, member_id="no such member"), 3
        )
        assert (await leavers[0].receive()).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        for each in leavers:
            await each.send(join(), 3)  # the rebalance waits for the first member
        await eventually_async(lambda: members(client), lambda number: number == 4)
        assert held_answers() == 3
        for each in leavers:
            each.close()
        await eventually_async(lambda: members(client), lambda _: held_answers() == 0)
        assert await members(client) == 4
        again = await client.ask(join(first.member_id), 3)  # ends the rebalance
        assert len(again.members) == 4
        follower = await Client.connect(broker.port)
        waiting = m.SyncGroupRequest(
            group_id="g", generation_id=again.generation_id, member_id=again.members[-1].member_id
        )
        await follower.send(waiting, 3)
        await eventually_async(lambda: members(client), lambda _: held_answers() == 1)
        follower.close()
        await eventually_async(lambda: members(client), lambda _: held_answers() == 0)
        client.close()


async def test_a_fetch_waits_for_no_more_bytes_than_it_can_get(tmp_path: Path) -> None:
    """Kafka caps min_bytes with max_bytes, or the fetch would wait for its whole max_wait_ms."""
    async with running_broker(tmp_path) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        await client.produce("t", batch(bytes(1000)))
        found = await client.fetch("t", 0, max_wait_ms=LONG_MS, min_bytes=1 << 30, max_bytes=500)
        assert found.records
        client.close()
