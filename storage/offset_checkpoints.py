"""Offset checkpoints of a data directory, each with an offset for every log (Kafka: OffsetCheckpointFile)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping
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

_log = logging.getLogger(__name__)
LOGS_AT_ONCE: Final = 1000
"""Logs whose entries are made at once: two milliseconds."""
OffsetOf = Callable[[TopicPartition, Log], int | None]
"""The offset of a log for a checkpoint; None: the log has no entry."""
_CHECKPOINTS: Final = (RECOVERY_POINTS, HIGH_WATERMARKS, START_OFFSETS, CLEANER_OFFSETS)


class OffsetCheckpoints:
    """The checkpoint files of one directory, and their contents."""

    __slots__ = ("_contents", "_failure", "_folder", "_logs")

    def __init__(
        self, folder: Folder, failure: DirectoryFailure, logs: Callable[[], list[tuple[TopicPartition, Log]]]
    ) -> None:
        """`logs` returns all logs of the directory, with the future ones."""
        self._folder = folder
        self._logs = logs
        self._failure = failure
        self._contents: dict[str, Offsets] = {}

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

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint, durably. Raises KafkaError."""
        self._replace(name, encode_offsets(offsets), dict(offsets))

    def _replace(self, name: str, data: bytes, offsets: Offsets) -> None:
        self._failure.refuse_if_offline()
        with self._failure.guard(f"writing {name}"):
            self._folder.replace(name, data, sync=True)
        self._contents[name] = offsets

    def write_in_parts(
        self, name: str, offset_of: OffsetOf, *, if_changed: bool = False
    ) -> Generator[None, None, None]:
        """Replace a checkpoint, durably, with an offset of each log, in parts of LOGS_AT_ONCE logs. Raises KafkaError.

        The last part writes the logs and the offsets of that moment: the other parts only make the text of the entries,
        which takes most of the time. With `if_changed` the file stays if it has these offsets already.
        """
        made: list[tuple[TopicPartition, Log, int | None, str]] = []
        for count, (partition, log) in enumerate(self._logs(), 1):
            offset = offset_of(partition, log)
            made.append((partition, log, offset, encode_offset(partition, offset)))
            if not count % LOGS_AT_ONCE:
                yield
        offsets: Offsets = {}
        lines = []
        logs = dict(self._logs())
        for partition, log, before, line in made:
            offset = offset_of(partition, log) if logs.get(partition) is log else None
            if offset is not None:
                offsets[partition] = offset
                lines.append(line if offset == before else encode_offset(partition, offset))
        if not (if_changed and offsets == self.offsets(name)):
            self._replace(name, encode_rows(lines), offsets)

    def remove_stale(self, partition: TopicPartition, logs: Collection[TopicPartition]) -> None:
        """Write each checkpoint that has an entry of `partition` anew, with the entries of `logs` only.

        The entry is that of a log that was deleted or has moved away. Raises KafkaError.
        """
        for name, offsets in self._contents.items():
            if partition in offsets:
                self.write(name, {each: offsets[each] for each in offsets if each in logs})

    def write_recovery_points(self) -> None:
        """Write the recovery points: each log is on stable storage below its own. Raises KafkaError."""
        for _ in self.write_recovery_points_in_parts():
            pass

    def write_recovery_points_in_parts(self) -> Generator[None, None, None]:
        """The same in parts. Raises KafkaError."""
        return self.write_in_parts(RECOVERY_POINTS, lambda _, log: log.recovery_point)

    def write_start_offsets(self) -> None:
        """Write the start offsets of logs that begin within a segment. Raises KafkaError."""
        self.write(START_OFFSETS, {name: log.start_offset for name, log in self._logs() if starts_within_segment(log)})

    def write_cleaner_offsets(self) -> None:
        """Write the offsets up to which logs have been compacted. Raises KafkaError."""
        self.write(CLEANER_OFFSETS, self._cleaned())

    def cleaner_offsets_differ(self) -> bool:
        """Whether the cleaner's checkpoint is missing, or has other offsets than the logs."""
        return CLEANER_OFFSETS not in self._contents or self._cleaned() != self._contents[CLEANER_OFFSETS]

    def _cleaned(self) -> Offsets:
        return {name: log.cleaned_to for name, log in self._logs() if log.cleaned_to >= 0}

    def on_truncation(self) -> None:
        """Write the checkpoints whose entries exceed the present offsets of a truncated log. Raises KafkaError."""
        logs = self._logs()
        if any(self.offsets(RECOVERY_POINTS).get(name, 0) > log.recovery_point for name, log in logs):
            self.write_recovery_points()
        if any(self.offsets(START_OFFSETS).get(name, 0) > log.start_offset for name, log in logs):
            self.write_start_offsets()
        if any(self.offsets(CLEANER_OFFSETS).get(name, -1) > log.cleaned_to for name, log in logs):
            self.write_cleaner_offsets()


def starts_within_segment(log: Log) -> bool:
    """Whether the first segment begins below the start of the log, so that only a checkpoint can store the start."""
    return log.start_offset > log.segments[0].base_offset
