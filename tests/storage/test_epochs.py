"""Leader epochs, compared with the rules of Kafka's LeaderEpochFileCache."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.disk import Folder, OsDisk
from odradek.storage.epochs import LeaderEpochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    return LeaderEpochs(Folder(OsDisk(), str(tmp_path)))


class NoFolder(Folder):
    """A folder for epochs whose files do not matter."""

    def __init__(self) -> None:
        super().__init__(OsDisk(), "/nowhere")

    def read(self, name: str) -> bytes | None:
        return None

    def replace(self, name: str, data: object, *, sync: bool) -> None:
        pass


def test_where_an_epoch_ends(epochs: LeaderEpochs) -> None:
    assert epochs.end_offset(0, 10) == (-1, -1)
    for epoch, start in ((2, 0), (3, 10), (7, 15)):
        epochs.assign(epoch, start)
    expected = {-1: (-1, -1), 0: (0, 0), 1: (1, 0), 2: (2, 10), 3: (3, 15), 5: (3, 15), 7: (7, 20), 8: (-1, -1)}
    assert {epoch: epochs.end_offset(epoch, 20) for epoch in expected} == expected
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10, 14, 15, 99)] == [2, 2, 3, 3, 7, 7]
    assert [epochs.previous(epoch) for epoch in (2, 3, 7, 9)] == [-1, 2, 3, 7]


def test_an_epoch_that_wrote_nothing_gives_way(epochs: LeaderEpochs) -> None:
    epochs.assign(1, 0)
    epochs.assign(2, 5)
    epochs.assign(3, 5)
    assert epochs.entries() == [(1, 0), (3, 5)]
    epochs.assign(2, 7)
    assert epochs.entries() == [(1, 0), (2, 7)]
    epochs.assign(2, 9)
    assert epochs.entries() == [(1, 0), (2, 7)]
    epochs.assign(2, 6)
    assert epochs.entries() == [(1, 0), (2, 6)]


def test_every_new_epoch_is_on_disk(epochs: LeaderEpochs, tmp_path: Path) -> None:
    epochs.assign(4, 12)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n4 12\n"
    assert LeaderEpochs(Folder(OsDisk(), str(tmp_path))).entries() == [(4, 12)]
    epochs.clear()
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n0\n"


def test_truncation(epochs: LeaderEpochs) -> None:
    for epoch, start in ((1, 0), (2, 10), (3, 20)):
        epochs.assign(epoch, start)
    assert not epochs.truncate_end(21)
    assert epochs.truncate_end(20)
    assert (epochs.entries(), epochs.latest) == ([(1, 0), (2, 10)], 2)
    assert epochs.truncate_start(5)
    assert epochs.entries() == [(1, 5), (2, 10)]
    assert epochs.truncate_start(10)
    assert epochs.entries() == [(2, 10)]
    assert not epochs.truncate_start(10)
    assert epochs.truncate_start(30)
    assert epochs.entries() == [(2, 30)]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8))), st.integers(-1, 9), st.integers(0, 9))
def test_against_the_definition(assigned: list[tuple[int, int]], asked: int, cut: int) -> None:
    epochs = LeaderEpochs(NoFolder())
    model: list[tuple[int, int]] = []
    for epoch, start in assigned:
        epochs.assign(epoch, start)
        if not (model and model[-1][0] == epoch and model[-1][1] <= start):
            model = [entry for entry in model if entry[0] < epoch and entry[1] < start] + [(epoch, start)]
    assert epochs.entries() == model
    assert epochs.latest == (model[-1][0] if model else -1)
    higher = [start for epoch, start in model if epoch > asked]
    lower = [epoch for epoch, _ in model if epoch <= asked]
    if asked < 0 or (not higher and asked != epochs.latest):
        expected = (-1, -1)
    elif asked == epochs.latest:
        expected = (asked, 100)
    else:
        expected = (lower[-1] if lower else asked, higher[0])
    assert epochs.end_offset(asked, 100) == expected
    epochs.truncate_end(cut)
    assert epochs.entries() == [entry for entry in model if entry[1] < cut]
