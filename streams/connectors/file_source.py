"""File source: reads the lines of files in a folder and follows what is appended to them (Kafka: FileStreamSourceTask).

A file is a source partition, {"file": name}; its offset is {"position": bytes}, behind the last line that was read. A
line counts once it has its end. A file that has become shorter was truncated and is read from its beginning.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from odradek.streams.connectors.errors import ConnectError, RetriableError
from odradek.streams.connectors.interface import Source, SourceOffset, SourcePartition, SourceRecord

log = logging.getLogger(__name__)

_BLOCK: Final = 256 * 1024
"""How many bytes of a file are read at a time."""


class _OpenFile:
    """One file and the position behind the last line that was returned."""

    def __init__(self, path: Path, partition: SourcePartition, position: int, has_header: bool) -> None:
        self.partition = partition
        self._path = path
        self._has_header = has_header
        self._file: BinaryIO | None = None
        self.position = position
        self.header: list[str] | None = None
        """The names of the columns of a CSV file."""

    def lines(self, most: int) -> list[tuple[str, int]]:
        """The next complete lines, without their ends, and the position behind each. Raises OSError, ConnectError."""
        if self._file is None:
            self._file = self._path.open("rb")
        size = self._path.stat().st_size
        if size < self.position:
            log.warning("file truncated file=%s size=%d position=%d", self._path, size, self.position)
            self.position, self.header = 0, None
            self.close()
            return self.lines(most)
        if self._has_header and self.header is None and not self._read_header():
            return []
        found = []
        for raw, position in self._complete(self.position, most):
            found.append((self._decode(raw), position))
            self.position = position
        return found

    def close(self) -> None:
        """Close the file; the next `lines` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_header(self) -> bool:
        """Whether the file has its first line."""
        for raw, position in self._complete(0, 1):
            self.header = next(csv.reader([self._decode(raw)]))
            self.position = max(self.position, position)
        return self.header is not None

    def _complete(self, position: int, most: int) -> list[tuple[bytes, int]]:
        """Lines from a position on, and the position behind each."""
        assert self._file is not None
        self._file.seek(position)
        data = self._file.read(_BLOCK)
        while len(data) % _BLOCK == 0 and b"\n" not in data:  # a line longer than a block
            more = self._file.read(_BLOCK)
            if not more:
                break
            data += more
        *lines, _ = data.split(b"\n")  # the last part has no end yet
        found = []
        for line in lines[:most]:
            position += len(line) + 1
            found.append((line.removesuffix(b"\r"), position))
        return found

    def _decode(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ConnectError(f"{self._path} has a line that is not UTF-8, before position {self.position}") from error


class FileSource(Source):
    """Reads files of lines, JSON lines or CSV."""

    def __init__(
        self,
        folder: str | Path,
        topic: str,
        *,
        pattern: str = "*",
        format: str = "lines",
        key: str | Callable[[Any], Any] | None = None,
    ) -> None:
        """`pattern` selects files in the folder. `format` is lines (a value is a str), json (one JSON value a line) or
        csv (a value is a dict of str; the first line of a file has the names; a row is one line). `key` is the name of
        a field, or a function of the value. Raises ValueError.
        """
        parsers: Mapping[str, Callable[[str, _OpenFile], Any]] = {
            "lines": lambda line, _: line,
            "json": lambda line, _: json.loads(line),
            "csv": _row,
        }
        if format not in parsers:
            raise ValueError(f"format is {format!r}; expected one of {', '.join(parsers)}")
        self._folder = Path(folder)
        self._topic = topic
        self._pattern = pattern
        self._has_header = format == "csv"
        self._parse = parsers[format]
        self._key = key
        self._files: list[_OpenFile] = []

    def partitions(self) -> Iterable[SourcePartition]:
        """See Source."""
        return [{"file": each.name} for each in sorted(self._folder.glob(self._pattern)) if each.is_file()]

    def open(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        """See Source."""
        position = 0 if offset is None else int(offset["position"])
        self._files.append(_OpenFile(self._folder / partition["file"], dict(partition), position, self._has_header))

    def poll(self, max_records: int, timeout_s: float) -> Sequence[SourceRecord]:
        """See Source. The lines are of one file; the next call begins with the next one."""
        for _ in range(len(self._files)):
            file = self._files.pop(0)
            self._files.append(file)
            try:
                lines = file.lines(max_records)
            except FileNotFoundError:  # it was removed; its name may come back
                file.close()
                continue
            except OSError as error:
                raise RetriableError(f"cannot read {file.partition['file']}: {error}") from error
            if lines:
                return [self._record(file, line, position) for line, position in lines]
        return ()

    def close(self) -> None:
        """See Source."""
        for file in self._files:
            file.close()
        self._files.clear()

    def _record(self, file: _OpenFile, line: str, position: int) -> SourceRecord:
        try:
            value = self._parse(line, file)
            key = self._key(value) if callable(self._key) else None if self._key is None else value[self._key]
        except Exception as error:
            name = file.partition["file"]
            raise ConnectError(
                f"the line of {name} that ends at position {position} cannot be read: {error!r}"
            ) from error
        return SourceRecord(self._topic, key, value, file.partition, {"position": position})


def _row(line: str, file: _OpenFile) -> dict[str, str]:
    assert file.header is not None
    values = next(csv.reader([line]), [])
    if len(values) != len(file.header):
        raise ValueError(f"{len(values)} values, but the header has {len(file.header)} names")
    return dict(zip(file.header, values, strict=True))
