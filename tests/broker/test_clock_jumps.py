"""The wall clock jumps by hours: sessions, transactions, flushes and deletions continue as before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.runtime.state.effects import Now
from odradek.broker.runtime.timers import SystemClock
from odradek.broker.server import Broker, Environment
from odradek.broker.transaction.state.records import Status, TransactionMetadata
from odradek.broker.transaction.state.transaction import Transaction
from odradek.protocol import messages as m
from odradek.protocol.batch import records
from odradek.storage.config import LogConfig
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.logs_to_delete import LogsToDelete
from tests.broker.transaction_requests import coordinated, producer, write
from tests.broker.wire import DEADLINE_S, Client, batch
from tests.storage.batches import NOW_MS, open_log
from tests.storage.batches import batch as batch_of_log

HOURS_MS = 6 * 3_600_000
JUMPS = pytest.mark.parametrize("jump_ms", [HOURS_MS, -HOURS_MS], ids=["forwards", "backwards"])


class JumpingClock(SystemClock):
    """The clock of the system, with a wall clock that a test sets."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@asynccontextmanager
async def broker_with(clock: JumpingClock, folder: Path) -> AsyncIterator[Client]:
    properties = {
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
        "log.retention.check.interval.ms": "20",
        "group.initial.rebalance.delay.ms": "0",
    }
    broker = Broker(BrokerConfig(properties), Environment(clock=clock))
    await broker.start()
    client = await Client.connect(broker.port)
    try:
        yield client
    finally:
        client.close()
        await broker.stop()


async def joined(client: Client) -> tuple[str, int]:
    """A member of the group "g": its id, and the generation."""
    await coordinated(client, "g")
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    async with asyncio.timeout(DEADLINE_S):
        while (answer := await client.ask(request, 5)).error_code:
            request.member_id = answer.member_id
    member = answer.member_id, answer.generation_id
    assigned = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member[0], assignment=b"all")
    synced = await client.ask(
        m.SyncGroupRequest(group_id="g", generation_id=member[1], member_id=member[0], assignments=[assigned]), 3
    )
    assert synced.error_code == 0
    return member


async def values(client: Client, isolation_level: int = 0) -> list[bytes | None]:
    data = bytes((await client.fetch("t", 0, isolation_level=isolation_level)).records or b"")
    found, position = [], 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if not data[position + 22] & 0x20:
            found += [record.value for record in records(data[position : position + size])]
        position += size
    return found


@JUMPS
async def test_members_offsets_and_idempotent_producers_survive_a_jump_and_a_restart(
    tmp_path: Path, jump_ms: int
) -> None:
    clock = JumpingClock()
    async with broker_with(clock, tmp_path) as client:
        await client.create_topic("t", configs={"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
        member, generation = await joined(client)
        idempotent: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
        assert (await client.produce("t", batch(b"a", **idempotent, base_sequence=0))).base_offset == 0
        clock.ahead_ms = jump_ms
        heartbeat = m.HeartbeatRequest(group_id="g", generation_id=generation, member_id=member)
        assert (await client.ask(heartbeat, 3)).error_code == 0
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
        commit = m.OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
        )
        assert (await client.ask(commit, 7)).topics[0].partitions[0].error_code == 0
        assert (await client.produce("t", batch(b"b", **idempotent, base_sequence=1))).base_offset == 1
        assert (await client.produce("t", batch(b"b", **idempotent, base_sequence=1))).base_offset == 1  # a retry
    async with broker_with(clock, tmp_path) as client:
        assert await values(client) == [b"a", b"b"]
        await coordinated(client, "g")
        wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        async with asyncio.timeout(DEADLINE_S):
            while (answer := await client.ask(m.OffsetFetchRequest(group_id="g", topics=[wanted]), 7)).error_code:
                pass
        assert answer.topics[0].partitions[0].committed_offset == 1
        assert (await client.produce("t", batch(b"c"))).base_offset == 2


@JUMPS
async def test_an_open_transaction_survives_a_jump(tmp_path: Path, jump_ms: int) -> None:
    clock = JumpingClock()
    async with broker_with(clock, tmp_path) as client:
        await client.create_topic("t", configs={"retention.ms": "-1"})
        await coordinated(client, "id", 1)
        init = m.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000)
        async with asyncio.timeout(DEADLINE_S):
            while (owner := await client.ask(init, 4)).error_code:
                pass
        added = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=owner.producer_id,
            v3_and_below_producer_epoch=owner.producer_epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0]),
            ],
        )
        await added_to_transaction(client, added)
        fields = producer(owner.producer_id, owner.producer_epoch)
        assert (await write(client, batch(b"v", **fields))).error_code == 0
        clock.ahead_ms = jump_ms
        for _ in range(200):  # the check of timeouts runs several times meanwhile
            assert await values(client, isolation_level=1) == []
        end = m.EndTxnRequest(
            transactional_id="id",
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            committed=True,
        )
        assert (await client.ask(end, 3)).error_code == 0
        async with asyncio.timeout(DEADLINE_S):
            while await values(client, isolation_level=1) != [b"v"]:
                pass


