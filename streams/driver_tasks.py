"""Tasks of the test driver: a topology without a broker (Kafka: TopologyTestDriver.setupTask, setupGlobalTask).

All sub-topologies are one task, beside a task for the global stores. Every topic has one partition and is a queue in
memory; a record that is written to a source topic of the topology returns to the task at once.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.config import StreamsConfig
from odradek.streams.context import Send, TaskContext
from odradek.streams.errors import DeadLetter
from odradek.streams.records import Headers, TaskId
from odradek.streams.sensors import StreamsMetrics
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.task import Task
from odradek.streams.topology import SourceNode, Subtopology, Topology, make_store

GLOBAL_TASK: Final = TaskId(-1, -1)


class ProducedRecord(NamedTuple):
    """A record that the topology wrote, as it would be on the topic; `timestamp` in ms."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class _Message(NamedTuple):
    """A record for a task, with the methods of a client's message."""

    at: int
    record: ProducedRecord

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self.record.timestamp

    def offset(self) -> int:
        return self.at

    def headers(self) -> Headers:
        return self.record.headers


class _Sent:
    """The collector of the driver: stores written records until the driver reads them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, ProducedRecord]] = []

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Store a record."""
        self.waiting.append((topic, ProducedRecord(key, value, timestamp, headers)))

    def sender(self, context: TaskContext) -> Send:
        """The same for every task."""
        return self.send

    def add_writer(self, topic: str, node: str) -> None:
        """No write fails here."""

    def send_dead_letter(self, letter: DeadLetter) -> None:
        """Store a record."""
        self.send(letter.topic, letter.key, letter.value, None, letter.timestamp, letter.headers)

    def partitions_of(self, topic: str) -> int:
        """One for every topic."""
        return 1


class _Patterns:
    """The patterns of sources, which match new topics, too."""

    def __init__(self, topology: Topology) -> None:
        nodes = topology.nodes.values()
        self._patterns = [node.pattern for node in nodes if isinstance(node, SourceNode) and node.pattern is not None]

    def match(self, topic: str) -> bool:
        """Whether any pattern matches this topic."""
        return any(pattern.fullmatch(topic) for pattern in self._patterns)


