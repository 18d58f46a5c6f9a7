"""Checkpoint writes: writes offset checkpoints in threads, so that the event loop does not wait for the disk.

A checkpoint that must be durable before the next append to a log is written on the loop by the storage itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator

from odradek.broker.replication.partition import Replicas, Worker
from odradek.broker.runtime.scheduler import Parts
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directory import Directory
from odradek.storage.log import Log
from odradek.storage.offset_checkpoints import CheckpointWrite, OffsetOf

log = logging.getLogger(__name__)

Written = Callable[[KafkaError | None], None]
CheckpointParts = Generator[None, None, CheckpointWrite | None]
"""The parts of the beginning of a write (`OffsetCheckpoints.begin_in_parts`)."""


def _ignore(error: KafkaError | None) -> None:
    """A scheduled task: the next one writes the checkpoint again."""


def high_watermarks_of(directory: Directory, replicas: Replicas) -> OffsetOf:
    """The high watermark of each log. Logs without a replica, because no control request has named them yet, keep that
    of the checkpoint.
    """
    noted = directory.high_watermarks

    def offset_of(name: TopicPartition, _: Log) -> int | None:
        replica = replicas.get(*name)
        return noted.get(name) if replica is None else replica.machine.high_watermark

    return offset_of


class CheckpointWrites:
    """The writes of all directories of a broker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._wanted: set[tuple[str, str]] = set()
        self._making: set[tuple[str, str]] = set()
        """The checkpoints of `write_soon` whose entries are being made."""

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

    def write_soon(self, directory: Directory, name: str, begin: Callable[[], CheckpointParts]) -> None:
        """Write the checkpoint `name` with the offsets that the logs have now, or later ones. Calls during a write are
        one more write after it.
        """
        key = directory.path, name
        if key in self._wanted:
            return
        self._wanted.add(key)
        if key not in self._making and not directory.checkpoints.is_writing(name):
            self._write_wanted(directory, name, begin)

    def _write_wanted(self, directory: Directory, name: str, begin: Callable[[], CheckpointParts]) -> None:
        key = directory.path, name

        def made(write: CheckpointWrite | KafkaError | None) -> None:
            self._making.discard(key)
            if isinstance(write, CheckpointWrite):
                self.start(directory, write, written)
            else:
                written(None)

        def written(_: KafkaError | None) -> None:
            if key in self._wanted and key not in self._making:
                self._write_wanted(directory, name, begin)

        self._wanted.discard(key)  # what is wanted from now on may have other offsets than the entries that are made
        self._making.add(key)
        self._make(begin(), made)

    def write_now(self, directory: Directory, parts: CheckpointParts, done: Written) -> None:
        """Make a checkpoint in parts and write it in a thread; call `done` on the loop when it is durable, or with the
        error of the disk.
        """

        def made(write: CheckpointWrite | KafkaError | None) -> None:
            if isinstance(write, CheckpointWrite):
                self.start(directory, write, done)
            else:
                done(write)

        self._make(parts, made)

    def _make(self, parts: CheckpointParts, made: Callable[[CheckpointWrite | KafkaError | None], None]) -> None:
        """Run the parts, with the event loop in between; call `made` with the write or with the error."""
        try:
            next(parts)
        except StopIteration as end:
            made(end.value)
        except KafkaError as error:
            log.error("log operation failed error=%s", error.message)
            made(error)
        else:
            asyncio.get_running_loop().call_soon(self._make, parts, made)

    def run(self, directory: Directory, name: str, parts: CheckpointParts) -> Parts:
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
