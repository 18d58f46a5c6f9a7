"""The three indexes of a segment, in Kafka's formats (Kafka: OffsetIndex, TimeIndex, TransactionIndex), big-endian:

    .index      int32 relative offset, int32 position           the last offset of a batch and where the batch starts
    .timeindex  int64 timestamp, int32 relative offset          the highest timestamp so far and the batch that has it
    .txnindex   int16 version, int64 × 4                        an aborted transaction (KIP-98)

The first two are sparse: an entry for every `index.interval.bytes` of log. They are arrays in memory, loaded at the
first access, and reach the file in one write when the segment is rolled, closed or flushed, so an append costs no
system call for them. A file that is behind its log is valid at every moment; after an unclean stop recovery rebuilds
it. Aborted transactions are rare and go to their file at once.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import lt
from typing import Final, NamedTuple

from odradek.storage.checkpoints import CorruptFile
from odradek.storage.descriptors import momentary
from odradek.storage.disk import Folder

OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
TRANSACTION_ENTRY_SIZE: Final = 34
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
NO_TIMESTAMP: Final = -1

_TIME_ENTRY: Final = struct.Struct(">qi")
_TRANSACTION_ENTRY: Final = struct.Struct(">hqqqq")


class OffsetIndex:
    """Offsets of a segment to positions in its file; offsets and positions grow together."""

    __slots__ = ("_base", "_folder", "_max_entries", "_offsets", "_positions", "_saved", "_whole", "name")

    def __init__(self, folder: Folder, base_offset: int, max_bytes: int, *, fresh: bool) -> None:
        self.name = f"{base_offset:020d}.index"
        self._folder = folder
        self._base = base_offset
        self._max_entries = max_bytes // OFFSET_ENTRY_SIZE
        self._saved = 0
        self._whole = False
        self._offsets: array[int] | None = array("i") if fresh else None
        self._positions = array("i")

    def _load(self) -> array[int]:
        """The relative offsets. Raises CorruptFile where the file cannot be an index of this segment."""
        offsets = self._offsets
        if offsets is None:
            offsets, positions = _decode_offset_entries(self._folder.read(self.name) or b"", self.name)
            self._offsets, self._positions, self._saved = offsets, positions, len(offsets)
        return offsets

    def __len__(self) -> int:
        return len(self._load())

    @property
    def is_full(self) -> bool:
        """Whether the index has `segment.index.bytes`, so that the log must roll the segment."""
        return len(self._load()) >= self._max_entries

    def entries(self) -> list[tuple[int, int]]:
        """(offset, position) of every entry."""
        return [(self._base + offset, position) for offset, position in zip(self._load(), self._positions, strict=True)]

    def last(self) -> tuple[int, int]:
        """Offset and position of the last entry; the segment's start where there is none."""
        offsets = self._load()
        return (self._base + offsets[-1], self._positions[-1]) if offsets else (self._base, 0)

    def lookup(self, offset: int) -> tuple[int, int]:
        """The entry with the highest offset that is not above `offset`; the segment's start where there is none."""
        offsets = self._load()
        found = bisect_right(offsets, min(offset - self._base, MAX_RELATIVE_OFFSET)) - 1
        return (self._base + offsets[found], self._positions[found]) if found >= 0 else (self._base, 0)

    def first_from_position(self, position: int) -> int | None:
        """The offset of the first entry at or behind a position, an upper bound for the offsets of a slice up to it."""
        offsets = self._load()
        found = bisect_left(self._positions, position)
        return self._base + offsets[found] if found < len(offsets) else None

    def append(self, offset: int, position: int) -> bool:
        """Add the batch with last offset `offset`, which starts at `position`; returns whether the index is full."""
        offsets = self._offsets
        if offsets is None:
            offsets = self._load()
        offsets.append(offset - self._base)
        self._positions.append(position)
        return len(offsets) >= self._max_entries

    def truncate(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        kept = bisect_left(self._load(), min(offset - self._base, MAX_RELATIVE_OFFSET))
        self._cut(kept)

    def _cut(self, kept: int) -> None:
        offsets = self._load()
        del offsets[kept:], self._positions[kept:]
        if self._saved > kept:
            _truncate(self._folder, self.name, kept * OFFSET_ENTRY_SIZE)
            self._saved = kept

    def reset(self, *, in_place: bool = True) -> None:
        """Remove all entries, also unreadable ones.

        Unless `in_place` the file stays until `save` replaces it, whole and durable: no later load checks it against
        the log again.
        """
        self._offsets, self._positions, self._saved = array("i"), array("i"), 0
        self._whole = not in_place
        if in_place:
            _truncate(self._folder, self.name, 0)

    def save(self) -> None:
        """Write the entries that are not in the file yet. Raises OSError."""
        offsets = self._offsets
        if offsets is None or (len(offsets) == self._saved and not self._whole):
            return
        pairs = array("i", bytes(OFFSET_ENTRY_SIZE * (len(offsets) - self._saved)))
        pairs[0::2] = offsets[self._saved :]
        pairs[1::2] = self._positions[self._saved :]
        _to_big_endian(pairs)
        _save(self._folder, self.name, pairs.tobytes(), self._saved * OFFSET_ENTRY_SIZE, whole=self._whole)
        self._saved, self._whole = len(offsets), False


def _to_big_endian(numbers: array[int]) -> None:
    if sys.byteorder == "little":
        numbers.byteswap()


def _save(folder: Folder, name: str, data: bytes, position: int, *, whole: bool) -> None:
    if whole:
        folder.replace(name, data, sync=True)
    else:
        _write(folder, name, data, position)


@momentary
def _write(folder: Folder, name: str, data: bytes, position: int) -> None:
    file = folder.open(name)
    try:
        file.write(data, position)
    finally:
        file.close()


@momentary
def _truncate(folder: Folder, name: str, size: int) -> None:
    file = folder.open(name)
    try:
        file.truncate(size)
    finally:
        file.close()


def _decode_offset_entries(data: bytes, name: str) -> tuple[array[int], array[int]]:
    if len(data) % OFFSET_ENTRY_SIZE:
        raise CorruptFile(f"{name} has {len(data)} bytes, where a multiple of {OFFSET_ENTRY_SIZE} is right")
    pairs = array("i", data)
    _to_big_endian(pairs)
    offsets, positions = pairs[0::2], pairs[1::2]
    # Kafka extends the file ahead of use; a stop that was not clean leaves the zeros behind.
    while len(offsets) > 1 and not offsets[-1] and not positions[-1]:
        offsets.pop()
        positions.pop()
    if len(offsets) == 1 and not offsets[0] and not positions[0]:
        return array("i"), array("i")
    if not _increases(offsets, 0) or not _increases(positions, 0):
        raise CorruptFile(f"{name} has entries that do not grow")
    return offsets, positions


def _increases(numbers: array[int], first: int) -> bool:
    return not numbers or (numbers[0] >= first and all(map(lt, numbers, islice(numbers, 1, None))))


class TimeIndex:
    """Timestamps of a segment to offsets: from an entry's batch on, no earlier batch has a higher timestamp."""

    __slots__ = ("_base", "_folder", "_max_entries", "_offsets", "_saved", "_timestamps", "_whole", "name")

    def __init__(self, folder: Folder, base_offset: int, max_bytes: int, *, fresh: bool) -> None:
        self.name = f"{base_offset:020d}.timeindex"
        self._folder = folder
        self._base = base_offset
        self._max_entries = max_bytes // TIME_ENTRY_SIZE
        self._saved = 0
        self._whole = False
        self._timestamps: array[int] | None = array("q") if fresh else None
        self._offsets = array("i")

    def _load(self) -> array[int]:
        """The timestamps. Raises CorruptFile where the file cannot be an index of this segment."""
        timestamps = self._timestamps
        if timestamps is None:
            timestamps, offsets = _decode_time_entries(self._folder.read(self.name) or b"", self.name)
            self._timestamps, self._offsets, self._saved = timestamps, offsets, len(timestamps)
        return timestamps

    def __len__(self) -> int:
        return len(self._load())

    @property
    def is_full(self) -> bool:
        """Whether only the entry is free that `seal` adds when the segment closes."""
        return len(self._load()) >= self._max_entries - 1

    def entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of every entry."""
        return [(stamp, self._base + offset) for stamp, offset in zip(self._load(), self._offsets, strict=True)]

    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry, (-1, base offset) where there is none."""
        timestamps = self._load()
        return (timestamps[-1], self._base + self._offsets[-1]) if timestamps else (NO_TIMESTAMP, self._base)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The entry with the highest timestamp that is not above `timestamp`, (-1, base offset) where there is none."""
        timestamps = self._load()
        found = bisect_right(timestamps, timestamp) - 1
        return (timestamps[found], self._base + self._offsets[found]) if found >= 0 else (NO_TIMESTAMP, self._base)

    def append(self, timestamp: int, offset: int) -> bool:
        """Add the highest timestamp so far, unless the last entry has it; returns whether the index is full."""
        timestamps = self._timestamps
        if timestamps is None:
            timestamps = self._load()
        if timestamp > (timestamps[-1] if timestamps else NO_TIMESTAMP):
            timestamps.append(timestamp)
            self._offsets.append(offset - self._base)
        return len(timestamps) >= self._max_entries - 1

    def truncate(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        timestamps = self._load()
        kept = bisect_left(self._offsets, min(offset - self._base, MAX_RELATIVE_OFFSET))
        del timestamps[kept:], self._offsets[kept:]
        if self._saved > kept:
            _truncate(self._folder, self.name, kept * TIME_ENTRY_SIZE)
            self._saved = kept

    def reset(self, *, in_place: bool = True) -> None:
        """Remove all entries, as `OffsetIndex.reset` does."""
        self._timestamps, self._offsets, self._saved = array("q"), array("i"), 0
        self._whole = not in_place
        if in_place:
            _truncate(self._folder, self.name, 0)

    def save(self) -> None:
        """Write the entries that are not in the file yet. Raises OSError."""
        timestamps = self._timestamps
        if timestamps is None or (len(timestamps) == self._saved and not self._whole):
            return
        data = b"".join(map(_TIME_ENTRY.pack, timestamps[self._saved :], self._offsets[self._saved :]))
        _save(self._folder, self.name, data, self._saved * TIME_ENTRY_SIZE, whole=self._whole)
        self._saved, self._whole = len(timestamps), False


def _decode_time_entries(data: bytes, name: str) -> tuple[array[int], array[int]]:
    if len(data) % TIME_ENTRY_SIZE:
        raise CorruptFile(f"{name} has {len(data)} bytes, where a multiple of {TIME_ENTRY_SIZE} is right")
    timestamps, offsets = array("q"), array("i")
    for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
        if timestamp == 0 and offset == 0 and timestamps:
            break  # the zeros of a file that Kafka extended ahead of use
        timestamps.append(timestamp)
        offsets.append(offset)
    if len(timestamps) == 1 and not timestamps[0] and not offsets[0] and len(data) > TIME_ENTRY_SIZE:
        return array("q"), array("i")
    if not _increases(timestamps, 0) or any(offset < 0 for offset in offsets) or list(offsets) != sorted(offsets):
        raise CorruptFile(f"{name} has entries that do not grow")
    return timestamps, offsets


class AbortedTransaction(NamedTuple):
    """A transaction whose ABORT marker is at `last_offset`; `last_stable_offset` is that after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose markers are in one segment, in the order of the markers."""

    __slots__ = ("_aborted", "_folder", "_whole", "name")

    def __init__(self, folder: Folder, base_offset: int, *, fresh: bool) -> None:
        self.name = f"{base_offset:020d}.txnindex"
        self._folder = folder
        self._aborted: list[AbortedTransaction] | None = [] if fresh else None
        self._whole = False

    def entries(self) -> list[AbortedTransaction]:
        """Every aborted transaction. Raises CorruptFile."""
        if self._aborted is None:
            data = self._folder.read(self.name) or b""
            if len(data) % TRANSACTION_ENTRY_SIZE:
                raise CorruptFile(f"{self.name} has {len(data)} bytes, not a multiple of {TRANSACTION_ENTRY_SIZE}")
            aborted: list[AbortedTransaction] = []
            for version, *values in _TRANSACTION_ENTRY.iter_unpack(data):
                entry = AbortedTransaction(*values)
                if version != 0 or (aborted and entry.last_offset <= aborted[-1].last_offset):
                    raise CorruptFile(f"{self.name} has a wrong entry: version {version}, {entry}")
                aborted.append(entry)
            self._aborted = aborted
        return self._aborted

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction and write it. Raises OSError."""
        entries = self.entries()
        if not self._whole:
            data = _TRANSACTION_ENTRY.pack(0, *aborted)
            _write(self._folder, self.name, data, len(entries) * TRANSACTION_ENTRY_SIZE)
        entries.append(aborted)

    def truncate(self, offset: int) -> None:
        """Remove the transactions whose marker is at or above `offset`."""
        entries = self.entries()
        kept = sum(entry.last_offset < offset for entry in entries)
        if kept < len(entries):
            del entries[kept:]
            _truncate(self._folder, self.name, kept * TRANSACTION_ENTRY_SIZE)

    def reset(self, *, in_place: bool = True) -> None:
        """Remove all transactions, as `OffsetIndex.reset` does."""
        self._aborted = []
        self._whole = not in_place
        if in_place and self._folder.exists(self.name):
            _truncate(self._folder, self.name, 0)

    def save(self) -> None:
        """Write the whole file after a reset that left the old one; without a reset each entry is there already."""
        if self._whole:
            self._whole = False
            entries = self.entries()
            if entries or self._folder.exists(self.name):
                data = b"".join(_TRANSACTION_ENTRY.pack(0, *entry) for entry in entries)
                self._folder.replace(self.name, data, sync=True)
