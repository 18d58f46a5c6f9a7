"""Stream task: one partition of one sub-topology, with its buffers, its stores and its positions (Kafka: StreamTask).

Records wait in a queue for each partition, and the partition group chooses the next one. A task that reads one
partition has no choice and processes a batch in one loop.

A task has no reference to a consumer, a producer or a thread: its caller adds messages, and it writes through a
collector.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.commit_metadata import encode_metadata
from odradek.streams.context import TaskContext
from odradek.streams.errors import of_task
from odradek.streams.metered import LEVELS, NodeMeters, meter
from odradek.streams.nodes import Program
from odradek.streams.partition_group import Lag, PartitionGroup, no_lag
from odradek.streams.punctuation import TaskPunctuations
from odradek.streams.record_queue import Message, RecordQueue
from odradek.streams.recorded_metrics import TaskMetrics
from odradek.streams.records import TaskId
from odradek.streams.task_calls import TaskCalls
from odradek.streams.topology import SourceNode, Subtopology, Topology


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
        lag: Lag = no_lag,
    ) -> None:
        """`stores` are those of the sub-topology, in the order in which they are opened; the caller opens them."""
        self.task_id: TaskId = context.task_id
        self.context = context
        self.stores = stores
        self.processed = 0
        """Records processed so far."""
        self.metrics = TaskMetrics()
        self.punctuations = TaskPunctuations(context, self.metrics.punctuate)
        self.partition_group = PartitionGroup(idle_ms=idle_ms, lag=lag)
        self._queues = self.partition_group.queues
        if context.config.get("metrics.recording.level") in LEVELS:
            for name, store in stores.items():
                self.metrics.stores[name] = meter(store, getattr(topology.stores[name], "kind", ""))
            self.metrics.nodes = NodeMeters()
        context.bind_sender()
        self._program = Program(
            topology,
            subtopology.nodes,
            context,
            {**global_stores, **stores},
            self.punctuations.schedule,
            self.metrics.nodes,
        )
        self._entries = self._program.bind()
        self.calls = TaskCalls(self._program.calls[::-1]) if self._program.calls else None
        """The pending calls of asynchronous operators; None where there is no such operator."""
        self._nodes = topology.nodes
        self._topics: dict[str, SourceNode] = {}
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
            self._queues[partition] = RecordQueue(*partition, source, self._entries[source.name], self.context)

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
        with of_task(self.context.task_id):
            self._program.init()

    def seek(self, partition: TopicPartition, partition_time: int, offset: int = 0) -> None:
        """Set the partition time from the commit metadata, the latest timestamp in the partition, and the committed
        offset.
        """
        queue = self._queues[partition]
        queue.start_offset = offset
        queue.partition_time = partition_time
        if partition_time > self.context.stream_time:
            self.context.stream_time = partition_time

    # ---- records

    def add(self, partition: TopicPartition, messages: Iterable[Message]) -> None:
        """Buffer records, in the order of their offsets."""
        self.partition_group.add(partition, messages)

    def process(self, most: int) -> int:
        """Process up to `most` records; returns how many. Raises StreamsError.

        With asynchronous operators there are no more than those have room for.
        """
        calls = self.calls
        if calls is not None:
            most = min(most, calls.room)
        with of_task(self.context.task_id):
            done = self._process(most)
        if calls is not None:
            calls.start()
        self.processed += done
        return done

    def start_calls(self) -> None:
        """Start the calls of records that punctuators have forwarded."""
        if self.calls is not None:
            self.calls.start()

    def forward_results(self) -> None:
        """Forward the results of asynchronous operators that are next in order. Raises StreamsError."""
        if self.calls is not None:
            with of_task(self.context.task_id):
                self.calls.forward()

    def _process(self, most: int) -> int:
        if len(self._queues) == 1:
            self.partition_group.bypass()
            done = self._process_batch(next(iter(self._queues.values())), most)
        else:
            waiting = [queue for queue in self._queues.values() if queue.messages]
            done = 0
            if len(waiting) == 1 and waiting[0].extract is None:
                done = self._process_only(waiting[0], most)
            else:
                next_queue = self.partition_group.next_queue
                while done < most and (queue := next_queue()) is not None:
                    self._process_head(queue)
                    done += 1
        return done

    def process_partition(self, partition: TopicPartition, most: int) -> int:
        """Process records of one partition alone, independent of the others. Raises StreamsError."""
        self.partition_group.bypass()
        with of_task(self.context.task_id):
            done = self._process_batch(self._queues[partition], most)
        self.processed += done
        return done

    def _process_only(self, queue: RecordQueue, most: int) -> int:
        """Process the only queue with records."""
        self.partition_group.take_only(queue)
        try:
            return self._process_batch(queue, most)
        finally:
            self.partition_group.put_back(queue)

    def _process_batch(self, queue: RecordQueue, most: int) -> int:
        """Process the records of the only partition."""
        context, messages = self.context, queue.messages
        process = queue.process
        plain = queue.extract is None and queue.head is None
        count = min(most, len(messages))
        if not count:
            return 0
        context.topic, context.partition = queue.topic, queue.partition
        if not plain:
            for _ in range(count):
                self._process_head(queue)
            return count
        context.commit_needed = True  # also where a record fails: stores contain the changes of earlier records
        stream_time = context.stream_time
        batch = _take(messages, count)
        message = batch[0]
        rows, read_key, read_value = queue.rows(batch)
        try:
            for message, offset, timestamp, headers, key, value in rows:
                context.offset, context.timestamp, context.headers = offset, timestamp, headers
                context.source_message = message
                try:
                    if read_key is not None and key is not None:
                        key = read_key(key)
                    if read_value is not None and value is not None:
                        value = read_value(value)
                except Exception as error:
                    read = queue.read_again(message, error)
                    if read is None:
                        continue
                    key, value = read
                if timestamp < 0:
                    queue.reject_timestamp(timestamp)
                    continue
                if timestamp > stream_time:
                    context.stream_time = stream_time = timestamp
                process(key, value, timestamp, headers)
        except BaseException:
            queue.next_offset = context.offset  # the failed record is not committed, so the next owner gets it again
            while (last := batch.pop()) is not message:
                messages.appendleft(last)
            raise
        queue.next_offset = context.offset + 1
        queue.partition_time = max(queue.partition_time, stream_time)
        queue.consumed = True
        context.topic = context.source_message = None
        return count

    def _process_head(self, queue: RecordQueue) -> None:
        """Process the first record of a queue, unless it is skipped."""
        head = queue.head or queue.update_head()
        if head is None:
            return
        key, value, timestamp, message = head
        self.context.source_message = message
        queue.messages.popleft()
        queue.head = None
        queue.partition_time = max(queue.partition_time, timestamp)
        if len(self._queues) > 1:
            self.partition_group.offer(queue)
        context = self.context
        context.topic, context.partition = queue.topic, queue.partition
        context.offset = message.offset()  # type: ignore[assignment]
        context.timestamp, context.headers = timestamp, message.headers()
        if timestamp > context.stream_time:
            context.stream_time = timestamp
        queue.next_offset = context.offset  # a failed record is not committed
        context.commit_needed = True
        queue.process(key, value, timestamp, context.headers)
        queue.next_offset = context.offset + 1
        queue.consumed = True
        context.topic = context.source_message = None

    # ---- commit and close

    @property
    def commit_needed(self) -> bool:
        """Whether there is anything to commit: a processed or skipped record, or a call of a punctuator."""
        return self.context.commit_needed

    def flush_caches(self) -> None:
        """Flush the caches of stores to changelogs and downstream, store by store."""
        with of_task(self.context.task_id):
            for store in self.stores.values():
                store.flush_cache()

    def complete(self, deadline_s: float = math.inf) -> None:
        """Flush the caches, and wait until the results of all asynchronous operators are forwarded: a commit covers all
        processed records then. Raises StreamsError, and TaskMigratedError after the deadline, a time of the monotonic
        clock.
        """
        self.flush_caches()
        calls = self.calls
        while calls is not None and calls.pending:
            with of_task(self.context.task_id):
                calls.complete(deadline_s)
            self.flush_caches()  # of stores behind these operators

    def flush(self) -> None:
        """Flush the memory of stores to disk."""
        with of_task(self.context.task_id):
            for store in self.stores.values():
                store.flush()

    def committable(self) -> dict[TopicPartition, tuple[int, str]]:
        """For each partition that was read since the last commit: the offset to commit, and its metadata."""
        context, found = self.context, {}
        for partition, queue in self._queues.items():
            if queue.consumed or partition[0] in context.committed_topics:
                offset = queue.start_offset if queue.next_offset is None else queue.next_offset
                found[partition] = offset, encode_metadata(queue.partition_time, context.processor_metadata)
        return found

    def processed_offsets(self) -> dict[TopicPartition, int]:
        """For each partition that was read since its assignment: the offset of the last processed record. Any thread
        may call it.
        """
        return {
            partition: queue.next_offset - 1
            for partition, queue in list(self._queues.items())
            if queue.next_offset is not None
        }

    def committed(self) -> None:
        """The offsets of `committable` are committed."""
        self.context.commit_needed = self.context.commit_wanted = False
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


def _take(messages: deque[Message], count: int) -> list[Message]:
    """Remove the first messages."""
    if count == len(messages):
        batch = list(messages)
        messages.clear()
        return batch
    take = messages.popleft
    return [take() for _ in range(count)]
