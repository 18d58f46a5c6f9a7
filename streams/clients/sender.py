"""Sender: sends the batches of a producer to the leaders and judges their responses (Kafka: Sender).

A request has at most one batch of each partition; up to five requests are in flight on a connection. An error that may
pass is retried until the delivery timeout. Another one fails the records of the batch. As their sequence numbers are
missing then, the next batches need a new producer id or epoch, which `identity` requests once nothing is in flight
(KIP-360).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.errors import described
from odradek.streams.clients.metadata import STALE, ClientMetadata
from odradek.streams.clients.network import DATA, ClientNetwork
from odradek.streams.clients.offsets import by_topic
from odradek.streams.clients.outgoing import Outgoing, PartitionQueue

HIGHEST_PRODUCE: Final = 9
"""Later versions change nothing that is used here; from version 12 on they add partitions to transactions."""
IN_FLIGHT: Final = 5
RETRIED: Final = STALE | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
LOST_ID: Final = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors of a producer id without transactions that a new producer id resolves."""
Failed = Callable[[Outgoing, KafkaError], None]


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """Properties of sends; times in seconds."""

    request_bytes: int
    timeout_ms: int
    delivery_timeout_s: float
    backoff_s: float
    codec: int
    level: int | None


class BatchIdentity(Protocol):
    """The producer id with its epoch, and what a transaction allows."""

    producer_id: int
    epoch: int

    @property
    def transactional_id(self) -> str | None:
        """The transactional id, or None."""

    def may_send(self, place: TopicPartition) -> bool:
        """Whether a batch of this partition may be sent now: there is a producer id, and the transaction contains the
        partition.
        """

    def failed(self, code: int, text: str) -> None:
        """A batch has failed: its records are missing in the transaction, and its sequence numbers in the log."""

    @property
    def restarting(self) -> bool:
        """Whether no batch may be sent until the producer has a new id or epoch."""


