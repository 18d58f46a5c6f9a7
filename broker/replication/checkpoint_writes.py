"""Checkpoint writes: writes offset checkpoints in threads, so that the event loop does not wait for the disk.

A checkpoint that must be durable before the next append to a log is written on the loop by the storage itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator

from odradek.broker.replication.partition import Worker
from odradek.protocol.errors import KafkaError
from odradek.storage.directory import Directory
from odradek.storage.offset_checkpoints import CheckpointWrite

log = logging.getLogger(__name__)

Written = Callable[[KafkaError | None], None]


def _ignore(error: KafkaError | None) -> None:
    """A scheduled task: the next one writes the checkpoint again."""


class CheckpointWrites:
    """The writes of all directories of a broker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def start(self, directory: Directory, write: CheckpointWrite, done: Written = _ignore) -> None:
        """Write the checkpoint in a thread; call `done` on the loop with the error of the disk, which is logged."""

        def written(error: BaseException | None) -> None:
            failed: KafkaError | None = None
            try:
                directory.finish_checkpoint(write, error)
            except KafkaError as refused:
                log.error("log operation failed error=%s", refused.message)
                failed = refused
            done(failed)

        self._worker.run(write.run, written)

    def run(
        self, directory: Directory, name: str, parts: Generator[None, None, CheckpointWrite | None]
    ) -> Generator[None, None, None]:
        """A scheduled task that begins the write of the checkpoint `name` in parts, and writes it in a thread. It does
        nothing while the disk still needs time for the one before.
        """
        if directory.checkpoints.is_writing(name):
            return
        try:
            write = yield from parts
        except KafkaError as error:
            log.error("log operation failed error=%s", error.message)
            return
        if write is not None:
            self.start(directory, write)
