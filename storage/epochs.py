"""The leader epochs of a log and their start offsets (KIP-101, KIP-279; Kafka: LeaderEpochFileCache).

A follower requests from the leader where an epoch ended and truncates its own log there, so these pairs decide which
records survive a change of leaders. The next flush of the log makes them durable, together with the batches of these
epochs. Above the recovery point, recovery finds each epoch in its batches again; an epoch without batches is not
needed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.storage.checkpoints import LEADER_EPOCHS, decode_epochs, encode_epochs
from odradek.storage.compaction_checkpoint import CompactionCheckpoint
from odradek.storage.disk import Folder

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class LeaderEpochs:
    """Epochs and their start offsets, both growing strictly; `latest` is the last epoch, -1 where there is none."""

    __slots__ = ("_epochs", "_folder", "_starts", "latest", "unsynced")

    def __init__(self, folder: Folder) -> None:
        """Raises CorruptFile where the checkpoint in the folder cannot be read."""
        self._folder = folder
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        self.unsynced = False
        """Whether the checkpoint was written, but may not survive a loss of power."""
        data = folder.read(LEADER_EPOCHS)
        for epoch, start in decode_epochs(data) if data else ():
            self._add(epoch, start)

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` starts at `start_offset` and write it to disk; entries that contradict it are removed.

        An epoch that is the latest already keeps its start, unless the new one is lower. It becomes durable with the
        next flush; until then recovery finds it in the batches, and an epoch without batches is not needed. A broker
        begins an epoch for each partition that it leads when it starts, and cannot wait for the disk each time.
        Raises OSError.
        """
        before = self._epochs[:], self._starts[:], self.latest
        if self._add(epoch, start_offset):
            try:
                self.save(sync=False)
            except OSError:  # the next call writes it
                self._epochs, self._starts, self.latest = before
                raise

    def note(self, epoch: int, start_offset: int, remembered: Iterable[Sequence[tuple[int, int]]] = ()) -> None:
        """As `assign`, for a batch of `epoch`: only a higher epoch counts, and the caller saves once at the end.

        Compaction may have removed the batches with which an epoch began. So where one of the lists of epochs in
        `remembered` contains `epoch`, that epoch and those before it get the start offsets of the list (see
        compaction_checkpoint.py).
        """
        latest = self.latest
        if epoch <= latest:
            return
        for entries in remembered:
            if any(each == epoch and start <= start_offset for each, start in entries):
                for each, start in entries:
                    if latest < each <= epoch:
                        self._add(each, start)
                return
        self._add(epoch, start_offset)

    def follow(
        self,
        epoch: int,
        start_offset: int,
        leader_epochs: Sequence[tuple[int, int]],
        checkpoint: CompactionCheckpoint,
    ) -> None:
        """Begin the epoch of a replicated batch at `start_offset` where the leader began it, according to its entries.

        The batch may be a later one of the epoch. Entries that the batches do not contain become durable in
        `checkpoint`. Raises OSError.
        """
        shown = [*self.entries(), (epoch, start_offset)]
        self.note(epoch, start_offset, (leader_epochs,))
        if self.entries() != shown:
            checkpoint.set_epochs(self.entries())
        self.save(sync=False)

    @property
    def latest_start(self) -> int:
        """Where the last epoch starts, -1 where there is none."""
        return self._starts[-1] if self._starts else UNDEFINED_OFFSET

    def starting_from(self, offset: int, most: int) -> list[tuple[int, int]]:
        """(epoch, start offset) of the first `most` epochs that start at `offset` or above it."""
        first = bisect_left(self._starts, offset)
        return list(zip(self._epochs[first : first + most], self._starts[first : first + most], strict=True))

    def _add(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            return False
        epochs, starts = self._epochs, self._starts
        if epochs and epochs[-1] == epoch and starts[-1] <= start_offset:
            return False
        while epochs and (epochs[-1] >= epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(epoch)
        starts.append(start_offset)
        self.latest = epoch
        return True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the highest epoch not above `epoch`: where its successor starts, or the log's end.

        (-1, -1) where the log has no epoch that high, or `epoch` is -1. For an epoch below the first known one the
        result has the first known start, since the batches before it are gone from the log.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        return (self._epochs[above - 1] if above else epoch), self._starts[above]

    def epoch_at(self, offset: int) -> int:
        """The epoch of the leader that wrote `offset`, -1 where the log does not have it."""
        found = bisect_right(self._starts, offset) - 1
        return self._epochs[found] if found >= 0 else UNDEFINED_EPOCH

    def previous(self, epoch: int) -> int:
        """The highest known epoch below `epoch`, -1 where there is none."""
        found = bisect_left(self._epochs, epoch) - 1
        return self._epochs[found] if found >= 0 else UNDEFINED_EPOCH

    def truncate_end(self, end_offset: int) -> bool:
        """Remove epochs that start at or above `end_offset`; returns whether there were any."""
        kept = bisect_left(self._starts, end_offset)
        if kept == len(self._starts):
            return False
        del self._epochs[kept:], self._starts[kept:]
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        return True

    def truncate_start(self, start_offset: int) -> bool:
        """Remove epochs that ended below `start_offset`; the one that holds it starts there now. True on a change."""
        holds = bisect_right(self._starts, start_offset) - 1
        if holds < 0 or (holds == 0 and self._starts[0] == start_offset):
            return False
        del self._epochs[:holds], self._starts[:holds]
        self._starts[0] = start_offset
        return True

    def clear(self) -> None:
        """Remove all epochs and write that to disk. Raises OSError."""
        self.truncate_end(0)
        self.save()

    def encoded(self) -> bytes:
        """The contents of the checkpoint."""
        return encode_epochs(zip(self._epochs, self._starts, strict=True))

    def save(self, *, sync: bool = True) -> None:
        """Write the checkpoint. Raises OSError."""
        self._folder.replace(LEADER_EPOCHS, self.encoded(), sync=sync)
        self.unsynced = not sync
