"""Rolls: the files of the next segment of a log (Kafka: LocalLog.roll).

The indexes of the active segment are written, and the new segment gets a log file, two indexes and a snapshot of the
producers. Each of these calls may wait for the journal of the file system, for tens of milliseconds beside fsyncs of
other logs. So the batch of a client that needs a new segment waits until a thread has created it (`Log.start_roll`),
and the event loop serves others. All other appends create it at once, in the calling thread.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import LogConfig
from odradek.storage.disk import Folder
from odradek.storage.log_failures import OUT_OF_SPACE
from odradek.storage.producers import ProducerSnapshot
from odradek.storage.segment import Segment, deleted_log_name, remove_segment


class SegmentFull(KafkaError):  # noqa: N818 - named after the state of the log
    """A batch begins a new segment, which the caller creates before the append comes again; nothing has changed."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch begins a new segment")


class Roll:
    """Closes the active segment and creates the one behind it. `run` uses files only and may run in a thread."""

    __slots__ = ("_config", "_folder", "active", "segment", "snapshot", "syncs_indexes")

    def __init__(
        self, active: Segment, folder: Folder, base_offset: int, config: LogConfig, now_ms: int, jitter_ms: int
    ) -> None:
        """`now_ms` is the time at which the new segment is created, `jitter_ms` its part of `segment.jitter.ms`."""
        self._folder = folder
        self._config = config
        self.active = active
        self.segment = Segment(folder, base_offset, 0, config, fresh=True)
        self.segment.created_ms = now_ms
        self.segment.jitter_ms = jitter_ms
        self.snapshot: ProducerSnapshot | None = None
        """The state of the producers at the end of the active segment; None where there is a file of it already."""
        self.syncs_indexes = False
        """Whether no recovery reads the active segment again, so that its indexes have to be durable."""

    def run(self) -> None:
        """Do the work of the disk. Raises OSError; where there is no room, the new files are removed again."""
        if self.active.size:
            self.active.seal()
            if self.syncs_indexes:
                with _doubt():
                    self.active.sync_indexes()
        base_offset = self.segment.base_offset
        try:
            is_again = self._folder.exists(deleted_log_name(base_offset))
            self.segment.create_files(self._config)
            if is_again:
                self._folder.sync()  # beside the old file, a load takes the segment for a compacted one
            if self.snapshot is not None:
                self.snapshot.write(sync=False)
        except OSError as error:
            if error.errno in OUT_OF_SPACE:
                with _doubt():
                    remove_segment(self._folder, base_offset, self._config)
            raise


@contextmanager
def _doubt() -> Iterator[None]:
    """After a lack of room within, the log cannot continue: another error takes its place."""
    try:
        yield
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise OSError(errno.EIO, f"no room: {error}") from error
        raise
