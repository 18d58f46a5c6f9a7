"""File sink: writes topics as JSON lines or Parquet into a folder, exactly once (the files: `rolling_sink.py`).

A file is written under a temporary name, synced, and linked to its name: the link is atomic, and fails where the name
exists. The file system has to support hard links.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.errors import ConnectError, FencedError, RetriableError
from odradek.streams.connectors.file_formats import FileFormat
from odradek.streams.connectors.rolling_sink import RollingSink, checked_name, folder_of

_TEMPORARY: Final = ".tmp-"


class FileSink(RollingSink):
    """Writes files below a folder."""

    def __init__(self, folder: str | Path, *, format: str | FileFormat = "jsonl", roll_records: int = 100_000) -> None:
        """`format` is jsonl or parquet; a file has at most `roll_records` records. Raises ValueError,
        MissingExtraError.
        """
        super().__init__(format, roll_records)
        self._folder = Path(folder)

    def open(self, group: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Sink."""
        for place in partitions:
            folder = self._folder / folder_of(place)
            folder.mkdir(parents=True, exist_ok=True)
            for left in folder.glob(f"{_TEMPORARY}*"):  # of a process that has ended, or is fenced by this
                left.unlink(missing_ok=True)
        return super().open(group, partitions)

    def _next_offset(self, place: TopicPartition) -> int | None:
        folder = self._folder / folder_of(place)
        names = [each.name for each in folder.iterdir() if not each.name.startswith(_TEMPORARY)]
        last = checked_name(max(names, default=None), self.format.suffix)
        if last is None:
            return None
        try:
            return self.format.last_offset((folder / last).read_bytes()) + 1
        except (ValueError, KeyError, OSError) as error:
            raise ConnectError(f"cannot read the last offset of {folder / last}: {error!r}") from error

    def _publish(self, name: str, content: bytes, next_offset: int) -> None:
        path = self._folder / name
        temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
            _sync_folder(path.parent)
        except (FileExistsError, FileNotFoundError) as error:
            raise FencedError(f"another process has taken over the partition of {path}: {error}") from error
        except OSError as error:
            raise RetriableError(f"cannot write {path}: {error}") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
