"""The loop of a follower: when a partition whose leader answers an error is fetched again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.network.inter_broker_connection import Network
from odradek.broker.replication.fetcher import FIRST_BACKOFF_MS, FetchSettings, LeaderFetcher
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.idle_coordinator import Idle
from tests.machines.group_harness import VirtualTime
from tests.storage.batches import TOPIC_ID, open_log

MAX_WAIT_MS = 500
BACKOFF_MS = 1000


class Peer:
    """A leader that answers on demand of the test."""

    host, port = "leader", 9092

    def __init__(self) -> None:
        self.owed: list[tuple[m.FetchRequest, Callable[[Any], None]]] = []

    def send_request(self, request: Any, on_answer: Any, on_lost: Any, timeout_ms: int) -> None:
        self.owed.append((request, on_answer))

    def answer(self, code: ErrorCode) -> None:
        _, on_answer = self.owed.pop(0)
        made = m.FetchResponse
        data = made.PartitionData(partition_index=0, error_code=code, high_watermark=0, log_start_offset=0)
        on_answer(made(session_id=1, responses=[made.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]))


class Follower:
    """A follower of one partition."""

    def __init__(self, folder: Path) -> None:
        self.time = VirtualTime()
        self.peer = Peer()
        machine = PartitionMachine(1, high_watermark=0, local_end=0)
        replica = Replica(open_log(folder / "topic-0"), machine, self.time, Idle(), Idle(), lambda _: None)
        replica.follow(LeaderAndIsr(0, 1, (0, 1), (0, 1)))
        settings = FetchSettings(1, lambda: 1, max_wait_ms=MAX_WAIT_MS, backoff_ms=BACKOFF_MS)
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
