"""Reads a partition's directory as a library does, also while a broker writes to it.

    from odradek.storage.reading import Partition

    for record in Partition("/var/lib/odradek/orders-0").records(from_offset=1000, from_ms=1_700_000_000_000):
        print(record.offset, record.key, record.value)

The reader never writes, creates or locks a file, and one batch at a time is in memory. A broker's work meanwhile is no
error. The reader returns appended batches as far as they are whole, and a half-written batch at the end of the last
segment ends the reading. A segment that retention removes is read to its end or left out. A segment that compaction
replaces is read again from the next offset. Bytes in the middle of a log that cannot be a batch raise `DamagedLog`.

The records are those of the log: including those of aborted transactions, and those that no in-sync replica has yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.protocol.batch import HEADER_SIZE, MAGIC, Header, Record, crc_ok, is_framed, read_header, records
from odradek.protocol.errors import ProtocolError
from odradek.storage.checkpoints import CorruptFile
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.index import OffsetIndex
from odradek.storage.read_files import ReadFile, segments_in
from odradek.storage.segment import LOG_SUFFIX

_AT_ONCE: Final = 256 * 1024
_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_DELTA_POSITION: Final = 23
_MAX_OFFSET: Final = 2**63 - 1


class DamagedLog(Exception):  # noqa: N818 - named after its cause
    """Bytes of a log that are invalid at their position. `position` counts from the start of the file."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason


class Batch(NamedTuple):
    """A batch of a file. `data` is a view that contains it, from byte `start` of the view on."""

    path: str
    position: int
    header: Header
    data: memoryview
    start: int

    @property
    def checksum_holds(self) -> bool:
        """Whether the checksum matches the bytes."""
        return crc_ok(self.data, self.start, self.header)

    def records(self) -> Iterator[Record]:
        """The records, one by one. Raises DamagedLog where they cannot be read."""
        view = self.data[self.start : self.start + self.header.size]
        try:
            yield from records(view)
        except ProtocolError as error:
            raise DamagedLog(self.path, self.position, f"the records of the batch: {error}") from None


def walk(file: ReadFile, position: int = 0, end: int | None = None) -> Iterator[Batch]:
    """Each whole batch between `position` and `end` (bytes; by default the end of the file).

    Checksums are not verified. Raises DamagedLog at a length or magic that no batch can have, OSError.
    """
    end = file.size if end is None else min(end, file.size)
    chunk, start = memoryview(b""), position
    while end - position >= HEADER_SIZE:
        if position + HEADER_SIZE > start + len(chunk):
            chunk, start = memoryview(file.read(_AT_ONCE, position)), position
            if len(chunk) < HEADER_SIZE:
                return  # truncated meanwhile
        header = read_header(chunk, position - start)
        if not is_framed(header):
            raise _no_batch(file.path, position, header)
        if header.size > end - position:
            return
        if position + header.size > start + len(chunk):
            chunk, start = memoryview(file.read(max(header.size, _AT_ONCE), position)), position
            if len(chunk) < header.size:
                return
        yield Batch(file.path, position, header, chunk, position - start)
        position += header.size


def checked(batch: Batch) -> Batch:
    """The batch itself. Raises DamagedLog where its checksum does not hold."""
    if not batch.checksum_holds:
        first, last = batch.position, batch.position + batch.header.size
        reason = f"the checksum of the batch in bytes {first} to {last} does not hold"
        raise DamagedLog(batch.path, batch.position, reason)
    return batch


def _no_batch(path: str, position: int, header: Header) -> DamagedLog:
    """The error for the field of a header whose value is impossible."""
    if header.magic != MAGIC:
        return DamagedLog(path, position + _MAGIC_POSITION, f"magic {header.magic} where {MAGIC} is read")
    if header.size < HEADER_SIZE:
        reason = f"batch length {header.batch_length}, less than a header takes"
        return DamagedLog(path, position + _LENGTH_POSITION, reason)
    return DamagedLog(path, position + _DELTA_POSITION, f"last offset delta {header.last_offset_delta}")


