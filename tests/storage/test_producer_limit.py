"""The number of producers that a log remembers is limited: a client can invent any number of ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol.batch import Header
from odradek.storage.config import AppendOrigin
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.markers import EndTransactionMarker
from odradek.storage.producers import ProducerState

MOST = 100
TRANSACTIONAL = 1 << 4


def batch_of(producer_id: int, *, attributes: int = 0, sequence: int = 0, timestamp: int = 1) -> Header:
    return Header(
        base_offset=0,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        record_count=1,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(OsDisk(), str(tmp_path))


@pytest.fixture
def state(folder: Folder) -> ProducerState:
    return ProducerState(folder, most=MOST)


def write(state: ProducerState, *producer_ids: int, attributes: int = 0, timestamp: int = 1) -> None:
    for producer_id in producer_ids:
        state.apply(batch_of(producer_id, attributes=attributes), state.end_offset, timestamp)
        state.end_offset += 1


def test_invented_ids_are_limited_and_the_longest_idle_leave_first(state: ProducerState) -> None:
    write(state, 1, 2, 3)
    for producer_id in range(1000, 6000):
        write(state, producer_id, 1)  # producer 1 continues to write
        assert len(state) <= MOST
    assert state.get(1) is not None
    assert state.get(2) is None
    assert state.get(5999) is not None
    assert len(state) > MOST // 2


def test_a_timestamp_in_the_future_keeps_no_producer(state: ProducerState) -> None:
    write(state, 1, timestamp=2**60)
    write(state, *range(1000, 3000))
    assert state.get(1) is None


def test_open_transactions_stay_and_those_of_coordinators_leave_last(state: ProducerState) -> None:
    write(state, *range(1, 2 * MOST), attributes=TRANSACTIONAL)
    write(state, *range(1000, 3000))
    assert all(state.get(producer_id) is not None for producer_id in range(1, 2 * MOST))
    assert len(state) <= 3 * MOST
    for producer_id in range(1, 2 * MOST):
        marker = EndTransactionMarker(True, 5, 1)
        state.apply_marker(batch_of(producer_id, attributes=TRANSACTIONAL | 1 << 5), state.end_offset, marker)
        state.end_offset += 1
    write(state, *range(9000, 9000 + MOST // 10))
    assert len(state) <= MOST
    assert state.get(9000 + MOST // 10 - 1) is not None
    assert state.get(2 * MOST - 1) is not None


def test_a_producer_that_left_continues(state: ProducerState) -> None:
    """As after an expiration: the log accepts any sequence of a producer that it does not have."""
    write(state, 1)
    write(state, *range(1000, 3000))
    assert state.get(1) is None
    assert state.check(batch_of(1, sequence=17), AppendOrigin.CLIENT, state.end_offset, None, None) is None


def test_a_snapshot_with_too_many_is_loaded_within_the_limit(folder: Folder, state: ProducerState) -> None:
    larger = ProducerState(folder, most=5000)
    write(larger, *range(4000))
    larger.snapshot()
    smaller = ProducerState(folder, larger.snapshots, most=MOST)
    smaller.load(0, larger.end_offset)
    assert smaller.end_offset == larger.end_offset
    assert 0 < len(smaller) <= MOST
    assert smaller.get(3999) is not None
