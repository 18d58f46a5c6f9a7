"""Stream task: one partition of one sub-topology, with its buffers, its stores and its positions (Kafka: StreamTask).

Records wait in a queue for each partition. The task processes the record with the lowest timestamp at the head of a
queue first (PartitionGroup), so that a join gets both sides in timestamp order as far as records are buffered. A task
that reads one partition has no choice and processes a batch in one loop.

A task has no reference to a consumer, a producer or a thread: its caller adds messages, and it writes through a
collector.
"""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.commit_metadata import encode_metadata
from odradek.streams.context import TaskContext
from odradek.streams.errors import Response, SerializationError, StreamsError
from odradek.streams.metered import LEVELS, meter
from odradek.streams.nodes import Program, default_serde
from odradek.streams.priority_queue import PriorityQueue
from odradek.streams.processor import PunctuationType
from odradek.streams.punctuation import Punctuation, PunctuationQueue
from odradek.streams.recorded_metrics import TaskMetrics
from odradek.streams.records import NO_TIMESTAMP, Process, RecordMetadata, TaskId
from odradek.streams.timestamps import fail_on_invalid_timestamp
from odradek.streams.topology import SourceNode, Subtopology, TimestampExtractor, Topology

NO_PARTITION: Final = -1


class Message(Protocol):
    """A record from a client: confluent_kafka.Message, or a driver's."""

    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...
    def offset(self) -> int | None: ...
    def headers(self) -> Any: ...


class _Queue:
    """The buffered records of one partition, and their deserializers."""

    __slots__ = (
        "added",
        "consumed",
        "extract",
        "head",
        "messages",
        "next_offset",
        "partition",
        "partition_time",
        "process",
        "read_key",
        "read_value",
        "source",
        "topic",
    )

    def __init__(self, topic: str, partition: int, source: SourceNode, process: Process, task: TaskContext) -> None:
        self.topic = topic
        self.partition = partition
        self.source = source.name
        self.process = process
        where = f"source {source.name} of topic {topic}"
        key_serde = default_serde(source.key, "default.key.serde", task, f"{where} (keys; Consumed)")
        value_serde = default_serde(source.value, "default.value.serde", task, f"{where} (values; Consumed)")
        self.read_key = key_serde.for_topic(topic, True).deserialize
        self.read_value = value_serde.for_topic(topic, False).deserialize
        extractor = source.extractor or task.config.get("default.timestamp.extractor")
        # None is the same rule as that extractor's, within the loop.
        self.extract: TimestampExtractor | None = None if extractor is fail_on_invalid_timestamp else extractor
        self.messages: deque[Message] = deque()
        self.added = 0
        """Records added so far, without those that were cleared."""
        self.head: tuple[Any, Any, int, Message] | None = None
        """The first record as objects, once it has been deserialized."""
        self.partition_time = NO_TIMESTAMP
        self.next_offset: int | None = None
        """The next offset to commit, after processed or skipped records; None before the first."""
        self.consumed = False


