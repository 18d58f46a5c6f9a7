"""Stream threads of one client: starts, adds, removes, pauses and replaces them (Kafka: KafkaStreams.threads,
StreamStateListener).

The state of the client follows from the states of its threads: REBALANCING while a thread waits for its tasks, RUNNING
once every thread has them.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.client_state import ClientState, State
from odradek.streams.group.subscription_info import Hosts
from odradek.streams.records import TaskId
from odradek.streams.running.application import Application
from odradek.streams.running.thread import StreamThread
from odradek.streams.running.thread_context import ThreadState


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """A snapshot of a task. Offsets are those of the last commit; the partitions of a standby are its changelogs'."""

    task_id: TaskId
    partitions: frozenset[TopicPartition]
    committed_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """A snapshot of a thread and its tasks."""

    name: str
    state: ThreadState
    active_tasks: Sequence[TaskMetadata]
    standby_tasks: Sequence[TaskMetadata]


class StreamThreads:
    """The threads of one client. Any thread may call its methods."""

    def __init__(
        self,
        state: ClientState,
        cache_bytes: int,
        *,
        on_error: Callable[[StreamThread, Exception], None],
        hosts_changed: Callable[[Hosts], None],
    ) -> None:
        """A thread that ends with an error calls `on_error`, each thread calls `hosts_changed` for an assignment.
        `cache_bytes` is divided among the threads.
        """
        self.application: Application | None = None
        """What the threads share; None before `start`."""
        self.paused = False
        self._state = state
        self._cache_bytes = cache_bytes
        self._on_error = on_error
        self._hosts_changed = hosts_changed
        self._threads: list[StreamThread] = []
        self._replaced: set[StreamThread] = set()
        """Threads that end and get a successor."""

    def started_application(self) -> Application:
        """What the threads of a started client share."""
        assert self.application is not None
        return self.application

    @property
    def all(self) -> tuple[StreamThread, ...]:
        """The threads that have not ended."""
        with self._state.changed:
            return tuple(self._threads)

    def metadata(self) -> list[ThreadMetadata]:
        """A snapshot of the threads and their tasks."""
        return [_metadata(thread) for thread in self.all]

    # ---- lifecycle

    def start(self, application: Application) -> None:
        """Start num.stream.threads threads, unless the client was closed meanwhile."""
        self.application = application
        with self._state.changed:
            if self._state.is_alive:
                for index in range(1, application.config["num.stream.threads"] + 1):
                    self._start(application, index)

    def add(self) -> StreamThread | None:
        """Start one more thread; None where the client does not run."""
        with self._state.changed:
            if not self._state.is_alive or self.application is None:
                return None
            used = {thread.index for thread in self._threads}
            free = next(index for index in range(1, len(used) + 2) if index not in used)
            return self._start(self.application, free)

    def remove(self, timeout_s: float | None) -> StreamThread | None:
        """Stop a thread, which leaves the group, and wait for its end; None where there is no thread.

        A thread that removes itself is not waited for. Raises TimeoutError.
        """
        with self._state.changed:
            if not self._state.is_alive:
                return None
            alive = [thread for thread in self._threads if thread.state is not ThreadState.DEAD]
            if not alive:
                return None
            current = threading.current_thread().name
            thread = next((each for each in reversed(alive) if each.name != current), alive[-1])
        thread.stop(leave=True)
        if thread.name != current and not thread.join(timeout_s):
            raise TimeoutError(f"{thread.name} has not ended within {timeout_s:g} s")
        return thread

    def replace(self, thread: StreamThread) -> None:
        """Start a successor once this thread has ended."""
        thread.leave = True  # its replacement need not wait for the session timeout of this member
        self._replaced.add(thread)

    def stop_all(self, leave_group: bool) -> tuple[StreamThread, ...]:
        """Request the end of all threads; returns them."""
        threads = self.all
        for thread in threads:
            thread.stop(leave_group)
        return threads

    def pause(self) -> None:
        """Process nothing until `resume`; new threads neither."""
        with self._state.changed:
            self.paused = True
            for thread in self._threads:
                thread.paused.set()

    def resume(self) -> None:
        """Continue processing."""
        with self._state.changed:
            self.paused = False
            for thread in self._threads:
                thread.paused.clear()

    # ---- internals

    def _start(self, application: Application, index: int) -> StreamThread:
        thread = StreamThread(
            application,
            index,
            0,
            on_state=self._thread_changed,
            on_error=self._on_error,
            hosts_changed=self._hosts_changed,
        )
        if self.paused:
            thread.paused.set()
        self._threads.append(thread)
        self._share_cache()
        thread.start()
        return thread

    def _share_cache(self) -> None:
        """Divide the cache evenly among threads; a thread with a smaller share evicts at its next write."""
        for thread in self._threads:
            thread.cache.limit = self._cache_bytes // len(self._threads)

    def _thread_changed(self, thread: StreamThread) -> None:
        """A thread has changed its state."""
        if thread.state is ThreadState.DEAD:
            self._thread_ended(thread)
            return
        with self._state.changed:
            states = {each.state for each in self._threads}
            rebalancing = {ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED}
            running = states <= {ThreadState.RUNNING, ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD}
        if thread.state in rebalancing:
            self._state.set(State.REBALANCING)
        elif running and ThreadState.RUNNING in states:
            self._state.set(State.RUNNING)

    def _thread_ended(self, thread: StreamThread) -> None:
        with self._state.changed:
            if thread in self._threads:
                self._threads.remove(thread)
                self._share_cache()
            replaced = thread in self._replaced and self._state.is_alive
            self._replaced.discard(thread)
            if replaced:
                self._start(self.started_application(), thread.index)
            else:
                self._state.changed.notify_all()


def _metadata(thread: StreamThread) -> ThreadMetadata:
    tasks = list(thread.tasks.tasks.items()) if thread.tasks is not None else []
    active = [TaskMetadata(task_id, each.sources, dict(each.committed)) for task_id, each in tasks]
    standbys = list(thread.standbys.tasks.items()) if thread.standbys is not None else []
    passive = [TaskMetadata(task_id, frozenset(each.changelogs.values()), {}) for task_id, each in standbys]
    active.sort(key=operator.attrgetter("task_id"))
    passive.sort(key=operator.attrgetter("task_id"))
    return ThreadMetadata(thread.name, thread.state, active, passive)
