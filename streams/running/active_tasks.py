"""Active tasks: opens, restores, runs, commits and closes the active tasks of one thread (Kafka: Tasks).

    assigned  ->  opened (directory locked)  ->  restored  ->  running  ->  closed, or handed over as a standby

A task that a thread keeps in a rebalance keeps everything: stores, buffers, positions. The thread commits a task before
it gives it up, and closes its stores with a checkpoint. After a failure the thread closes tasks without a commit
(dirty): the next owner repeats their work since the last commit (with exactly-once processing their output is aborted).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.commit_metadata import decode_metadata
from odradek.streams.context import TaskContext
from odradek.streams.errors import LockError, StreamsError
from odradek.streams.group.committed_offsets import Committed
from odradek.streams.group.group_protocol import MembershipError
from odradek.streams.group.membership import GroupMember
from odradek.streams.group.subscription_info import RUNNING
from odradek.streams.record_queue import Message
from odradek.streams.recorded_metrics import ThreadMetrics
from odradek.streams.records import TaskId
from odradek.streams.running.application import Application
from odradek.streams.running.collector import RecordCollector
from odradek.streams.running.intake import Intake
from odradek.streams.running.leadership import position_of
from odradek.streams.running.record_reader import RecordReader
from odradek.streams.running.restoration import Restorer
from odradek.streams.running.task_state import TaskState
from odradek.streams.running.thread_calls import ThreadCalls
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.task import Task
from odradek.streams.topology import Subtopology

log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, tuple[int, str]]
CHUNK: Final = 512
"""Records after which a task yields to other tasks, punctuators and commits."""
WORTH_A_CHECKPOINT: Final = 10_000
"""Records of a task after which its stores may have moved far."""
ENDS_S: Final = 5.0
"""How long to wait for the end offsets of changelogs; without them only the restoration of stores starts further
back.
"""


@dataclass(slots=True)
class ActiveTask:
    """One task of the assignment."""

    state: TaskState
    subtopology: Subtopology
    sources: frozenset[TopicPartition]
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The group's committed offsets of its sources."""
    metadata: dict[TopicPartition, str] = field(default_factory=dict)
    """The commit metadata of these offsets when the task was assigned."""
    opened: bool = False
    known: bool = False
    """Whether `committed` and `metadata` have been fetched from the group."""
    task: Task | None = None
    """Set once the stores are restored."""
    checkpointed: int = 0
    """The number of records it had processed when its checkpoint was last written."""