class Partition:
    """The log of one partition, for reading. Opens a file when it reads it, keeps none open."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        """`path` is the directory, such as `data/orders-0`. Raises OSError where it cannot be listed."""
        self.path = str(path).rstrip("/") or "/"
        segments_in(self.path)

    def segments(self) -> list[int]:
        """The base offsets of the segments, ascending, at this moment. Raises OSError."""
        return segments_in(self.path)

    def batches(self, from_offset: int = 0, to_offset: int | None = None) -> Iterator[Batch]:
        """Whole batches with a checksum that holds, from the one that covers `from_offset`, to before `to_offset`.

        Ends at the end that the log has when the reader gets there. Raises DamagedLog, OSError.
        """
        limit = _MAX_OFFSET if to_offset is None else to_offset
        offset = max(from_offset, 0)
        finished: tuple[int, tuple[int, int]] | None = None
        while offset < limit and (file := self._open_next(offset, finished)) is not None:
            with file:
                base = int(file.name.removesuffix(LOG_SUFFIX))
                sealed = self._is_followed(base)  # before the read: a segment that another follows grows no more
                for batch in self._batches_of(file, base, offset, sealed):
                    if batch.header.base_offset >= limit:
                        return
                    offset = batch.header.next_offset
                    yield batch
                if sealed:
                    finished = base, file.identity
                elif not self._is_followed(base):
                    return

    def records(
        self,
        from_offset: int = 0,
        to_offset: int | None = None,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        control: bool = False,
    ) -> Iterator[Record]:
        """Records of offsets from `from_offset` to before `to_offset`, and of times from `from_ms` to before `to_ms`.

        Times are milliseconds since 1970, and a bound that is None does not apply. `control` includes the markers of
        transactions. Batches without a matching record are not decompressed where their header proves that.
        Raises DamagedLog, OSError.
        """
        limit = _MAX_OFFSET if to_offset is None else to_offset
        for batch in self.batches(from_offset, to_offset):
            if batch.header.is_control and not control:
                continue
            if from_ms is not None and batch.header.max_timestamp < from_ms:
                continue
            for record in batch.records():
                if not from_offset <= record.offset < limit:
                    continue
                if from_ms is not None and record.timestamp_ms < from_ms:
                    continue
                if to_ms is None or record.timestamp_ms < to_ms:
                    yield record

    def _open_next(self, offset: int, finished: tuple[int, tuple[int, int]] | None) -> ReadFile | None:
        """The segment to read for `offset`; None at the end of the log. `finished` is the last one that was read."""
        while True:
            bases = segments_in(self.path)
            later = [base for base in bases if base > offset]
            holding = [base for base in bases if base <= offset]
            for base in (*holding[-1:], *later[:1]):
                try:
                    file = ReadFile(f"{self.path}/{base:020d}{LOG_SUFFIX}")
                except FileNotFoundError:
                    break  # removed since it was listed: list again
                if finished != (base, file.identity):
                    return file
                file.close()
            else:
                return None

    def _batches_of(self, file: ReadFile, base: int, offset: int, sealed: bool) -> Iterator[Batch]:
        """The batches of one segment that end behind `offset`, as far as the file has them."""
        position = self._position_of(file, base, offset)
        damage: DamagedLog | None = None
        try:
            for batch in walk(file, position):
                checked(batch)
                position = batch.position + batch.header.size
                if batch.header.next_offset > offset:
                    yield batch
            if position < file.size:
                damage = DamagedLog(file.path, position, "the batch is cut off in the middle of the log")
        except DamagedLog as found:
            damage = found  # in the last segment: an unfinished write, of a live broker or of one that crashed
        if sealed and damage is not None:
            raise damage

    def _is_followed(self, base: int) -> bool:
        return any(other > base for other in segments_in(self.path))

    def _position_of(self, file: ReadFile, base: int, offset: int) -> int:
        """The position from which a segment must be read to include `offset`, from its index if that is valid."""
        if offset <= base:
            return 0
        try:
            indexed, position = OffsetIndex(Folder(OsDisk(), self.path), base, 0, fresh=False).lookup(offset)
            batch = next(walk(file, position), None)
        except (CorruptFile, DamagedLog, OSError):
            return 0
        if batch is None or batch.header.last_offset != indexed or not batch.checksum_holds:
            return 0
        return position
