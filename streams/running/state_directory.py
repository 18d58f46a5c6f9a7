"""State directory: the state of an application on one machine, with locks for its parts (Kafka: StateDirectory).

    <state.dir>/<application.id>/
        .lock                             locked while a process uses the directory
        kafka-streams-process-metadata    the process id (a UUID)
        0_3/                              a task: .checkpoint, rocksdb/<store>/
        global/                           stores of global tables

Two clients cannot share the directory of an application: neither two of one process, nor of two processes, nor one of
Odradek and one of Java (which locks the same file in the same way). Each needs a state.dir of its own. Within a process
one thread at a time owns a task's directory. Directories of tasks that run elsewhere now are kept for a while, since
the tasks may return; the last use of a directory starts its age (`state.cleanup.delay.ms`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import LockError
from odradek.streams.records import TaskId
from odradek.streams.running import checkpoints
from odradek.streams.topology import Topology

log = logging.getLogger(__name__)

PROCESS_FILE: Final = "kafka-streams-process-metadata"
LOCK_FILE: Final = ".lock"
GLOBAL: Final = "global"
_TASK: Final = re.compile(r"\d+_\d+")


_taken: Final[set[Path]] = set()
"""The directories that this process uses. Kernel locks belong to a process: they do not separate two clients in it, and
closing the file a second time would release the lock of the first.
"""
_taken_guard: Final = threading.Lock()


class StateDirectory:
    """One application's state on this machine. Any thread may call its methods."""

    def __init__(
        self, state_dir: Path, application_id: str, temporary: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        """Creates and locks the directory. Raises LockError where another process has locked it, or OSError.

        `close` removes `temporary`.
        """
        self._temporary = temporary
        self.path = (state_dir / application_id).absolute()
        self.path.mkdir(parents=True, exist_ok=True)
        self._owners: dict[TaskId, threading.Thread] = {}
        self._guard = threading.Lock()
        self._lock_file: TextIO | None = None
        self._take()
        self.process_id = self._identify()

    def _take(self) -> None:
        with _taken_guard:
            if self.path in _taken:
                raise LockError(
                    f"{self.path} is in use by another client of this process; each needs its own state.dir"
                )
            file = (self.path / LOCK_FILE).open("a")
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                raise LockError(
                    f"{self.path} is in use by another process; instances on one machine need a state.dir each"
                ) from None
            _taken.add(self.path)
        self._lock_file = file

    def _identify(self) -> uuid.UUID:
        """The process id of the state stored here, or a new one."""
        path = self.path / PROCESS_FILE
        try:
            return uuid.UUID(json.loads(path.read_text())["processId"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            process_id = uuid.uuid4()
        with path.open("w") as file:
            json.dump({"processId": str(process_id)}, file)
            file.flush()
            os.fsync(file.fileno())
        return process_id

    # ---- tasks

    def task(self, task_id: TaskId) -> Path:
        """The directory of a task, created if missing."""
        path = self.path / str(task_id)
        path.mkdir(exist_ok=True)
        return path

    def lock(self, task_id: TaskId) -> bool:
        """Lock a task's directory for the calling thread; False while another thread of this process has locked it."""
        thread = threading.current_thread()
        with self._guard:
            owner = self._owners.get(task_id)
            if owner is not None and owner is not thread and owner.is_alive():
                return False
            self._owners[task_id] = thread
        return True

    def unlock(self, task_id: TaskId) -> None:
        """Unlock a task's directory, if the calling thread has locked it; its last use is now."""
        with self._guard:
            if self._owners.get(task_id) is threading.current_thread():
                with contextlib.suppress(FileNotFoundError):
                    os.utime(self.path / str(task_id))
                del self._owners[task_id]

    def wipe(self, task_id: TaskId) -> None:
        """Remove the contents of a task's directory; its stores are closed. Raises OSError."""
        path = self.path / str(task_id)
        if path.is_dir():
            checkpoints.remove(path)  # first: a store without its checkpoint is invalid
            shutil.rmtree(path)

    def tasks(self) -> dict[TaskId, dict[TopicPartition, int]]:
        """The tasks that have state here, with the checkpoint of each; an unreadable checkpoint counts as empty."""
        found = {}
        for path in self._task_directories():
            try:
                offsets = checkpoints.read(path)
            except checkpoints.CheckpointError as error:
                log.warning("ignoring unreadable checkpoint error=%s", error)
                continue
            if offsets:
                found[TaskId.parse(path.name)] = offsets
        return found

    @property
    def global_path(self) -> Path:
        """The directory of the global stores, created if missing."""
        path = self.path / GLOBAL
        path.mkdir(exist_ok=True)
        return path

    def wipe_global(self) -> None:
        """Remove the global stores, which are closed. Raises OSError."""
        checkpoints.remove(self.global_path)
        shutil.rmtree(self.global_path)

    # ---- cleaning

    def remove_unused(self, delay_ms: int) -> list[TaskId]:
        """Remove the directories of tasks that no thread here has used for so long; returns their ids."""
        now = time.time()
        removed = []
        for path in self._task_directories():
            task_id = TaskId.parse(path.name)
            with self._guard:
                if task_id in self._owners or not path.is_dir() or (now - path.stat().st_mtime) * 1000 <= delay_ms:
                    continue
                self._owners[task_id] = threading.current_thread()
            try:
                log.info("removing obsolete task state task=%s unused_for_ms=%d", task_id, delay_ms)
                self.wipe(task_id)
                removed.append(task_id)
            finally:
                with self._guard:
                    self._owners.pop(task_id, None)
        return removed

    def clean(self) -> None:
        """Remove all state of the application on this machine. Raises LockError while tasks run, OSError."""
        with self._guard:
            if self._owners:
                raise LockError(
                    f"tasks {', '.join(map(str, sorted(self._owners)))} are running; close the client first"
                )
            for path in self._task_directories():
                self.wipe(TaskId.parse(path.name))
            shutil.rmtree(self.path / GLOBAL, ignore_errors=True)

    def close(self) -> None:
        """Unlock the directory for other processes; a temporary directory is removed."""
        with _taken_guard:
            if self._lock_file is not None:
                self._lock_file.close()
                self._lock_file = None
                _taken.discard(self.path)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _task_directories(self) -> list[Path]:
        return sorted(path for path in self.path.iterdir() if path.is_dir() and _TASK.fullmatch(path.name))


def open_state_directory(topology: Topology, config: Mapping[str, Any]) -> StateDirectory:
    """The directory of an application. Raises LockError, OSError.

    Topologies without stores on disk need no state.dir: any number of their instances can share a machine.
    """
    builders = [*topology.stores.values(), *topology.global_stores.values()]
    if any(getattr(builder, "persistent", True) for builder in builders):
        return StateDirectory(Path(config["state.dir"]), config["application.id"])
    temporary = tempfile.TemporaryDirectory(prefix="odradek-streams-")
    return StateDirectory(Path(temporary.name), config["application.id"], temporary)
