"""Disk failures of a log: they take it offline, unless only room or a file descriptor was missing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.storage.checkpoints import CorruptFile
from odradek.storage.descriptors import NoDescriptor, is_exhausted
from odradek.storage.disk import Folder
from odradek.storage.segment import Segment

OUT_OF_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class LogFailures:
    """The part of a log that classifies errors of its disk; `failure` is the reason why it is offline."""

    __slots__ = ("failure", "folder", "partition", "topic")

    folder: Folder
    failure: str | None
    partition: int
    topic: str

    def _refuse(self) -> NoReturn:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic}-{self.partition} is offline: {self.failure}")

    def _fail(self, what: str, error: Exception) -> NoReturn:
        """Take the log offline, but not for lack of a descriptor. Raises KafkaError."""
        reason = f"{what} in {self.folder.path}"
        if is_exhausted(error):
            raise NoDescriptor(reason, error) from error
        if self.failure is None:
            self.failure = f"{reason}: {error}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure) from error

    @contextmanager
    def _disk(self, what: str) -> Iterator[None]:
        """Take the log offline where the disk fails within."""
        try:
            yield
        except (OSError, CorruptFile) as error:
            self._fail(what, error)
        except ProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{what} in {self.folder.path}: {error}") from None

    @contextmanager
    def _room(self, what: str) -> Iterator[None]:
        """Reject the call where the disk has no room within; the log continues. To be used in `_disk`."""
        try:
            yield
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            reason = f"no room for {what} in {self.folder.path}: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error

    def _undo(self, segment: Segment, size: int, error: OSError) -> NoReturn:
        """Truncate the rest of a failed write. After a lack of room the log can continue, after other errors not."""
        try:
            segment.undo_write(size)
        except OSError as second:
            self._fail("cutting off a failed write", second)
        if error.errno not in OUT_OF_SPACE:
            self._fail("writing", error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"no room to write to {self.folder.path}: {error}") from error
