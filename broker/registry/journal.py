"""Journal of the embedded metadata store: a log of transactions and, from time to time, a snapshot of the tree.

The folder is laid out as ZooKeeper's: version-2/ holds `log.X` (X is the zxid of its first record, in hexadecimal) and
`snapshot.X` (the tree as it was after zxid X). A write is one append and one sync; the caller acknowledges it after the
call has returned.

After a crash the last write may be torn: its records are truncated, including whole ones after a hole, for none of them
was acknowledged. Damage anywhere else is not a torn tail. Truncating there would lose acknowledged writes, so
`Journal.load` refuses (Alagappan and others, "Correlated crash vulnerabilities", and "Redundancy does not imply fault
tolerance", FAST 2017).

Beside each log is `end.X`: up to which byte and zxid the log was durable, and the checksum of all bytes before. It is
written behind the sync of the log and without one of its own, so it never claims more than the log has, also after a
loss of power. A log that is shorter, or whose earlier bytes differ, has lost acknowledged writes: those of a file that
was cut between two records, or that lacks records in its middle, which no record shows. Journals of earlier versions
have no such file, and ZooKeeper ignores it. Its name sorts before that of the log, so a copy in the order of names has
an end that the log reaches.

A snapshot is due when the log behind the last one is larger than the snapshot itself and than `snapshot_bytes`, so that
writing snapshots costs no more than writing the log. The previous snapshot stays, with the logs since, for the case
that the newest cannot be read.
"""

from __future__ import annotations

import itertools
import posixpath
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, Self

from odradek.broker.registry.interface import RegistryError
from odradek.broker.registry.jute import JuteError
from odradek.broker.registry.transactions import (
    LOG_HEADER,
    decode_snapshot,
    encode_snapshot,
    frame,
    read_record,
)
from odradek.broker.registry.tree import JournalTransaction, Tree

DEFAULT_SNAPSHOT_BYTES = 1024 * 1024
VERSION_FOLDER = "version-2"
_LOG = "log."
_SNAPSHOT = "snapshot."
_END = "end."
LOCK = ".lock"
_UNFINISHED = ".tmp"
"""The suffix of a file that the disk has not renamed into place yet."""
_WAY_OUT: Final = ". `odradek registry check --data FOLDER` lists what is readable"
OWNER_ONLY = 0o700
"""The mode of the folder: SCRAM credentials of users are in its files."""


_END_FORMAT: Final = struct.Struct(">4siqqI")
_END_MAGIC: Final = b"ODRE"
_END_VERSION: Final = 1


class LogEnd(NamedTuple):
    """The content of `end.X`: the position behind the last durable record, its zxid, and the CRC-32 of all before."""

    position: int
    zxid: int
    checksum: int

    def encode(self) -> bytes:
        """The bytes of the file."""
        body = _END_FORMAT.pack(_END_MAGIC, _END_VERSION, *self)
        return body + zlib.crc32(body).to_bytes(4, "big")

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """None for a file that is not whole, as after a loss of power, or has another version."""
        body = data[: _END_FORMAT.size]
        if len(data) != _END_FORMAT.size + 4 or zlib.crc32(body).to_bytes(4, "big") != data[-4:]:
            return None
        magic, version, position, zxid, checksum = _END_FORMAT.unpack(body)
        return cls(position, zxid, checksum) if (magic, version) == (_END_MAGIC, _END_VERSION) else None

    def problem(self, content: bytes, end: int) -> str | None:
        """What a log of this content lacks, whose last whole record ends at `end`; None where it has everything."""
        if end < self.position:
            return f"ends at byte {end}, and its records up to byte {self.position} were acknowledged"
        if zlib.crc32(memoryview(content)[: self.position]) != self.checksum:
            return f"has other bytes before byte {self.position} than were acknowledged"
        return None


class JournalFile(Protocol):
    """An open file, as far as the journal needs one. Everything raises OSError."""

    def write(self, data: bytes, position: int) -> None:
        """Write all of `data` at a position."""

    def truncate(self, size: int) -> None:
        """Truncate to `size` bytes."""

    def sync(self) -> None:
        """Return once everything written is durable."""

    def close(self) -> None:
        """Close the file."""


class Name(Protocol):
    """An entry of a directory."""

    @property
    def name(self) -> str:
        """Its name within the directory."""


class JournalLock(Protocol):
    """A lock that is held."""

    def release(self) -> None:
        """Release the lock."""


class JournalDisk(Protocol):
    """A file system, as far as the journal needs one; the disk of the logs is one. Everything raises OSError."""

    def open(self, path: str) -> JournalFile:
        """Open for writing, created empty where it is missing."""

    def read(self, path: str) -> bytes:
        """The whole file."""

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace a whole file atomically, durably with `sync`."""

    def list(self, path: str) -> Sequence[Name]:
        """The entries of a directory."""

    def make_directory(self, path: str, mode: int = 0o777) -> None:
        """Create a directory, with a mode, and its parents where they are missing."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    def lock(self, path: str) -> JournalLock | None:
        """Take the exclusive lock on a file; None where another process holds it."""