class ActiveTasks:
    """One thread's tasks. Only that thread calls its methods; other threads may read `tasks`."""

    def __init__(
        self,
        application: Application,
        member: GroupMember,
        reader: RecordReader,
        restorer: Restorer,
        collector: RecordCollector,
        cache: ThreadCache,
        metrics: ThreadMetrics,
    ) -> None:
        self.topology = application.topology
        self.metrics = metrics
        self.tasks: dict[TaskId, ActiveTask] = {}
        self.running: dict[TaskId, Task] = {}
        self.calls = ThreadCalls(self.running)
        """The pending calls of asynchronous operators."""
        self.commit_wanted = False
        """A processor has requested a commit."""
        self.punctuated = 0
        """How often a task had punctuators that were due."""
        self._application = application
        self._member = member
        self._reader = reader
        self._restorer = restorer
        self._collector = collector
        self._cache = cache
        self._owner: dict[TopicPartition, Task] = {}
        self._exactly_once = application.config.exactly_once
        self.intake = Intake(reader, self._owner, application.config["buffered.records.per.partition"])
        """Which partitions to read."""
        self._deadline_s: float = application.config["task.timeout.ms"] / 1000
        self._results_s: float = application.config["max.poll.interval.ms"] / 2000
        """How long a commit waits for the results of asynchronous operators."""
        self._fetch_failing_since: float | None = None
        """Since when requests for committed offsets have failed."""

    # ---- assignment

    def make_state(self, task_id: TaskId, subtopology: Subtopology) -> TaskState:
        """The stores of a task, not opened yet."""
        application = self._application
        context = TaskContext(
            task_id,
            self._collector,
            application.clock,
            application.config,
            self._cache,
            handlers=application.config.handlers,
            metrics=application.sensors,
        )
        context.results_ready = self.calls.ready
        changelogs = {store: (topic, task_id.partition) for store, topic in subtopology.changelogs.items()}
        return TaskState(
            application.topology, subtopology, context, changelogs, application.directory, self._exactly_once
        )

    def give(
        self, task_id: TaskId, subtopology: Subtopology, sources: frozenset[TopicPartition], state: TaskState | None
    ) -> None:
        """A new task. `state` is the opened state of a former standby; without it `advance` opens the stores."""
        own = self.make_state(task_id, subtopology) if state is None else state
        self.metrics.created.record(0.0)
        self.tasks[task_id] = ActiveTask(own, subtopology, sources, opened=state is not None)

    def advance(self) -> None:
        """Open new tasks whose directory is free, and start their restoration. Raises StreamsError,
        TaskCorruptedError.
        """
        for each in self.tasks.values():
            if not each.opened:
                try:
                    each.state.open()
                except LockError as error:
                    log.debug("retrying to lock the task directory error=%s", error)
                    continue
                each.opened = True
        unknown = [each for each in self.tasks.values() if each.opened and not each.known]
        if unknown:
            committed = self._fetch_committed(frozenset().union(*(each.sources for each in unknown)))
            if committed is not None:
                for each in unknown:
                    self._restore(each, committed)

    def _fetch_committed(self, sources: Iterable[TopicPartition]) -> dict[TopicPartition, Committed] | None:
        """None where the coordinator does not answer now. Raises MembershipError after task.timeout.ms of such
        failures, or for an error that is not retriable.
        """
        places = sorted(sources)
        try:
            committed = self._member.fetch_committed(places, self._exactly_once) if places else {}
        except MembershipError as error:
            now = time.monotonic()
            self._fetch_failing_since = self._fetch_failing_since or now
            if not error.code.retriable or now - self._fetch_failing_since > self._deadline_s:
                raise
            log.warning("retrying to fetch committed offsets error=%s", error)
            return None
        self._fetch_failing_since = None
        return committed

    def _restore(self, each: ActiveTask, committed: Mapping[TopicPartition, Committed]) -> None:
        each.known = True
        known = [place for place in each.sources if place in committed]
        each.committed = {place: committed[place].offset for place in known}
        each.metadata = {place: committed[place].metadata for place in known}
        each.state.limits = {
            place: each.committed.get(place, 0) for place in each.state.changelogs.values() if place in each.sources
        }
        self._restorer.add(each.state)

    def start(self, restored: Iterable[TaskState]) -> None:
        """These tasks are restored and run from now on. Raises StreamsError."""
        starts: dict[TopicPartition, int | None] = {}
        for state in restored:
            each = self.tasks[state.task_id]
            state.begin()
            task = self._make_task(each)
            each.task = self.running[state.task_id] = task
            for place in each.sources:
                self._owner[place] = task
                starts[place] = each.committed.get(place)
        self._reader.assign(starts)

    def _make_task(self, each: ActiveTask) -> Task:
        application = self._application
        task = Task(
            application.topology,
            each.subtopology,
            each.state.context,
            each.state.stores,
            application.global_stores,
            idle_ms=application.config["max.task.idle.ms"],
            lag=self._reader.lag,
        )
        task.context.processor_metadata.clear()  # the stores of a former active task bring their context
        for place, metadata in each.metadata.items():
            partition_time, numbers = decode_metadata(metadata)
            task.seek(place, partition_time, each.committed[place])
            task.context.add_metadata(numbers)
        task.init()
        log.info("task is running task=%s", task.task_id)
        return task

    @property
    def all_running(self) -> bool:
        """Whether no task has to be opened or restored any more."""
        return len(self.running) == len(self.tasks)

    def committed_offsets(self) -> dict[TopicPartition, int]:
        """The committed offsets of the sources of all tasks."""
        return {place: offset for each in self.tasks.values() for place, offset in each.committed.items()}

    def positions(self) -> dict[TaskId, int]:
        """The position of each task's state, for the assignment by the leader."""
        return {
            task_id: RUNNING if each.task is not None else position_of(each.state.positions)
            for task_id, each in self.tasks.items()
            if each.state.changelogs and each.opened
        }

    def left_to_restore(self, task_id: TaskId) -> int:
        """How many records a task has yet to restore. Any thread may call it."""
        return self._restorer.left(task_id)

    # ---- records

    def add(self, records: Mapping[TopicPartition, Sequence[Message]]) -> None:
        """Hand records to their tasks."""
        for place, messages in records.items():
            task = self._owner.get(place)
            if task is not None:
                task.add(place, messages)

    def process(self, now_ms: int, most: int = CHUNK) -> int:
        """Process up to `most` records of each task that is ready. Returns how many. Raises StreamsError."""
        done, clock = 0, time.perf_counter_ns
        for task in self.running.values():
            try:
                start = clock()
                task.forward_results()
                count = _process(task, now_ms, most)
                if count:
                    done += count
                    task.metrics.process.record((clock() - start) / count, count)
                    if task.punctuations.run_stream_time():
                        self.punctuated += 1
                        task.start_calls()
                    if task.context.commit_wanted:
                        self.commit_wanted = True
            except StreamsError:
                raise
            except Exception as error:
                raise unexpected(task, error) from error
        return done

    def punctuate(self, now_ms: int) -> None:
        """Call the punctuators that are due by wall-clock time. Raises StreamsError.

        Those of a task wait while a commit waits for its results: otherwise what they forward could delay it forever.
        """
        for task in self.running.values():
            due = task.punctuations.next_system_time_ms
            holding = task.calls is not None and task.calls.holding
            if due is not None and due <= now_ms and not holding:
                if task.punctuations.run_system_time():
                    self.punctuated += 1
                    task.start_calls()
                self.commit_wanted = self.commit_wanted or task.context.commit_wanted

    def next_due_ms(self) -> int | None:
        """When the next wall-clock punctuator is due."""
        times = (task.punctuations.next_system_time_ms for task in self.running.values())
        return min((due for due in times if due is not None), default=None)

    @property
    def buffered(self) -> int:
        """How many records are buffered."""
        return sum(task.partition_group.buffered() for task in self.running.values())

    # ---- commit

    @property
    def commit_needed(self) -> bool:
        """Whether tasks have processed anything since the last commit."""
        return any(task.commit_needed for task in self.running.values())

    def commit(self, aside: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext) -> int:
        """Commit all tasks. Returns how many had something to commit. Raises CommitFailed, StreamsError, and
        TaskMigratedError where results of asynchronous operators are missing for too long.

        While the thread waits for the cluster, which touches no store, it holds `aside()`.
        """
        try:
            return self._commit(aside)
        finally:
            self.calls.release()

    def _commit(self, aside: Callable[[], AbstractContextManager[Any]]) -> int:
        self.commit_wanted = False
        ready = [each for each in self.tasks.values() if each.task is not None and each.task.commit_needed]
        if not ready and not self._collector.in_transaction:
            return 0
        offsets: Offsets = {}
        deadline_s = time.monotonic() + self._results_s
        for each in ready:
            assert each.task is not None
            each.task.complete(deadline_s)
            offsets.update(each.task.committable())
        with aside():
            self._collector.flush()
            if self._exactly_once:
                if offsets or self._collector.in_transaction:
                    self._collector.commit(offsets, self._member.group_metadata)
            elif offsets:
                self._member.commit({place: (offset, None, text) for place, (offset, text) in offsets.items()})
        far = []
        for each in ready:
            assert each.task is not None
            each.committed.update((place, offsets[place][0]) for place in each.sources if place in offsets)
            each.task.committed()
            if each.task.processed - each.checkpointed >= WORTH_A_CHECKPOINT:
                each.checkpointed = each.task.processed
                far.append(each)
        if far and not self._exactly_once:
            self._learn_ends(far)
            for each in far:
                each.state.checkpoint()
        return len(ready)

    def learn_ends(self) -> None:
        """Record the changelog end offsets of the stores: called after a commit and before other threads may own the
        tasks.

        After that a changelog may hold records of its next owner; a checkpoint that covered them would lose them. So
        the end offsets count only if the group still has this member after the offsets have been fetched.
        """
        self._learn_ends([each for each in self.tasks.values() if each.task is not None and each.state.wanting])

    def _learn_ends(self, tasks: Sequence[ActiveTask]) -> None:
        """The current end offsets of the tasks' changelogs, and for source topics the positions the tasks have read
        to.
        """
        written = [place for each in tasks for place in each.state.wanting if place not in each.sources]
        try:
            ends = self._restorer.ends(written, ENDS_S) if written else {}
        except StreamsError as error:
            log.warning("checkpoints not advanced error=%s", error)
            ends = {}
        if ends and not self._member.is_counted_in():
            log.warning("checkpoints not advanced, as the group may have reassigned the tasks")
            ends = {}
        for each in tasks:
            each.state.learn({**ends, **each.committed})

    # ---- close

    def release(self, task_id: TaskId) -> TaskState:
        """Remove a committed task and return its stores, still open. Raises the error of a processor."""
        each = self._forget(task_id)
        if each.task is not None:
            each.task.close_processors()
        return each.state

    def close(self, task_id: TaskId) -> None:
        """Close a committed task, with a checkpoint as `learn_ends` recorded it. Raises the first error of processors
        and stores.
        """
        each = self.tasks[task_id]
        failed: Exception | None = None
        try:
            self.release(task_id)
        except Exception as error:
            failed = error
        if each.opened:
            each.state.close(True)
        if failed is not None:
            raise failed
        log.info("task closed task=%s", task_id)

    def close_dirty(self, task_ids: Iterable[TaskId] | None = None) -> None:
        """Close tasks (all by default) without a commit. Errors go to the log.

        With at-least-once processing the contents of caches and all written records are sent first, as Kafka Streams
        does: stores on disk stay ahead of the committed offsets, and a processor that finds its mark in a store when it
        processes a record again may write nothing for it. Where some of them cannot be sent, the stores are wiped, for
        the same reason.
        """
        wanted = list(self.tasks if task_ids is None else task_ids)
        ahead = set() if self._exactly_once else self._send_off(wanted)
        for task_id in wanted:
            each = self.tasks[task_id]
            try:
                self.release(task_id)
            except Exception as error:
                log.warning("error while closing dirty task task=%s error=%r", task_id, error)
            if each.opened:
                try:
                    if task_id in ahead:
                        each.state.wipe()
                    else:
                        each.state.close(False)
                except Exception as error:
                    log.warning("error while closing stores of dirty task task=%s error=%r", task_id, error)

    def _send_off(self, task_ids: Iterable[TaskId]) -> set[TaskId]:
        """Flush the caches of these tasks and wait briefly for the writes. Returns the tasks with unsent records."""
        running = {task_id: task for task_id in task_ids if (task := self.running.get(task_id)) is not None}
        ahead = set()
        for task_id, task in running.items():
            try:
                if task.commit_needed:
                    task.flush_caches()
            except Exception as error:
                log.warning("cannot flush caches of dirty task task=%s error=%r", task_id, error)
                ahead.add(task_id)
        if running and not self._collector.settle():
            ahead = {task_id for task_id, task in running.items() if task.commit_needed}
            log.warning("wiping stores whose changelog records were not sent tasks=%s", sorted(ahead))
        return ahead

    def revive(self, task_ids: Iterable[TaskId]) -> None:
        """Wipe the state of these tasks and start them anew."""
        for task_id in sorted(task_ids):
            each = self._forget(task_id)
            if each.task is not None:
                try:
                    each.task.close_processors()
                except Exception as error:
                    log.warning("error while closing corrupted task task=%s error=%r", task_id, error)
            each.state.wipe()
            self.give(task_id, each.subtopology, each.sources, None)

    def _forget(self, task_id: TaskId) -> ActiveTask:
        each = self.tasks.pop(task_id)
        self.metrics.closed.record(0.0)
        self.running.pop(task_id, None)
        self._restorer.drop(task_id)
        self._reader.unassign(each.sources)
        for place in each.sources:
            self._owner.pop(place, None)
        return each


def _process(task: Task, now_ms: int, most: int) -> int:
    if len(task.partitions) == 1:
        return task.process(most)
    done = 0
    while done < most and task.partition_group.ready(now_ms):
        # Fewer than so many records cannot empty a queue; until then every choice sees all queues.
        least = min(count for place in task.partitions if (count := task.partition_group.buffered(place)))
        count = task.process(min(least, most - done))
        if not count:
            break  # an asynchronous operator has no room
        done += count
    return done


def paced(chunk: int, took_s: float, goal_s: float) -> int:
    """How many records to take next, so that a chunk takes about `goal_s` at the measured rate, and CHUNK at most."""
    if took_s > goal_s:
        return max(1, int(chunk * goal_s / took_s))
    return min(2 * chunk, CHUNK) if took_s < goal_s / 2 else chunk


def unexpected(task: Task, error: Exception) -> StreamsError:
    """An error that is not attributed to a node."""
    context = task.context
    return StreamsError(
        f"task {task.task_id}, topic={context.topic}, partition={context.partition}, offset={context.offset}: {error!r}"
    )
