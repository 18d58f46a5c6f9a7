"""Task context: the current record, the time and the output, shared by the nodes and stores of one task (Kafka:
ProcessorContextImpl).

The record loop writes the attributes of the current record; nodes and stores read them. A node that writes a store sets
`timestamp` and `headers` before, since its input may carry other ones than the source record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from odradek.streams.errors import (
    DEFAULT_HANDLERS,
    DeadLetter,
    ErrorContext,
    Handler,
    Handlers,
    Response,
    decide,
)
from odradek.streams.records import NO_TIMESTAMP, Headers, RecordMetadata, TaskId
from odradek.streams.sensors import StreamsMetrics

if TYPE_CHECKING:
    from odradek.streams.stores.cache import ThreadCache


Send = Callable[[str, bytes | None, bytes | None, int | None, int, Headers], None]
"""Writes a record: topic, key, value, partition, timestamp in ms, headers. Without a partition the key decides, as in
Java's default partitioner.
"""


class SourceMessage(Protocol):
    """A record as a client returns it."""

    def key(self) -> Any: ...

    def value(self) -> Any: ...

    def timestamp(self) -> tuple[int, int]: ...

    def offset(self) -> int | None: ...

    def headers(self) -> Any: ...


class Collector(Protocol):
    """The output of a task: a producer, or a driver's memory."""

    def sender(self, context: TaskContext) -> Send:
        """What writes the records of one task; a failure is reported with the source record of `context`."""

    def add_writer(self, topic: str, node: str) -> None:
        """A sink writes to a topic that it chose for a record; failures are reported with this node."""

    def send_dead_letter(self, letter: DeadLetter) -> None:
        """Write a record that a handler returned, in the task's transaction."""

    def partitions_of(self, topic: str) -> int:
        """The partition count of a topic. Raises StreamsError where no broker returns it."""


class TaskContext:
    """The context of one task."""

    __slots__ = (
        "_changelogs",
        "_own_partition",
        "application_id",
        "cache",
        "collector",
        "commit_needed",
        "commit_wanted",
        "committed_topics",
        "config",
        "dropped",
        "handlers",
        "headers",
        "offset",
        "partition",
        "processor_metadata",
        "results_ready",
        "send",
        "source_message",
        "state_dir",
        "store_dir",
        "stream_time",
        "streams_metrics",
        "system_time_ms",
        "task_id",
        "timestamp",
        "topic",
    )

    def __init__(
        self,
        task_id: TaskId,
        collector: Collector,
        clock: Callable[[], int],
        config: Mapping[str, Any],
        cache: ThreadCache,
        *,
        store_dir: Path | None = None,
        handlers: Handlers = DEFAULT_HANDLERS,
        metrics: StreamsMetrics | None = None,
    ) -> None:
        """`clock` returns the wall-clock time in ms. `store_dir` is the task's directory, None where there is no
        disk; `metrics` are the user's sensors, None for own ones.
        """
        self.task_id = task_id
        self.application_id: str = config["application.id"]
        self.config = config
        self.collector = collector
        self.send: Send = collector.sender(self)
        self.source_message: SourceMessage | None = None
        """The message of the current record; None in a punctuator."""
        self.cache = cache
        self.handlers = handlers
        self.system_time_ms = clock
        self.streams_metrics = StreamsMetrics(config, clock) if metrics is None else metrics
        self.store_dir = store_dir
        self.state_dir = store_dir
        self.timestamp = NO_TIMESTAMP
        self.headers: Headers = None
        self.topic: str | None = None
        self.partition = task_id.partition
        self.offset = -1
        self.stream_time = NO_TIMESTAMP
        self.commit_needed = False
        """Whether records were processed or skipped, or punctuators called, since the last commit."""
        self.commit_wanted = False
        """Whether a processor has requested a commit."""
        self.dropped = 0
        """Records that nodes have dropped (dropped-records-total)."""
        self.processor_metadata: dict[str, int] = {}
        """Numbers of processors that are committed with the offsets, by name."""
        self.committed_topics: set[str] = set()
        """Source topics whose offset is part of every commit, also where no record was read: its metadata has the
        numbers of a processor.
        """
        self.results_ready: threading.Event | None = None
        """Set when a call of an asynchronous operator has ended; the tasks of a thread share it."""
        self._changelogs: dict[str, str] = {}
        self._own_partition = task_id.partition

    def changelog(self, store: str, topic: str) -> None:
        """Log the changes of `store` to this topic from now on."""
        self._changelogs[store] = topic

    def log(self, store: str, key: bytes, value: bytes | None, timestamp: int, headers: Headers = None) -> None:
        """A store has changed. No effect where the store is not logged."""
        topic = self._changelogs.get(store)
        if topic is not None:
            self.send(topic, key, value, self._own_partition, timestamp, headers)

    def add_metadata(self, numbers: Mapping[str, int]) -> None:
        """Add the numbers of processors that were committed with one partition. The partitions of a task are not always
        committed together, so the greatest number of each processor counts (Kafka: ProcessorMetadata.update).
        """
        known = self.processor_metadata
        known.update({name: max(number, known.get(name, number)) for name, number in numbers.items()})

    def bind_sender(self) -> None:
        """Write by the current producer: a collector may have replaced the one of the construction."""
        self.send = self.collector.sender(self)

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The topic, partition and offset of the current record; None without one."""
        return RecordMetadata(self.topic, self.partition, self.offset) if self.topic is not None else None

    def where(self, node: str) -> ErrorContext:
        """The current node and record, for a message or a handler."""
        source = RecordMetadata(self.topic or "", self.partition, self.offset)
        message = self.source_message if self.topic is not None else None
        key, value = (None, None) if message is None else (message.key(), message.value())
        return ErrorContext(
            self.task_id, node, source, self.timestamp, self.headers, key, value, self.handlers.dead_letter_topic
        )

    def failed(self, handler: Handler, where: ErrorContext, record: Any, error: Exception) -> bool:
        """Ask a handler about a record, write its dead letters, and count the record if it is dropped. Returns whether
        the handler returned FAIL. Raises StreamsError.
        """
        decision = decide(handler, where, record, error)
        for letter in decision.dead_letters:
            self.collector.send_dead_letter(letter)
        if decision.response is Response.FAIL:
            return True
        self.dropped += 1
        return False
