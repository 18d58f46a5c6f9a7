"""A large batch that a thread writes before the log appends it, so that the append takes no time for its bytes.

The log of a partition has one writer, the event loop, which a write of 100 MB would hold for as long as the system
copies the bytes: 30 to 130 milliseconds. So a thread writes a large batch into a file of its own in the folder of the
log. The append then only sets offset and epoch in the header, and the file becomes a segment: it takes the name of the
segment that begins with the batch. Until then a load removes the file, as each one whose replacement was interrupted.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Final

from odradek.storage.disk import TEMPORARY_SUFFIX, Buffer, Folder

STAGED_BYTES: Final = 8 << 20
"""Larger batches are written by a thread."""
_PART_BYTES: Final = 1 << 20
"""Written with one call: a disk may take a while for each."""
_numbers: Final = itertools.count()


class StagedBatch:
    """The file of a batch that is not appended yet; it is removed with the last reference, unless a segment has it."""

    __slots__ = ("file", "folder", "name")

    def __init__(self, folder: Folder, data: memoryview) -> None:
        """Write `data` into a new file of a log's folder; safe in a thread. Raises OSError."""
        self.folder = folder
        self.name = f"batch-{next(_numbers)}{TEMPORARY_SUFFIX}"
        folder.remove(self.name)
        self.file = folder.open(self.name)
        for begin in range(0, len(data), _PART_BYTES):
            self.file.write(data[begin : begin + _PART_BYTES], begin)

    def become(self, name: str, head: Buffer) -> None:
        """Write the final first bytes, and give the file this name in place of its own; a file that has the name is
        replaced. Raises OSError.
        """
        self.file.write(head, 0)
        self.folder.disk.rename(self.folder / self.name, self.folder / name)
        self.name = ""

    def __del__(self) -> None:
        name = getattr(self, "name", "")
        if name:
            with contextlib.suppress(OSError):  # the next load of the log removes it
                self.folder.remove(name)
