"""Record reader: polls the records of a thread's tasks from one consumer, in batches.

The thread assigns partitions, with the group's committed offsets. Where there is none, or it is out of range, the
topic's own reset policy decides (auto.offset.reset of its source node, or of the application). librdkafka fetches ahead
on its own threads; a batch contains the records that it has already fetched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError
from odradek.streams.running.client import by_partition, has_errors, take_batch

log = logging.getLogger(__name__)

_OUT_OF_RANGE: Final = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)
_METADATA_S: Final = 1.0
_FATAL: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION})


class RecordReader:
    """One thread's input. Only that thread calls its methods."""

    def __init__(self, consumer: Consumer, batch: int, policy: Callable[[str], str]) -> None:
        """`batch` is the number of records of one poll; `policy` returns a topic's auto.offset.reset."""
        self._consumer = consumer
        self.batch = batch
        self._policy = policy
        self._assigned: set[TopicPartition] = set()
        self._ended: set[TopicPartition] = set()
        """Partitions that have been read to their end offset."""
        self._paused: set[TopicPartition] = set()
        self.returned: set[TopicPartition] = set()
        """Partitions that have returned records since `silent_topics` was called last."""
        self._starts: dict[TopicPartition, int] = {}
        """The offset from which each assigned partition is read; a logical one where its reset policy decided."""
        self._known: set[str] = set()
        """Topics whose leaders have been requested once."""

    # ---- which partitions

    def assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions in addition; None where the group has no committed offset. Raises StreamsError where
        the policy is none.
        """
        positions = [
            Position(*place, self._reset(place, "nothing was committed") if offset is None else offset)
            for place, offset in starts.items()
        ]
        if positions:
            self._learn_leaders({topic for topic, _ in starts})
            self._consumer.incremental_assign(positions)
            self._assigned.update(starts)
            self._starts.update(((each.topic, each.partition), each.offset) for each in positions)
            self._ended.difference_update(starts)

    def unassign(self, places: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions; records fetched ahead are discarded."""
        gone = self._assigned.intersection(places)
        if gone:
            self._assigned -= gone
            self._ended -= gone
            for place in gone:
                del self._starts[place]
            if paused := gone & self._paused:  # else librdkafka keeps them paused when they are assigned again
                self._consumer.resume([Position(*place) for place in paused])
                self._paused -= paused
            self._consumer.incremental_unassign([Position(*place) for place in sorted(gone)])

    def pause(self, places: set[TopicPartition]) -> None:
        """Pause exactly these partitions; a paused partition that is not among them is resumed."""
        fresh, over = places - self._paused, self._paused - places
        if fresh:
            self._consumer.pause([Position(*place) for place in fresh])
        if over:
            self._consumer.resume([Position(*place) for place in over])
        self._paused = set(places)

    def is_paused(self, place: TopicPartition) -> bool:
        """Whether `pause` has paused a partition."""
        return place in self._paused

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._assigned)

    @property
    def topics(self) -> set[str]:
        """The topics of the assigned partitions."""
        return {topic for topic, _ in self._assigned}

    def silent_topics(self) -> set[str]:
        """The assigned topics of which no partition has returned a record since the last call."""
        returned, self.returned = {topic for topic, _ in self.returned}, set()
        return self.topics - returned

    def lag(self, place: TopicPartition) -> int | None:
        """0 where all records have been returned by `poll`, None where that is not certain."""
        return 0 if place in self._ended or place not in self._assigned else None

    def records_lag(self) -> dict[TopicPartition, int]:
        """The records between the position and the end offset of each partition whose end offset a fetch has returned,
        without a request (Kafka: records-lag of the consumer's FetchMetricsManager).

        Behind a transaction's marker the lag is 1 until the next record: librdkafka's position is that of the record
        before the marker.
        """
        lags = {}
        for each in self._consumer.position([Position(*place) for place in self._assigned]):
            place = (each.topic, each.partition)
            try:
                low, high = self._consumer.get_watermark_offsets(Position(*place), cached=True)
            except KafkaException:  # librdkafka has no metadata of the topic yet, or not any more
                continue
            offset = each.offset if each.offset >= 0 else self._starts[place]
            position = {OFFSET_BEGINNING: low, OFFSET_END: high}.get(offset, offset)
            if high >= 0 and position >= 0:
                lags[place] = max(0, high - position)
        return lags

    # ---- records

    def poll(self, timeout_s: float) -> dict[TopicPartition, list[Message]]:
        """Records by partition, in their order; none after `timeout_s`. Raises StreamsError."""
        messages = take_batch(self._consumer, self.batch, timeout_s)
        if not messages:
            return {}
        if has_errors(messages):
            return self._sort_out(messages)
        found = by_partition(messages)
        self.returned.update(found)
        if self._ended:
            self._ended.difference_update(found)
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    # ---- internals

    def _learn_leaders(self, topics: set[str]) -> None:
        """Fetch the leaders of new topics: librdkafka does so by itself, but may first wait a second."""
        for topic in topics - self._known:
            try:
                self._consumer.list_topics(topic, timeout=_METADATA_S)
            except KafkaException as error:
                log.debug("cannot fetch metadata topic=%s error=%s", topic, error)
                return
            self._known.add(topic)

    def _sort_out(self, messages: list[Message]) -> dict[TopicPartition, list[Message]]:
        """Separate records from errors, in the order of arrival."""
        found: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            place: TopicPartition = (message.topic(), message.partition())  # type: ignore[assignment]
            error = message.error()
            if error is None:
                found.setdefault(place, []).append(message)
                self._ended.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(place)
            else:
                self._failed(place, error)
        return found

    def _failed(self, place: TopicPartition, error: KafkaError) -> None:
        if error.code() in _OUT_OF_RANGE and place in self._assigned:
            offset = self._reset(place, error.str())
            log.warning(
                "resetting offset topic=%s partition=%d error=%s reset_to=%s", *place, error.str(), _shown(offset)
            )
            self._consumer.incremental_unassign([Position(*place)])
            self._consumer.incremental_assign([Position(*place, offset)])
        elif error.fatal() or error.code() in _FATAL:
            raise StreamsError(f"records of {place[0]}-{place[1]} cannot be read: {error.str()}")
        else:
            log.warning("error while reading records error=%s", error.str())  # the client retries

    def _reset(self, place: TopicPartition, why: str) -> int:
        policy = self._policy(place[0])
        if policy == "none":
            raise StreamsError(
                f"No valid committed offset found for input {place[0]}-{place[1]} ({why}), and auto.offset.reset is "
                "none: set it for the application or for the source, or commit an offset"
            )
        return OFFSET_BEGINNING if policy == "earliest" else OFFSET_END


def _shown(offset: int) -> str:
    return "beginning" if offset == OFFSET_BEGINNING else "end"
