"""A disk that fails or is slow under a live broker: the responses to the producer, and the records a consumer may
read.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.server import Broker
from odradek.broker_process import BrokerError, BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.batch import headers, records
from odradek.protocol.errors import ErrorCode
from tests.broker.failing_disk import Disk, spread, two
from tests.broker.wire import DEADLINE_S, Client, batch, fetch_request, produce_request, running_broker
from tests.support.eventually import eventually_async


async def shown_lost(client: Client, *lost: tuple[str, int]) -> dict[tuple[str, int], Any]:
    """The Metadata of every partition, when these are expected to be offline."""

    async def look() -> dict[tuple[str, int], Any]:
        topics = (await client.ask(m.MetadataRequest(topics=None), 12)).topics
        return {(topic.name, each.partition_index): each for topic in topics for each in topic.partitions}

    return await eventually_async(
        look, lambda shown: all(each in shown and shown[each].offline_replicas for each in lost)
    )


@pytest.mark.parametrize(
    ("name", "interval"),
    [
        ("replication-offset-checkpoint", "replica.high.watermark.checkpoint.interval.ms"),
        ("recovery-point-offset-checkpoint", "log.flush.offset.checkpoint.interval.ms"),
        ("log-start-offset-checkpoint", "log.flush.start.offset.checkpoint.interval.ms"),
        pytest.param("cleaner-offset-checkpoint", "log.cleaner.backoff.ms", marks=pytest.mark.slow),
    ],
)
async def test_a_checkpoint_on_a_slow_disk_delays_no_client(tmp_path: Path, name: str, interval: str) -> None:
    disk = Disk()
    properties = {interval: "20", "log.initial.task.delay.ms": "20"}
    configs = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
    async with running_broker(tmp_path / "d", properties, disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs=configs)
        disk.hold(f"/{name}")
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not disk.syncing.is_set():  # a pass of the cleaner needs records under keys, twice
                    answer = await client.produce("t", batch(b"x" * 400, key=b"key"))
                    assert answer.error_code == 0
            begun = disk.syncs
            for _ in range(20):
                assert (await client.produce("t", batch(b"x" * 400, key=b"key"))).error_code == 0
            assert disk.syncs == begun, "a task waits for the checkpoint before it"
        finally:
            disk.gate.set()
    assert (tmp_path / "d" / name).exists()


@pytest.mark.parametrize("fault", ["write", "read-only", "fsync", "checkpoint", "deletion"])
async def test_a_directory_on_a_failed_disk_goes_offline_and_the_other_stays_online(tmp_path: Path, fault: str) -> None:
    """A file system becomes read-only under open files when it finds an error; `mount -o remount,ro` refuses to."""
    disk = Disk()
    properties = {"replica.high.watermark.checkpoint.interval.ms": "20"} if fault == "checkpoint" else {}
    configs = {"flush.messages": "1"} if fault == "fsync" else {}
    async with running_broker(two(tmp_path), properties, disk=disk) as broker:
        client = await Client.connect(broker.port)
        here, there = await spread(client, tmp_path, **configs)
        for index in range(4):
            assert (await client.produce("t", batch(b"kept"), partition=index)).error_code == 0
        if fault == "write":
            disk.place, disk.write_error = f"/d1/t-{there[0]}/", errno.EIO
            lost = await client.produce("t", batch(b"lost"), partition=there[0])
            assert lost.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        elif fault == "read-only":
            disk.place, disk.write_error = "/d1/", errno.EROFS
            lost = await client.produce("t", batch(b"lost"), partition=there[0])
            assert lost.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        elif fault == "fsync":
            disk.place, disk.sync_error = f"/d1/t-{there[0]}/", errno.EIO
            lost = await client.produce("t", batch(b"lost"), partition=there[0])
            assert lost.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        elif fault == "checkpoint":
            disk.place, disk.write_error = "/d1/replication-offset-checkpoint", errno.EIO
            # The checkpoint of the records above may be due before this record.
            late = await client.produce("t", batch(b"late"), partition=there[0])
            assert (late.error_code, late.base_offset) in ((0, 1), (ErrorCode.KAFKA_STORAGE_ERROR, -1))
        else:
            await client.create_topic("u", partitions=2)
            disk.place, disk.write_error = "/d1/u-", errno.EIO
            deleted = await client.ask(m.DeleteTopicsRequest(topic_names=["u"], timeout_ms=1000), 5)
            assert deleted.responses[0].error_code == 0
        shown = await shown_lost(client, *(("t", index) for index in there))
        disk.write_error = disk.sync_error = 0
        # The content of such a disk is unknown: it stays offline until the next start.
        for index in there:
            refused = await client.produce("t", batch(b"refused"), partition=index)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await client.fetch("t", 0, partition=index)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert shown["t", index].error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (shown["t", index].leader_id, shown["t", index].offline_replicas) == (-1, [0])
        for index in here:
            assert (await client.produce("t", batch(b"elsewhere"), partition=index)).error_code == 0
            assert (shown["t", index].leader_id, shown["t", index].offline_replicas) == (0, [])
        await client.create_topic("later", partitions=2)
        for index in range(2):
            assert (await client.produce("later", batch(b"v"), partition=index)).error_code == 0
        answer = await client.ask(m.DescribeLogDirsRequest(topics=None), 4)
        found = {Path(each.log_dir).name: (each.error_code, len(each.topics)) for each in answer.results}
        assert found["d1"] == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
        assert found["d0"][0] == 0
        client.close()
    assert (tmp_path / "d0" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "d1" / ".kafka_cleanshutdown").exists()
    async with running_broker(two(tmp_path)) as broker:
        client = await Client.connect(broker.port)
        for index in there:
            found_first = next(iter(records((await client.fetch("t", 0, partition=index)).records)))
            assert found_first.value == b"kept"
            assert (await client.produce("t", batch(b"v"), partition=index)).error_code == 0
        client.close()


async def test_coordinators_unload_partitions_on_a_disk_that_fails(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(two(tmp_path), {"offsets.topic.num.partitions": "1"}, disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        while (await client.ask(m.FindCoordinatorRequest(key="readers"), 3)).error_code:
            pass  # the coordinator's topic is made after the first request for it
        assert await committed(client) == -1
        assert (await client.ask(commit(7), 8)).topics[0].partitions[0].error_code == 0
        failing = directory_of(tmp_path, "__consumer_offsets-0")
        assert failing != directory_of(tmp_path, "t-0")
        # Another log fails, on the same disk.
        assert (await client.ask(alter_log_dir(str(failing), "more"), 2)).results[0].partitions[0].error_code
        await client.create_topic("more")
        disk.place, disk.write_error = f"{failing}/more-0/", errno.EIO
        assert (await client.produce("more", batch(b"v"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await shown_lost(client, ("__consumer_offsets", 0))
        assert (await client.ask(commit(8), 8)).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        fetched = await client.ask(m.OffsetFetchRequest(group_id="readers", topics=[wanted]), 7)
        assert fetched.error_code == ErrorCode.NOT_COORDINATOR
        assert (await client.produce("t", batch(b"v"))).error_code == 0
        client.close()


def directory_of(tmp_path: Path, log: str) -> Path:
    """Which directory a log lies in."""
    (folder,) = tmp_path.glob(f"*/{log}")
    return folder.parent


def alter_log_dir(path: str, topic: str) -> m.AlterReplicaLogDirsRequest:
    wanted = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])
    return m.AlterReplicaLogDirsRequest(
        dirs=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[wanted])]
    )


def await_end(pid: int) -> None:
    """Wait until a child process has ended."""
    end = os.pidfd_open(pid)
    try:
        assert select.select([end], [], [], DEADLINE_S)[0]
    finally:
        os.close(end)


@pytest.mark.slow
async def test_a_broker_survives_the_loss_of_all_directories_but_the_last(tmp_path: Path) -> None:
    """A process and real directories, which the test removes under it."""
    properties = {"log.dirs": two(tmp_path), "replica.high.watermark.checkpoint.interval.ms": "50"}
    with BrokerProcess(tmp_path / "process", properties) as process:
        client, pid = await Client.connect(process.port), process.pid
        here, there = await spread(client, tmp_path)
        (tmp_path / "d1").rename(tmp_path / "away")
        # The next checkpoint fails. It may come before this write, which an open file would still take.
        written = await client.produce("t", batch(b"v"), partition=there[0])
        assert written.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        await shown_lost(client, *(("t", index) for index in there))
        assert (await client.produce("t", batch(b"v"), partition=here[0])).error_code == 0
        (tmp_path / "d0").rename(tmp_path / "gone")
        await client.produce("t", batch(b"v"), partition=here[1])
        assert await client.is_closed()
        client.close()
        await asyncio.to_thread(await_end, pid)
        printed = f"Shutdown broker because all log dirs in {tmp_path / 'd0'}, {tmp_path / 'd1'} have failed"
        with pytest.raises(BrokerError, match="ended by itself with exit status 1") as ended:
            process.reap()
        assert printed in str(ended.value)


async def test_writes_to_a_full_disk_fail_and_succeed_once_there_is_room(tmp_path: Path) -> None:
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
async def test_one_fsync_serves_all_waiting_requests_and_none_is_answered_before_it(tmp_path: Path, acks: int) -> None:
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
        assert (await reader.fetch("t", 0)).high_watermark == 0  # no consumer reads records that could be lost
        assert disk.syncs == 1

        disk.gate.set()
        answers = await asyncio.gather(*waiting)
        codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
        assert codes == [0] * 5
        assert disk.syncs == 2  # one for the first batch, one for the four that came meanwhile
        assert (await reader.fetch("t", 0)).high_watermark == 5
        for client in clients:
            client.close()


async def test_a_failed_fsync_acknowledges_nothing_and_is_not_repeated(tmp_path: Path) -> None:
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


async def test_the_fsync_wakes_a_waiting_fetch(tmp_path: Path) -> None:
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


async def test_a_log_that_cannot_be_created_is_in_no_directory(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(two(tmp_path), disk=disk) as broker:
        client = await Client.connect(broker.port)
        disk.place, disk.write_error = "/d0/stillborn-", errno.EIO
        await client.create_topic("stillborn")
        shown = await shown_lost(client, ("stillborn", 0))
        assert (shown["stillborn", 0].leader_id, shown["stillborn", 0].offline_replicas) == (-1, [0])
        client.close()
    async with running_broker(two(tmp_path)) as broker:  # on a disk that works
        client = await Client.connect(broker.port)
        assert (await client.produce("stillborn", batch(b"v"))).error_code == 0
        client.close()


async def test_records_that_a_disk_would_not_delete_do_not_reappear_under_a_new_topic(tmp_path: Path) -> None:
    disk = Disk()
    async with running_broker(two(tmp_path), disk=disk) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        assert (await client.produce("t", batch(b"old"))).error_code == 0
        disk.place, disk.write_error = "/t-0", errno.EIO
        deleted = await client.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert deleted.responses[0].error_code == 0
        described = m.DescribeLogDirsRequest(topics=None)
        await eventually_async(
            lambda: client.ask(described, 4), lambda answer: any(each.error_code for each in answer.results)
        )
        disk.write_error = 0
        # The controller keeps the topic in deletion, as Kafka's does, until the directory is back.
        topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        again = m.CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        assert (await client.ask(again, 7)).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await client.produce("t", batch(b"new"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        client.close()
    async with running_broker(two(tmp_path)) as broker, asyncio.timeout(20):
        client = await Client.connect(broker.port)
        while (await client.ask(again, 7)).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            pass
        assert (await client.produce("t", batch(b"new"))).base_offset == 0
        assert b"old" not in bytes((await client.fetch("t", 0)).records or b"")
        client.close()


async def test_a_retry_does_not_bypass_the_fsync(tmp_path: Path) -> None:
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
        # Sent after the retry, so that the broker handled the retry while the disk was still busy.
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
        assert await committed(client) in (7, 8)  # unacknowledged offsets may be there or not
        client.close()


@asynccontextmanager
async def unsynced(tmp_path: Path) -> AsyncIterator[tuple[Broker, Disk, Client]]:
    """A broker with a topic "t" that wants an fsync for each write, and a disk whose fsync does not return."""
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
