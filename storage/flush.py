"""The part of a flush that waits for the disk (`flush.messages`, `flush.ms`, and after every roll).

A log says what is to be made durable and goes on; `Flush.run` waits for the disk, in a thread where there is a loop to
keep going; its end is told to the log, which then moves its recovery point. Whatever was written before the flush began
is covered by it, so any number of waiting acknowledgements share one.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.storage.disk import File, Folder
from odradek.storage.producers import snapshot_name
from odradek.storage.segments import Segments


class Flush:
    """The part of a flush that waits for the disk. `run` touches nothing but files and may run in a thread."""

    __slots__ = ("_files", "_folder", "_names", "_truncations", "end_offset")

    def __init__(self, folder: Folder, end_offset: int, truncations: int) -> None:
        self.end_offset = end_offset
        self._truncations = truncations
        self._folder = folder
        self._files: list[File] = []
        self._names: list[str] = []

    def add_segments(self, segments: Segments, recovery_point: int, *, rolled_only: bool) -> None:
        """Include what is not durable of a log, without the active segment if `rolled_only`. Raises OSError."""
        # From the last byte that is durable on: that segment's end may have been cut since, which is a write too.
        for segment in segments.holding(recovery_point - 1):
            if segment is not segments.active:
                self._names.extend(segment.file_names()[1:])
            elif rolled_only:
                continue
            self._files.append(segment.file)

    def add_file(self, name: str) -> None:
        """Include another file of the folder."""
        self._names.append(name)

    def add_snapshots(self, offsets: Iterable[int]) -> None:
        """Include snapshots of the producers."""
        self._names.extend(map(snapshot_name, offsets))

    def still_counts(self, truncations: int) -> bool:
        """Whether the log has not been cut since the flush began; else the offsets may stand for other records."""
        return truncations == self._truncations

    def settle(self, segments: Segments) -> None:
        """Make durable what only a roll during the flush has written: the indexes of the segment that ends where the
        flush does, for no recovery will look at them. Raises OSError.
        """
        if self.end_offset == segments.active.base_offset and len(segments) > 1:
            rolled = segments.holding(self.end_offset - 1)[0]
            if not set(rolled.file_names()[1:]) <= set(self._names):
                rolled.sync_indexes()

    def run(self) -> None:
        """Wait until all is on stable storage. Raises OSError, after which the log must be failed."""
        for file in self._files:
            file.sync()
        if self._names:
            for name in self._names:
                self._folder.sync_file(name)
            self._folder.sync()
