"""The logs of a data directory as they are on disk: segments, batches, indexes, epochs, producers, compaction.

Everything is read beside a running broker, without a lock and without a change (`odradek.storage.reading`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from odradek.console.paging import Listing, ListPage, page_of
from odradek.protocol.batch import Codec, Header
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    START_OFFSETS,
    CorruptFile,
    Offsets,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_uuid,
)
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.index import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex
from odradek.storage.log_names import parse_name
from odradek.storage.producers import Producer, decode_snapshot
from odradek.storage.read_files import ReadFile, segments_in
from odradek.storage.reading import DamagedLog, walk

T = TypeVar("T")

MOST_BATCHES: Final = 200
"""On one page."""
CODECS: Final[Mapping[int, str]] = {each.value: each.name.lower() for each in Codec}
_SNAPSHOT: Final = ".snapshot"


@dataclass(frozen=True, slots=True)
class LogRow:
    """A log in a list."""

    directory: int
    """The number of its data directory."""
    folder: str
    """The name of its folder, as orders-0."""
    topic: str
    partition: int
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment of a log: sizes in bytes, and the entries of its indexes; None where a file cannot be read."""

    base_offset: int
    size_bytes: int
    offset_entries: int | None
    time_entries: int | None
    aborted: int | None
    modified_s: float


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch of a segment."""

    position: int
    header: Header
    codec: str
    is_sound: bool
    """Whether its checksum holds."""


@dataclass(frozen=True, slots=True)
class BatchPage:
    """Batches of a segment from a position on. `next_position` is None at the end."""

    base_offset: int
    size_bytes: int
    batches: tuple[BatchRow, ...]
    next_position: int | None
    damage: str
    """What ends the reading before the end of the file; empty where nothing does."""


@dataclass(frozen=True, slots=True)
class LogDetail:
    """One log. Offsets that no checkpoint has are None."""

    row: LogRow
    path: str
    topic_id: str
    segments: tuple[SegmentRow, ...]
    epochs: tuple[tuple[int, int], ...]
    """(leader epoch, start offset), the oldest first."""
    producers: tuple[Producer, ...]
    """Of the newest snapshot."""
    snapshot_offset: int | None
    aborted: tuple[AbortedTransaction, ...]
    checkpoints: Mapping[str, int | None]
    """Start of the log, recovery point, high watermark, and where compaction has come to."""
    clean_bytes: int
    """Of segments before the offset to which compaction has come."""
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexPage:
    """The entries of the indexes of a segment: (offset, position), (timestamp, offset) and aborted transactions."""

    offsets: tuple[tuple[int, int], ...]
    times: tuple[tuple[int, int], ...]
    aborted: tuple[AbortedTransaction, ...]
    problems: tuple[str, ...]


CHECKPOINTS: Final[Mapping[str, str]] = {
    "log start offset": START_OFFSETS,
    "recovery point": RECOVERY_POINTS,
    "high watermark": HIGH_WATERMARKS,
    "compacted to": CLEANER_OFFSETS,
}
SORTS: Final[Mapping[str, Callable[[LogRow], str | int]]] = {
    "log": lambda row: row.folder,
    "segments": lambda row: row.segments,
    "size": lambda row: row.size_bytes,
}


class LogInspector:
    """Reads the logs of data directories. A method that takes the name of a folder accepts only names in a list."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = tuple(directories)

    def identity(self, directory: int) -> dict[str, str]:
        """meta.properties of a directory: broker id and cluster id; empty where it cannot be read."""
        data = self._read(self.directories[directory], META_PROPERTIES)
        try:
            return decode_properties(data) if data else {}
        except CorruptFile:
            return {}

    def logs(self, listing: Listing) -> ListPage[LogRow]:
        """A page of all logs. Raises OSError.

        Segments are counted only in the logs of the page, unless the order of the list depends on them.
        """
        if listing.sort.removeprefix("-") in ("segments", "size"):
            return page_of((self._row(*each) for each in self._names()), listing, lambda row: row.folder, SORTS)
        page = page_of(self._names(), listing, lambda each: each[1], {"log": lambda each: each[1]})
        rows = tuple(self._row(*each) for each in page.rows)
        return ListPage(rows, page.matching, page.total, page.listing)

    def detail(self, directory: int, name: str) -> LogDetail:
        """One log. Raises KeyError for a log that the directory does not have, OSError."""
        path, place = self._find(directory, name)
        folder, problems = Folder(OsDisk(), str(path)), list[str]()
        segments = tuple(_segment(folder, base, problems) for base in segments_in(str(path)))
        bases = [each.base_offset for each in segments]
        aborted = [entry for base in bases for entry in _read_index(partial(_aborted, folder, base), problems) or ()]
        snapshot, producers = self._producers(path, problems)
        checkpoints = {name: self._checkpoint(directory, file).get(place) for name, file in CHECKPOINTS.items()}
        cleaned = checkpoints["compacted to"] or 0
        ends = [each.base_offset for each in segments[1:]]
        clean = sum(each.size_bytes for each, end in zip(segments, ends, strict=False) if end <= cleaned)
        row = LogRow(directory, name, *place, len(segments), sum(each.size_bytes for each in segments))
        epochs = _parsed(self._read(path, LEADER_EPOCHS), decode_epochs, problems) or []
        topic_id = _parsed(self._read(path, PARTITION_METADATA), decode_partition_metadata, problems)
        return LogDetail(
            row,
            str(path),
            "" if topic_id is None else encode_uuid(topic_id),
            segments,
            tuple(epochs),
            tuple(producers),
            snapshot,
            tuple(aborted),
            checkpoints,
            clean,
            tuple(problems),
        )

    def batches(self, directory: int, name: str, base_offset: int, position: int = 0) -> BatchPage:
        """Batches of a segment. Raises KeyError, OSError."""
        path, _ = self._find(directory, name)
        with ReadFile(str(path / f"{base_offset:020d}.log")) as file:
            rows: list[BatchRow] = []
            damage, next_position = "", position
            try:
                for batch in islice(walk(file, position), MOST_BATCHES):
                    codec = CODECS.get(batch.header.codec, str(batch.header.codec))
                    rows.append(BatchRow(batch.position, batch.header, codec, batch.checksum_holds))
                    next_position = batch.position + batch.header.size
            except DamagedLog as error:
                damage = str(error)
            more = len(rows) == MOST_BATCHES and next_position < file.size
            return BatchPage(base_offset, file.size, tuple(rows), next_position if more else None, damage)

    def indexes(self, directory: int, name: str, base_offset: int) -> IndexPage:
        """The indexes of a segment. Raises KeyError, OSError."""
        path, _ = self._find(directory, name)
        folder, problems = Folder(OsDisk(), str(path)), list[str]()
        found = _read_index(lambda: OffsetIndex(folder, base_offset, 0, fresh=False).entries(), problems)
        times = _read_index(lambda: TimeIndex(folder, base_offset, 0, fresh=False).entries(), problems)
        aborted = _read_index(lambda: _aborted(folder, base_offset), problems)
        return IndexPage(tuple(found or ()), tuple(times or ()), tuple(aborted or ()), tuple(problems))

    def _names(self) -> Iterator[tuple[int, str, TopicPartition]]:
        for number, directory in enumerate(self.directories):
            for name, place in sorted(_logs_in(directory).items()):
                yield number, name, place

    def _row(self, directory: int, name: str, place: TopicPartition) -> LogRow:
        sizes = _sizes(self.directories[directory] / name)
        return LogRow(directory, name, *place, len(sizes), sum(sizes))

    def _find(self, directory: int, name: str) -> tuple[Path, TopicPartition]:
        if not 0 <= directory < len(self.directories):
            raise KeyError(name)
        root = self.directories[directory]
        return root / name, _logs_in(root)[name]

    def _checkpoint(self, directory: int, name: str) -> Offsets:
        return _parsed(self._read(self.directories[directory], name), decode_offsets, []) or {}

    def _producers(self, path: Path, problems: list[str]) -> tuple[int | None, list[Producer]]:
        names = sorted(each.name for each in path.iterdir() if each.name.endswith(_SNAPSHOT))
        if not names:
            return None, []
        found = _parsed(self._read(path, names[-1]), decode_snapshot, problems)
        return int(names[-1].removesuffix(_SNAPSHOT)), found or []

    @staticmethod
    def _read(folder: Path, name: str) -> bytes | None:
        try:
            return (folder / name).read_bytes()
        except FileNotFoundError:
            return None


