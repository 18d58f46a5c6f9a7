"""Stream thread: one member of the group with its tasks, its consumer and its producer (Kafka: StreamThread).

Each iteration of the loop polls the group for a rebalance, restores stores for a short time if any need it, polls a
batch of records and adds it to the tasks, lets the tasks process records, calls punctuators and commits when the commit
interval has passed. No step blocks for long: a thread without records blocks in `poll` for poll.ms.

In a rebalance the thread commits, joins again and processes nothing until it has its assignment. Tasks that it keeps
continue at their positions. A thread that the group has fenced or removed closes its tasks without a commit and joins
as a new member. After a TaskCorruptedError the thread rebuilds the state of the tasks. Any other error ends the thread,
and the uncaught-exception handler of the client decides what follows (KIP-671).
"""

from __future__ import annotations

import contextlib
import enum
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import (
    MissingSourceTopicError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
)
from odradek.streams.group.membership import (
    Assigned,
    CommitFailed,
    CommitFailure,
    GroupMember,
    MembershipConfig,
    RebalanceNeeded,
)
from odradek.streams.group.subscription_info import (
    ASSIGNMENT_ERROR,
    INCOMPLETE_SOURCE_TOPIC_METADATA,
    NO_ERROR,
    SHUTDOWN_REQUESTED,
    AssignmentInfo,
    Hosts,
    SubscriptionInfo,
)
from odradek.streams.metrics import observe
from odradek.streams.queries import FairLock
from odradek.streams.record_queue import Message
from odradek.streams.recorded_metrics import ThreadMetrics
from odradek.streams.records import TaskId
from odradek.streams.running.active_tasks import ActiveTasks, paced
from odradek.streams.running.application import Application
from odradek.streams.running.client import high_watermarks
from odradek.streams.running.collector import RecordCollector
from odradek.streams.running.leadership import position_of
from odradek.streams.running.maintenance import Maintenance
from odradek.streams.running.record_reader import RecordReader
from odradek.streams.running.restoration import CONSUMER as RESTORE_CONSUMER
from odradek.streams.running.restoration import Restorer
from odradek.streams.running.standby_tasks import StandbyTasks
from odradek.streams.running.task_state import TaskState
from odradek.streams.stores.cache import ThreadCache

log = logging.getLogger(__name__)

Aside = Callable[[], AbstractContextManager[Any]]
RESTORE_STEP_S: Final = 0.1
"""The duration of a restoration step while no task runs yet; the step is shorter while tasks run."""
RESTORE_BESIDE_S: Final = 0.02
SHUTDOWN_WAIT_S: Final = 10.0
CHUNK_S: Final = 0.1
"""The longest duration of one chunk of records, so that commits, punctuators and queries get their turn."""
WAITING_S: Final = 0.01  # how often the thread checks a task that waits for a topic (max.task.idle.ms)


class ThreadState(enum.Enum):
    """The states of a stream thread (Kafka: StreamThread.State)."""

    CREATED = enum.auto()
    STARTING = enum.auto()
    PARTITIONS_REVOKED = enum.auto()
    PARTITIONS_ASSIGNED = enum.auto()
    RUNNING = enum.auto()
    PENDING_SHUTDOWN = enum.auto()
    DEAD = enum.auto()


class ShutdownRequestedError(StreamsError):
    """An instance has requested the shutdown of the whole application."""


