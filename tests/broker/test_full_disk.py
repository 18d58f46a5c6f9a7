"""A disk without room, and one that is read-only, under the internal topics: errors that clients retry, and no loss."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.batch import Header, headers, records
from odradek.protocol.errors import ErrorCode
from tests.broker.failing_disk import Disk
from tests.broker.transaction_requests import coordinated, producer, write
from tests.broker.wire import DEADLINE_S, Client, batch, running_broker

PROPERTIES = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
KEPT = {"retention.ms": "-1"}
RETRIED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""Errors after which clients find the coordinator again, or repeat the request."""


async def accepted(ask: Callable[[], Awaitable[Any]], code: Callable[[Any], int]) -> Any:
    """Repeat a request as clients do until its response has no error; other errors than `RETRIED` are wrong."""
    async with asyncio.timeout(DEADLINE_S):
        while error := code(answer := await ask()):
            assert error in RETRIED, ErrorCode(error)
    return answer


def top(answer: Any) -> int:
    return int(answer.error_code)


def commit(offset: int, group: str = "g") -> m.OffsetCommitRequest:
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return m.OffsetCommitRequest(group_id=group, topics=[topic])


def first(answer: Any) -> int:
    return int(answer.topics[0].partitions[0].error_code)


async def committed(client: Client, group: str = "g") -> int:
    wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await accepted(lambda: client.ask(m.OffsetFetchRequest(group_id=group, topics=[wanted]), 7), top)
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


async def join(client: Client, member_id: str = "") -> Any:
    request = m.JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )

    async def ask() -> Any:
        answer = await client.ask(request, 5)
        request.member_id = answer.member_id or request.member_id
        return answer

    return await accepted(ask, top)


async def sync(client: Client, joined: Any) -> Any:
    assigned = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    request = m.SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assigned]
    )
    return await client.ask(request, 3)


async def test_groups_continue_after_a_full_disk_under_the_offsets(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path, PROPERTIES, disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs=KEPT)
        await coordinated(client, "g")
        assert await committed(client) == -1
        assert first(await client.ask(commit(5), 7)) == 0
        disk.place, disk.write_error = "/__consumer_offsets-0/", errno.ENOSPC
        for _ in range(3):
            assert first(await client.ask(commit(6), 7)) in RETRIED
        assert await committed(client) == 5  # a rejected commit is undone
        joined = await join(client)
        assert top(await sync(client, joined)) in RETRIED
        assert (await client.produce("t", batch(b"v"))).error_code == 0  # the directory is online
        disk.write_error = 0
        assert first(await client.ask(commit(7, "other"), 7)) == 0
        async with asyncio.timeout(DEADLINE_S):
            while top(await sync(client, joined := await join(client, joined.member_id))):
                pass
        heartbeat = m.HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        assert top(await client.ask(heartbeat, 3)) == 0
        client.close()
    async with running_broker(tmp_path, PROPERTIES) as broker:
        client = await Client.connect(broker.port)
        await coordinated(client, "g")
        assert (await committed(client), await committed(client, "other")) == (5, 7)
        client.close()


async def test_a_new_segment_of_the_offsets_needs_no_restart_after_a_full_disk(tmp_path: Path) -> None:
    disk = Disk()
    properties = {**PROPERTIES, "offsets.topic.segment.bytes": "400"}
    async with running_broker(tmp_path, properties, disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs=KEPT)
        await coordinated(client, "g")
        assert await committed(client) == -1
        disk.place = "/__consumer_offsets-0/"
        for offset in range(12):  # a segment takes two or three commits
            disk.write_error = errno.ENOSPC
            assert first(await client.ask(commit(100), 7)) in RETRIED
            disk.write_error = 0
            assert first(await client.ask(commit(offset), 7)) == 0
            assert await committed(client) == offset
        client.close()
    assert len(segments(tmp_path / "__consumer_offsets-0")) > 3
    async with running_broker(tmp_path, properties) as broker:
        client = await Client.connect(broker.port)
        await coordinated(client, "g")
        assert await committed(client) == 11
        client.close()


async def batches(client: Client) -> list[Header]:
    found: list[Header] = []
    while True:  # a response ends with a segment
        offset = found[-1].next_offset if found else 0
        data = bytes((await client.fetch("t", offset, isolation_level=1)).records or b"")
        if not data:
            return found
        found += [header for _, header in headers(data)]


