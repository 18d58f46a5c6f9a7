"""Run loop of a stream thread: polls the group and the consumer, and drives the tasks (Kafka: StreamThread.runLoop).

Each iteration of the loop polls the group for a rebalance, restores stores for a short time if any need it, polls a
batch of records and adds it to the tasks, lets the tasks process records, calls punctuators and commits when the commit
interval has passed. No step blocks for long: a thread without records blocks in `poll` for poll.ms.

In a rebalance the thread commits, joins again and processes nothing until it has its assignment. Tasks that it keeps
continue at their positions. A thread that the group has fenced or removed closes its tasks without a commit and joins
as a new member. After a TaskCorruptedError the thread rebuilds the state of the tasks.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError, TaskCorruptedError, TaskMigratedError
from odradek.streams.group.membership import Assigned, GroupMember, MembershipConfig, RebalanceNeeded
from odradek.streams.group.subscription_info import SHUTDOWN_REQUESTED, AssignmentInfo, Hosts
from odradek.streams.metrics import observe
from odradek.streams.record_queue import Message
from odradek.streams.running.active_tasks import ActiveTasks
from odradek.streams.running.application import Application
from odradek.streams.running.client import high_watermarks
from odradek.streams.running.collector import RecordCollector
from odradek.streams.running.join_watch import JoinWatch
from odradek.streams.running.maintenance import Maintenance
from odradek.streams.running.record_reader import RecordReader
from odradek.streams.running.restoration import CONSUMER as RESTORE_CONSUMER
from odradek.streams.running.restoration import Restorer
from odradek.streams.running.source_topics import SourceTopicCheck
from odradek.streams.running.subscription import Subscription, check_assignment
from odradek.streams.running.task_executor import TaskExecutor
from odradek.streams.running.task_manager import TaskManager
from odradek.streams.running.thread_context import ThreadContext, ThreadState

log = logging.getLogger(__name__)

SHUTDOWN_WAIT_S: Final = 10.0
WAITING_S: Final = 0.01  # how often the thread checks a task that waits for a topic (max.task.idle.ms)


class RunLoop:
    """The loop of one stream thread, which alone calls its methods; other threads may read the attributes."""

    def __init__(
        self,
        application: Application,
        context: ThreadContext,
        reader: RecordReader,
        member: GroupMember,
        tasks: TaskManager,
        executor: TaskExecutor,
        subscription: Subscription,
        *,
        set_state: Callable[[ThreadState], None],
        hosts_changed: Callable[[Hosts], None],
    ) -> None:
        self.member = member
        self.tasks = tasks
        self.executor = executor
        self.idle = False
        """Whether the last iteration had no work."""
        self._application = application
        self._context = context
        self._reader = reader
        self._subscription = subscription
        self._set_state = set_state
        self._hosts_changed = hosts_changed
        self._maintenance = Maintenance(application, application.admin)
        self._source_topics = SourceTopicCheck(application.admin)
        session_s = application.config["session.timeout.ms"] / 1000
        self._join_watch = JoinWatch(application.admin, context.name, application.application_id, session_s)
        self._poll_s: float = application.config["poll.ms"] / 1000
        self._together = application.reads_together()
        self._joining = True
        self._received = -1
        """The generation of the last assignment received."""
        self._more = False
        """Whether records remain after the last iteration."""
        self._next_rebalance_ms = 0
        self._leads = False

    def run(self) -> None:
        """Join the group, and work until the thread has to stop. Raises StreamsError."""
        self.member.rejoin()
        while not self._context.stopping.is_set():
            try:
                self._run_once()
            except TaskCorruptedError as error:
                log.warning("rebuilding corrupted tasks thread=%s error=%s", self._context.name, error)
                self.tasks.handle_corruption(error)
            except TaskMigratedError as error:
                log.warning("thread lost its tasks thread=%s error=%s", self._context.name, error)
                self._lose_all()
                self.member.rejoin()

    def shut_down(self) -> None:
        """Commit and close the tasks. Raises the first error of a task."""
        self.tasks.shut_down(commit=not self._joining)

    def request_shutdown(self) -> None:
        """Join once more with the error code that shuts down every instance; the assignment shows that the leader
        received it.
        """
        self._subscription.error_code = SHUTDOWN_REQUESTED
        self.tasks.active.close_dirty()
        self.member.rejoin()
        deadline = time.monotonic() + SHUTDOWN_WAIT_S
        while time.monotonic() < deadline:
            event = self.member.poll(self._poll_s)
            if isinstance(event, Assigned):
                return
            if event is not None:
                self.member.rejoin()

    # ---- one iteration

    def _run_once(self) -> None:
        manager, paused = self.tasks, self._context.paused
        restorer, active = manager.restorer, manager.active
        restorer.paused = paused.is_set()
        event = self.member.poll(self._poll_s if self._joining and not restorer.active else 0)
        if event is not None:
            self._handle(event)
        if self._joining:
            self._join_watch.poll(time.monotonic(), self.member.member_id)
            manager.restore()
            return
        busy = manager.try_to_complete_restoration()
        self._set_running()
        if paused.is_set():
            self.idle = True
            self._context.stopping.wait(self._poll_s)
            self.executor.maybe_commit()
            self._maintain()
            return
        full = self._more and active.buffered >= self._reader.batch  # slow tasks do not buffer without bound
        calling, pending = active.calls.exist, active.calls.pending
        full = full or (calling and not active.intake.wants_records)
        at_once = busy or self._more or pending
        records = {} if full else self._poll(0.0 if at_once else self._time_to_work_s())
        self.idle = not records and not self._more and not pending
        if pending and not records and not self._more:
            active.calls.wait(WAITING_S)
        if records:
            active.add(records)
        self._more = self.executor.process()
        if self._together or calling:
            active.intake.pause()
        self._maintain()

    def _poll(self, wait_s: float) -> Mapping[TopicPartition, Sequence[Message]]:
        start = time.perf_counter()
        records, metrics = self._reader.poll(wait_s), self._context.metrics
        metrics.poll.record((time.perf_counter() - start) * 1000)
        metrics.poll_records.record(sum(map(len, records.values())))
        return records

    def _time_to_work_s(self) -> float:
        """How long a thread without records may block: until poll.ms, a punctuator or a commit is due."""
        active = self.tasks.active
        wait_s = min(self._poll_s, WAITING_S) if active.buffered else self._poll_s
        if active.commit_needed:
            wait_s = min(wait_s, self.executor.time_to_commit_s())
        due = active.next_due_ms()
        if due is not None:
            wait_s = min(wait_s, max(0.0, (due - self._application.clock()) / 1000))
        return wait_s

    def _set_running(self) -> None:
        if self.tasks.active.all_running:
            self._set_state(ThreadState.RUNNING)

    def _maintain(self) -> None:
        """Periodic work: follow-up rebalances, changed topics, deletions."""
        now, maintenance, active = time.monotonic(), self._maintenance, self.tasks.active
        if self.executor.lacks_topic or self._source_topics.due(now):
            topics = self._reader.topics if self.executor.lacks_topic else self._reader.silent_topics()
            self.executor.lacks_topic = False
            if missing := self._source_topics.poll(now, topics):
                self.member.request_rejoin(f"source topics do not exist any more: {', '.join(missing)}")
        if not maintenance.due(now):
            return
        maintenance.summarize(now, self._context.name, self._context.metrics)
        maintenance.purge(now, active.committed_offsets)
        maintenance.remove_unused_state(now)
        for task in active.running.values():
            observe(task)
        self._context.metrics.records_lag = self._reader.records_lag()
        if 0 < self._next_rebalance_ms <= self._application.clock():
            self._next_rebalance_ms = 0
            self.member.request_rejoin("probing for tasks that have caught up")
        elif self._leads and maintenance.topics_have_changed(now):
            self.member.request_rejoin("source topics have changed")

    # ---- rebalances

    def _handle(self, event: RebalanceNeeded | Assigned) -> None:
        if isinstance(event, Assigned):
            self._handle_assignment(event)
            return
        log.info("rejoining the group thread=%s reason=%s", self._context.name, event.reason)
        self._set_state(ThreadState.PARTITIONS_REVOKED)
        if event.lost:
            self._lose_all()
        else:
            with self._context.lock:
                self.executor.commit()
                self.tasks.active.learn_ends()
        self._joining = True
        self.member.rejoin()

    def _handle_assignment(self, event: Assigned) -> None:
        info = AssignmentInfo.decode(event.userdata)
        check_assignment(info)
        missed, self._received = event.generation not in (self._received, self._received + 1), event.generation
        self._leads = event.leader
        self._next_rebalance_ms = info.next_rebalance_ms if event.leader else 0  # one requesting member is enough
        self._joining = False
        self._join_watch.end()
        self._set_state(ThreadState.PARTITIONS_ASSIGNED)
        self._hosts_changed(info.hosts)
        self.tasks.handle_assignment(info, event.partitions, missed)
        self._set_running()

    def _lose_all(self) -> None:
        self.tasks.handle_lost_all()
        self._joining = True


def open_run_loop(
    application: Application,
    context: ThreadContext,
    opened: ExitStack,
    *,
    set_state: Callable[[ThreadState], None],
    hosts_changed: Callable[[Hosts], None],
    close_member: Callable[[GroupMember], None],
) -> RunLoop:
    """A loop with its clients, its membership and its tasks. `opened` gets what the thread has to close, also where
    this raises (Kafka: StreamThread.create).
    """
    config, clients, name = application.config, application.clients, context.name
    consumer = clients.main_consumer(name, partition_eof=application.reads_together())
    opened.callback(consumer.close)
    reader = RecordReader(consumer, config["max.poll.records"], application.offset_reset)
    isolation = "read_committed" if config.exactly_once else "read_uncommitted"
    restore_consumer = clients.restore_consumer(name, {**RESTORE_CONSUMER, "isolation.level": isolation})
    opened.callback(restore_consumer.close)
    # The member encodes the subscription when it joins, after the tasks below exist.
    member = GroupMember(_membership(application, context), lambda: subscription.encode(), application.leader.assign)
    opened.callback(close_member, member)
    restorer = Restorer(
        restore_consumer,
        config["request.timeout.ms"] / 1000,
        application.restore_listener,
        committed=functools.partial(_committed_offsets, member, name),
        written=functools.partial(high_watermarks, application.admin),
        give_up_s=config["task.timeout.ms"] / 1000,
        standby_listener=application.standby_listener,
    )
    restorer.guard = context.lock
    collector = _make_collector(application, context)
    opened.callback(collector.close)
    active = ActiveTasks(application, member, reader, restorer, collector, context.cache, context.metrics)
    opened.callback(active.close_dirty)
    manager = TaskManager(application, context, active, restorer, collector)
    opened.callback(manager.standbys.close_all)
    executor = TaskExecutor(application, context, active, collector)
    subscription = Subscription(application, manager)
    return RunLoop(
        application,
        context,
        reader,
        member,
        manager,
        executor,
        subscription,
        set_state=set_state,
        hosts_changed=hosts_changed,
    )


def _membership(application: Application, context: ThreadContext) -> MembershipConfig:
    config = application.config
    settings: dict[str, Any] = {**config, "client.id": f"{context.name}-consumer"}
    if config["group.instance.id"] is not None:
        settings["group.instance.id"] = f"{config['group.instance.id']}-{context.index}"
    return MembershipConfig.of(settings)


def _committed_offsets(member: GroupMember, name: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The committed offsets of source topics that standbys follow; without an answer the limits stay unchanged."""
    try:
        return {place: found.offset for place, found in member.fetch_committed(places, False).items()}
    except StreamsError as error:
        log.warning("cannot fetch committed offsets thread=%s error=%s", name, error)
        return {}


def _make_collector(application: Application, context: ThreadContext) -> RecordCollector:
    config, clients = application.config, application.clients
    transactional_id = None
    if config.exactly_once:
        transactional_id = f"{application.application_id}-{application.directory.process_id}-{context.index}"
    return RecordCollector(
        lambda on_delivery: clients.producer(context.name, transactional_id, on_delivery),
        config.handlers,
        config["task.timeout.ms"] / 1000,
        transactional=config.exactly_once,
        metadata_s=config["metadata.max.age.ms"] / 1000,
        writers=application.writers(),
        source_topics=SourceTopicCheck(application.admin) if config.exactly_once else None,
    )
