"""The loop of a follower: when a partition whose leader answers an error is fetched again."""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.network.inter_broker_connection import Network
from odradek.broker.replication.fetcher import FIRST_BACKOFF_MS, FetchSettings, LeaderFetcher
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.storage.staged import STAGED_BYTES
from tests.broker.held_worker import HeldWorker
from tests.broker.idle_coordinator import Idle
from tests.machines.group_harness import VirtualTime
from tests.storage.batches import TOPIC_ID, batch, open_log

MAX_WAIT_MS = 500
BACKOFF_MS = 1000


class Peer:
    """A leader that answers on demand of the test."""

    host, port = "leader", 9092

    def __init__(self) -> None:
        self.owed: list[tuple[m.FetchRequest, Callable[[Any], None]]] = []

    def send_request(self, request: Any, on_answer: Any, on_lost: Any, timeout_ms: int) -> None:
        self.owed.append((request, on_answer))

    def answer(self, code: ErrorCode, records: memoryview | None = None) -> None:
        _, on_answer = self.owed.pop(0)
        made = m.FetchResponse
        data = made.PartitionData(
            partition_index=0, error_code=code, high_watermark=0, log_start_offset=0, records=records
        )
        on_answer(made(session_id=1, responses=[made.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]))


class Follower:
    """A follower of one partition."""

    def __init__(self, folder: Path) -> None:
        self.time = VirtualTime()
        self.peer = Peer()
        machine = PartitionMachine(1, high_watermark=0, local_end=0)
        self.log = open_log(folder / "topic-0")
        self.worker = HeldWorker()
        replica = Replica(self.log, machine, self.time, Idle(), Idle(), lambda _: None)
        replica.follow(LeaderAndIsr(0, 1, (0, 1), (0, 1)))
        settings = FetchSettings(1, lambda: 1, max_wait_ms=MAX_WAIT_MS, backoff_ms=BACKOFF_MS, worker=self.worker)
        network = Network(None, self.time, self.time)  # type: ignore[arg-type]  # the peer stands for the connection
        self.fetcher = LeaderFetcher(network, settings, self.peer)  # type: ignore[arg-type]
        self.fetcher.follow(replica, 1)
        self.time.advance(0)

    def ms_until_asked(self) -> int:
        """Advance the time until the follower sends a fetch."""
        for passed_ms in range(10 * BACKOFF_MS):
            if self.peer.owed:
                return passed_ms
            self.time.advance(1)
        raise AssertionError("no more requests to the leader are expected")


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


def test_a_leader_that_does_not_have_its_epoch_yet_is_retried_soon_and_then_with_backoff(follower: Follower) -> None:
    waits_ms = []
    for _ in range(8):
        follower.peer.answer(ErrorCode.UNKNOWN_LEADER_EPOCH)
        waits_ms.append(follower.ms_until_asked())
    assert waits_ms == [min(BACKOFF_MS, FIRST_BACKOFF_MS << doublings) for doublings in range(8)]


def test_a_response_without_error_resets_the_backoff(follower: Follower) -> None:
    for _ in range(5):
        follower.peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower.ms_until_asked()
    follower.peer.answer(ErrorCode.NONE)
    assert follower.peer.owed[0][0].max_wait_ms == MAX_WAIT_MS
    follower.peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert follower.ms_until_asked() == FIRST_BACKOFF_MS


def large(size: int = STAGED_BYTES) -> memoryview:
    """A batch in memory of the system, as the response that it came with."""
    data = batch(size=size, leader_epoch=1)
    memory = mmap(-1, len(data))
    memory[:] = data
    return memoryview(memory)


def test_a_thread_writes_a_large_batch_before_the_next_request(follower: Follower) -> None:
    records = large()
    follower.peer.answer(ErrorCode.NONE, records)
    assert (follower.worker.waiting, follower.peer.owed, follower.log.end_offset) == (1, [], 0)
    follower.time.advance(MAX_WAIT_MS)
    assert not follower.peer.owed
    follower.worker.release()
    assert follower.log.end_offset == 1
    (fetch, _) = follower.peer.owed[0]
    assert fetch.topics[0].partitions[0].fetch_offset == 1
    assert follower.log.read(0, 1).records.read() == bytes(records)  # type: ignore[union-attr]


def test_a_damaged_large_batch_is_fetched_again_after_a_while(follower: Follower) -> None:
    records = large()
    records[100] ^= 1
    follower.peer.answer(ErrorCode.NONE, records)
    follower.worker.release()
    assert follower.log.end_offset == 0
    assert follower.ms_until_asked() == FIRST_BACKOFF_MS


def test_a_large_batch_of_a_partition_that_is_not_fetched_any_more_is_dropped(follower: Follower) -> None:
    follower.peer.answer(ErrorCode.NONE, large())
    (replica,) = follower.fetcher.replicas()
    follower.fetcher.leave(replica)
    follower.worker.release()
    assert (follower.log.end_offset, follower.peer.owed) == (0, [])
    assert not [each for each in Path(follower.log.directory).iterdir() if each.suffix == ".tmp"]


def test_a_small_batch_is_written_at_once(follower: Follower) -> None:
    follower.peer.answer(ErrorCode.NONE, large(STAGED_BYTES - 1000))
    assert (follower.worker.waiting, follower.log.end_offset, len(follower.peer.owed)) == (0, 1, 1)
