"""Leader epochs of a consumer beside a scripted cluster: truncation after a change of the leader (KIP-320)."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from odradek.protocol import batch as batches
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import Record
from odradek.streams.clients.fetch_state import FetchState
from odradek.streams.clients.fetcher import Fetcher, FetchLimits
from odradek.streams.clients.offsets import OffsetRequests
from tests.streams.clients.scripted import ScriptedMetadata, ScriptedNetwork, fetched

PLACE = ("t", 0)
LIMITS = FetchLimits(
    wait_ms=0, min_bytes=1, response_bytes=1000, partition_bytes=1000, queued_bytes=1000, isolation=0, rack="",
    backoff_s=0.0,
)  # fmt: skip
RECORDS = [Record(offset, 1, b"k", b"v") for offset in range(10)]
LOG = bytes(batches.build(RECORDS, base_offset=0, leader_epoch=3))


class Scene:
    """A fetcher that has read ten records of epoch 3 from broker 1. `ends` are the answers to OffsetForLeaderEpoch, as
    error code and end offset; `codes` those to later fetches.
    """

    def __init__(self, *ends: tuple[int, int], codes: tuple[int, ...] = ()) -> None:
        self.ends, self.codes = list(ends), [0, *codes]
        self.network = cast(Any, ScriptedNetwork(self.answer))
        self.metadata = cast(Any, ScriptedMetadata(1, 3))
        offsets = OffsetRequests(self.network, self.metadata, 0)
        self.fetcher = Fetcher(self.network, self.metadata, offsets, LIMITS)
        self.state = self.fetcher.states[PLACE] = FetchState(PLACE, 0)
        self.turn()
        assert len(self.fetcher.fetched[0].records.take(100)) == len(RECORDS)
        self.state.consumed = 10
        self.fetcher.remove(self.fetcher.fetched[0])
        self.network.sent.clear()

    def answer(self, request: Any) -> Any:
        if isinstance(request, m.FetchRequest):
            start = request.topics[0].partitions[0].fetch_offset
            return fetched(request, self.codes.pop(0) if self.codes else 0, 10, LOG if start == 0 else b"")
        code, end = self.ends.pop(0)
        kind = m.OffsetForLeaderEpochResponse
        part = kind.EpochEndOffset(error_code=code, partition=0, leader_epoch=3, end_offset=end)
        return kind(topics=[kind.OffsetForLeaderTopicResult(topic="t", partitions=[part])])

    def turn(self) -> None:
        self.fetcher.maintain()
        self.network.poll()

    def move(self) -> None:
        """Broker 2 leads with epoch 5."""
        self.metadata.current = ScriptedMetadata(2, 5).current

    def epochs_asked(self) -> list[tuple[int, int, int]]:
        """Node, current epoch and epoch of each request for the end of an epoch."""
        parts = [
            (node, request.topics[0].partitions[0])
            for node, request in self.network.sent
            if isinstance(request, m.OffsetForLeaderEpochRequest)
        ]
        return [(node, part.current_leader_epoch, part.leader_epoch) for node, part in parts]


def test_a_new_leader_whose_log_ends_before_the_position_has_truncated_it() -> None:
    scene = Scene((0, 7))
    scene.move()
    scene.turn()
    assert scene.epochs_asked() == [(2, 5, 3)]
    (failure,) = scene.fetcher.failures
    assert (failure.error.code(), failure.offset) == (KafkaError._LOG_TRUNCATION, 7)
    scene.turn()
    assert len(scene.network.sent) == 1, "the partition is not read until it is assigned again"


@pytest.mark.parametrize("end", [10, 12, -1])
def test_a_new_leader_with_the_position_is_read(end: int) -> None:
    scene = Scene((0, end))
    scene.move()
    scene.turn()
    scene.turn()
    node, request = scene.network.sent[-1]
    assert isinstance(request, m.FetchRequest)
    part = request.topics[0].partitions[0]
    assert (node, part.fetch_offset, part.current_leader_epoch) == (2, 10, 5)
    assert scene.epochs_asked() == [(2, 5, 3)]
    assert not scene.fetcher.failures


def test_an_epoch_that_a_leader_does_not_have_yet_is_requested_again() -> None:
    scene = Scene((ErrorCode.UNKNOWN_LEADER_EPOCH, -1), (ErrorCode.FENCED_LEADER_EPOCH, -1), (0, 10))
    scene.move()
    for _ in range(4):
        scene.turn()
    assert scene.epochs_asked() == [(2, 5, 3)] * 3
    assert scene.metadata.requests == 2
    assert isinstance(scene.network.sent[-1][1], m.FetchRequest)


def test_a_fetch_with_an_old_epoch_requests_the_leaders() -> None:
    scene = Scene(codes=(ErrorCode.FENCED_LEADER_EPOCH,))
    scene.turn()
    assert scene.metadata.requests == 1
    assert not scene.fetcher.failures
    scene.turn()
    assert [type(request) for _, request in scene.network.sent] == [m.FetchRequest] * 2
