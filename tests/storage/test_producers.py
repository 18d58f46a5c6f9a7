"""Producer state: transactions and the last stable offset, markers, expiry, snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batch import control_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.checkpoints import CorruptFile
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED, Producer, WrittenBatch, decode_snapshot, encode_snapshot
from odradek.storage.validation import Appended
from tests.storage.batches import NOW_MS, batch, open_log

A, B = 11, 22


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return open_log(tmp_path / "topic-0", LogConfig(segment_bytes=2000))


class Client:
    """A transactional producer of one log."""

    def __init__(self, log: Log, producer_id: int, epoch: int = 0) -> None:
        self.log, self.producer_id, self.epoch, self.sequence = log, producer_id, epoch, 0

    def send(self, count: int = 1, *, transactional: bool = True) -> Appended:
        producer = (self.producer_id, self.epoch, self.sequence)
        data = batch(count, producer=producer, transactional=transactional)
        appended = self.log.append(data, leader_epoch=0, now_ms=NOW_MS, verification=WAIVED if transactional else None)
        self.sequence += count
        return appended

    def end(self, *, commit: bool, coordinator_epoch: int = 0, epoch: int | None = None) -> Appended:
        marker = control_batch(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            timestamp_ms=NOW_MS,
        )
        return self.log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def code_of(call: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()  # type: ignore[operator]
    return refused.value.code


def test_the_first_unstable_offset_waits_for_decision_and_replication(log: Log) -> None:
    a, b = Client(log, A), Client(log, B)
    assert log.first_unstable_offset is None
    log.append(batch(3), leader_epoch=0, now_ms=NOW_MS)
    a.send(2)
    b.send(1)
    assert log.first_unstable_offset == 3
    a.end(commit=True)
    assert log.producers.first_undecided_offset == 5
    log.producers.on_high_watermark(6)
    assert log.first_unstable_offset == 3
    log.producers.on_high_watermark(7)
    assert log.first_unstable_offset == 5
    b.end(commit=False)
    log.producers.on_high_watermark(8)
    assert log.first_unstable_offset is None


def test_aborted_transactions_are_found_for_every_range(log: Log) -> None:
    a, b = Client(log, A), Client(log, B)
    spans: list[tuple[int, int, int]] = []
    for number in range(12):
        first = a.send(2).first_offset
        log.append(batch(1, size=300), leader_epoch=0, now_ms=NOW_MS)
        if number % 2:
            start = b.send(1).first_offset
        marker = a.end(commit=number % 3 == 0).last_offset
        if number % 3:
            spans.append((A, first, marker))
        if number % 2:
            spans.append((B, start, b.end(commit=False).last_offset))
    assert len(log.segments) > 3
    for reopened in (False, True):
        if reopened:
            log.close(now_ms=NOW_MS)
            log = open_log(log.directory, log.config)
        for start in range(0, log.end_offset, 3):
            for end in range(start + 1, log.end_offset + 1, 5):
                found = log.search.aborted_transactions(start, end)
                assert len(found) == len(set(found))
                needed = {(producer, first) for producer, first, last in spans if last >= start and first < end}
                assert needed <= set(found)
                assert set(found) <= {(producer, first) for producer, first, last in spans if last >= start}
        part = log.read(0, 500)
        assert part.offset < log.search.upper_bound(part, log.end_offset) <= log.end_offset


def test_an_open_transaction_survives_a_restart_either_way(tmp_path: Path) -> None:
    for clean in (True, False):
        log = open_log(tmp_path / str(clean), LogConfig(segment_bytes=500))
        a = Client(log, A)
        log.append(batch(1), leader_epoch=0, now_ms=NOW_MS)
        for _ in range(8):
            a.send(2)
        if clean:
            log.close(now_ms=NOW_MS)
        log = a.log = open_log(log.directory, log.config, clean=clean)
        assert log.first_unstable_offset == 1
        a.end(commit=False)
        assert log.search.aborted_transactions(0, log.end_offset) == [(A, 1)]


def test_outside_of_the_open_transaction_nothing_is_written(log: Log) -> None:
    a = Client(log, A)
    a.send()
    assert code_of(lambda: a.send(transactional=False)) is ErrorCode.INVALID_TXN_STATE
    a.end(commit=True)
    assert a.send(transactional=False).first_offset == 2


def test_markers_fence(log: Log) -> None:
    a = Client(log, A, epoch=3)
    a.send()
    a.end(commit=True, coordinator_epoch=5, epoch=4)
    assert code_of(a.send) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(lambda: a.end(commit=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    fenced = code_of(lambda: a.end(commit=True, coordinator_epoch=4, epoch=4))
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    renewed = Client(log, A, epoch=4)
    renewed.sequence = 1
    assert code_of(renewed.send) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    renewed.sequence = 0
    assert renewed.send().first_offset == 2


def test_sequences_wrap(log: Log) -> None:
    a = Client(log, A)
    a.sequence = 2**31 - 2
    a.send(3, transactional=False)
    a.sequence = 1
    a.send(1, transactional=False)
    producer = log.producers.get(A)
    assert producer is not None
    assert [(each.first_sequence, each.last_sequence) for each in producer.batches] == [(2**31 - 2, 0), (1, 1)]


def test_silent_producers_expire_unless_a_transaction_is_open(log: Log) -> None:
    Client(log, A).send(transactional=True)
    Client(log, B).send(transactional=False)
    log.producers.expire(NOW_MS + 999, 1000)
    assert len(log.producers) == 2
    log.producers.expire(NOW_MS + 1000, 1000)
    assert [producer.producer_id for producer in log.producers.active()] == [A]


@pytest.mark.parametrize("stop", ["clean", "killed", "truncated"])
def test_retries_of_all_batches_in_flight_are_recognized_after_a_restart(tmp_path: Path, stop: str) -> None:
    """A snapshot has each producer's last batch only, and a client may have five without a response."""
    config = LogConfig(segment_bytes=700, index_interval_bytes=200)  # so small that the five are in several segments
    log = open_log(tmp_path, config)
    sent = [(producer, 0, sequence) for sequence in range(0, 24, 2) for producer in (A, B)]
    written = [log.append(batch(2, size=40, producer=each), leader_epoch=0, now_ms=NOW_MS) for each in sent]
    if stop == "truncated":
        log.append(batch(1, size=40), leader_epoch=0, now_ms=NOW_MS)
        log.truncate_to(written[-1].last_offset + 1, now_ms=NOW_MS)
    else:
        if stop == "clean":
            log.close(now_ms=NOW_MS)
        else:
            log.close_files()
        log = open_log(tmp_path, config, clean=stop == "clean")
    end = log.end_offset
    for again, before in zip(sent[-10:], written[-10:], strict=True):
        answer = log.append(batch(2, size=40, producer=again), leader_epoch=0, now_ms=NOW_MS)
        assert answer.duplicate
        assert (answer.first_offset, answer.last_offset) == (before.first_offset, before.last_offset)
    assert log.end_offset == end
    assert (
        code_of(lambda: log.append(batch(2, size=40, producer=sent[-11]), leader_epoch=0, now_ms=NOW_MS))
        == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def test_a_follower_takes_over_the_producer_state_of_its_leader(log: Log, tmp_path: Path) -> None:
    a, b = Client(log, A), Client(log, B)
    for commit in (True, False, True):
        a.send(2)
        b.send(1, transactional=False)
        a.end(commit=commit)
    a.send()
    follower = open_log(tmp_path / "follower")
    while follower.end_offset < log.end_offset:
        part = log.read(follower.end_offset, 400).records
        follower.append_replicated(part if isinstance(part, bytes) else part.read(), now_ms=NOW_MS)
    assert encode_snapshot(follower.producers.active()) == encode_snapshot(log.producers.active())
    assert follower.first_unstable_offset == log.first_unstable_offset
    everything = (0, log.end_offset)
    assert follower.search.aborted_transactions(*everything) == log.search.aborted_transactions(*everything) == [(A, 4)]
    a.log = b.log = follower
    assert a.send().first_offset == log.end_offset


producers = st.builds(
    lambda producer_id, epoch, coordinator, timestamp, start, written: (
        producer_id,
        epoch,
        coordinator,
        timestamp,
        start,
        written,
    ),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.none() | st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)),
)


@given(st.lists(producers, max_size=5))
def test_snapshots_round_trip(drawn: list[tuple[int, int, int, int, int, tuple[int, int, int] | None]]) -> None:
    written = []
    for producer_id, epoch, coordinator_epoch, timestamp, start, last in drawn:
        producer = Producer(producer_id, epoch)
        producer.coordinator_epoch, producer.last_timestamp = coordinator_epoch, timestamp
        producer.transaction_start = start
        if last:
            producer.batches.append(WrittenBatch(*last, timestamp))
        written.append(producer)
    data = encode_snapshot(written)
    assert encode_snapshot(decode_snapshot(data)) == data
    assert [list(producer.batches) for producer in decode_snapshot(data)] == [list(each.batches) for each in written]


@given(st.binary(max_size=80))
def test_any_other_bytes_are_no_snapshot(data: bytes) -> None:
    whole = encode_snapshot([Producer(1, 0)])
    for each in (data, whole + data[:1], whole[: len(data)], bytes([0, 1]) + data):
        if each != whole:
            with pytest.raises(CorruptFile):
                decode_snapshot(each)
