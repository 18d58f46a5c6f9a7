"""Indexes: Kafka's bytes, lookups against the definition, and files that are refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.checkpoints import CorruptFile
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.index import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex

BASE = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(OsDisk(), str(tmp_path))


def test_the_files_are_those_of_kafka(folder: Folder) -> None:
    offsets = OffsetIndex(folder, BASE, 1000, fresh=True)
    offsets.append(BASE + 5, 4096)
    offsets.save()
    offsets.append(BASE + 9, 8192)
    offsets.save()
    assert folder.read(f"{BASE:020d}.index") == struct.pack(">iiii", 5, 4096, 9, 8192)
    times = TimeIndex(folder, BASE, 1000, fresh=True)
    times.append(77, BASE + 5)
    times.append(77, BASE + 9)
    times.append(99, BASE + 9)
    times.save()
    assert folder.read(f"{BASE:020d}.timeindex") == struct.pack(">qiqi", 77, 5, 99, 9)
    aborted = TransactionIndex(folder, BASE, fresh=True)
    aborted.append(AbortedTransaction(7, BASE - 3, BASE + 2, BASE + 3))
    assert folder.read(f"{BASE:020d}.txnindex") == struct.pack(">hqqqq", 0, 7, BASE - 3, BASE + 2, BASE + 3)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=20),
    st.integers(BASE - 2, BASE + 1000),
    st.integers(BASE, BASE + 1000),
)
def test_lookups_by_offset(steps: list[tuple[int, int]], asked: int, cut: int) -> None:
    index = OffsetIndex(Folder(OsDisk(), "/nowhere"), BASE, 8 * 20, fresh=True)
    model: list[tuple[int, int]] = []
    offset, position = BASE, 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        model.append((offset, position))
        assert index.append(offset, position) == (len(model) >= 20)
    assert index.entries() == model
    assert index.lookup(asked) == max([entry for entry in model if entry[0] <= asked], default=(BASE, 0))
    assert index.first_from_position(asked - BASE) == min(
        (entry[0] for entry in model if entry[1] >= asked - BASE), default=None
    )
    index.truncate(cut)
    assert index.entries() == [entry for entry in model if entry[0] < cut]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20), st.integers(-5, 100))
def test_lookups_by_time(steps: list[tuple[int, int]], asked: int) -> None:
    index = TimeIndex(Folder(OsDisk(), "/nowhere"), BASE, 12 * 30, fresh=True)
    model: list[tuple[int, int]] = []
    timestamp, offset = 0, BASE
    for timestamp_step, offset_step in steps:
        timestamp, offset = timestamp + timestamp_step, offset + offset_step
        if not model or timestamp > model[-1][0]:
            model.append((timestamp, offset))
        index.append(timestamp, offset)
    assert index.entries() == model
    assert index.last() == (model[-1] if model else (-1, BASE))
    assert index.lookup(asked) == max([entry for entry in model if entry[0] <= asked], default=(-1, BASE))


def test_truncated_entries_are_gone_from_the_files(folder: Folder) -> None:
    offsets, times = OffsetIndex(folder, 0, 1000, fresh=True), TimeIndex(folder, 0, 1000, fresh=True)
    aborted = TransactionIndex(folder, 0, fresh=True)
    for number in range(1, 9):
        offsets.append(number * 10, number * 100)
        times.append(number, number * 10)
        aborted.append(AbortedTransaction(number, number, number * 10, number * 10 + 1))
    offsets.save()
    times.save()
    for index in (offsets, times, aborted):
        index.truncate(35)
    assert [number for number, _ in OffsetIndex(folder, 0, 1000, fresh=False).entries()] == [10, 20, 30]
    assert [offset for _, offset in TimeIndex(folder, 0, 1000, fresh=False).entries()] == [10, 20, 30]
    assert [entry.last_offset for entry in TransactionIndex(folder, 0, fresh=False).entries()] == [10, 20, 30]


def test_kafkas_preallocated_zeros_are_no_entries(folder: Folder) -> None:
    folder.replace(f"{0:020d}.index", struct.pack(">iiii", 5, 4096, 9, 8192) + bytes(80), sync=False)
    assert OffsetIndex(folder, 0, 1000, fresh=False).entries() == [(5, 4096), (9, 8192)]
    folder.replace(f"{0:020d}.timeindex", struct.pack(">qi", 77, 5) + bytes(120), sync=False)
    assert TimeIndex(folder, 0, 1000, fresh=False).entries() == [(77, 5)]
    for name in (f"{0:020d}.index", f"{0:020d}.timeindex"):
        folder.replace(name, bytes(240), sync=False)
    assert OffsetIndex(folder, 0, 1000, fresh=False).entries() == []
    assert TimeIndex(folder, 0, 1000, fresh=False).entries() == []


@given(data=st.binary(max_size=100))
def test_any_bytes_are_an_index_or_refused(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = Folder(OsDisk(), str(tmp_path_factory.getbasetemp()))
    for index in (
        OffsetIndex(folder, 0, 1000, fresh=False),
        TimeIndex(folder, 0, 1000, fresh=False),
        TransactionIndex(folder, 0, fresh=False),
    ):
        folder.replace(index.name, data, sync=False)
        try:
            entries = index.entries()
        except CorruptFile:
            continue
        assert len(entries) * 8 <= len(data)
        assert list(entries) == sorted(entries) or isinstance(index, TransactionIndex)
