"""Outgoing batches of one partition: those that wait and those in flight, in the order of their records (Kafka: the
deques of RecordAccumulator, TxnPartitionEntry).

An idempotent producer has up to five requests in flight. A batch gets its sequence number when it is first sent, and
keeps it when it is sent again. The first batch under a producer id and epoch is in flight alone: a leader that has no
sequence number of them accepts any, also that of a later batch while the first one fails. A batch that failed is sent
again only after the responses to all later ones, so that the order stays.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter
from typing import Any, Final

from odradek.protocol.batch import HEADER_SIZE, MAX_SEQUENCE, TRANSACTIONAL, sealed
from odradek.protocol.compression import compress
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.accumulator import header_of

NO_SEQUENCE: Final = -1
_SERIAL: Final = attrgetter("serial")


class Outgoing:
    """One batch."""

    __slots__ = ("_payload", "batch", "place", "queued_s", "sequence", "serial")

    def __init__(self, batch: Any, serial: tuple[int, ...], queued_s: float) -> None:
        """`serial` orders the batches of a producer, and the parts of one; `queued_s` is a monotonic time."""
        self.batch = batch
        self.place: TopicPartition = (batch.topic, batch.partition)
        self.serial = serial
        self.queued_s = queued_s
        self.sequence = NO_SEQUENCE
        """The number of its first record, from its first attempt on."""
        self._payload: Any = None

    def data(self, producer_id: int, epoch: int, transactional: bool, codec: int, level: int | None) -> Any:
        """The bytes to send. Compresses the records once."""
        attributes = codec | (TRANSACTIONAL if transactional else 0)
        batch = self.batch
        if not codec:
            batch.seal(producer_id, epoch, self.sequence, attributes)
            return batch.view()
        if self._payload is None:
            self._payload = compress(codec, batch.view()[HEADER_SIZE:], level)
        size = HEADER_SIZE + len(self._payload)
        return sealed(header_of(batch, size, producer_id, epoch, self.sequence, attributes), self._payload)


class PartitionQueue:
    """The batches of one partition."""

    __slots__ = ("_known", "in_flight", "next_sequence", "retry_at_s", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Outgoing] = deque()
        self.in_flight: list[Outgoing] = []
        self.next_sequence = 0
        self.retry_at_s = 0.0
        self._known = False
        """Whether the leader has a sequence number of this producer id and epoch."""

    def may_send(self, now: float) -> bool:
        """Whether the first waiting batch may be sent now."""
        if not self.waiting or now < self.retry_at_s:
            return False
        return (self._known and self.waiting[0].sequence == NO_SEQUENCE) or not self.in_flight

    def begin(self) -> Outgoing:
        """Take the first waiting batch to send it."""
        first = self.waiting.popleft()
        if first.sequence == NO_SEQUENCE:
            first.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + first.batch.count) & MAX_SEQUENCE
        self.in_flight.append(first)
        return first

    def acknowledge(self, outgoing: Outgoing) -> None:
        """The leader has written a batch."""
        self.in_flight.remove(outgoing)
        self._known = True

    def is_first(self, outgoing: Outgoing) -> bool:
        """Whether no earlier batch of the partition is unacknowledged."""
        return all(outgoing.serial <= each.serial for each in (*self.in_flight, *self.waiting))

    def retry(self, outgoing: Outgoing, at_s: float) -> None:
        """Send a batch again, not before `at_s`, ahead of all later ones."""
        self.in_flight.remove(outgoing)
        self.put(outgoing)
        self.retry_at_s = at_s

    def put(self, outgoing: Outgoing) -> None:
        """Let a batch wait behind all earlier ones."""
        waiting = list(self.waiting)
        insort(waiting, outgoing, key=_SERIAL)
        self.waiting = deque(waiting)

    def restart(self) -> None:
        """Number the batches anew, for a new producer id or epoch. None is in flight."""
        self.next_sequence, self._known = 0, False
        for each in self.waiting:
            each.sequence = NO_SEQUENCE
