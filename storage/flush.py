"""The part of a flush that waits for the disk (`flush.messages`, `flush.ms`, and after every roll).

A log collects the files to be made durable and continues. `Flush.run` waits for the disk, in a thread where there is an
event loop. Then the caller passes the finished flush to the log, which moves its recovery point. A flush covers
everything that was written before it began, so any number of waiting acknowledgements share one.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.storage.disk import File, Folder
from odradek.storage.producers import snapshot_name
from odradek.storage.segments import LogSegments


class Flush:
    """The part of a flush that waits for the disk. `run` uses files only and may run in a thread."""

    __slots__ = ("_files", "_folder", "_names", "_syncs_directory", "_truncations", "end_offset", "rolls")

    def __init__(self, folder: Folder, end_offset: int, truncations: int, rolls: int = 0) -> None:
        """`rolls` is how often the log has rolled: with `add_directory` the names of these segments become durable."""
        self.end_offset = end_offset
        self.rolls = rolls
        self._truncations = truncations
        self._folder = folder
        self._files: list[File] = []
        self._names: list[str] = []
        self._syncs_directory = False

    def add_segments(self, segments: LogSegments, recovery_point: int, *, rolled_only: bool) -> None:
        """Include the segments that are not durable, without the active one if `rolled_only`. Raises OSError."""
        # From the last durable byte on: that segment may have been truncated since, which needs a sync as well.
        for segment in segments.holding(recovery_point - 1):
            if segment is not segments.active:
                self._names.extend(segment.file_names()[1:])
            elif rolled_only:
                continue
            self._files.append(segment.file)

    def add_file(self, name: str) -> None:
        """Include another file of the folder."""
        self._names.append(name)

    def add_directory(self) -> None:
        """Include the names of the files in the folder."""
        self._syncs_directory = True

    def add_snapshots(self, offsets: Iterable[int]) -> None:
        """Include snapshots of the producers."""
        self._names.extend(map(snapshot_name, offsets))

    def still_counts(self, truncations: int) -> bool:
        """Whether the log has not been truncated since the flush began; else its offsets may mean other records."""
        return truncations == self._truncations

    def settle(self, segments: LogSegments) -> None:
        """Make durable what only a roll during the flush has written: the indexes of the segment that ends where the
        flush does, since no recovery reads them again. Raises OSError.
        """
        if self.end_offset == segments.active.base_offset and len(segments) > 1:
            rolled = segments.holding(self.end_offset - 1)[0]
            if not set(rolled.file_names()[1:]) <= set(self._names):
                rolled.sync_indexes()

    def run(self) -> None:
        """Wait until all is on stable storage. Raises OSError; then the caller must take the log offline."""
        for file in self._files:
            file.sync()
        for name in self._names:
            self._folder.sync_file(name)
        if self._names or self._syncs_directory:
            self._folder.sync()