@pytest.mark.parametrize("place", ["/__transaction_state-0/", "/t-0/"])
@pytest.mark.parametrize("step", ["init", "add", "end"])
async def test_a_transaction_continues_after_a_full_disk(tmp_path: Path, place: str, step: str) -> None:
    disk = Disk()
    async with running_broker(tmp_path, PROPERTIES, disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs=KEPT)
        await coordinated(client, "id", 1)
        disk.place = place

        async def through(name: str, ask: Callable[[], Awaitable[Any]], code: Callable[[Any], int]) -> Any:
            """The accepted response of a request, which is first sent while the disk is full if this is the step."""
            if name == step:
                disk.write_error = errno.ENOSPC
                for _ in range(3):
                    error = code(await ask())
                    assert error in RETRIED or (not error and place == "/t-0/")
                disk.write_error = 0
            return await accepted(ask, code)

        init = m.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
        owner = await through("init", lambda: client.ask(init, 4), top)
        fields = {"producer_id": owner.producer_id, "producer_epoch": owner.producer_epoch}
        add = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_topics=[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])],
            **{f"v3_and_below_{name}": value for name, value in fields.items()},
        )
        await through(
            "add",
            lambda: client.ask(add, 3),
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        assert (await write(client, batch(b"v", **producer(owner.producer_id, owner.producer_epoch)))).error_code == 0
        end = m.EndTxnRequest(transactional_id="id", committed=True, **fields)
        await through("end", lambda: client.ask(end, 3), top)
        async with asyncio.timeout(DEADLINE_S):
            while len(await batches(client)) < 2:
                pass
        found = await batches(client)
        assert [header.is_control for header in found] == [False, True]
        # The next transaction is not blocked.
        again = await accepted(lambda: client.ask(init, 4), top)
        assert again.producer_epoch > owner.producer_epoch
        client.close()


async def test_topics_are_created_again_once_the_metadata_store_has_room(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path, PROPERTIES, disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs=KEPT)
        disk.place, disk.write_error = "/__cluster_metadata-0/", errno.ENOSPC
        topic = m.CreateTopicsRequest.CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        assert (await client.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=500), 7)).topics[0].error_code
        assert (await client.produce("t", batch(b"v"))).error_code == 0  # needs no metadata store
        disk.write_error = 0
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        async with asyncio.timeout(DEADLINE_S):
            while (await client.ask(request, 7)).topics[0].error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                pass
            while (await client.produce("u", batch(b"v"))).error_code:
                pass
        client.close()


async def test_a_broker_stops_while_the_disk_is_full(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path, PROPERTIES, disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs=KEPT)
        assert (await client.produce("t", batch(b"kept"))).error_code == 0
        disk.place, disk.write_error = str(tmp_path), errno.ENOSPC
        topic = m.CreateTopicsRequest.CreatableTopic(name="u", num_partitions=1, replication_factor=1)
        await client.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=500), 7)
        client.close()
        async with asyncio.timeout(DEADLINE_S):
            await broker.stop()
    async with running_broker(tmp_path, PROPERTIES) as broker:
        client = await Client.connect(broker.port)
        assert (await client.produce("t", batch(b"more"))).base_offset == 1
        client.close()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO])
async def test_a_directory_that_becomes_read_only_goes_offline_and_the_broker_ends(tmp_path: Path, code: int) -> None:
    disk = Disk()
    async with running_broker(tmp_path, PROPERTIES, disk=disk) as broker:
        ended = asyncio.Event()
        broker.on_failure = ended.set
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs=KEPT)
        await coordinated(client, "g")
        assert await committed(client) == -1
        assert (await client.produce("t", batch(b"kept"))).error_code == 0
        assert first(await client.ask(commit(5), 7)) == 0
        disk.place, disk.write_error = str(tmp_path), code
        assert first(await client.ask(commit(6), 7)) in RETRIED
        async with asyncio.timeout(DEADLINE_S):
            await ended.wait()
        assert "all log dirs" in (broker.failure or "")
        client.close()
    disk.write_error = 0
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    async with running_broker(tmp_path, PROPERTIES) as broker:
        client = await Client.connect(broker.port)
        await coordinated(client, "g")
        assert await committed(client) == 5
        found = bytes((await client.fetch("t", 0)).records)
        assert [record.value for record in records(found)] == [b"kept"]
        client.close()


async def test_a_start_on_a_read_only_directory_changes_nothing_and_states_the_reason(tmp_path: Path) -> None:
    async with running_broker(tmp_path, PROPERTIES) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs=KEPT)
        assert (await client.produce("t", batch(b"kept"))).error_code == 0
        client.close()
    disk = Disk()
    disk.place, disk.write_error = str(tmp_path), errno.EROFS
    before = segments(tmp_path)
    with pytest.raises(Exception, match="planted") as rejected:
        async with running_broker(tmp_path, PROPERTIES, disk=disk):
            pass
    assert str(tmp_path) in str(rejected.value)
    assert segments(tmp_path) == before
    async with running_broker(tmp_path, PROPERTIES) as broker:
        client = await Client.connect(broker.port)
        assert (await client.produce("t", batch(b"more"))).base_offset == 1
        client.close()


def segments(folder: Path) -> dict[str, bytes]:
    """Every segment below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*.log")}
