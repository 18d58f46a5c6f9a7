"""Offset checkpoints of a data directory, each with an offset for every log (Kafka: OffsetCheckpointFile).

A checkpoint is written in a thread where its caller does not need it for its next step: `begin` and the methods in
parts return a `CheckpointWrite`, whose `run` writes the file, and `finish` receives the outcome. In any order
of the threads, no write replaces the file of one that has begun later, and `close` ends all writes. The contents of a
write that has begun may already be in the file, so they count as well where a checkpoint must be written anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from typing import Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    CorruptFile,
    Offsets,
    decode_offsets,
    encode_offset,
    encode_offsets,
    encode_rows,
)
from odradek.storage.directory_failure import DirectoryFailure
from odradek.storage.disk import Folder
from odradek.storage.log import Log
from odradek.storage.taking import taking

_log = logging.getLogger(__name__)
LOGS_AT_ONCE: Final = 500
"""Logs whose entries are made at once: one or two milliseconds."""
OffsetOf = Callable[[TopicPartition, Log], int | None]
"""The offset of a log for a checkpoint; None: the log has no entry."""
_CHECKPOINTS: Final = (RECOVERY_POINTS, HIGH_WATERMARKS, START_OFFSETS, CLEANER_OFFSETS)


class _Written:
    """What the files have: the number of the newest write of each, for threads."""

    __slots__ = ("is_closed", "lock", "numbers")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.numbers: dict[str, int] = {}
        self.is_closed = False


class CheckpointWrite:
    """A write of one checkpoint that has begun."""

    __slots__ = ("_data", "_folder", "_written", "name", "number", "offsets")

    def __init__(
        self, folder: Folder, written: _Written, name: str, number: int, data: bytes, offsets: Offsets
    ) -> None:
        self._folder = folder
        self._written = written
        self._data = data
        self.name = name
        self.number = number
        """Grows with every write of the directory that begins."""
        self.offsets = offsets

    def run(self) -> None:
        """Replace the file, durably, unless a newer one is there or the directory is closed; in any thread.

        Raises OSError.
        """
        with self._written.lock:
            if self._written.is_closed or self._written.numbers.get(self.name, 0) > self.number:
                return
            self._folder.replace(self.name, self._data, sync=True)
            self._written.numbers[self.name] = self.number


class _Making:
    """The entries of a checkpoint that is made in parts."""

    __slots__ = ("changed", "dropped", "lines", "offset_of", "offsets")

    def __init__(self, offset_of: OffsetOf) -> None:
        self.offset_of = offset_of
        self.offsets: Offsets = {}
        self.lines: dict[TopicPartition, str] = {}
        self.changed: dict[TopicPartition, Log] = {}
        """The logs of entries that are too high since they were made, to be read again."""
        self.dropped: set[TopicPartition] = set()
        """Partitions that get another log."""

    def add(self, partition: TopicPartition, log: Log) -> None:
        """Make the entry of a log."""
        offset = self.offset_of(partition, log)
        if offset is not None:
            self.offsets[partition] = offset
            self.lines[partition] = encode_offset(partition, offset)

    def drop(self, partition: TopicPartition) -> None:
        """Remove the entry of a partition that gets another log; the next checkpoint has that of the new one."""
        self.dropped.add(partition)
        self.changed.pop(partition, None)
        self._remove(partition)

    def _remove(self, partition: TopicPartition) -> None:
        self.offsets.pop(partition, None)
        self.lines.pop(partition, None)

    def check(self, logs: Iterable[tuple[TopicPartition, Log]]) -> None:
        """Find the entries that are too high: a log has been truncated."""
        for partition, log in logs:
            made = self.offsets.get(partition)
            if made is not None and made > (self.offset_of(partition, log) or 0):
                self.changed[partition] = log

    def read_again(self) -> None:
        """Replace the entries of the changed logs."""
        changed, self.changed = self.changed, {}
        for partition, log in changed.items():
            self._remove(partition)
            self.add(partition, log)


class OffsetCheckpoints:
    """The checkpoint files of one directory, and their contents."""

    __slots__ = (
        "_begun",
        "_contents",
        "_failure",
        "_folder",
        "_in_progress",
        "_logs",
        "_makings",
        "_newest",
        "_written",
    )

    def __init__(
        self, folder: Folder, failure: DirectoryFailure, logs: Callable[[], list[tuple[TopicPartition, Log]]]
    ) -> None:
        """`logs` returns all logs of the directory, with the future ones."""
        self._folder = folder
        self._logs = logs
        self._failure = failure
        self._contents: dict[str, Offsets] = {}
        self._newest: dict[str, int] = {}  # the number of the write that left these contents
        self._written = _Written()
        self._begun = 0
        self._in_progress: dict[int, CheckpointWrite] = {}
        self._makings: list[_Making] = []

    def __contains__(self, name: str) -> bool:
        """Whether there is a readable checkpoint of this name."""
        return name in self._contents

    def read(self) -> None:
        """Read all checkpoints. Raises OSError."""
        for name in _CHECKPOINTS:
            offsets = self._read(name)
            if offsets is not None:
                self._contents[name] = offsets

    def _read(self, name: str) -> Offsets | None:
        """The offsets of a checkpoint. One that cannot be read counts as absent, which costs time but no records."""
        data = self._folder.read(name)
        if data == b"":
            return {}  # Kafka creates the file first and writes it with its first entry
        try:
            return None if data is None else decode_offsets(data)
        except CorruptFile as error:
            _log.warning("ignoring an unreadable checkpoint path=%s error=%s", self._folder / name, error)
            return None

    def offsets(self, name: str) -> Offsets:
        """The contents of a checkpoint."""
        return self._contents.get(name, {})

    # -- writing

    def begin(self, name: str, offsets: Mapping[TopicPartition, int]) -> CheckpointWrite:
        """Begin to replace a checkpoint. Raises KafkaError where the directory is offline."""
        return self._begin(name, self._next_number(), encode_offsets(offsets), dict(offsets))

    def _next_number(self) -> int:
        self._begun += 1
        return self._begun

    def _begin(self, name: str, number: int, data: bytes, offsets: Offsets) -> CheckpointWrite:
        self._failure.refuse_if_offline()
        write = CheckpointWrite(self._folder, self._written, name, number, data, offsets)
        self._in_progress[write.number] = write
        return write

    def finish(self, write: CheckpointWrite, error: BaseException | None) -> None:
        """Receive the outcome of `write.run`, in the thread that began it. Raises KafkaError where the disk failed."""
        self._in_progress.pop(write.number, None)
        if self._written.is_closed:
            return
        with self._failure.guard(f"writing {write.name}"):
            if error is not None:
                raise error
        if write.number > self._newest.get(write.name, 0):
            self._newest[write.name] = write.number
            self._contents[write.name] = write.offsets

    def is_writing(self, name: str) -> bool:
        """Whether a write of a checkpoint has begun and not ended."""
        return any(write.name == name for write in self._in_progress.values())

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint, durably. Raises KafkaError."""
        self._run(self.begin(name, offsets))

    def _run(self, write: CheckpointWrite) -> None:
        error: BaseException | None = None
        try:
            write.run()
        except OSError as failed:
            error = failed
        self.finish(write, error)

    def close(self) -> None:
        """Write nothing more, also of what has begun; a write that runs in a thread ends before this returns."""
        with self._written.lock:
            self._written.is_closed = True

    def begin_in_parts(
        self, name: str, offset_of: OffsetOf, *, if_changed: bool = False
    ) -> Generator[None, None, CheckpointWrite | None]:
        """Begin to replace a checkpoint with an offset of each log, in parts of LOGS_AT_ONCE logs. Raises KafkaError.

        An entry has the offset that its log had at the call of this function or later. No entry exceeds the offset of a
        log that was truncated meanwhile, and none is that of a log whose partition has another log now. The write does
        not replace one that has begun after the call: a checkpoint that the log cleaner waits for keeps its offsets.
        With `if_changed` the file stays if it has these offsets already.
        """
        number, making = self._next_number(), _Making(offset_of)
        self._makings.append(making)
        try:
            for count, (partition, log) in enumerate(taking(self._logs())):
                if count and not count % LOGS_AT_ONCE:
                    yield
                if partition not in making.dropped:
                    making.add(partition, log)
            if len(making.lines) > LOGS_AT_ONCE:
                yield
            making.read_again()
        finally:
            self._makings.remove(making)
        offsets = making.offsets
        if if_changed and not self.is_writing(name) and offsets == self.offsets(name):
            return None
        return self._begin(name, number, encode_rows(making.lines.values()), offsets)

    def write_in_parts(
        self, name: str, offset_of: OffsetOf, *, if_changed: bool = False
    ) -> Generator[None, None, None]:
        """The same, and replace the file with the last part, durably. Raises KafkaError."""
        write = yield from self.begin_in_parts(name, offset_of, if_changed=if_changed)
        if write is not None:
            self._run(write)

    def _possible(self, name: str) -> Iterator[Offsets]:
        """What a file may have: the contents of the last write that has ended, and of later ones in progress."""
        yield self.offsets(name)
        for number, write in sorted(self._in_progress.items()):
            if write.name == name and number > self._newest.get(name, 0):
                yield write.offsets

    def remove_stale(self, partition: TopicPartition, logs: Callable[[], Collection[TopicPartition]]) -> None:
        """Write each checkpoint that has an entry of `partition` anew, with the entries of the present `logs` only.

        The entry is that of a log that was deleted or has moved away. Raises KafkaError.
        """
        for making in self._makings:
            making.drop(partition)
        for name in _CHECKPOINTS:
            possible = list(self._possible(name))
            if any(partition in offsets for offsets in possible):
                newest, present = possible[-1], logs()
                self.write(name, {each: newest[each] for each in newest if each in present})

    def write_recovery_points(self) -> None:
        """Write the recovery points: each log is on stable storage below its own. Raises KafkaError."""
        for _ in self.write_recovery_points_in_parts():
            pass

    def write_recovery_points_in_parts(self) -> Generator[None, None, None]:
        """The same in parts. Raises KafkaError."""
        return self.write_in_parts(RECOVERY_POINTS, _recovery_point)

    def begin_recovery_points(self) -> Generator[None, None, CheckpointWrite | None]:
        """Begin to write the recovery points, in parts. Raises KafkaError."""
        return self.begin_in_parts(RECOVERY_POINTS, _recovery_point)

    def write_start_offsets(self) -> None:
        """Write the start offsets of logs that begin within a segment. Raises KafkaError."""
        for _ in self.write_in_parts(START_OFFSETS, _start_within_segment):
            pass

    def begin_start_offsets(self) -> Generator[None, None, CheckpointWrite | None]:
        """Begin to write them, in parts. Raises KafkaError."""
        return self.begin_in_parts(START_OFFSETS, _start_within_segment)

    def write_cleaner_offsets(self) -> None:
        """Write the offsets up to which logs have been compacted. Raises KafkaError."""
        self.write(CLEANER_OFFSETS, self._cleaned())

    def begin_cleaner_offsets(self) -> Generator[None, None, CheckpointWrite | None]:
        """Begin to write them, in parts. Raises KafkaError."""
        return self.begin_in_parts(CLEANER_OFFSETS, _cleaned_to)

    def cleaner_offsets_differ(self) -> bool:
        """Whether the cleaner's checkpoint is missing, or has other offsets than the logs."""
        return CLEANER_OFFSETS not in self._contents or self._cleaned() != self._contents[CLEANER_OFFSETS]

    def _cleaned(self) -> Offsets:
        return {name: log.cleaned_to for name, log in self._logs() if log.cleaned_to >= 0}

    def on_truncation(self) -> None:
        """Write the checkpoints whose entries exceed the present offsets of a truncated log. Raises KafkaError."""
        logs = self._logs()
        for making in self._makings:
            making.check(logs)

        def exceed(name: str, present: Callable[[Log], int], absent: int) -> bool:
            return any(
                offsets.get(partition, absent) > present(log)
                for offsets in self._possible(name)
                for partition, log in logs
            )

        if exceed(RECOVERY_POINTS, lambda log: log.recovery_point, 0):
            self.write_recovery_points()
        if exceed(START_OFFSETS, lambda log: log.start_offset, 0):
            self.write_start_offsets()
        if exceed(CLEANER_OFFSETS, lambda log: log.cleaned_to, -1):
            self.write_cleaner_offsets()


def starts_within_segment(log: Log) -> bool:
    """Whether the first segment begins below the start of the log, so that only a checkpoint can store the start."""
    return log.start_offset > log.segments[0].base_offset


def _start_within_segment(_: TopicPartition, log: Log) -> int | None:
    return log.start_offset if starts_within_segment(log) else None


def _cleaned_to(_: TopicPartition, log: Log) -> int | None:
    return log.cleaned_to if log.cleaned_to >= 0 else None


def _recovery_point(_: TopicPartition, log: Log) -> int:
    return log.recovery_point
