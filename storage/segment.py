"""One segment of a log: a file of record batches and its three indexes (Kafka: LogSegment).

    BASE.log BASE.index BASE.timeindex BASE.txnindex     BASE is the first offset in 20 digits

The file is only appended to and truncated. An append is one write call; the indexes take an entry in memory for every
`index.interval.bytes`. For the latest batches, whose positions are remembered, a read finds its start without the disk;
else it uses the offset index and the few headers behind its entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.protocol.batch import HEADER_SIZE, LOG_OVERHEAD, Header, is_framed, read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.checkpoints import CorruptFile
from odradek.storage.config import LogConfig
from odradek.storage.disk import Buffer, File, Folder
from odradek.storage.index import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, OffsetIndex, TimeIndex, TransactionIndex
from odradek.storage.recent_batches import MOST_REMEMBERED, RecentBatches
from odradek.storage.staged import StagedBatch

LOG_SUFFIX: Final = ".log"
DELETED_SUFFIX: Final = ".deleted"

UNKNOWN: Final = -2  # the timestamp of the first batch has not been read yet
_HEADERS_AT_ONCE: Final = 8 << 10

EMPTY: Final = b""


def corrupt(path: str, position: int, reason: str) -> KafkaError:
    """The error for bytes of a segment's file that are no batch."""
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path} at byte {position}: {reason}")


class FileRange:
    """A range of a segment's file: `len()`, `fileno()` and `position` serve os.sendfile, `read()` returns the bytes.

    It keeps the file open, so the segment may be deleted meanwhile. Where the log was truncated meanwhile, fewer bytes
    are left than announced: `read` raises KafkaError, and for a sender sendfile returns 0.
    """

    __slots__ = ("_file", "_length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self._file = file
        self.position = position
        self._length = length

    def __len__(self) -> int:
        return self._length

    def fileno(self) -> int:
        """The descriptor of the segment's file. Raises OSError where the disk is a simulated one."""
        return self._file.fileno()

    def read(self) -> bytes:
        """The bytes of the range. Raises KafkaError KAFKA_STORAGE_ERROR where they were truncated, OSError."""
        data = self._file.read(self._length, self.position)
        if len(data) != self._length:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{len(data)} of {self._length} bytes left at position {self.position}: the log was cut meanwhile",
            )
        return data