async def added_to_transaction(client: Client, request: Any) -> None:
    answer = await client.ask(request, 3)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0


def ongoing(started_ms: int, timeout_ms: int) -> TransactionMetadata:
    return TransactionMetadata(
        Status.ONGOING, 1, 0, timeout_ms, partitions=frozenset([("t", 0)]), started_ms=started_ms, updated_ms=started_ms
    )


@JUMPS
def test_the_timeout_of_a_transaction_is_one_of_the_monotonic_clock(jump_ms: int) -> None:
    transaction = Transaction("id", ongoing(NOW_MS, 60_000))
    transaction.loaded(Now(NOW_MS + 1_000, 500_000))
    assert not transaction.is_overdue(Now(NOW_MS + jump_ms, 500_000 + 58_000))
    assert transaction.is_overdue(Now(NOW_MS + jump_ms, 500_000 + 60_000))


def test_a_transaction_that_a_loaded_log_shows_to_be_overdue_is_aborted() -> None:
    transaction = Transaction("id", ongoing(NOW_MS, 60_000))
    transaction.loaded(Now(NOW_MS + 61_000, 5))
    assert transaction.is_overdue(Now(NOW_MS + 61_000, 5))


def test_flush_ms_holds_after_the_clock_was_set_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", LogConfig(flush_ms=1000))
    log.append(batch_of_log(1), leader_epoch=0, now_ms=NOW_MS)
    assert not log.flush_due(NOW_MS + 999)
    assert log.flush_due(NOW_MS - HOURS_MS)
    log.flush(now_ms=NOW_MS - HOURS_MS)
    log.append(batch_of_log(1), leader_epoch=0, now_ms=NOW_MS)
    assert not log.flush_due(NOW_MS - HOURS_MS + 999)
    assert log.flush_due(NOW_MS - HOURS_MS + 1000)
    log.close_files()


def test_deleted_files_are_removed_after_the_clock_was_set_back(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", LogConfig(segment_bytes=300, file_delete_delay_ms=1000))
    for _ in range(5):
        log.append(batch_of_log(2, size=60), leader_epoch=0, now_ms=NOW_MS)
    log.advance_start_offset(8, high_watermark=10)
    assert log.delete_old_segments(high_watermark=10, now_ms=NOW_MS)
    log.purge(NOW_MS)
    assert list((tmp_path / "topic-0").glob("*.deleted"))
    log.purge(NOW_MS - HOURS_MS + 500)
    assert list((tmp_path / "topic-0").glob("*.deleted"))
    log.purge(NOW_MS - HOURS_MS + 1500)
    assert not list((tmp_path / "topic-0").glob("*.deleted"))
    log.close_files()


def test_deleted_logs_are_removed_after_the_clock_was_set_back(tmp_path: Path) -> None:
    (tmp_path / "t-0.x-delete").mkdir()
    deleted = LogsToDelete(Folder(OsDisk(), str(tmp_path)))
    deleted.add("t-0.x-delete", NOW_MS + 1000)
    assert deleted.take_due(NOW_MS) is None
    assert deleted.take_due(NOW_MS - HOURS_MS) is None
    assert deleted.take_due(NOW_MS - HOURS_MS + 999) is None
    remove = deleted.take_due(NOW_MS - HOURS_MS + 1000)
    assert remove is not None
    remove()
    assert not (tmp_path / "t-0.x-delete").exists()
