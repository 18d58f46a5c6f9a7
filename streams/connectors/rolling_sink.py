"""Rolling sink: collects the records of each partition and publishes them as files, exactly once.

The name of a file has the first offset of its records, and the file its last one. A file is published whole, in one
atomic step, and only if no file has its name. So the published files are the sink's offsets: it continues behind the
last one, and a process that is late (its partition has moved to another one, which continued at the same offset) finds
the name taken, and is fenced.

    <topic>/partition=<partition>/<topic>+<partition>+<first offset, 20 digits>.<format>
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.errors import ConnectError
from odradek.streams.connectors.file_formats import FileFormat, file_format
from odradek.streams.connectors.interface import Sink, SinkRecord


class RollingSink(Sink):
    """What sinks of files and of objects share. They publish at each flush (commit.interval.ms), and before that once
    a partition has `roll_records` records.
    """

    stores_offsets = True

    def __init__(self, format: str | FileFormat, roll_records: int) -> None:
        """Raises ValueError, MissingExtraError."""
        if roll_records < 1:
            raise ValueError(f"roll_records is {roll_records}; expected a number of at least 1")
        self.format = file_format(format)
        self._roll_records = roll_records
        self._rows: dict[TopicPartition, list[tuple[int, Any]]] = {}
        """The offsets and rows that are not published yet."""

    def open(self, group: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Sink."""
        self._rows = {place: [] for place in partitions}
        found = {place: self._next_offset(place) for place in partitions}
        return {place: offset for place, offset in found.items() if offset is not None}

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See Sink."""
        encoded = [(each.topic_partition, each.offset, self.format.row(each)) for each in records]
        self._publish_rows(self._roll_records)  # before the records are taken: a failure must take none of them
        for place, offset, row in encoded:
            self._rows[place].append((offset, row))

    def flush(self) -> None:
        """See Sink."""
        self._publish_rows(1)

    def close(self) -> None:
        """See Sink."""
        self._rows.clear()

    def _publish_rows(self, least: int) -> None:
        """Publish the rows of each partition that has at least so many."""
        for place, rows in self._rows.items():
            while len(rows) >= least:
                part = rows[: self._roll_records]
                name = f"{folder_of(place)}{place[0]}+{place[1]}+{part[0][0]:020d}{self.format.suffix}"
                self._publish(name, self.format.content([row for _, row in part]), part[-1][0] + 1)
                del rows[: len(part)]

    @abstractmethod
    def _next_offset(self, place: TopicPartition) -> int | None:
        """The offset behind the last file of a partition; None where there is none."""

    @abstractmethod
    def _publish(self, name: str, content: bytes, next_offset: int) -> None:
        """Create a file with this name below the sink's folder. Raises FencedError where it exists."""


def folder_of(place: TopicPartition) -> str:
    """The folder of a partition, with a slash at its end."""
    return f"{place[0]}/partition={place[1]}/"


def checked_name(last: str | None, suffix: str) -> str | None:
    """The name of the last file. Raises ConnectError where it has another format."""
    if last is not None and not last.endswith(suffix):
        raise ConnectError(
            f"the last file of the partition is {last}, which is no *{suffix}: use the same format, or another folder"
        )
    return last