def _logs_in(directory: Path) -> dict[str, TopicPartition]:
    """The folders of logs in a data directory. Raises OSError."""
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and "-" in entry.name and not entry.name.startswith("."):
                try:
                    found[entry.name] = parse_name(str(directory), entry.name)
                except KafkaError:
                    continue  # a log that is being deleted, or a folder that is no log
    return found


def _sizes(path: Path) -> list[int]:
    try:
        with os.scandir(path) as entries:
            return [entry.stat().st_size for entry in entries if entry.name.endswith(".log")]
    except FileNotFoundError:
        return []  # deleted meanwhile


def _segment(folder: Folder, base: int, problems: list[str]) -> SegmentRow:
    path = Path(folder / f"{base:020d}.log")
    status = path.stat()
    found = _read_index(lambda: len(OffsetIndex(folder, base, 0, fresh=False).entries()), problems)
    times = _read_index(lambda: len(TimeIndex(folder, base, 0, fresh=False).entries()), problems)
    aborted = _read_index(lambda: len(_aborted(folder, base)), problems)
    return SegmentRow(base, status.st_size, found, times, aborted, status.st_mtime)


def _aborted(folder: Folder, base: int) -> list[AbortedTransaction]:
    return TransactionIndex(folder, base, fresh=False).entries()


def _read_index(read: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return read()
    except (CorruptFile, OSError) as error:
        problems.append(str(error))
        return None


def _parsed(data: bytes | None, decode: Callable[[bytes], T], problems: list[str]) -> T | None:
    if not data:
        return None
    try:
        return decode(data)
    except CorruptFile as error:
        problems.append(str(error))
        return None