class DriverTasks:
    """The tasks of one driver, their stores, and the records between them."""

    def __init__(self, topology: Topology, config: StreamsConfig, now_ms: int) -> None:
        """Opens the stores and initializes the processors. Raises StreamsError."""
        self.now_ms = now_ms
        """The wall-clock time."""
        self.sensors = StreamsMetrics(config, lambda: self.now_ms)
        self.produced: dict[str, deque[ProducedRecord]] = {}
        """The written records that the test has not read yet, by topic."""
        self.stores: dict[str, Any] = {}
        """All stores by their names, global ones included."""
        self._topology = topology
        self._config = config
        self._application_id: str = config["application.id"]
        self._sent = _Sent()
        self._offsets: dict[str, int] = {}
        self._cache = ThreadCache(config["statestore.cache.max.bytes"])
        self._global_stores: dict[str, Any] = {}
        self._patterns = _Patterns(topology)
        self._global_task = self._make_global_task()
        self.task = self._make_task()
        """The task of all sub-topologies; None where there are only global stores."""
        for task in (self._global_task, self.task):
            if task is not None:
                task.init()
        self.complete_work()

    def close(self) -> None:
        """Flush the caches, then close processors and stores."""
        try:
            if self.task is not None:
                self.task.complete()
        finally:
            for task in (self.task, self._global_task):
                if task is not None:
                    task.close()
            for store in self._global_stores.values():
                store.close()

    def advance(self, ms: int) -> None:
        """Advance wall-clock time, call the punctuators that are due, and process what they cause."""
        self.now_ms += ms
        if self.task is not None:
            self.task.punctuations.run_system_time()
            self._commit(self.task)
        self.complete_work()

    def feed(self, topic: str, record: ProducedRecord) -> bool:
        """Add a record to the task that reads its topic; False where none does."""
        reader = self._reader(topic)
        if reader is None:
            return False
        task, partition = reader
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        task.add(partition, [_Message(offset, record)])
        if task is self._global_task:
            task.process(1)
            for store in self._global_stores.values():
                store.flush()
            task.committed()
        return True

    def complete_work(self) -> None:
        """Process buffered records, one by one, until none is left."""
        self._capture_outputs()
        task = self.task
        if task is None:
            return
        group, record, clock = task.partition_group, task.metrics.process.record, time.perf_counter_ns
        while group.buffered() and group.ready(self.now_ms):
            start = clock()
            if not task.process(1):
                return
            if task.calls is not None:
                task.complete()
            record(clock() - start)
            task.punctuations.run_stream_time()
            self._commit(task)
            self._capture_outputs()

    # ---- internals

    def _context(self, task_id: TaskId) -> TaskContext:
        state = self._config.given.get("state.dir")
        directory = None if state is None else Path(state) / self._application_id / str(task_id)
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        return TaskContext(
            task_id,
            self._sent,
            lambda: self.now_ms,
            self._config,
            self._cache,
            store_dir=directory,
            handlers=self._config.handlers,
            metrics=self.sensors,
        )

    def _make_global_task(self) -> Task | None:
        """The global stores, filled through their processors."""
        nodes = tuple(name for name in self._topology.nodes if name in self._topology.global_nodes)
        if not nodes:
            return None
        context = self._context(GLOBAL_TASK)
        stores = {name: make_store(each, self._config) for name, each in self._topology.global_stores.items()}
        for store in stores.values():
            store.init(context)
        self.stores.update(stores)
        self._global_stores = stores
        topics = tuple(self._topology.source_changelogs[name] for name in stores)
        part = Subtopology(-1, nodes, topics, (), {}, tuple(stores), {})
        return Task(self._topology, part, context, {}, stores)

    def _make_task(self) -> Task | None:
        """All sub-topologies as one task, as in Java's driver."""
        topology = self._topology
        nodes = tuple(name for name in topology.nodes if name not in topology.global_nodes)
        if not nodes:
            return None
        context = self._context(TaskId(0, 0))
        stores = {}
        parts = topology.subtopologies(self._application_id).values()
        changelogs = {name: topic for part in parts for name, topic in part.changelogs.items()}
        for name in topology.store_order(nodes):
            if name in topology.global_stores:
                continue
            builder = topology.stores[name]
            stores[name] = make_store(builder, self._config)
            stores[name].init(context)
            if builder.logging and name in changelogs:
                context.changelog(name, changelogs[name])
        self.stores.update(stores)
        whole = Subtopology(
            0,
            nodes,
            tuple(topic for part in parts for topic in part.source_topics),
            tuple(topic for part in parts for topic in part.sink_topics),
            {name: topic for part in parts for name, topic in part.repartition_topics.items()},
            tuple(stores),
            changelogs,
        )
        return Task(topology, whole, context, stores, self._global_stores, idle_ms=self._config["max.task.idle.ms"])

    def _reader(self, topic: str) -> tuple[Task, TopicPartition] | None:
        """The task that reads a topic, and the partition; a pattern matches a new topic."""
        for task, number in ((self.task, 0), (self._global_task, GLOBAL_TASK.partition)):
            if task is not None and (topic, number) in task.partitions:
                return task, (topic, number)
        if self.task is not None and self._patterns.match(topic):
            self.task.read((topic, 0))
            return self.task, (topic, 0)
        return None

    @staticmethod
    def _commit(task: Task) -> None:
        if task.commit_needed:
            task.complete()
            task.flush()
            task.committed()

    def _capture_outputs(self) -> None:
        """Store written records by topic, and add them to tasks that read the topic."""
        sent, self._sent.waiting = self._sent.waiting, []
        for topic, record in sent:
            self.produced.setdefault(topic, deque()).append(record)
            self.feed(topic, record)