class StreamThread:
    """One stream thread. Any thread may call `start`, `stop`, `join` and the read-only properties."""

    def __init__(
        self,
        application: Application,
        index: int,
        cache_bytes: int,
        *,
        on_state: Callable[[StreamThread], None],
        on_error: Callable[[StreamThread, Exception], None],
        hosts_changed: Callable[[Hosts], None] = lambda hosts: None,
    ) -> None:
        """The thread calls `on_state` and `on_error`; after `on_error` it closes its tasks and ends."""
        self.index = index
        self.name = f"{application.clients.client_id}-StreamThread-{index}"
        self.state = ThreadState.CREATED
        self.paused = threading.Event()
        self.cache = ThreadCache(cache_bytes)
        self.metrics = ThreadMetrics()
        self.lock = FairLock()
        """The thread holds it while tasks process and commit; a query of their stores acquires it."""
        self.processed = 0
        """Records processed so far."""
        self.commits = 0
        self.leave = False
        """Whether to leave the group at the end."""
        self._application = application
        self._on_state = on_state
        self._on_error = on_error
        self._hosts_changed = hosts_changed
        self._stopping = threading.Event()
        self._serial = 0
        self._error_code = NO_ERROR
        self._joining, self._received = True, -1  # the generation of the last assignment received
        self._idle = False
        self._more, self._chunk = False, 1  # whether records remain after a chunk; the records of the next chunk
        self._next_rebalance_ms = 0
        self._leads = self._together = False
        self._last_commit = 0.0
        self._commit_failing_since: float | None = None
        self._opened = contextlib.ExitStack()
        """What the thread closes at its end, in the reverse order of opening."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        config = application.config
        self._commit_interval_s: float = config["commit.interval.ms"] / 1000
        self._poll_s: float = config["poll.ms"] / 1000
        self._timeout_s: float = config["task.timeout.ms"] / 1000
        self._turn_s: float = config["max.poll.interval.ms"] / 2000
        self._chunk_s = max(0.01, min(CHUNK_S, self._commit_interval_s, self._turn_s / 4))

    # ---- called by other threads

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, leave: bool = False) -> None:
        """Request a commit, a close and the end of the thread. With `leave` the member leaves the group, which
        reassigns its tasks at once.
        """
        self.leave = self.leave or leave
        self._stopping.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the thread. Returns whether it has ended."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def ask_for_shutdown(self) -> None:
        """Send the shutdown request to all instances before this thread ends; `on_error` calls it."""
        self._error_code = SHUTDOWN_REQUESTED

    @property
    def generation(self) -> int:
        """The generation of the group that this thread is in; -1 for none."""
        return self._member.generation if hasattr(self, "_member") else -1

    @property
    def idles(self) -> bool:
        """Whether the thread runs and has no work at the moment; a snapshot, which may be outdated at once."""
        return self.state is ThreadState.RUNNING and self._idle

    @property
    def thread(self) -> threading.Thread:
        """The thread of the operating system."""
        return self._thread

    @property
    def tasks(self) -> ActiveTasks | None:
        """The thread's active tasks; None before it has started. Read only."""
        return getattr(self, "_tasks", None)

    @property
    def standbys(self) -> StandbyTasks | None:
        """The thread's standby tasks; None before it has started. Read only."""
        return getattr(self, "_standbys", None)

    def states(self) -> list[tuple[TaskState, bool]]:
        """The stores of all tasks, standby tasks included, and whether each task is active and running. Read only."""
        tasks, standbys = self.tasks, self.standbys
        found = [(each.state, each.task is not None) for each in list(tasks.tasks.values())] if tasks else []
        return found + ([(state, False) for state in list(standbys.tasks.values())] if standbys else [])

    # ---- the thread's main function

    def _run(self) -> None:
        try:
            self.metrics.started_ms = self._application.clock()
            self._set_state(ThreadState.STARTING)
            self._open()
            self._loop()
            self._end()
        except BaseException as error:  # includes sys.exit() in a processor, which no other code reports
            self._fail(error if isinstance(error, Exception) else StreamsError(f"{self.name}: {error!r}"))
        finally:
            self._close()
            self._set_state(ThreadState.DEAD)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_once()
            except TaskCorruptedError as error:
                log.warning("rebuilding corrupted tasks thread=%s error=%s", self.name, error)
                self._recover(error)
            except TaskMigratedError as error:
                log.warning("thread lost its tasks thread=%s error=%s", self.name, error)
                self._lose_all()
                self._member.rejoin()

    def _open(self) -> None:
        application, opened = self._application, self._opened
        config, clients = application.config, application.clients
        self._together = application.reads_together()
        consumer = clients.main_consumer(self.name, partition_eof=self._together)
        opened.callback(consumer.close)
        self._reader = RecordReader(consumer, config["max.poll.records"], application.offset_reset)
        isolation = "read_committed" if config.exactly_once else "read_uncommitted"
        restore_consumer = clients.restore_consumer(self.name, {**RESTORE_CONSUMER, "isolation.level": isolation})
        opened.callback(restore_consumer.close)
        timeout_s = config["request.timeout.ms"] / 1000
        self._restorer = Restorer(
            restore_consumer,
            timeout_s,
            application.restore_listener,
            committed=self._committed,
            written=functools.partial(high_watermarks, application.admin),
            give_up_s=self._timeout_s,
        )
        self._restorer.guard = self.lock
        settings: dict[str, Any] = {**config, "client.id": f"{self.name}-consumer"}
        if config["group.instance.id"] is not None:
            settings["group.instance.id"] = f"{config['group.instance.id']}-{self.index}"
        self._member = GroupMember(MembershipConfig.of(settings), self._subscription, application.leader.assign)
        opened.callback(self._leave)
        self._collector = self._make_collector()
        opened.callback(self._collector.close)
        self._tasks = ActiveTasks(
            application, self._member, self._reader, self._restorer, self._collector, self.cache, self.metrics
        )
        opened.callback(self._tasks.close_dirty)
        self._standbys = StandbyTasks(self._restorer)
        opened.callback(self._standbys.close_all)
        self._chores = Maintenance(application, application.admin)
        self._member.rejoin()

    def _committed(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets of source topics that standbys follow; without an answer the limits stay unchanged."""
        try:
            return {place: found.offset for place, found in self._member.fetch_committed(places, False).items()}
        except StreamsError as error:
            log.warning("cannot fetch committed offsets thread=%s error=%s", self.name, error)
            return {}

    def _make_collector(self) -> RecordCollector:
        application = self._application
        config, clients = application.config, application.clients
        transactional_id = None
        if config.exactly_once:
            transactional_id = f"{application.application_id}-{application.directory.process_id}-{self.index}"
        return RecordCollector(
            lambda on_delivery: clients.producer(self.name, transactional_id, on_delivery),
            config.handlers,
            self._timeout_s,
            transactional=config.exactly_once,
            metadata_s=config["metadata.max.age.ms"] / 1000,
            writers=application.writers(),
        )

    def _set_state(self, state: ThreadState) -> None:
        if self.state is not state:
            log.info("thread state changed thread=%s old=%s new=%s", self.name, self.state.name, state.name)
            self.state = state
            self._on_state(self)

    # ---- the loop

    def _run_once(self) -> None:
        self._restorer.paused = self.paused.is_set()
        event = self._member.poll(self._poll_s if self._joining and not self._restorer.active else 0)
        if event is not None:
            self._hear(event)
        if self._joining:
            if self._restorer.active:  # a rebalance takes long and moves few tasks
                self._tasks.start(self._restorer.step(RESTORE_STEP_S))
            return
        tasks = self._tasks
        busy = self._bring_up()
        if self.paused.is_set():
            self._idle = True
            self._stopping.wait(self._poll_s)
            with self.lock, self._application.global_lock or contextlib.nullcontext():
                self._commit_if_due(time.monotonic(), self._aside)
            self._look_around()
            return
        full = self._more and tasks.buffered >= self._reader.batch  # slow tasks do not buffer without bound
        records = {} if full else self._poll(0.0 if busy or self._more else self._deadline_s())
        self._idle = not records and not self._more
        if records:
            tasks.add(records)
        self._more = self._work(tasks)
        if self._together:
            tasks.hold_back()
        self._look_around()

    def _poll(self, wait_s: float) -> Mapping[TopicPartition, Sequence[Message]]:
        start = time.perf_counter()
        records, metrics = self._reader.poll(wait_s), self.metrics
        metrics.poll.record((time.perf_counter() - start) * 1000)
        metrics.poll_records.record(sum(map(len, records.values())))
        return records

    def _punctuate(self, now_ms: int) -> None:
        tasks, start = self._tasks, time.perf_counter()
        tasks.punctuate(now_ms)
        count, tasks.punctuated = tasks.punctuated, 0
        if count:
            self.metrics.punctuate.record((time.perf_counter() - start) * 1000 / count, count)

    def _work(self, tasks: ActiveTasks) -> bool:
        """Process buffered records in chunks, and commit in between when a commit is due.

        Stops early when the thread has to poll the group (max.poll.interval.ms); returns whether it did.
        """
        ends = time.perf_counter() + self._turn_s
        clock, metrics = self._application.clock, self.metrics
        shared = self._application.global_lock or contextlib.nullcontext()
        while True:
            with self.lock, shared:  # for one chunk, so that queries run between two chunks
                start = time.perf_counter()
                done = tasks.process(clock(), self._chunk)
                if done:
                    self.processed += done
                    took_s = time.perf_counter() - start
                    self._chunk = paced(self._chunk, took_s, self._chunk_s)
                    metrics.process.record(took_s * 1000 / done, done)
                    metrics.process_records.record(done)
                self._punctuate(clock())
                self._collector.poll()
                self._commit_if_due(time.monotonic(), self._aside)
            if not done or self._stopping.is_set():
                return False
            if time.perf_counter() > ends:
                return True

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """While the thread waits for the cluster, other threads may read its stores."""
        shared = self._application.global_lock
        if shared is not None:
            shared.release()
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()
            if shared is not None:
                shared.acquire()

    def _deadline_s(self) -> float:
        """How long a thread without records may block: until poll.ms, a punctuator or a commit is due."""
        wait_s = min(self._poll_s, WAITING_S) if self._tasks.buffered else self._poll_s
        if self._tasks.commit_needed:
            wait_s = min(wait_s, max(0.0, self._last_commit + self._commit_interval_s - time.monotonic()))
        due = self._tasks.next_due_ms()
        if due is not None:
            wait_s = min(wait_s, max(0.0, (due - self._application.clock()) / 1000))
        return wait_s

    def _bring_up(self) -> bool:
        """Open and restore assigned tasks, and update standbys. Returns whether the thread must not block for
        records.
        """
        tasks, standbys = self._tasks, self._standbys
        if tasks.all_running:
            if standbys.tasks or not standbys.all_open:
                standbys.advance()
                self._restorer.step(0.0, beside=True)
            return False
        tasks.advance()
        standbys.advance()
        tasks.start(self._restorer.step(RESTORE_BESIDE_S if tasks.running else RESTORE_STEP_S, bool(tasks.running)))
        if len(tasks.running) == len(tasks.tasks):
            self._set_state(ThreadState.RUNNING)
            return False
        return self._restorer.active

    def _commit_if_due(self, now: float, aside: Aside = contextlib.nullcontext) -> None:
        if now - self._last_commit >= self._commit_interval_s or self._tasks.commit_wanted:
            self._commit(aside)
            self._last_commit = time.monotonic()

    def _commit(self, aside: Aside = contextlib.nullcontext) -> None:
        """Raises StreamsError, and TaskMigratedError after the group has moved to a new generation without this
        thread.
        """
        try:
            start = time.perf_counter()
            if count := self._tasks.commit(aside):
                self.commits += 1
                self.metrics.commit.record((time.perf_counter() - start) * 1000 / count, count)
            self._commit_failing_since = None
        except CommitFailed as error:
            if error.kind is CommitFailure.MIGRATED:
                raise TaskMigratedError(str(error)) from error
            since = self._commit_failing_since = self._commit_failing_since or time.monotonic()
            passing = error.kind in (CommitFailure.REBALANCING, CommitFailure.TIMED_OUT)
            if not passing or time.monotonic() - since > self._timeout_s:
                raise
            log.warning("retrying commit thread=%s error=%s", self.name, error)

    def _look_around(self) -> None:
        """Periodic work: follow-up rebalances, changed topics, deletions."""
        now, chores = time.monotonic(), self._chores
        if not chores.due(now):
            return
        chores.summarize(now, self.name, self.metrics)
        chores.purge(now, self._tasks.committed_offsets)
        chores.remove_unused_state(now)
        for task in self._tasks.running.values():
            observe(task)
        if 0 < self._next_rebalance_ms <= self._application.clock():
            self._next_rebalance_ms = 0
            self._member.request_rejoin("probing for tasks that have caught up")
        elif self._leads and chores.topics_have_changed(now):
            self._member.request_rejoin("source topics have changed")

    # ---- the group

    def _subscription(self) -> tuple[list[str], bytes]:
        application = self._application
        tasks = self._tasks
        self._serial += 1
        positions = {task: position_of(offsets) for task, offsets in application.directory.tasks().items()}
        positions.update(self._standbys.positions())
        positions.update(tasks.positions())
        info = SubscriptionInfo(
            application.directory.process_id.bytes,
            frozenset(tasks.tasks),
            frozenset(self._standbys.tasks),
            positions,
            application.config.client_tags,
            application.config["application.server"],
            error=self._error_code,
            serial=self._serial,
        )
        return application.source_topics(), info.encode()

    def _hear(self, event: RebalanceNeeded | Assigned) -> None:
        if isinstance(event, RebalanceNeeded):
            log.info("rejoining the group thread=%s reason=%s", self.name, event.reason)
            self._set_state(ThreadState.PARTITIONS_REVOKED)
            if event.lost:
                self._lose_all()
            else:
                with self.lock:
                    self._commit()
                    self._tasks.learn_ends()
            self._joining = True
            self._member.rejoin()
            return
        info = AssignmentInfo.decode(event.userdata)
        _check(info)
        passed, self._received = event.generation not in (self._received, self._received + 1), event.generation
        self._leads = event.leader
        self._next_rebalance_ms = info.next_rebalance_ms if event.leader else 0  # one requesting member is enough
        self._joining = False
        self._set_state(ThreadState.PARTITIONS_ASSIGNED)
        self._hosts_changed(info.hosts)
        with self.lock:
            self._take(info, event.partitions, passed)

    def _take(self, info: AssignmentInfo, partitions: list[TopicPartition], passed: bool) -> None:
        """Close removed tasks, keep retained tasks and create new tasks. A thread that missed a generation keeps no
        task: in that generation other members may have run its tasks and committed further offsets.
        """
        application, tasks = self._application, self._tasks
        subtopologies = application.topology.subtopologies(
            application.application_id, sorted({topic for topic, _ in partitions})
        )
        wanted = {
            task: frozenset(
                place
                for place in partitions
                if place[1] == task.partition and place[0] in subtopologies[task[0]].source_topics
            )
            for task in info.active
        }
        log.info(
            "assignment received thread=%s active=%s standby=%s",
            self.name,
            ",".join(map(str, info.active)) or "none",
            ",".join(map(str, info.standby)) or "none",
        )
        for task_id, each in list(tasks.tasks.items()):
            if passed or wanted.get(task_id) != each.sources:
                tasks.close(task_id)
        for task_id, sources in wanted.items():
            if task_id not in tasks.tasks:
                handed_on = self._standbys.promote(task_id)
                tasks.give(task_id, subtopologies[task_id.subtopology], sources, handed_on)
        self._standbys.take(info.standby, self._make_standby)
        if tasks.all_running:
            self._set_state(ThreadState.RUNNING)

    def _make_standby(self, task_id: TaskId) -> TaskState:
        application = self._application
        subtopologies = application.topology.subtopologies(application.application_id)
        return self._tasks.make_state(task_id, subtopologies[task_id.subtopology])

    # ---- failures and shutdown

    def _recover(self, error: TaskCorruptedError) -> None:
        """Rebuild the state of tasks. None of them runs yet, so an open transaction contains no records of theirs."""
        with self.lock:
            self._tasks.revive(error.tasks & self._tasks.tasks.keys())
            for task_id in error.tasks & self._standbys.tasks.keys():
                self._standbys.revive(task_id, self._make_standby)

    def _lose_all(self) -> None:
        """Close all tasks without a commit; their uncommitted output is discarded."""
        with self.lock:
            self._tasks.close_dirty()
            self._standbys.close_all()
            self._collector.renew()
        self._joining = True

    def _end(self) -> None:
        """Shut down cleanly: commit, close, and leave the group if requested."""
        self._set_state(ThreadState.PENDING_SHUTDOWN)
        with self.lock:
            try:
                if not self._joining:
                    self._tasks.commit()
                    self._tasks.learn_ends()
            except (CommitFailed, TaskMigratedError) as error:
                log.warning("cannot commit at shutdown thread=%s error=%s", self.name, error)
                self._tasks.close_dirty()
            for task_id in list(self._tasks.tasks):
                self._tasks.close(task_id)
            self._standbys.close_all()

    def _fail(self, error: Exception) -> None:
        self._set_state(ThreadState.PENDING_SHUTDOWN)
        self._on_error(self, error)
        if self._error_code == SHUTDOWN_REQUESTED:
            try:
                self._tell_all()
            except Exception as problem:
                log.warning("cannot request the shutdown of all instances thread=%s error=%r", self.name, problem)

    def _tell_all(self) -> None:
        """Join once more with the error code that shuts down every instance; the assignment shows that the leader
        received it.
        """
        self._tasks.close_dirty()
        self._member.rejoin()
        deadline = time.monotonic() + SHUTDOWN_WAIT_S
        while time.monotonic() < deadline:
            event = self._member.poll(self._poll_s)
            if isinstance(event, Assigned):
                return
            if event is not None:
                self._member.rejoin()

    def _close(self) -> None:
        """Close what is still open, however the thread ends: tasks without a commit, then the clients."""
        with self.lock:
            try:
                self._opened.close()
            except Exception as error:
                log.warning("error while closing thread=%s error=%r", self.name, error)

    def _leave(self) -> None:
        if self.leave:
            self._member.leave()
        self._member.close()


def _check(info: AssignmentInfo) -> None:
    """Raises StreamsError for the error code that the leader put into the assignment."""
    if info.error == NO_ERROR:
        return
    if info.error == INCOMPLETE_SOURCE_TOPIC_METADATA:
        raise MissingSourceTopicError(
            "One or more source topics were missing during rebalance; the log of the leader's instance lists them"
        )
    if info.error == SHUTDOWN_REQUESTED:
        raise ShutdownRequestedError("an instance has requested the shutdown of the whole application")
    if info.error == ASSIGNMENT_ERROR:
        raise StreamsError("the tasks could not be assigned; the log of the leader's instance contains the error")
    raise StreamsError(f"the leader of the group returned error code {info.error}")
