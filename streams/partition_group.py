"""Partition group: the record queues of one task, and the choice of the next record (Kafka: PartitionGroup).

The task processes the record with the lowest timestamp at the head of a queue first, so that a join gets both sides in
timestamp order as far as records are buffered. The group also decides how long a task waits for an empty queue
(KIP-695).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.priority_queue import PriorityQueue
from odradek.streams.record_queue import Message, RecordQueue

Lag = Callable[[TopicPartition], int | None]
"""Returns how many records of a partition have not been added yet, None where that is unknown."""


def no_lag(partition: TopicPartition) -> int:
    """The caller has added all records that exist."""
    return 0


class PartitionGroup:
    """The buffered records of one task."""

    def __init__(self, *, idle_ms: int, lag: Lag) -> None:
        """`idle_ms` is max.task.idle.ms."""
        self.queues: dict[TopicPartition, RecordQueue] = {}
        self._idle_ms = idle_ms
        self._lag = lag
        self._idle_deadlines: dict[TopicPartition, int] = {}
        """Partitions that were read to their end, and until when the task waits for them."""
        self._arrived: list[RecordQueue] = []
        """Queues that were empty, in the order in which they got records; their heads have not been read yet."""
        self._heads: PriorityQueue[RecordQueue] = PriorityQueue()
        """The other queues that have records, by the timestamp of the first one."""

    def add(self, partition: TopicPartition, messages: Iterable[Message]) -> None:
        """Buffer records, in the order of their offsets."""
        queue = self.queues[partition]
        before = len(queue.messages)
        if not before:
            self._arrived.append(queue)
        queue.messages.extend(messages)
        queue.added += len(queue.messages) - before

    def buffered(self, partition: TopicPartition | None = None) -> int:
        """How many records are buffered, of one partition or of all."""
        if partition is not None:
            return len(self.queues[partition].messages)
        return sum(len(queue.messages) for queue in self.queues.values())

    def consumed(self) -> dict[tuple[str, str], int]:
        """How many records were consumed so far, by source node and topic. Any thread may call it."""
        found: dict[tuple[str, str], int] = {}
        for queue in list(self.queues.values()):
            name = queue.source, queue.topic
            found[name] = found.get(name, 0) + queue.added - len(queue.messages)
        return found

    def ready(self, now_ms: int) -> bool:
        """Whether the next record can be chosen: all partitions have one, or the task need not wait for one (KIP-695).

        With `max.task.idle.ms` below 0 the task waits for no partition. Otherwise it waits for an empty partition as
        long as the broker has records of it, and then for so many ms after it first found the partition read to its
        end.
        """
        if self._idle_ms < 0:
            return any(queue.messages for queue in self.queues.values())
        found, deadlines = False, self._idle_deadlines
        for place, queue in self.queues.items():
            if queue.messages:
                found = True
                deadlines.pop(place, None)
            elif self._lag(place) != 0:
                deadlines.pop(place, None)
                return False
            elif now_ms < deadlines.setdefault(place, now_ms + self._idle_ms):
                return False
        return found

    # ---- the choice of the next record

    def next_queue(self) -> RecordQueue | None:
        """The queue whose head has the lowest timestamp; of equal ones, the queue that Java chooses. It takes part in
        the choice again after `offer`.
        """
        for queue in self._arrived:
            self.offer(queue)
        self._arrived.clear()
        return self._heads.poll()

    def offer(self, queue: RecordQueue) -> None:
        """Let a queue take part in the choice with its first readable record."""
        while queue.messages:
            head = queue.update_head()
            if head is not None:
                self._heads.offer(head[2], queue)
                return

    def bypass(self) -> None:
        """The caller processes a queue without a choice: it is the only one of the task, or independent of others."""
        self._arrived.clear()

    def take_only(self, queue: RecordQueue) -> None:
        """The caller processes the only queue with records. A head that was read is read anew."""
        self._arrived.clear()
        self._heads.clear()
        queue.head = None

    def put_back(self, queue: RecordQueue) -> None:
        """The counterpart of `take_only`: the rest of the queue takes part in the choice."""
        if queue.messages:
            self._arrived.append(queue)
