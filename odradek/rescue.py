"""`odradek dump-log --rescue`: lists what is readable in damaged or quarantined logs, and exports it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from odradek.storage.quarantine import REPORT
from odradek.storage.read_files import files_to_rescue
from odradek.storage.reading import Batch
from odradek.storage.rescue import Unreadable, pieces
from odradek.storage.segment import LOG_SUFFIX


class RescueError(Exception):
    """The export cannot be written, with the reason."""


class ReadableRun(NamedTuple):
    """Readable batches of a file that are adjacent, with ascending offsets; `end` is the position behind the last."""

    path: str
    position: int
    end: int
    batches: int
    records: int
    first_offset: int
    next_offset: int


class RescueExport:
    """A folder that receives the readable batches: for each folder of logs one of the same name, with segments."""

    def __init__(self, folder: Path) -> None:
        """The folder must be empty or missing. Raises RescueError, OSError."""
        if folder.exists() and any(folder.iterdir()):
            raise RescueError(f"{folder} is not empty: choose an empty folder for the export")
        self._folder = folder
        self._file: BinaryIO | None = None

    def begin(self, batch: Batch) -> None:
        """Begin a file for a run that starts with this batch."""
        self.end()
        log_name = os.path.basename(os.path.dirname(os.path.abspath(batch.path)))
        name = f"{batch.header.base_offset:020d}{LOG_SUFFIX}"
        number, path = 1, self._folder / log_name / name
        while path.exists():  # the same offsets once more: in a folder of their own
            number += 1
            path = self._folder / f"{log_name}.copy-{number}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")

    def add(self, batch: Batch) -> None:
        """Write the bytes of a batch."""
        assert self._file is not None
        self._file.write(batch.data[batch.start : batch.start + batch.header.size])

    def end(self) -> None:
        """Close the file of the last run."""
        if self._file is not None:
            self._file.close()
            self._file = None


NO_RUN: Final = ReadableRun("", 0, 0, 0, 0, 0, 0)


def rescue(paths: list[str], export: RescueExport | None = None) -> Iterator[str]:
    """Lines that describe each file and each quarantine report below `paths`. Raises OSError."""
    reported: set[str] = set()
    for path in paths:
        for file in files_to_rescue(path):
            folder = os.path.dirname(file)
            if folder not in reported:
                reported.add(folder)
                yield from _report(folder)
            yield from _file(file, export)


def _report(folder: str) -> Iterator[str]:
    """The items of the report in a quarantine entry."""
    try:
        report = json.loads((Path(folder) / REPORT).read_bytes())
        for item in report["items"]:
            yield f"{folder}/{item['file']}: from {item['source']} at byte {item['position']}: {item['reason']}"
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        yield f"{folder}/{REPORT}: cannot be read"


def _file(path: str, export: RescueExport | None) -> Iterator[str]:
    run = NO_RUN
    empty = True
    for piece in pieces(path):
        empty = False
        if isinstance(piece, Unreadable):
            yield from _line(run)
            run = NO_RUN
            yield f"{path}: unreadable, bytes {piece.position} to {piece.end}"
            continue
        header = piece.header
        if not run.batches or header.base_offset < run.next_offset:
            yield from _line(run)
            run = ReadableRun(path, piece.position, piece.position, 0, 0, header.base_offset, header.base_offset)
            if export is not None:
                export.begin(piece)
        if export is not None:
            export.add(piece)
        run = run._replace(
            end=piece.position + header.size,
            batches=run.batches + 1,
            records=run.records + header.record_count,
            next_offset=header.next_offset,
        )
    yield from _line(run)
    if empty:
        yield f"{path}: empty"
    if export is not None:
        export.end()


def _line(run: ReadableRun) -> Iterator[str]:
    if run.batches:
        yield (
            f"{run.path}: readable, {run.batches} batches, {run.records} records, "
            f"offsets {run.first_offset} to {run.next_offset}, bytes {run.position} to {run.end}"
        )