class Task:
    """An active task. One thread calls its methods."""

    def __init__(
        self,
        topology: Topology,
        subtopology: Subtopology,
        context: TaskContext,
        stores: Mapping[str, Any],
        global_stores: Mapping[str, Any],
        *,
        idle_ms: int = 0,
        lag: Callable[[TopicPartition], int | None] = lambda partition: 0,
    ) -> None:
        """`stores` are those of the sub-topology, in the order in which they are opened; the caller opens them.

        `lag` returns how many records of a partition have not been added yet, None where that is unknown.
        """
        self.task_id: TaskId = context.task_id
        self.context = context
        self.stores = stores
        self.commit_needed = False
        self.processed = 0
        """Records processed so far."""
        self._idle_ms = idle_ms
        self._lag = lag
        self._idle_deadlines: dict[TopicPartition, int] = {}
        """Partitions that were read to their end, and until when the task waits for them."""
        self._stream_clock = PunctuationQueue()
        self._wall_clock = PunctuationQueue()
        self.metrics = TaskMetrics()
        if context.config.get("metrics.recording.level") in LEVELS:
            for name, store in stores.items():
                self.metrics.stores[name] = meter(store, getattr(topology.stores[name], "kind", ""))
        self._program = Program(topology, subtopology.nodes, context, {**global_stores, **stores}, self._schedule)
        self._entries = self._program.bind()
        self._nodes = topology.nodes
        self._topics: dict[str, SourceNode] = {}
        self._queues: dict[TopicPartition, _Queue] = {}
        self._arrived: list[_Queue] = []
        """Queues that were empty, in the order in which they got records; their heads have not been read yet."""
        self._heads: PriorityQueue[_Queue] = PriorityQueue()
        """The other queues that have records, by the timestamp of the first one."""
        for name in self._entries:
            source = topology.nodes[name]
            assert isinstance(source, SourceNode)
            for topic in topology.source_of(source, context.application_id, subtopology.source_topics):
                self._topics[topic] = source
                self.read((topic, context.task_id.partition))

    def read(self, partition: TopicPartition) -> None:
        """Read this partition, too: the task of global tables reads every partition of its topics."""
        source = self._topics.get(partition[0]) or self._matching(partition[0])
        if partition not in self._queues:
            self._queues[partition] = _Queue(*partition, source, self._entries[source.name], self.context)

    def _matching(self, topic: str) -> SourceNode:
        """The source node whose pattern matches a new topic. Raises KeyError."""
        for name in self._entries:
            source = self._nodes[name]
            if isinstance(source, SourceNode) and source.pattern is not None and source.pattern.fullmatch(topic):
                return source
        raise KeyError(topic)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The source partitions of the task."""
        return list(self._queues)

    def init(self) -> None:
        """Initialize the processors: the stores are restored."""
        self._program.init()

    def seek(self, partition: TopicPartition, partition_time: int) -> None:
        """Set the partition time from the commit metadata: the latest timestamp in the partition."""
        queue = self._queues[partition]
        queue.partition_time = partition_time
        if partition_time > self.context.stream_time:
            self.context.stream_time = partition_time

    # ---- records

    def add(self, partition: TopicPartition, messages: Iterable[Message]) -> None:
        """Buffer records, in the order of their offsets."""
        queue = self._queues[partition]
        before = len(queue.messages)
        if not before:
            self._arrived.append(queue)
        queue.messages.extend(messages)
        queue.added += len(queue.messages) - before

    def buffered(self, partition: TopicPartition | None = None) -> int:
        """How many records are buffered, of one partition or of all."""
        if partition is not None:
            return len(self._queues[partition].messages)
        return sum(len(queue.messages) for queue in self._queues.values())

    def taken(self) -> dict[tuple[str, str], int]:
        """How many records were consumed so far, by source node and topic."""
        found: dict[tuple[str, str], int] = {}
        for queue in list(self._queues.values()):
            name = queue.source, queue.topic
            found[name] = found.get(name, 0) + queue.added - len(queue.messages)
        return found

    def clear(self) -> None:
        """Clear the buffers: the next owner of the task fetches their records again."""
        for queue in self._queues.values():
            queue.added -= len(queue.messages)
            queue.messages.clear()
            queue.head = None
        self._arrived.clear()
        self._heads.clear()

    def ready(self, now_ms: int) -> bool:
        """Whether the next record can be chosen: all partitions have one, or the task need not wait for one (KIP-695).

        With `max.task.idle.ms` below 0 the task waits for no partition. Otherwise it waits for an empty partition as
        long as the broker has records of it, and then for so many ms after it first found the partition read to its
        end.
        """
        if self._idle_ms < 0:
            return any(queue.messages for queue in self._queues.values())
        found, deadlines = False, self._idle_deadlines
        for place, queue in self._queues.items():
            if queue.messages:
                found = True
                deadlines.pop(place, None)
            elif self._lag(place) != 0:
                deadlines.pop(place, None)
                return False
            elif now_ms < deadlines.setdefault(place, now_ms + self._idle_ms):
                return False
        return found

    def process(self, most: int) -> int:
        """Process up to `most` records; returns how many. Raises StreamsError."""
        if len(self._queues) == 1:
            self._arrived.clear()
            done = self._process_batch(next(iter(self._queues.values())), most)
        else:
            waiting = [queue for queue in self._queues.values() if queue.messages]
            done = 0
            if len(waiting) == 1 and waiting[0].extract is None:
                done = self._process_only(waiting[0], most)
            else:
                while done < most and self._process_earliest():
                    done += 1
        self.processed += done
        return done

    def process_partition(self, partition: TopicPartition, most: int) -> int:
        """Process records of one partition alone, independent of the others. Raises StreamsError."""
        self._arrived.clear()
        done = self._process_batch(self._queues[partition], most)
        self.processed += done
        return done

    def _process_only(self, queue: _Queue, most: int) -> int:
        """Process the only queue with records. A head that was read is read anew."""
        self._arrived.clear()
        self._heads.clear()
        queue.head = None
        try:
            return self._process_batch(queue, most)
        finally:
            if queue.messages:
                self._arrived.append(queue)

    def _process_batch(self, queue: _Queue, most: int) -> int:
        """Process the records of the only partition."""
        context, messages = self.context, queue.messages
        take, process = messages.popleft, queue.process
        read_key, read_value = queue.read_key, queue.read_value
        plain = queue.extract is None and queue.head is None
        count = min(most, len(messages))
        if not count:
            return 0
        context.topic, context.partition = queue.topic, queue.partition
        if not plain:
            for _ in range(count):
                self._process_head(queue)
            return count
        self.commit_needed = True  # also where a record fails: stores contain the changes of earlier records
        stream_time = context.stream_time
        kind: Any = type(messages[0])  # a client's messages are of one class: `map` calls its methods without a lookup
        batch = [take() for _ in range(count)]
        rows = zip(
            *(map(get, batch) for get in (kind.offset, kind.timestamp, kind.headers, kind.key, kind.value)), strict=True
        )
        at = 0
        try:
            for at, (offset, (_, timestamp), headers, key, value) in enumerate(rows):
                context.offset, context.timestamp, context.headers = offset, timestamp, headers
                try:
                    if key is not None:
                        key = read_key(key)
                    if value is not None:
                        value = read_value(value)
                except Exception as error:
                    self._unreadable(queue, batch[at], error)
                    continue
                if timestamp < 0:
                    self._without_time(queue, batch[at], timestamp)
                    continue
                if timestamp > stream_time:
                    context.stream_time = stream_time = timestamp
                process(key, value, timestamp, headers)
        except BaseException:
            queue.next_offset = context.offset  # the failed record is not committed, so the next owner gets it again
            messages.extendleft(reversed(batch[at + 1 :]))
            raise
        queue.next_offset = context.offset + 1
        queue.partition_time = max(queue.partition_time, stream_time)
        queue.consumed = True
        context.topic = None
        return count

    def _process_earliest(self) -> bool:
        """Process the record with the lowest timestamp at the heads; of equal ones, the record that Java chooses."""
        for queue in self._arrived:
            self._enter(queue)
        self._arrived.clear()
        chosen = self._heads.poll()
        if chosen is None:
            return False
        self._process_head(chosen)
        return True

    def _enter(self, queue: _Queue) -> None:
        """A queue takes part in the choice with its first readable record."""
        while queue.messages:
            head = self._look(queue)
            if head is not None:
                self._heads.offer(head[2], queue)
                return

    def _process_head(self, queue: _Queue) -> None:
        head = queue.head or self._look(queue)
        if head is None:
            return
        key, value, timestamp, message = head
        queue.messages.popleft()
        queue.head = None
        queue.partition_time = max(queue.partition_time, timestamp)
        if len(self._queues) > 1:
            self._enter(queue)
        context = self.context
        context.topic, context.partition = queue.topic, queue.partition
        context.offset = message.offset()  # type: ignore[assignment]
        context.timestamp, context.headers = timestamp, message.headers()
        if timestamp > context.stream_time:
            context.stream_time = timestamp
        queue.next_offset = context.offset  # a failed record is not committed
        self.commit_needed = True
        queue.process(key, value, timestamp, context.headers)
        queue.next_offset = context.offset + 1
        queue.consumed = True
        context.topic = None

    def _look(self, queue: _Queue) -> tuple[Any, Any, int, Message] | None:
        """Read the first record of a queue; None after it was skipped."""
        message = queue.messages[0]
        context = self.context
        context.topic, context.partition = queue.topic, queue.partition
        context.offset = message.offset()  # type: ignore[assignment]
        context.headers = message.headers()
        timestamp = context.timestamp = message.timestamp()[1]
        try:
            key, value = message.key(), message.value()
            key = None if key is None else queue.read_key(key)
            value = None if value is None else queue.read_value(value)
        except Exception as error:
            self._unreadable(queue, message, error)
            self._pass_over(queue)
            return None
        if queue.extract is not None:
            source = RecordMetadata(queue.topic, queue.partition, context.offset)
            try:
                timestamp = queue.extract(key, value, timestamp, queue.partition_time, source)
            except StreamsError:
                raise
            except Exception as error:
                raise StreamsError(
                    f"Fatal user code error in TimestampExtractor callback for {context.where(queue.source)}: {error!r}"
                ) from error
        if timestamp < 0:
            if queue.extract is None:
                self._without_time(queue, message, timestamp)
            context.dropped += 1  # the extractor returned a negative timestamp
            self._pass_over(queue)
            return None
        queue.head = key, value, timestamp, message
        return queue.head

    def _pass_over(self, queue: _Queue) -> None:
        queue.messages.popleft()
        queue.next_offset = self.context.offset + 1
        queue.consumed = self.commit_needed = True

    def _unreadable(self, queue: _Queue, message: Message, error: Exception) -> None:
        """Call the handler for a record that cannot be read. Raises SerializationError where it returns FAIL."""
        where = self.context.where(queue.source)
        if self.context.handlers.deserialization(where, message.key(), message.value(), error) is Response.CONTINUE:
            self.context.dropped += 1
            return
        raise SerializationError(
            f"Deserialization exception handler is set to fail upon a deserialization error. If you would rather have "
            f"the streaming pipeline continue after a deserialization error, please set the "
            f"default.deserialization.exception.handler appropriately. {where}: {error}"
        ) from error

    def _without_time(self, queue: _Queue, message: Message, timestamp: int) -> None:
        raise StreamsError(
            f"Input record of {self.context.where(queue.source)} has invalid (negative) timestamp {timestamp}. "
            f"Use another timestamp extractor to process it."
        )

    # ---- punctuation

    def _schedule(
        self, node: str, interval_ms: int, kind: PunctuationType, callback: Callable[[int], None]
    ) -> Punctuation:
        if kind is PunctuationType.STREAM_TIME:
            clock, due = self._stream_clock, 0
        else:
            clock, due = self._wall_clock, self.context.system_time_ms() + interval_ms
        punctuation = Punctuation(node, due, interval_ms, callback)
        clock.add(punctuation)
        return punctuation

    def punctuate_stream_time(self) -> bool:
        """Call the punctuators that are due by stream time. Returns whether there were any. Raises StreamsError."""
        now = self.context.stream_time
        return now != NO_TIMESTAMP and self._stream_clock.run(now, lambda each: self._punctuate(each, now))

    def punctuate_system_time(self) -> bool:
        """Call the punctuators that are due by wall-clock time. Returns whether there were any. Raises StreamsError."""
        now = self.context.system_time_ms()
        return self._wall_clock.run(now, lambda each: self._punctuate(each, now))

    @property
    def next_wall_clock_ms(self) -> int | None:
        """When the next wall-clock punctuator is due."""
        return self._wall_clock.next_due

    def _punctuate(self, punctuation: Punctuation, now: int) -> None:
        context = self.context
        context.topic, context.partition, context.offset = None, NO_PARTITION, -1
        context.timestamp, context.headers = now, None
        self.commit_needed = True
        start = time.perf_counter_ns()
        try:
            punctuation.callback(now)
        except StreamsError:
            raise
        except Exception as error:
            raise StreamsError(
                f"task [{self.task_id}] Exception caught while punctuating processor '{punctuation.node}': {error!r}"
            ) from error
        self.metrics.punctuate.record(time.perf_counter_ns() - start)

    # ---- commit and close

    def flush_caches(self) -> None:
        """Flush the caches of stores to changelogs and downstream, store by store."""
        for store in self.stores.values():
            store.flush_cache()

    def flush(self) -> None:
        """Flush the memory of stores to disk."""
        for store in self.stores.values():
            store.flush()

    def committable(self) -> dict[TopicPartition, tuple[int, str]]:
        """For each partition that was read since its assignment: the offset to commit, and its metadata."""
        metadata = self.context.processor_metadata
        return {
            partition: (queue.next_offset, encode_metadata(queue.partition_time, metadata))
            for partition, queue in self._queues.items()
            if queue.next_offset is not None and queue.consumed
        }

    def committed(self) -> None:
        """The offsets of `committable` are committed."""
        self.commit_needed = self.context.commit_wanted = False
        for queue in self._queues.values():
            queue.consumed = False

    def close_processors(self) -> None:
        """Close the processors; the stores stay open for their next owner. Raises the first error."""
        self._program.close()

    def close(self) -> None:
        """Close the processors, and then the stores. Raises the first error once all are closed."""
        failed: Exception | None = None
        for close in (self._program.close, *map(operator.attrgetter("close"), self.stores.values())):
            try:
                close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
