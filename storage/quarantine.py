"""Quarantine of a data directory: keeps the bytes that a recovery removes from a log, with a report.

    __cluster_metadata-0/quarantine/TOPIC-PARTITION.N/
        report.json                what was removed, from which file and position, when and why
        BASE-from-POSITION.log     a copy of the bytes from POSITION on, which the segment BASE has no more
        BASE.log, BASE.index, …    a segment behind a broken batch, moved

Apache Kafka truncates these bytes and deletes these segments. No broker reads the quarantine; `odradek dump-log
--rescue` does. Kafka ignores a folder of the name `__cluster_metadata-0`, and refuses to start over any other folder
that is no log, so the quarantine is in it. In the first data directory of a single broker the metadata store is, too.

Everything is durable in the quarantine before the log is truncated. A crash in between leaves an entry that the next
recovery repeats under the next number. So a disk without room for the copy takes the directory offline.

The quarantine is bounded: each start removes the oldest entries until `KEPT_BYTES` are left, but none that is younger
than `KEPT_MS`. So a start never removes what itself or a recent one has put there.
"""

from __future__ import annotations

import errno
import json
import logging
import posixpath
from typing import Any, Final, NamedTuple

from odradek.storage.disk import Disk, Folder
from odradek.storage.segment import LOG_SUFFIX, Segment

_log = logging.getLogger(__name__)

QUARANTINE: Final = "__cluster_metadata-0/quarantine"
"""The path of the quarantine in a data directory."""
REPORT: Final = "report.json"
KEPT_BYTES: Final = 1 << 30
KEPT_MS: Final = 7 * 24 * 3600 * 1000
_COPIED_AT_ONCE: Final = 1 << 20


class QuarantineEntry(NamedTuple):
    """One entry: its folder's name, the time of its report in ms since 1970 (0 without a report), and its bytes."""

    name: str
    time_ms: int
    size: int


class Quarantine:
    """The entry that one load of a log makes; nothing is written before there is something to keep.

    `size` is the number of bytes of batches that were kept, and `path` that of the entry, None without one. Methods
    raise OSError.
    """

    __slots__ = ("_entry", "_items", "_log_folder", "_now_ms", "path", "size")

    def __init__(self, log_folder: Folder, now_ms: int) -> None:
        self._log_folder = log_folder
        self._now_ms = now_ms
        self._items: list[dict[str, Any]] = []
        self._entry: Folder | None = None
        self.path: str | None = None
        self.size = 0

    def keep_tail(self, segment: Segment, position: int, reason: str) -> None:
        """Copy the bytes of a segment from `position` to the end of its file, durably. Zeros are not kept."""
        if _is_zero(segment, position):
            return
        entry = self._begin()
        name = f"{segment.name.removesuffix(LOG_SUFFIX)}-from-{position}{LOG_SUFFIX}"
        size = _copy(segment, position, entry, name)
        self._note(entry, {"file": name, "source": segment.path, "position": position, "bytes": size}, reason)

    def keep_segment(self, segment: Segment, reason: str) -> None:
        """Move the files of a segment. The caller syncs the log's folder."""
        entry = self._begin()
        segment.close()
        self._note(entry, {"file": segment.name, "source": segment.path, "position": 0, "bytes": segment.size}, reason)
        for name in segment.file_names():
            _move(self._log_folder, entry, name)
        entry.sync()

    def _begin(self) -> Folder:
        if self._entry is None:
            disk, (parent, log_name) = self._log_folder.disk, posixpath.split(self._log_folder.path)
            quarantine = Folder(disk, f"{parent.rstrip('/')}/{QUARANTINE}")
            disk.make_directory(quarantine.path)
            numbers = [each.name.rpartition(".")[2] for each in quarantine.list() if each.name.startswith(log_name)]
            number = max((int(each) for each in numbers if each.isdecimal()), default=0) + 1
            self._entry = Folder(disk, quarantine / f"{log_name}.{number}")
            disk.make_directory(self._entry.path)
            for path in (quarantine.path, posixpath.dirname(quarantine.path), parent or "/"):
                disk.sync_directory(path)
            self.path = self._entry.path
        return self._entry

    def _note(self, entry: Folder, item: dict[str, Any], reason: str) -> None:
        """Write the report, which makes the names in the entry durable, too."""
        self._items.append({**item, "reason": reason})
        self.size += item["bytes"]
        report = {
            "version": 1,
            "log": self._log_folder.path,
            "time_ms": self._now_ms,
            "bytes": self.size,
            "items": self._items,
        }
        entry.replace(REPORT, (json.dumps(report, indent=1) + "\n").encode(), sync=True)


def entries(disk: Disk, directory: str) -> list[QuarantineEntry]:
    """The entries of the quarantine of a data directory, the oldest first. Raises OSError."""
    quarantine = Folder(disk, f"{directory}/{QUARANTINE}")
    if not disk.exists(quarantine.path):
        return []
    found = []
    for each in quarantine.list():
        if each.is_directory:
            entry = Folder(disk, quarantine / each.name)
            found.append(QuarantineEntry(each.name, _time_of(entry), sum(file.size for file in entry.list())))
    return sorted(found, key=lambda entry: (entry.time_ms, entry.name))


def prune(disk: Disk, directory: str, now_ms: int) -> None:
    """Remove the oldest entries until `KEPT_BYTES` are left, but none younger than `KEPT_MS`.

    An entry that cannot be removed stays; no data directory goes offline because of it.
    """
    try:
        present = entries(disk, directory)
        left = sum(entry.size for entry in present)
        for entry in present:
            if left <= KEPT_BYTES or now_ms - entry.time_ms < KEPT_MS:
                return
            path = f"{directory}/{QUARANTINE}/{entry.name}"
            _log.warning("removing an old quarantine entry path=%s bytes=%d", path, entry.size)
            disk.remove_directory(path)
            left -= entry.size
    except OSError as error:
        _log.warning("cannot remove old quarantine entries directory=%s error=%s", directory, error)


def quarantined_bytes(disk: Disk, directory: str) -> int:
    """The bytes in the quarantine of a data directory, as far as it can be read."""
    try:
        return sum(entry.size for entry in entries(disk, directory))
    except OSError as error:
        _log.warning("cannot read the quarantine directory=%s error=%s", directory, error)
        return 0


def _time_of(entry: Folder) -> int:
    try:
        return int(json.loads(entry.read(REPORT) or b"{}").get("time_ms", 0))
    except (ValueError, AttributeError, TypeError):
        return 0


def _is_zero(segment: Segment, position: int) -> bool:
    """Whether only zeros follow: a preallocated file, or the end of one after a loss of power."""
    while data := segment.file.read(_COPIED_AT_ONCE, position):
        if data.strip(b"\0"):
            return False
        position += len(data)
    return True


def _copy(segment: Segment, position: int, entry: Folder, name: str) -> int:
    target = entry.open(name)
    size = 0
    try:
        while data := segment.file.read(_COPIED_AT_ONCE, position + size):
            target.write(data, size)
            size += len(data)
        target.sync()
    finally:
        target.close()
    return size


def _move(source: Folder, entry: Folder, name: str) -> None:
    if not source.exists(name):
        return
    try:
        source.disk.rename(source / name, entry / name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The log's folder is a link to another file system.
        entry.replace(name, source.disk.read(source / name), sync=True)
        source.remove(name)
