"""A disk that fails or is slow under a live broker: what the producer is told, and what a consumer may see."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.batch import headers, records
from odradek.protocol.errors import ErrorCode
from odradek.storage.disk import Buffer, OsDisk, OsFile
from tests.broker.wire import PATIENCE_S, Client, batch, fetch_request, produce_request, running_broker


class Disk(OsDisk):
    """The machine's disk, with faults for the files whose path has a certain part."""

    def __init__(self) -> None:
        self.place = "nowhere"
        self.write_error = 0
        self.sync_error = 0
        self.sync_error_once = 0
        self.syncs = 0
        self.gate = threading.Event()  # a sync waits here
        self.gate.set()
        self.syncing = asyncio.Event()
        self.on_sync: Callable[[], None] = lambda: None

    def hold(self, place: str) -> None:
        """Let the syncs of a place wait until the gate is set; `syncing` is set when one does."""
        loop = asyncio.get_running_loop()
        self.place, self.on_sync = place, lambda: loop.call_soon_threadsafe(self.syncing.set)
        self.gate.clear()

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        if self.write_error and self.place in path:
            raise OSError(self.write_error, "planted")
        super().replace(path, data, sync=sync)

    def rename(self, old: str, new: str) -> None:
        if self.write_error and self.place in old:
            raise OSError(self.write_error, "planted")
        super().rename(old, new)

    def open(self, path: str) -> OsFile:
        return File(path, self)