class DamagedJournalError(Exception):
    """The journal lost acknowledged writes, or has content that this program cannot decode."""


class JournalInUseError(Exception):
    """Another process has the journal open."""


class Journal:
    """The files of one tree. Its methods block and must not run concurrently."""

    __slots__ = (
        "_checksum",
        "_disk",
        "_end_file",
        "_file",
        "_folder",
        "_lock",
        "_log_bytes",
        "_position",
        "_snapshot_bytes",
        "_snapshot_size",
    )

    def __init__(self, disk: JournalDisk, folder: str, *, snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES) -> None:
        self._disk = disk
        self._folder = f"{folder}/{VERSION_FOLDER}"
        self._snapshot_bytes = snapshot_bytes
        self._lock: JournalLock | None = None
        self._file: JournalFile | None = None
        self._end_file: JournalFile | None = None
        self._checksum = 0
        self._position = 0
        self._log_bytes = 0
        self._snapshot_size = 0

    def load(self) -> Tree:
        """Lock the folder and read the tree, an empty one where there is none yet; a torn end is truncated.

        Raises JournalInUseError, DamagedJournalError and OSError.
        """
        self._disk.make_directory(self._folder, OWNER_ONLY)
        self._lock = self._disk.lock(f"{self._folder}/{LOCK}")
        if self._lock is None:
            raise JournalInUseError(f"the metadata store in {self._folder} is in use by another process")
        self._sweep()
        tree = self._load_snapshot()
        in_snapshot = tree.zxid
        self._check_missing_logs(tree)
        logs = self._numbers(_LOG)
        for index, number in enumerate(logs):
            if index + 1 < len(logs) and logs[index + 1] <= tree.zxid + 1:
                continue
            self._load_log(tree, number, in_snapshot=in_snapshot, is_last=index + 1 == len(logs))
        return tree

    def write(self, transactions: Sequence[JournalTransaction]) -> None:
        """Append transactions in one write and make them durable.

        After an OSError for lack of room the same call may be repeated, and nothing else: it writes the same bytes at
        the same position. After any other OSError the journal must not be used again.
        """
        data = b"".join(frame(transaction, index) for index, transaction in enumerate(transactions))
        if self._file is None:
            number = transactions[0].zxid
            file, end_file = self._disk.open(self._path(_LOG, number)), self._disk.open(self._path(_END, number))
            self._disk.sync_directory(self._folder)
            self._file, self._end_file = file, end_file
            self._position = self._checksum = 0
        if not self._position:
            data = LOG_HEADER + data
        assert self._end_file is not None
        self._file.write(data, self._position)
        self._file.sync()
        end, checksum = self._position + len(data), zlib.crc32(data, self._checksum)
        self._end_file.write(LogEnd(end, transactions[-1].zxid, checksum).encode(), 0)
        self._position, self._checksum = end, checksum
        self._log_bytes += len(data)

    def is_snapshot_due(self) -> bool:
        """Whether the log has outgrown the last snapshot."""
        return self._log_bytes > max(self._snapshot_bytes, self._snapshot_size)

    def snapshot(self, content: bytes, zxid: int) -> None:
        """Write `encode_snapshot` of the tree as it was after `zxid`, begin a new log, and remove files that are no
        longer needed.

        Transactions up to `zxid` may still wait to be written: they go to the new log, and loading skips them.
        """
        self._disk.replace(self._path(_SNAPSHOT, zxid), content, sync=True)
        self._snapshot_size = len(content)
        self._log_bytes = 0
        self._close_file()
        snapshots = self._numbers(_SNAPSHOT)
        for number in snapshots[:-2]:
            self._disk.remove(self._path(_SNAPSHOT, number))
        logs = self._numbers(_LOG)
        for number, following in itertools.pairwise(logs):
            if following <= snapshots[-2:][0] + 1:
                self._disk.remove(self._path(_END, number))
                self._disk.remove(self._path(_LOG, number))

    def close(self) -> None:
        """Close the file and release the lock."""
        self._close_file()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close_file(self) -> None:
        for file in (self._file, self._end_file):
            if file is not None:
                file.close()
        self._file = self._end_file = None

    def _path(self, kind: str, zxid: int) -> str:
        return f"{self._folder}/{kind}{zxid:x}"

    def _sweep(self) -> None:
        for entry in self._disk.list(self._folder):
            if entry.name.startswith(_SNAPSHOT) and entry.name.endswith(_UNFINISHED):
                self._disk.remove(f"{self._folder}/{entry.name}")

    def _numbers(self, kind: str) -> list[int]:
        return numbers_of([entry.name for entry in self._disk.list(self._folder)], kind)

    def _load_snapshot(self) -> Tree:
        numbers = self._numbers(_SNAPSHOT)
        failure: JuteError | None = None
        for number in reversed(numbers):
            content = self._disk.read(self._path(_SNAPSHOT, number))
            try:
                tree = decode_snapshot(content, number)
            except JuteError as error:
                failure = error
                continue
            self._snapshot_size = len(content)
            return tree
        if failure is not None:
            raise DamagedJournalError(f"no snapshot in {self._folder} can be read: {failure}{_WAY_OUT}") from failure
        if self._numbers(_LOG):
            raise DamagedJournalError(f"{self._folder} has a log and no snapshot{_WAY_OUT}")
        # An empty snapshot comes first, as in ZooKeeper: a log without one means that the snapshot was lost.
        tree = Tree()
        self._disk.replace(self._path(_SNAPSHOT, 0), encode_snapshot(tree), sync=True)
        above = posixpath.dirname(self._folder)
        for folder in (above, posixpath.dirname(above)):
            self._disk.sync_directory(folder)
        return tree

    def _load_log(self, tree: Tree, number: int, *, in_snapshot: int, is_last: bool) -> None:
        path = self._path(_LOG, number)
        content = self._disk.read(path)
        end = _replay(tree, memoryview(content), path)
        damaged = content[end:].strip(b"\0")  # ZooKeeper preallocates its logs with zeros
        if damaged and (not is_last or _was_synced(memoryview(content), end + 1)):
            raise DamagedJournalError(f"{path} is damaged at {end}, and what follows was once complete{_WAY_OUT}")
        noted = self._end_of(number)
        if noted is not None and noted.zxid > in_snapshot:
            problem = noted.problem(content, end)
            if problem is not None:
                raise DamagedJournalError(f"{path} {problem}{_WAY_OUT}")
        self._log_bytes += end
        if is_last:
            self._continue(number, content, end)

    def _check_missing_logs(self, tree: Tree) -> None:
        """Raise DamagedJournalError where a log is missing whose records are behind the snapshot."""
        logs = set(self._numbers(_LOG))
        for number in self._numbers(_END):
            noted = None if number in logs else self._end_of(number)
            if noted is not None and noted.zxid > tree.zxid:
                raise DamagedJournalError(f"{self._path(_LOG, number)} is missing{_WAY_OUT}")

    def _end_of(self, number: int) -> LogEnd | None:
        return LogEnd.decode(self._disk.read(self._path(_END, number))) if number in self._numbers(_END) else None

    def _continue(self, number: int, content: bytes, end: int) -> None:
        path, size = self._path(_LOG, number), len(content)
        self._end_file = self._disk.open(self._path(_END, number))
        self._checksum = zlib.crc32(content[:end] if end else LOG_HEADER)
        file = self._disk.open(path)
        if end < size:
            file.truncate(end)
            file.sync()
        if end == 0:
            # The crash came before the header: keep the name, and write the file anew from its start.
            file.write(LOG_HEADER, 0)
            file.sync()
            end = len(LOG_HEADER)
        self._file, self._position = file, end


