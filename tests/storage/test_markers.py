"""Markers of transactions: the short way to read one has the same outcome as that for any record."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batch import HEADER_SIZE, Record, build, control_batch, read_header
from odradek.protocol.errors import ProtocolError
from odradek.storage import markers
from odradek.storage.markers import EndTransactionMarker, read_marker

EPOCHS = st.integers(-(2**31), 2**31 - 1)
TIMES = st.integers(-1, 2**62)


def outcome(read: Any, batch: bytearray, position: int) -> Any:
    try:
        return read(batch, position, read_header(batch, position))
    except ProtocolError as error:
        return str(error)


@given(st.booleans(), EPOCHS, TIMES, st.integers(0, 9))
def test_a_marker_comes_back(commits: bool, epoch: int, time_ms: int, position: int) -> None:
    batch = control_batch(
        commit=commits, coordinator_epoch=epoch, producer_id=7, producer_epoch=1, timestamp_ms=time_ms, base_offset=3
    )
    buffer = bytearray(position) + batch
    assert read_marker(buffer, position, read_header(buffer, position)) == EndTransactionMarker(commits, epoch, time_ms)
    assert markers._usual_marker(buffer, position, read_header(buffer, position)) is not None


@given(st.booleans(), EPOCHS, TIMES, st.lists(st.tuples(st.integers(0, 77), st.integers(0, 255)), max_size=3))
def test_any_bytes_have_one_outcome(commits: bool, epoch: int, time_ms: int, changes: list[tuple[int, int]]) -> None:
    batch = control_batch(
        commit=commits, coordinator_epoch=epoch, producer_id=7, producer_epoch=1, timestamp_ms=time_ms
    )
    for at, value in changes:
        if at not in range(8, 12):  # with another size it is no whole batch
            batch[at] = value
    assert outcome(read_marker, batch, 0) == outcome(markers._any_marker, batch, 0)


@given(st.binary(max_size=8), st.binary(max_size=8), st.booleans(), st.booleans())
def test_any_record_has_one_outcome(key: bytes, value: bytes, has_header: bool, transactional: bool) -> None:
    record = Record(0, 5, key, value, [("name", b"value")] if has_header else [])
    batch = build([record], producer_id=7, producer_epoch=1, transactional=transactional, control=True)
    assert outcome(read_marker, batch, 0) == outcome(markers._any_marker, batch, 0)


def test_a_batch_that_is_cut_off_has_no_short_way() -> None:
    batch = control_batch(commit=True, coordinator_epoch=1, producer_id=7, producer_epoch=1, timestamp_ms=5)
    assert markers._usual_marker(batch[: HEADER_SIZE + 3], 0, read_header(batch)) is None
