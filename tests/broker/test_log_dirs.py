"""Several data directories under a running broker: placement of logs, their description, and moves over the wire."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.batch import headers, records
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.disk import OsDisk
from tests.broker.log_dir_requests import alter, places
from tests.broker.wire import DEADLINE_S, Client, batch, running_broker
from tests.support.eventually import eventually_async


@contextlib.asynccontextmanager
async def with_directories(folder: Path, count: int = 2) -> AsyncIterator[tuple[Broker, Client, list[str]]]:
    paths = [str(folder / f"d{number}") for number in range(count)]
    async with running_broker(",".join(paths)) as broker:
        client = await Client.connect(broker.port)
        yield broker, client, paths
        client.close()


async def values(client: Client, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            data = bytes((await client.fetch(topic, len(found))).records)
            found += [r.value or b"" for position, _ in headers(data) for r in records(data, position)]
    return found


async def test_logs_are_placed_where_there_are_fewest_and_move_on_request(tmp_path: Path) -> None:
    async with with_directories(tmp_path) as (_, client, (one, two)):
        await client.create_topic("t", partitions=4)
        described = await places(client)
        assert sorted(len(logs) for logs in described.values()) == [2, 2]
        here, there = (one, two) if ("t", 0, False) in described[one] else (two, one)
        for number in range(20):
            assert (await client.produce("t", batch(b"%d" % number))).error_code == 0
        for version in range(3):
            assert await alter(client, version, (there, "t", 0)) == [("t", 0, ErrorCode.NONE)]
            described = await eventually_async(
                lambda: places(client), lambda found, path=there: ("t", 0, False) in found[path]
            )
            assert ("t", 0, False) not in described[here]
            assert not any(is_future for logs in described.values() for _, _, is_future in logs)
            assert (await client.produce("t", batch(b"%d" % (20 + version)))).base_offset == 20 + version
            here, there = there, here
        assert await values(client, "t", 23) == [b"%d" % number for number in range(23)]
    async with with_directories(tmp_path) as (_, client, _):
        assert ("t", 0, False) in (await places(client))[here]
        assert await values(client, "t", 23) == [b"%d" % number for number in range(23)]


@pytest.mark.slow
async def test_a_move_during_writes_neither_loses_nor_duplicates_records(tmp_path: Path) -> None:
    async with with_directories(tmp_path) as (broker, client, paths):
        await client.create_topic("t", configs={"segment.bytes": "1000000"})
        described = await places(client)
        (there,) = [path for path in paths if ("t", 0, False) not in described[path]]
        big = b"x" * 50_000
        for _ in range(100):
            assert (await client.produce("t", batch(big))).error_code == 0
        offsets: list[int] = []
        moved = asyncio.Event()

        async def write(writer: Client) -> None:
            while not moved.is_set():
                offsets.append((await writer.produce("t", batch(big))).base_offset)

        writers = [await Client.connect(broker.port) for _ in range(2)]
        async with asyncio.TaskGroup() as group:
            for each in writers:
                group.create_task(write(each))
            lags = []
            assert await alter(client, 2, (there, "t", 0)) == [("t", 0, ErrorCode.NONE)]
            async with asyncio.timeout(DEADLINE_S):
                while ("t", 0, False) not in (described := await places(client))[there]:
                    lags.append(described[there]["t", 0, True][1])
            moved.set()
        assert lags
        assert all(lag >= 0 for lag in lags)
        assert sorted(offsets) == list(range(100, 100 + len(offsets)))
        assert (await client.fetch("t", 0)).high_watermark == 100 + len(offsets)
        for each in writers:
            each.close()


async def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    async with with_directories(tmp_path) as (_, client, (one, _)):
        await client.create_topic("t")
        asked = [(str(tmp_path / "other"), "t", 0), (one, "t", 7), (one, "nothing", 0), ("d0", "u", 0)]
        assert await alter(client, 2, *asked) == [
            ("t", 0, ErrorCode.LOG_DIR_NOT_FOUND),
            ("t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("nothing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("u", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ]
        for name in ("a", "b", "c"):
            assert await alter(client, 1, (one, name, 0)) == [(name, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
            await client.create_topic(name)
        assert {("a", 0, False), ("b", 0, False), ("c", 0, False)} <= (await places(client))[one].keys()


async def test_every_version_of_describe(tmp_path: Path) -> None:
    async with with_directories(tmp_path) as (_, client, paths):
        await client.create_topic("t", partitions=2)
        for version in range(6):
            described = await places(client, version)
            assert sorted(described) == paths
            assert {name for logs in described.values() for name in logs} == {("t", 0, False), ("t", 1, False)}


# ---- starts


async def test_an_unusable_directory_is_offline_and_the_broker_starts(tmp_path: Path) -> None:
    (tmp_path / "d1").write_text("not a directory")
    async with with_directories(tmp_path) as (_, client, (one, two)):
        await client.create_topic("t", partitions=3)
        assert len((await places(client))[one]) == 3
        answer = await client.ask(m.DescribeLogDirsRequest(topics=None), 4)
        (bad,) = [each for each in answer.results if each.log_dir == two]
        assert (bad.error_code, bad.topics, bad.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)
        assert await alter(client, 2, (two, "t", 0)) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
        assert (await client.produce("t", batch(b"v"), partition=2)).error_code == 0
    (tmp_path / "d1").unlink()
    async with with_directories(tmp_path) as (_, client, (_, two)):
        assert await alter(client, 2, (two, "t", 0)) == [("t", 0, ErrorCode.NONE)]


async def test_a_log_on_a_missing_directory_is_not_recreated(tmp_path: Path) -> None:
    async with with_directories(tmp_path) as (_, client, (_, two)):
        await client.create_topic("t", partitions=2)
        (lost,) = [index for topic, index, _ in (await places(client))[two] if topic == "t"]
        for index in (0, 1):
            assert (await client.produce("t", batch(b"v"), partition=index)).error_code == 0
    (tmp_path / "d1").rename(tmp_path / "away")
    (tmp_path / "d1").write_text("not a directory")
    async with with_directories(tmp_path) as (_, client, _):
        assert (await client.produce("t", batch(b"w"), partition=1 - lost)).base_offset == 1
        topics = (await client.ask(m.MetadataRequest(topics=None), 12)).topics
        shown = {each.partition_index: each for each in topics[0].partitions}
        assert (shown[lost].leader_id, shown[lost].offline_replicas) == (-1, [0])
        refused = await client.produce("t", batch(b"w"), partition=lost)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("t", 0, partition=lost)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await alter(client, 2, (str(tmp_path / "d0"), "t", lost)) == [("t", lost, ErrorCode.KAFKA_STORAGE_ERROR)]
        assert not (tmp_path / "d0" / f"t-{lost}").exists()
    (tmp_path / "d1").unlink()
    (tmp_path / "away").rename(tmp_path / "d1")
    async with with_directories(tmp_path) as (_, client, _):
        assert (await client.produce("t", batch(b"w"), partition=lost)).base_offset == 1


async def test_a_broker_does_not_start_without_a_directory_or_on_that_of_another(tmp_path: Path) -> None:
    lock = OsDisk().lock(str(tmp_path / ".lock"))
    assert lock is not None
    (tmp_path / "d0").mkdir()
    with pytest.raises(KafkaError, match=r"Failed to acquire lock on file \.lock in"):
        async with running_broker(f"{tmp_path / 'd0'},{tmp_path}"):
            pass
    lock.release()