class Segment:
    """A segment. `size` is in bytes, `max_timestamp` is the latest of its records."""

    __slots__ = (
        "_file",
        "_first_timestamp",
        "_folder",
        "_index_interval",
        "_is_trimmed",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offset_index",
        "_ready",
        "_since_index",
        "_time_index",
        "aborted",
        "base_offset",
        "created_ms",
        "is_full",
        "jitter_ms",
        "name",
        "recent",
        "size",
    )

    def __init__(self, folder: Folder, base_offset: int, size: int, config: LogConfig, *, fresh: bool = False) -> None:
        """A segment with files in `folder`; with `fresh` they are new, so nothing is read."""
        self.name = f"{base_offset:020d}{LOG_SUFFIX}"
        self.base_offset = base_offset
        self.size = size
        self.created_ms = 0
        self.jitter_ms = 0
        self._folder = folder
        self._file: File | None = None
        self._is_trimmed = fresh and not config.preallocate  # the file ends with the last batch
        self._offset_index = OffsetIndex(folder, base_offset, config.segment_index_bytes, fresh=fresh)
        self._time_index = TimeIndex(folder, base_offset, config.segment_index_bytes, fresh=fresh)
        self.aborted = TransactionIndex(folder, base_offset, fresh=fresh)
        self._index_interval = config.index_interval_bytes
        self.is_full = False
        """Whether each further batch must begin a new segment: an index is full, or the next segment is under way."""
        self._since_index = 0
        self._ready = fresh  # the indexes are in memory and the two timestamps below are valid
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._first_timestamp = UNKNOWN
        self.recent = RecentBatches(base_offset if fresh else -1)

    @classmethod
    def create(cls, folder: Folder, base_offset: int, config: LogConfig, now_ms: int, jitter_ms: int) -> Segment:
        """A new segment with its files. Raises OSError."""
        segment = cls(folder, base_offset, 0, config, fresh=True)
        segment.created_ms = now_ms
        segment.jitter_ms = jitter_ms
        segment.create_files(config)
        return segment

    def create_files(self, config: LogConfig) -> None:
        """Create the files of a new segment, in any thread; leftovers of the same name are removed. Raises OSError."""
        for name in (*self.file_names(), self.name + DELETED_SUFFIX):  # the last would mark it as compacted
            self._folder.remove(name)
        self.reset_indexes()
        if config.preallocate:
            self.file.truncate(config.segment_bytes)
        self.file  # noqa: B018  (opening creates it)

    @property
    def file(self) -> File:
        """The log file, opened at the first access. Raises OSError."""
        file = self._file
        if file is None:
            file = self._file = self._folder.open(self.name)
        return file

    def open_existing(self) -> None:
        """Open the log file, which must exist: a read must not create it. Raises OSError."""
        self._file = self._folder.open_existing(self.name)

    @property
    def path(self) -> str:
        """The path of the log file."""
        return self._folder / self.name

    def file_names(self) -> list[str]:
        """The names that this segment may have in its folder."""
        return [self.name, self._offset_index.name, self._time_index.name, self.aborted.name]

    # -- indexes -------------------------------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        """Offsets to positions; read at the first access, and rebuilt where it cannot be read. Raises OSError."""
        if not self._ready:
            self._prepare()
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """Timestamps to offsets; read at the first access, and rebuilt where it cannot be read. Raises OSError."""
        if not self._ready:
            self._prepare()
        return self._time_index

    @property
    def max_timestamp(self) -> int:
        """The highest timestamp in the segment, -1 where there is none."""
        if not self._ready:
            self._prepare()
        return self._max_timestamp

    def _prepare(self) -> None:
        """Read both indexes, or rebuild them where they do not fit the log. Raises OSError."""
        try:
            full = self._offset_index.is_full or self._time_index.is_full
            fits = self._offset_index.last()[1] < self.size or not self.size
        except CorruptFile:
            fits = False
        if fits:
            self.is_full = full
            self._max_timestamp, self._max_timestamp_offset = self._time_index.last()
            self._ready = True
            return
        self._offset_index.reset(in_place=False)
        self._time_index.reset(in_place=False)
        self._restart_indexing()
        for position, header in self.headers():
            self.note(position, header.size, header.last_offset, header.max_timestamp)
        self._time_index.append(self._max_timestamp, self._max_timestamp_offset)
        for index in (self._offset_index, self._time_index, self.aborted):
            index.save()
        self.recent = RecentBatches(-1)

    @property
    def max_timestamp_offset(self) -> int:
        """The last offset of the batch that has the highest timestamp."""
        return self._max_timestamp_offset if self.max_timestamp >= 0 else self.base_offset

    def largest_timestamp(self) -> int:
        """The highest timestamp, or the time of the last write where there is none; retention uses it as the age."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._folder.modified_ms(self.name)

    @property
    def modified_ms(self) -> int:
        """When the file was last written, in ms since 1970."""
        return self._folder.modified_ms(self.name)

    def reset_indexes(self, *, in_place: bool = True) -> None:
        """Empty the indexes before a rebuild. Unless `in_place` their files stay until `seal` replaces them, whole and
        durable. Raises OSError.
        """
        self._offset_index.reset(in_place=in_place)
        self._time_index.reset(in_place=in_place)
        self.aborted.reset(in_place=in_place)
        self._restart_indexing()

    def _restart_indexing(self) -> None:
        self._ready = True
        self.is_full = False
        self._since_index = 0
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = UNKNOWN

    # -- writing -------------------------------------------------------------------------------------------------------

    def should_roll(self, config: LogConfig, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch of `size` bytes must begin a new segment: by size, age, a full index, or offset."""
        if self.size + size > config.segment_bytes or self.is_full:
            return True
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not self.size:
            return False
        first = self._first_timestamp
        if first == UNKNOWN:
            first = self.first_timestamp
        waited = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return waited > config.max_segment_ms - self.jitter_ms

    @property
    def first_timestamp(self) -> int:
        """The highest timestamp of the first batch; negative where there is none. Raises KafkaError, OSError."""
        if self._first_timestamp == UNKNOWN:
            for _, header in self.headers():
                self._first_timestamp = header.max_timestamp
                break
        return self._first_timestamp

    def append(self, data: Buffer, last_offset: int, max_timestamp: int, head: Buffer | None = None) -> None:
        """Write one batch behind the others; `head` replaces its first bytes where `data` is not writable.

        Raises OSError, and the segment then is as it was, except for the tail of its file.
        """
        file = self._file
        if file is None:
            file = self.file
        position = self.size
        if head is None:
            file.write(data, position)
        else:
            file.write_parts((head, memoryview(data)[len(head) :]), position)
        size = len(data)
        self.size = position + size
        self.note(position, size, last_offset, max_timestamp)

    def write(self, data: Buffer, staged: StagedBatch | None = None, head: Buffer | None = None) -> None:
        """Write several batches behind the others with one call; the caller then notes each. The first ones may be in
        the file of `staged` already, apart from their `head`; it becomes that of the segment. Raises OSError as
        `append`.
        """
        if staged is None:
            self.file.write(data, self.size)
        else:
            assert not self.size, f"{self.path} has {self.size} bytes before a batch that begins it"
            staged.become(self.name, memoryview(data)[:HEADER_SIZE] if head is None else head)
            self.close()
            self._file = staged.file
            self._folder.sync()  # before a flush of the file moves the recovery point
        self.size += len(data)

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Add a written batch to the indexes; calls come in the order of the batches, without gaps."""
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._since_index > self._index_interval:
            full = self._offset_index.append(last_offset, position)
            full |= self._time_index.append(self._max_timestamp, self._max_timestamp_offset)
            self.is_full = full
            self._since_index = 0
        self._since_index += size
        recent = self.recent
        recent.last_offsets.append(last_offset)
        recent.positions.append(position)
        if len(recent.positions) > MOST_REMEMBERED:
            recent.drop_older_half()

    def activate(self, next_offset: int) -> None:
        """Get ready for writes from `next_offset` on, which follows the last batch in the file. Raises OSError."""
        if not self._ready:
            self._prepare()
        self.recent = RecentBatches(next_offset)

    def undo_write(self, size: int) -> None:
        """Truncate the bytes that a failed write may have left behind `size`. Raises OSError."""
        self.file.truncate(size)
        self.size = size

    def seal(self) -> None:
        """Write the indexes, with the last timestamp, and trim the file: on rolling and closing. Raises OSError."""
        if self._ready:
            self._time_index.append(self._max_timestamp, self._max_timestamp_offset)
            for index in (self._offset_index, self._time_index, self.aborted):
                index.save()
        if self._file is not None and not self._is_trimmed:  # to the same size, too, it may wait for a page on its way
            self._file.truncate(self.size)
            self._is_trimmed = True

    def sync_indexes(self) -> None:
        """Make the index files durable; safe in a thread. Raises OSError."""
        for name in self.file_names()[1:]:
            self._folder.sync_file(name)

    def close(self) -> None:
        """Close the descriptor."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def mark_deleted(self) -> list[str]:
        """Rename the files so that no load treats them as a segment; returns the new names. Raises OSError.

        The log file is not closed: a range that is being sent keeps it open until then.
        """
        folder, deleted = self._folder, []
        for name in self.file_names():
            if folder.rename(name, name + DELETED_SUFFIX):
                deleted.append(name + DELETED_SUFFIX)
            if name == self.name and folder.exists(self.aborted.name):
                # A loss of power must not restore the log without this index: a missing one means no aborted data.
                folder.sync()
        return deleted

    def truncate(self, offset: int, now_ms: int) -> None:
        """Truncate every batch that reaches to `offset` or beyond. Raises OSError."""
        found = self.locate(offset)
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.aborted.truncate(offset)
        if found is not None:
            self.file.truncate(found[0])
            self.size = found[0]
        if not self.size:
            self.created_ms = now_ms
            self._first_timestamp = UNKNOWN
        self.is_full = False
        self._since_index = 0
        self.recent = RecentBatches(offset if not self.size else -1)
        timestamp, last_offset = self._time_index.last()
        for _, header in self.headers(self._offset_index.lookup(last_offset)[1]):
            if header.max_timestamp > timestamp:
                timestamp, last_offset = header.max_timestamp, header.last_offset
        self._max_timestamp, self._max_timestamp_offset = timestamp, last_offset

    # -- reading -------------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the first batch that reaches to `offset` or beyond; None where all end below it."""
        if self.recent.has(offset):
            return self.recent.find(offset, self.size)
        for position, header in self.headers(self.offset_index.lookup(offset)[1]):
            if header.base_offset + header.last_offset_delta >= offset:
                return position, LOG_OVERHEAD + header.batch_length
        return None

    def headers(self, position: int = 0) -> Iterator[tuple[int, Header]]:
        """Position and header of each batch from `position` on. Raises KafkaError CORRUPT_MESSAGE, OSError."""
        end = self.size
        chunk, start = EMPTY, position
        while position < end:
            if position + HEADER_SIZE > start + len(chunk):
                chunk, start = self.file.read(_HEADERS_AT_ONCE, position), position
            if len(chunk) - (position - start) < HEADER_SIZE:
                raise corrupt(self.path, position, "the file ends within the header of a batch")
            header = read_header(chunk, position - start)
            if not is_framed(header):
                raise corrupt(self.path, position, f"no batch has this header: {header}")
            yield position, header
            position += LOG_OVERHEAD + header.batch_length


def deleted_log_name(base_offset: int) -> str:
    """The name of the log file of a removed segment, until it is deleted."""
    return f"{base_offset:020d}{LOG_SUFFIX}{DELETED_SUFFIX}"


def remove_segment(folder: Folder, base_offset: int, config: LogConfig) -> None:
    """Remove the files of a segment that was not created whole, durably: the segment before it may get its offsets.

    Raises OSError.
    """
    for name in Segment(folder, base_offset, 0, config, fresh=True).file_names():
        folder.remove(name)
    folder.sync()
