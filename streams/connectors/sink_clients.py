"""Clients of a sink: the consumer of its topics and the producer of its dead letters, with confluent-kafka."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.config import ConnectorConfig
from odradek.streams.connectors.errors import ConnectError, FencedError
from odradek.streams.connectors.group_consumer import GroupConsumer
from odradek.streams.connectors.interface import SinkRecord
from odradek.streams.connectors.sink_worker import PartitionListener
from odradek.streams.errors import DeadLetter
from odradek.streams.running.client import Clients, error_of, partitions_of

log = logging.getLogger(__name__)

_OUT_OF_GROUP: Final = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION})


class KafkaSinkInput:
    """The records of a sink (the protocol `SinkInput`)."""

    def __init__(self, config: ConnectorConfig, clients: Clients, listener: PartitionListener) -> None:
        """Joins the group. Raises StreamsError, also where a topic does not exist."""
        self._clients = clients
        self._listener = listener
        self._producer: Producer | None = None
        self._letter_failure: KafkaError | None = None
        self._timeout_s = config["default.api.timeout.ms"] / 1000
        self._next: dict[TopicPartition, int] = {}
        """The least offset that may be returned of each assigned partition."""
        consumer = clients.group_consumer(f"{clients.client_id}-consumer", config.group, {})
        try:
            for topic in config["topics"]:
                partitions_of(consumer, topic, self._timeout_s)
        except BaseException:
            consumer.close()
            raise
        self._group = GroupConsumer(consumer, config["topics"], assigned=self._assigned, revoked=self._revoked)

    def poll(self, max_records: int, timeout_s: float) -> list[SinkRecord]:
        """The next records. Raises what the listener raises, and ConnectError."""
        consumer = self._group.consumer
        messages = consumer.consume(max_records, 0)
        if not messages:
            first = consumer.poll(timeout_s)
            messages = [] if first is None else [first, *consumer.consume(max_records - 1, 0)]
        records = map(_record, self._group.check(messages, topics_exist=True))
        return [each for each in records if self._is_next(each)]

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit to the group; a failure is logged. Raises FencedError where this process is no member any more."""
        positions = [Position(*place, offset) for place, offset in offsets.items()]
        try:
            self._group.consumer.commit(offsets=positions, asynchronous=False)
        except (KafkaException, SystemError) as exception:
            error = error_of(exception)
            if error.code() in _OUT_OF_GROUP:
                raise FencedError(f"the group has removed this member: {error.str()}") from exception
            log.warning("cannot commit offsets error=%s", error.str())  # the records may be put again

    def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Write dead letters. Raises ConnectError."""
        if self._producer is None:
            self._producer = self._clients.producer(self._clients.client_id, None, self._on_letter_failure)
        produce: Callable[..., None] = self._producer.produce
        for letter in letters:
            produce(letter.topic, letter.value, letter.key, -1, None, None, max(letter.timestamp, 1), letter.headers)
        left = self._producer.flush(self._timeout_s)
        if left or self._letter_failure is not None:
            detail = self._letter_failure.str() if self._letter_failure is not None else f"{left} not acknowledged"
            raise ConnectError(f"dead letters could not be written to {letters[0].topic}: {detail}")

    def close(self) -> None:
        """Leave the group."""
        self._group.close()
        if self._producer is not None:
            self._producer.close()

    # ---- internals

    def _assigned(self, partitions: list[Position]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        starts = self._listener.partitions_assigned(places)
        self._next = {place: starts.get(place, 0) for place in places}
        self._group.consumer.assign([Position(*place, starts.get(place, OFFSET_INVALID)) for place in places])

    def _revoked(self, lost: bool) -> None:
        self._next.clear()
        self._listener.partitions_revoked(lost)

    def _is_next(self, record: SinkRecord) -> bool:
        """Whether to return a record. One call of the client may return records that it took before a rebalance in
        the same call, and after it: the earlier ones are of a partition that is assigned no more, or are read again.
        """
        place = record.topic_partition
        if record.offset < self._next.get(place, record.offset + 1):
            return False
        self._next[place] = record.offset + 1
        return True

    def _on_letter_failure(self, error: KafkaError, message: Message) -> None:
        self._letter_failure = error


def _record(message: Message) -> SinkRecord:
    topic: Any = message.topic()
    partition: Any = message.partition()
    offset: Any = message.offset()
    headers: Any = message.headers()
    return SinkRecord(topic, partition, offset, message.key(), message.value(), message.timestamp()[1], headers)
