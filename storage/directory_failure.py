"""Failure of a data directory: which errors of its disk take it offline (Kafka: LogDirFailureChannel)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.descriptors import NoDescriptor, is_exhausted

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class DirectoryFailure:
    """Whether the directory at `path` is offline: `reason` is None while it is online."""

    __slots__ = ("_on_failure", "_path", "reason")

    def __init__(self, path: str, on_failure: Callable[[str], None]) -> None:
        """`on_failure` is called with the reason when the directory goes offline."""
        self._path = path
        self._on_failure = on_failure
        self.reason: str | None = None

    def fail(self, reason: str) -> None:
        """Take the directory offline; the first reason stays."""
        if self.reason is None:
            self.reason = reason
            self._on_failure(reason)

    def refuse_if_offline(self) -> None:
        """Raise KafkaError KAFKA_STORAGE_ERROR where the directory is offline."""
        if self.reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._path} is offline: {self.reason}")

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Take the directory offline where the disk fails within, but not for a lack of room or of descriptors."""
        try:
            yield
        except OSError as error:
            if is_exhausted(error):
                raise NoDescriptor(f"{what} in {self._path}", error) from error
            reason = f"{what} in {self._path}: {error}"
            if error.errno not in _NO_ROOM:
                self.fail(reason)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error

    @contextmanager
    def guard_opening(self) -> Iterator[None]:
        """Take the directory offline where the disk fails within, or has no room; raise nothing then."""
        try:
            with self.guard("opening"):
                yield
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            self.fail(error.message)
