"""Task state: opens, restores and closes the stores of one task (Kafka: ProcessorStateManager).

Stores outlive the role of their task. A standby that becomes active keeps its open stores with their changelog
positions; so does an active task that becomes a standby.

A checkpoint is written when stores have moved far, and at the close; after a crash the stores may be ahead of it, and
restoration writes the same values again. With exactly-once processing the stores of a running task may contain
uncommitted records; so the checkpoint is removed before the task begins to run, and written at a clean close only. A
store that is on disk without a checkpoint is removed and restored from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.context import TaskContext
from odradek.streams.errors import LockError, StoreFormatError, StreamsError, of_task
from odradek.streams.recorded_metrics import RecordedStat
from odradek.streams.records import TaskId
from odradek.streams.running import checkpoints
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.running.store_formats import OF_OTHER_BYTES, StoreFormats, describe, format_of
from odradek.streams.stores.interface import WAY_OUT
from odradek.streams.stores.keyvalue import directory_of
from odradek.streams.stores.keyvalue import wipe as wipe_store
from odradek.streams.topology import Subtopology, Topology, make_store

log = logging.getLogger(__name__)

FAR: Final = 10_000
"""Records of changelogs after which a checkpoint is worth its fsync (OFFSET_DELTA_THRESHOLD_FOR_CHECKPOINT)."""


class TaskState:
    """One task's stores."""

    def __init__(
        self,
        topology: Topology,
        subtopology: Subtopology,
        context: TaskContext,
        changelogs: Mapping[str, TopicPartition],
        directory: StateDirectory,
        exactly_once: bool,
    ) -> None:
        """Opens nothing yet. `changelogs` maps each store to the partition that logs it."""
        self.task_id: TaskId = context.task_id
        self.context = context
        self.changelogs = dict(changelogs)
        self.stores: dict[str, Any] = {}
        self.restored = RecordedStat()
        """The number of restored changelog records."""
        self.positions: dict[TopicPartition, int] = {}
        """The offset of the last record of each changelog that is in its store; no entry for an empty store."""
        self.limits: dict[TopicPartition, int] = {}
        """For changelogs that are source topics: the committed offset of the application. No store may be ahead of
        it.
        """
        self.source_changelogs = frozenset(
            place for store, place in self.changelogs.items() if store in topology.source_changelogs
        )
        """Changelogs that are source topics of the task."""
        self._running = False
        self._builders = [topology.stores[name] for name in subtopology.stores]
        self._directory = directory
        self._exactly_once = exactly_once
        self._written: dict[TopicPartition, int] = {}

    def open(self) -> None:
        """Open the stores at the positions of their checkpoint.

        Raises LockError while another thread has locked the directory, StoreFormatError where it has the state of
        another kind of store, or the error of a store; then no store is open.
        """
        if not self._builders:
            return
        if not self._directory.lock(self.task_id):
            raise LockError(f"task {self.task_id}: its directory is still in use by another thread")
        try:
            path = self._directory.task(self.task_id)
            self.context.store_dir = self.context.state_dir = path
            known, formats = self._read_checkpoint(path), StoreFormats(path)
            for builder in self._builders:
                if getattr(builder, "persistent", False):
                    found = format_of(builder, self.context.config)
                    formats.check(builder.name, found, directory_of(path, builder.name))
                with of_task(self.task_id):
                    self._open_store(builder, path, known)
        except BaseException:
            self._close_stores()
            self._directory.unlock(self.task_id)
            raise
        self._written = dict(self.positions)

    def _read_checkpoint(self, path: Path) -> Mapping[TopicPartition, int]:
        try:
            return checkpoints.read(path)
        except checkpoints.CheckpointError as error:
            log.warning("restoring stores from the beginning task=%s error=%s", self.task_id, error)
            return {}

    def _open_store(self, builder: Any, path: Path, known: Mapping[TopicPartition, int]) -> None:
        changelog = self.changelogs.get(builder.name)
        store = make_store(builder, self.context.config)
        if changelog is not None and store.persistent:
            if known.get(changelog, checkpoints.OFFSET_UNKNOWN) >= 0:
                self.positions[changelog] = known[changelog]
            else:  # it may hold records that were never committed or are no longer in its changelog
                wipe_store(path, builder.name)
        self.stores[builder.name] = store
        store.init(self.context)
        if changelog is not None and changelog not in self.source_changelogs:
            self.context.changelog(builder.name, changelog[0])

    def begin(self) -> None:
        """The task runs from now on, and its stores may be ahead of the committed offsets. Raises OSError."""
        self._running = True
        if self._exactly_once and self._builders:
            checkpoints.remove(self._directory.task(self.task_id))

    @property
    def wanting(self) -> dict[TopicPartition, Any]:
        """The logged stores, by changelog."""
        return {changelog: self.stores[name] for name, changelog in self.changelogs.items() if name in self.stores}

    def not_restored(self, store: str, where: str, error: Exception) -> StreamsError:
        """The error of a store that records of its changelog could not be written to; `where` is their place."""
        text = f"task {self.task_id}: {store} cannot be restored from {where}"
        if not isinstance(error, OF_OTHER_BYTES):
            return StreamsError(f"{text}: {error!r}")
        (builder,) = (each for each in self._builders if each.name == store)
        wanted = describe(format_of(builder, self.context.config))
        return StoreFormatError(f"{text}: its records are not those of a {wanted}: {error!r}. {WAY_OUT}")

    def learn(self, ends: Mapping[TopicPartition, int]) -> None:
        """Set the positions: the stores contain these changelogs up to these end offsets, which the task wrote
        itself.
        """
        own = self.wanting.keys() & ends.keys()
        self.positions.update({each: ends[each] - 1 for each in own if ends[each] > 0})

    def checkpoint(self) -> None:
        """Write the positions if the stores have moved far; with exactly-once processing never while the task runs.

        Raises StreamsError, OSError.
        """
        if self.stores and not (self._exactly_once and self._running) and self._moved() > FAR:
            self._write()

    def close(self, clean: bool) -> None:
        """Close the stores and unlock the directory. After a clean close the checkpoint contains their positions.

        Otherwise, with exactly-once processing, the positions of a running task's stores are invalid, and the stores
        are removed. Raises the first error of a store once all are closed.
        """
        if not self.stores:
            return
        try:
            if clean:
                self._write()
        finally:
            failed = self._close_stores()
            if self._exactly_once and self._running and (failed is not None or not clean):
                self._directory.wipe(self.task_id)
            self._running = False
            self._directory.unlock(self.task_id)
        if failed is not None:
            raise failed

    def wipe(self) -> None:
        """Close the stores and remove their contents: they do not agree with their changelogs. Raises OSError."""
        failed = self._close_stores()
        if failed is not None:
            log.warning("error while closing a corrupted store task=%s error=%r", self.task_id, failed)
        self.positions, self._running = {}, False
        self._directory.wipe(self.task_id)
        self._directory.unlock(self.task_id)

    def _close_stores(self) -> Exception | None:
        """Returns the first error."""
        failed: Exception | None = None
        for store in self.stores.values():
            try:
                store.close()
            except Exception as error:
                failed = failed or error
        self.stores = {}
        return failed

    def _persistent(self) -> dict[TopicPartition, int]:
        """The positions of the stores that are on disk."""
        changelogs = (self.changelogs.get(name) for name, store in self.stores.items() if store.persistent)
        return {each: self.positions[each] for each in changelogs if each is not None and each in self.positions}

    def _moved(self) -> int:
        return sum(offset - self._written.get(each, -1) for each, offset in self._persistent().items())

    def _write(self) -> None:
        offsets = self._persistent()
        for store in self.stores.values():
            store.flush()
        checkpoints.write(self._directory.task(self.task_id), offsets)
        self._written = offsets