class BatchSender:
    """The batches of one producer that are full or due."""

    def __init__(
        self,
        network: ClientNetwork,
        metadata: ClientMetadata,
        identity: BatchIdentity,
        settings: SenderSettings,
        failed: Failed,
    ) -> None:
        """`failed` receives each batch that is given up."""
        self._network = network
        self._metadata = metadata
        self._identity = identity
        self._settings = settings
        self._failed = failed
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._serial = 0
        self._next_expiry_s = 0.0

    # ---- batches

    def add(self, batch: Any) -> None:
        """Send a batch."""
        self._serial += 1
        outgoing = Outgoing(batch, (self._serial,), time.monotonic())
        queue = self._queues.get(outgoing.place)
        if queue is None:
            queue = self._queues[outgoing.place] = PartitionQueue()
        queue.waiting.append(outgoing)

    def connect(self, topic: str, partitions: int) -> None:
        """Open the connections to the leaders of a topic, before its first batch is full."""
        for partition in range(partitions):
            leader = self._metadata.leader((topic, partition))
            if leader is not None:
                self._network.ready((leader.node, DATA))

    @property
    def unacknowledged(self) -> int:
        """How many batches wait or are in flight."""
        return sum(len(queue.waiting) + len(queue.in_flight) for queue in self._queues.values())

    @property
    def in_flight(self) -> bool:
        """Whether a batch is in flight."""
        return any(queue.in_flight for queue in self._queues.values())

    def places(self) -> list[TopicPartition]:
        """The partitions with batches that wait."""
        return [place for place, queue in self._queues.items() if queue.waiting]

    def purge(self) -> bool:
        """Discard the batches that wait, without a report. Returns whether any of them has been sent before."""
        sent = False
        for queue in self._queues.values():
            sent = sent or any(each.sequence >= 0 for each in queue.waiting)
            queue.waiting.clear()
        return sent

    def restart(self) -> None:
        """There is a new producer id or epoch: number all batches anew."""
        for queue in self._queues.values():
            queue.restart()

    # ---- requests

    def drive(self) -> None:
        """Send what may be sent now, and give up batches whose time is over. The network receives the responses."""
        now = time.monotonic()
        if now >= self._next_expiry_s:
            self._next_expiry_s = now + self._settings.backoff_s
            self._expire(now)
        if self._identity.restarting:
            return
        nodes: dict[int, list[TopicPartition]] = {}
        for place, queue in self._queues.items():
            if queue.may_send(now) and self._identity.may_send(place):
                leader = self._metadata.leader(place)
                if leader is not None:
                    nodes.setdefault(leader.node, []).append(place)
        for node, places in nodes.items():
            channel = (node, DATA)
            while self._network.ready(channel) and self._network.in_flight(channel) < IN_FLIGHT:
                chosen = self._choose(places, now)
                if not chosen:
                    break
                self._send(node, chosen)

    def _choose(self, places: list[TopicPartition], now: float) -> list[Outgoing]:
        chosen, size = [], 0
        for place in places:
            queue = self._queues[place]
            if queue.may_send(now) and size < self._settings.request_bytes:
                chosen.append(queue.begin())
                size += len(chosen[-1].batch)
        return chosen

    def _send(self, node: int, chosen: list[Outgoing]) -> None:
        identity, settings, kind = self._identity, self._settings, m.ProduceRequest
        outgoing = {each.place: each for each in chosen}
        transactional = identity.transactional_id is not None
        topics = [
            kind.TopicProduceData(
                name=topic,
                partition_data=[
                    kind.PartitionProduceData(
                        index=place[1],
                        records=outgoing[place].data(
                            identity.producer_id, identity.epoch, transactional, settings.codec, settings.level
                        ),
                    )
                    for place in places
                ],
            )
            for topic, places in by_topic(outgoing).items()
        ]
        request = kind(
            transactional_id=identity.transactional_id, acks=-1, timeout_ms=settings.timeout_ms, topic_data=topics
        )

        def receive(response: Any, error: Exception | None) -> None:
            if error is not None:
                self._metadata.request()
                for each in chosen:
                    self._retry(each)
                return
            for topic in response.responses:
                for part in topic.partition_responses:
                    place = (topic.name, part.index)
                    if place in outgoing:
                        self._judge(outgoing.pop(place), part.error_code, part.error_message or "")
            for each in outgoing.values():
                self._retry(each)

        self._network.send((node, DATA), request, receive, highest=HIGHEST_PRODUCE)

    # ---- responses

    def _judge(self, outgoing: Outgoing, code: int, message: str) -> None:
        queue = self._queues[outgoing.place]
        if not code or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.acknowledge(outgoing)
        elif code in RETRIED or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not queue.is_first(outgoing)):
            if code in STALE:
                self._metadata.request()
            self._retry(outgoing)
        elif code in LOST_ID and self._identity.transactional_id is None:
            self._retry(outgoing)
            self._identity.failed(code, described(code, message))
        elif code == ErrorCode.MESSAGE_TOO_LARGE and outgoing.batch.count > 1:
            self._split(outgoing, code)
        else:
            queue.in_flight.remove(outgoing)
            self._give_up(outgoing, KafkaError(code, described(code, message)))

    def _split(self, outgoing: Outgoing, code: int) -> None:
        """The topic allows smaller batches only: send each half in a batch, under a new epoch or producer id."""
        from odradek.streams.clients.undelivered import halves

        queue = self._queues[outgoing.place]
        queue.in_flight.remove(outgoing)
        if self._identity.transactional_id is not None:  # the epoch changes between transactions only
            queue.next_sequence = self._rewind(queue, outgoing)
        else:
            self._identity.failed(code, described(code))
        for index, batch in enumerate(halves(outgoing.batch)):
            queue.put(Outgoing(batch, (*outgoing.serial, index), outgoing.queued_s))

    def _rewind(self, queue: PartitionQueue, outgoing: Outgoing) -> int:
        """The broker has written nothing of a rejected batch: its sequence numbers are used again."""
        for each in (*queue.in_flight, *queue.waiting):
            if each.sequence >= 0:  # rejected, too, as their predecessor is missing; sent again with new numbers
                each.sequence = -1
        return outgoing.sequence

    def _retry(self, outgoing: Outgoing) -> None:
        self._queues[outgoing.place].retry(outgoing, time.monotonic() + self._settings.backoff_s)

    def _give_up(self, outgoing: Outgoing, error: KafkaError) -> None:
        if outgoing.sequence >= 0 or self._identity.transactional_id is not None:
            self._identity.failed(error.code(), error.str())
        self._failed(outgoing, error)

    def _expire(self, now: float) -> None:
        before = now - self._settings.delivery_timeout_s
        for place, queue in self._queues.items():
            while queue.waiting and queue.waiting[0].queued_s < before:
                expired = queue.waiting.popleft()
                code = self._metadata.error_of(place[0])
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    error = KafkaError(KafkaError._UNKNOWN_TOPIC, described(code))
                else:
                    error = KafkaError(KafkaError._MSG_TIMED_OUT, "Local: Message timed out")
                self._give_up(expired, error)
