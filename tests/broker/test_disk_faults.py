"""A disk that fails or is slow under a live broker: what the producer is told, and what a consumer may see."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.protocol import messages as m
from odradek.protocol.batch import headers, records
from odradek.protocol.errors import ErrorCode
from odradek.storage.disk import Buffer, OsDisk, OsFile
from tests.broker.wire import Client, batch, fetch_request, produce_request, running_broker


class Disk(OsDisk):
    """The machine's disk, with faults for the files whose path has a certain part."""

    def __init__(self) -> None:
        self.place = "nowhere"
        self.write_error = 0
        self.sync_error = 0
        self.syncs = 0
        self.gate = threading.Event()  # a sync waits here
        self.gate.set()
        self.on_sync: Callable[[], None] = lambda: None

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
            if disk.sync_error:
                raise OSError(disk.sync_error, "planted")
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
        loop, syncing = asyncio.get_running_loop(), asyncio.Event()
        disk.place, disk.on_sync = "/t-0/0", lambda: loop.call_soon_threadsafe(syncing.set)
        disk.gate.clear()

        waiting = [asyncio.ensure_future(first.ask(produce_request("t", batch(b"0"), acks=acks), 12))]
        async with asyncio.timeout(20):
            await syncing.wait()
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