class File(OsFile):
    __slots__ = ("_disk", "_path")

    def __init__(self, path: str, disk: Disk) -> None:
        super().__init__(path)
        self._path, self._disk = path, disk

    def write(self, data: Buffer, position: int) -> None:
        disk = self._disk
        if disk.write_error and disk.place in self._path:
            super().write(memoryview(data)[: len(data) // 2], position)
            raise OSError(disk.write_error, "planted")
        super().write(data, position)

    def sync(self) -> None:
        disk = self._disk
        if disk.place in self._path:
            disk.syncs += 1
            disk.on_sync()
            assert disk.gate.wait(20)
            error, disk.sync_error_once = disk.sync_error_once or disk.sync_error, 0
            if error:
                raise OSError(error, "planted")
        super().sync()


async def test_a_partition_whose_disk_fails_goes_offline_and_the_others_live(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path / "data", disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", partitions=2)
        assert (await client.produce("t", batch(b"kept"))).error_code == 0
        disk.place, disk.write_error = "/t-0/", errno.EIO
        assert (await client.produce("t", batch(b"lost"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.write_error = 0
        # Nobody knows what such a disk holds: the partition stays offline until the next start.
        assert (await client.produce("t", batch(b"refused"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("t", 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("t", batch(b"elsewhere"), partition=1)).error_code == 0
        client.close()
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        assert [r.value for r in records((await client.fetch("t", 0)).records)] == [b"kept"]
        assert [r.value for r in records((await client.fetch("t", 0, partition=1)).records)] == [b"elsewhere"]
        client.close()


async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path / "data", disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        disk.place, disk.write_error = "/t-0/", errno.ENOSPC
        assert (await client.produce("t", batch(b"no room"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.write_error = 0
        for offset, value in enumerate((b"a", b"b")):
            assert (await client.produce("t", batch(value))).base_offset == offset
        read = bytes((await client.fetch("t", 0)).records)
        assert [r.value for position, _ in headers(read) for r in records(read, position)] == [b"a", b"b"]
        client.close()


@pytest.mark.parametrize("acks", [1, -1])
async def test_one_fsync_serves_all_who_wait_and_nobody_is_ahead_of_it(tmp_path: Path, acks: int) -> None:
    disk = Disk()
    async with running_broker(tmp_path / "data", disk=disk) as broker:
        clients = [await Client.connect(broker.port) for _ in range(6)]
        first, *others, reader = clients
        await first.create_topic("t", configs={"flush.messages": "1"})
        disk.hold("/t-0/0")

        waiting = [asyncio.ensure_future(first.ask(produce_request("t", batch(b"0"), acks=acks), 12))]
        async with asyncio.timeout(20):
            await disk.syncing.wait()
        later = produce_request("t", batch(b"n"), acks=acks)
        waiting += [asyncio.ensure_future(client.ask(later, 12)) for client in others]
        while (await reader.ask(list_end("t", replica_id=1), 6)).topics[0].partitions[0].offset < 5:
            pass  # all five are in the log
        assert not any(task.done() for task in waiting)
        assert (await reader.fetch("t", 0)).high_watermark == 0  # no consumer sees what could be lost
        assert disk.syncs == 1

        disk.gate.set()
        answers = await asyncio.gather(*waiting)
        codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
        assert codes == [0] * 5
        assert disk.syncs == 2  # one for the first batch, one for the four that came meanwhile
        assert (await reader.fetch("t", 0)).high_watermark == 5
        for client in clients:
            client.close()


async def test_a_failed_fsync_acknowledges_nothing_and_is_not_tried_again(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path / "data", disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs={"flush.messages": "1"})
        assert (await client.produce("t", batch(b"safe"))).error_code == 0
        disk.place, disk.sync_error = "/t-0/0", errno.EIO
        assert (await client.produce("t", batch(b"doubtful"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.sync_error, syncs = 0, disk.syncs
        assert (await client.produce("t", batch(b"later"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert disk.syncs == syncs
        client.close()


async def test_a_reader_that_waits_is_woken_by_the_fsync(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path / "data", disk=disk) as broker:
        client, reader = await Client.connect(broker.port), await Client.connect(broker.port)
        await client.create_topic("t", configs={"flush.messages": "1"})
        await reader.send(fetch_request("t", 0, max_wait_ms=15_000), 12)
        assert (await client.produce("t", batch(b"v"))).error_code == 0
        assert (await reader.receive()).responses[0].partitions[0].high_watermark == 1
        client.close()
        reader.close()


def list_end(topic: str, *, replica_id: int = -1) -> m.ListOffsetsRequest:
    wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return m.ListOffsetsRequest(
        replica_id=replica_id, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
    )


async def test_a_partition_that_lost_its_disk_is_shown_without_a_leader(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path / "data", disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", partitions=2)
        disk.place, disk.write_error = "/t-1/", errno.EIO
        assert (await client.produce("t", batch(b"v"), partition=1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.place = "/stillborn-"
        await client.create_topic("stillborn")
        shown: dict[tuple[str, int], Any] = {}
        async with asyncio.timeout(PATIENCE_S):
            while not all(lost in shown and shown[lost].offline_replicas for lost in (("t", 1), ("stillborn", 0))):
                topics = (await client.ask(m.MetadataRequest(topics=None), 12)).topics
                shown = {(topic.name, each.partition_index): each for topic in topics for each in topic.partitions}
        assert (shown["t", 0].error_code, shown["t", 0].leader_id, shown["t", 0].offline_replicas) == (0, 0, [])
        for lost in (("t", 1), ("stillborn", 0)):
            assert shown[lost].error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (shown[lost].leader_id, shown[lost].offline_replicas) == (-1, [0])
        client.close()
    async with running_broker(tmp_path / "data") as broker:  # on a disk that works
        client = await Client.connect(broker.port)
        assert (await client.produce("t", batch(b"v"), partition=1)).error_code == 0
        assert (await client.produce("stillborn", batch(b"v"))).error_code == 0
        client.close()


async def test_records_that_a_disk_would_not_delete_do_not_come_back_under_a_new_topic(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(tmp_path / "data", disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        assert (await client.produce("t", batch(b"old"))).error_code == 0
        disk.place, disk.write_error = "/t-0", errno.EIO
        deleted = await client.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert deleted.responses[0].error_code == 0
        disk.write_error = 0
        await client.create_topic("t")
        assert (await client.produce("t", batch(b"new"))).base_offset in (-1, 0)
        assert b"old" not in bytes((await client.fetch("t", 0)).records or b"")
        client.close()
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        assert b"old" not in bytes((await client.fetch("t", 0)).records or b"")
        client.close()


async def test_a_retry_is_no_way_around_the_fsync(tmp_path: Path) -> None:
    async with unsynced(tmp_path) as (broker, disk, first):
        again, reader = await Client.connect(broker.port), await Client.connect(broker.port)
        request = produce_request("t", batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0), timeout_ms=20_000)
        async with asyncio.timeout(20):
            await first.send(request, 12)
            await disk.syncing.wait()
            await again.send(request, 12)
            await again.send(list_end("t"), 6)
        retried = asyncio.ensure_future(again.receive())
        assert (await reader.fetch("t", 0)).high_watermark == 0
        assert (await reader.ask(list_end("t", replica_id=1), 6)).topics[0].partitions[0].offset == 1
        assert not retried.done()
        disk.gate.set()
        for response in (await first.receive(), await retried):
            answer = response.responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, 0)
        # Asked behind the retry, so that the retry was handled while the disk was still busy.
        assert (await again.receive()).topics[0].partitions[0].offset == 0
        for client in (again, reader):
            client.close()


async def test_a_write_whose_topic_is_deleted_does_not_wait_for_the_fsync(tmp_path: Path) -> None:
    async with unsynced(tmp_path) as (broker, disk, client):
        other = await Client.connect(broker.port)
        async with asyncio.timeout(20):
            await client.send(produce_request("t", batch(b"v"), timeout_ms=20_000), 12)
            await disk.syncing.wait()
        deleted = await other.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert deleted.responses[0].error_code == 0
        answer = (await client.receive()).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await other.create_topic("t")
        disk.gate.set()
        assert (await other.produce("t", batch(b"v"))).base_offset == 0
        other.close()


async def test_a_write_is_answered_at_its_timeout_when_the_fsync_is_slow(tmp_path: Path) -> None:
    async with unsynced(tmp_path) as (_, disk, client):
        answer = await client.ask(produce_request("t", batch(b"v"), timeout_ms=1), 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        disk.gate.set()


async def test_no_clean_mark_after_an_fsync_that_fails_while_the_broker_stops(tmp_path: Path) -> None:
    """The system reports such an error once; a second fsync would succeed and prove nothing."""
    async with unsynced(tmp_path) as (broker, disk, client):
        async with asyncio.timeout(20):
            await client.send(produce_request("t", batch(b"v"), timeout_ms=20_000), 12)
            await disk.syncing.wait()
        disk.sync_error_once = errno.EIO
        disk.gate.set()
        await broker.stop()
    assert disk.sync_error_once == 0
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_a_commit_of_offsets_waits_for_its_fsync(tmp_path: Path) -> None:
    disk = Disk()
    properties = {"log.flush.interval.messages": "1", "offsets.topic.num.partitions": "1"}
    async with running_broker(tmp_path / "data", properties, disk=disk) as broker:
        client, other = await Client.connect(broker.port), await Client.connect(broker.port)
        await client.create_topic("t")
        while (await client.ask(m.FindCoordinatorRequest(key="readers"), 3)).error_code:
            pass  # the coordinator's topic is made after the first request for it
        disk.hold("/__consumer_offsets-0/0")
        async with asyncio.timeout(20):
            await client.send(commit(7), 8)
            await disk.syncing.wait()
        assert await committed(other) == -1
        disk.gate.set()
        assert (await client.receive()).topics[0].partitions[0].error_code == 0
        assert await committed(other) == 7

        disk.sync_error = errno.EIO
        assert (await client.ask(commit(8), 8)).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        for each in (client, other):
            each.close()
    async with running_broker(tmp_path / "data", properties) as broker:
        client = await Client.connect(broker.port)
        assert await committed(client) in (7, 8)  # what was not acknowledged may be there or not
        client.close()


@asynccontextmanager
async def unsynced(tmp_path: Path) -> AsyncIterator[tuple[Broker, Disk, Client]]:
    """A broker with a topic "t" that wants an fsync for each write, and a disk that does not come to it."""
    disk = Disk()
    async with running_broker(tmp_path / "data", disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs={"flush.messages": "1"})
        disk.hold("/t-0/0")
        try:
            yield broker, disk, client
        finally:
            disk.gate.set()
            client.close()


def commit(offset: int) -> m.OffsetCommitRequest:
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return m.OffsetCommitRequest(group_id="readers", topics=[topic])


async def committed(client: Client) -> int:
    wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    while True:
        answer = await client.ask(m.OffsetFetchRequest(group_id="readers", topics=[wanted]), 7)
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert answer.error_code == 0
            offset: int = answer.topics[0].partitions[0].committed_offset
            return offset