class NoJournal:
    """Replaces the journal for a tree that is not kept."""

    __slots__ = ()

    def load(self) -> Tree:
        """An empty tree."""
        return Tree()

    def write(self, transactions: Sequence[JournalTransaction]) -> None:
        """Write nothing."""

    def is_snapshot_due(self) -> bool:
        """No snapshot is ever due."""
        return False

    def snapshot(self, content: bytes, zxid: int) -> None:
        """Write nothing."""

    def close(self) -> None:
        """Close nothing."""


def numbers_of(names: Iterable[str], kind: str) -> list[int]:
    """The zxids in the names of files that begin with `kind` (`log.`, `snapshot.`, `end.`), ascending."""
    numbers: list[int] = []
    for name in names:
        if name.startswith(kind):
            try:
                numbers.append(int(name.removeprefix(kind), 16))
            except ValueError:
                continue  # not a journal file: neither Odradek nor ZooKeeper gives such names
    return sorted(numbers)


def _replay(tree: Tree, content: memoryview, path: str) -> int:
    """Replay a log into the tree; returns the position after the last good record."""
    if bytes(content[:8]) != LOG_HEADER[:8]:
        return 0
    position = len(LOG_HEADER)
    try:
        while (record := read_record(content, position)) is not None:
            transaction = record.transaction
            if transaction is not None and transaction.zxid > tree.zxid:
                tree.replay(transaction)
            position = record.end
    except (JuteError, RegistryError) as error:
        raise DamagedJournalError(f"{path} at {position}: {error}{_WAY_OUT}") from error
    return position


def _was_synced(content: memoryview, start: int) -> bool:
    """Whether a whole record from `start` on was the first of its write: then all before it was durable."""
    for position in range(start, len(content)):
        try:
            record = read_record(content, position)
        except JuteError:
            return True
        if record is not None and record.batch_position == 0:
            return True
    return False
