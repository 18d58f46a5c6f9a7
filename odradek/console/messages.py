"""Records of a topic: browse by offset or time, filter, and write (over confluent-kafka).

A `RecordBrowser` keeps one consumer for each isolation level, which belongs to no group and commits nothing. A request
reads at most `MOST_SCANNED` records, and returns where the next one continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odradek.admin import offset_reset, offsets, topics
from odradek.admin.client import AdminClient
from odradek.commands.record_clients import imported_client, record_of
from odradek.console.kept_records import KeptRecords
from odradek.console.record_schemas import RecordSchemas
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.records.consumed import ConsumedRecord
from odradek.records.filters import Filter, all_of, expression_filter, header_filter, key_filter, text_filter
from odradek.records.internal import decoder_of, is_internal

if TYPE_CHECKING:
    import confluent_kafka

STARTS: Final = ("newest", "beginning", "offset", "time")
MOST_SCANNED: Final = 20_000
WINDOWS: Final = (500, 4_000, MOST_SCANNED)
"""Records of all partitions that a search for the newest reads at a time."""
TIMEOUT_S: Final = 5.0
_AT_ONCE: Final = 500
_ANY_PARTITION: Final = -1
"""librdkafka's RD_KAFKA_PARTITION_UA: its partitioner chooses."""
_WAIT_S: Final = 0.5
_READING: Final[Mapping[str, Any]] = {
    "group.id": "odradek-console",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 20,
    "queued.max.messages.kbytes": 8192,
    "allow.auto.create.topics": False,
}
_WRITING: Final[Mapping[str, Any]] = {
    "message.timeout.ms": 10_000,
    "linger.ms": 0,
    "acks": "all",  # not idempotent: that needs a right that a user who may write to one topic need not have
    "allow.auto.create.topics": False,
}
Choose = Callable[[ConsumedRecord], ConsumedRecord | None]
"""The record to keep for a record that was read; None leaves it out."""
Offsets = Mapping[TopicPartition, int]
SendHeaders = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records to read. `amount` is an offset or milliseconds since the epoch, for the starts with these names.

    `positions` continue an earlier request: an offset for each partition, instead of the start.
    """

    topic: str
    partition: int | None = None
    """None for all."""
    start: str = STARTS[0]
    amount: int = 0
    limit: int = 50
    text: str = ""
    """In the key or the value, in any case."""
    key: str = ""
    """A regular expression."""
    header: str = ""
    """NAME or NAME=VALUE."""
    where: str = ""
    """A CEL expression."""
    read_committed: bool = True
    raw: bool = False
    """Decode nothing: neither the records of Kafka's own topics nor those with schemas."""
    positions: Mapping[int, int] = field(default_factory=dict)
    before: Mapping[int, int] = field(default_factory=dict)
    """Of `newest`: where each partition ends, instead of its end."""

    @property
    def is_filtered(self) -> bool:
        """Whether records are left out for their content."""
        return bool(self.text or self.key or self.header or self.where)


@dataclass(frozen=True, slots=True)
class RecordPage:
    """What a query found. The records of `newest` are the newest first, those of other starts the oldest first."""

    records: tuple[ConsumedRecord, ...]
    scanned: int
    positions: Mapping[int, int]
    """From where to continue; a partition that was read to its end has its end."""
    at_end: bool
    """Whether every partition was read to its end."""
    older: Mapping[int, int] = field(default_factory=dict)
    """Of `newest`: `before` of the query for the records that come before these; empty where there are none."""


class RecordBrowser:
    """Reads and writes records for one user. Any thread may use it; one request runs at a time."""

    def __init__(self, config: Mapping[str, Any], schemas: RecordSchemas | None = None) -> None:
        """`config` is librdkafka's: addresses, TLS and SASL. Connects at the first request. `schemas` decode keys and
        values.
        """
        self._config = dict(config)
        self._schemas = schemas
        self._lock = threading.Lock()
        self._consumers: dict[bool, confluent_kafka.Consumer] = {}
        self._producer: confluent_kafka.Producer | None = None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for consumer in self._consumers.values():
                consumer.close()
            self._consumers.clear()
            self._producer = None

    def browse(self, client: AdminClient, query: RecordQuery) -> RecordPage:
        """The records of a query. Raises KafkaError, FilterError, and what the client raises."""
        accepts = filter_of(query)
        decode = self._decoder(query)
        first, starts, ends = _bounds(client, query, is_filtered=query.is_filtered)
        kept = KeptRecords(query.limit, newest=query.start == STARTS[0] and not query.positions)
        with self._lock:
            # Filters are for the decoded text; without one only the records of the answer are decoded.
            choose = (lambda record: _accepted(decode(record), accepts)) if query.is_filtered else _unchanged
            read = self._search_newest if query.is_filtered and kept.newest else self._read
            scanned, positions, lower = read(query, starts, ends, choose, kept)
            records = kept.records() if query.is_filtered else tuple(map(decode, kept.records()))
        at_end = all(positions[place] >= ends[place] for place in ends)
        older = (
            older_of(records, kept, lower, ends, query.limit) if kept.newest and (at_end or query.is_filtered) else {}
        )
        is_older = any(older[place[1]] > each for place, each in first.items() if place[1] in older)
        next_offsets = {number: offset for (_, number), offset in positions.items()}
        return RecordPage(records, scanned, next_offsets, at_end, older if is_older else {})

    def record_at(
        self, client: AdminClient, place: TopicPartition, offset: int, *, raw: bool = False
    ) -> ConsumedRecord | None:
        """The record at an offset; None where there is none: compaction or retention removed it, or it is a marker."""
        query = RecordQuery(place[0], place[1], "offset", offset, 1, read_committed=False, raw=raw)
        found = self.browse(client, query).records
        return found[0] if found and found[0].offset == offset else None

    def write(
        self, topic: str, partition: int | None, key: bytes | None, value: bytes | None, headers: SendHeaders = ()
    ) -> TopicPartition:
        """Write a record with acks=all; the partition, and its offset there. Raises KafkaError."""
        kafka = imported_client()
        outcome: list[tuple[Any, Any]] = []
        with self._lock:
            if self._producer is None:
                self._producer = kafka.Producer({**self._config, **_WRITING})
            number = _ANY_PARTITION if partition is None else partition
            self._producer.produce(
                topic,
                value,
                key,
                partition=number,
                headers=list(headers),
                on_delivery=lambda *each: outcome.append(each),
            )
            self._producer.flush(_WRITING["message.timeout.ms"] / 1000)
        if not outcome:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no broker acknowledged the record in time")
        error, message = outcome[0]
        if error is not None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.str())
        return f"{message.topic()}-{message.partition()}", message.offset()

    def _search_newest(
        self, query: RecordQuery, begin: Offsets, ends: Offsets, choose: Choose, kept: KeptRecords
    ) -> tuple[int, dict[TopicPartition, int], Offsets]:
        """As `_read`, but in windows from the end on: most searches need only the first, and where the time runs out,
        the newest records have been read.
        """
        deadline_s, scanned, upper = time.monotonic() + TIMEOUT_S, 0, ends
        positions: dict[TopicPartition, int] = {}
        complete: Offsets = ends
        for size in WINDOWS:
            lower = {place: max(begin[place], end - max(1, size // len(ends))) for place, end in upper.items()}
            first_ms: dict[TopicPartition, int] = {}

            def noting(record: ConsumedRecord, first_ms: dict[TopicPartition, int] = first_ms) -> ConsumedRecord | None:
                first_ms.setdefault((record.topic, record.partition), record.timestamp)
                return choose(record)

            count, reached, _ = self._read(query, lower, upper, noting, kept, deadline_s)
            scanned, positions = scanned + count, positions or reached
            if any(reached[place] < upper[place] for place in upper):
                break  # the time is up, or a limit is reached
            complete = lower
            unread = [place for place in lower if lower[place] > begin[place]]
            if all(place in first_ms for place in unread):
                since_ms = max((first_ms[place] for place in unread), default=0)
                if not unread or kept.count_since(since_ms) >= query.limit:
                    break  # no record that is still unread is newer than those
            if time.monotonic() >= deadline_s:
                break
            upper = lower
        return scanned, positions, complete

    def _read(
        self,
        query: RecordQuery,
        begin: Offsets,
        ends: Offsets,
        choose: Choose,
        kept: KeptRecords,
        deadline_s: float | None = None,
    ) -> tuple[int, dict[TopicPartition, int], Offsets]:
        """How many records were read, the next offset of each partition, and the first; `kept` gets the chosen ones."""
        if deadline_s is None:
            deadline_s = time.monotonic() + TIMEOUT_S
        positions = dict(begin)
        left = {place for place, offset in begin.items() if offset < ends[place]}
        scanned = 0
        if not left:
            return scanned, positions, begin
        kafka = imported_client()
        consumer = self._consumer(kafka, query.read_committed)
        consumer.assign([kafka.TopicPartition(*place, begin[place]) for place in sorted(left)])
        try:
            for place, record in _polled(kafka, consumer, deadline_s):
                if record is None or record.offset >= ends[place]:
                    positions[place] = max(positions[place], ends[place])
                else:
                    positions[place] = record.offset + 1
                    scanned += 1
                    chosen = choose(record)
                    if chosen is not None:
                        kept.add(chosen)
                if positions[place] >= ends[place]:
                    left.discard(place)
                if not left or kept.is_full or scanned == MOST_SCANNED:
                    break
        finally:
            consumer.unassign()
        return scanned, positions, begin

    def _decoder(self, query: RecordQuery) -> Callable[[ConsumedRecord], ConsumedRecord]:
        """What makes text of the records of one request."""
        if query.raw:
            return _unchanged
        if self._schemas is None or is_internal(query.topic):
            return decoder_of(query.topic)
        return self._schemas.decoder()

    def _consumer(self, kafka: Any, read_committed: bool) -> confluent_kafka.Consumer:
        consumer = self._consumers.get(read_committed)
        if consumer is None:
            level = "read_committed" if read_committed else "read_uncommitted"
            consumer = kafka.Consumer({**self._config, **_READING, "isolation.level": level})
            self._consumers[read_committed] = consumer
        return consumer


def _polled(
    kafka: Any, consumer: confluent_kafka.Consumer, deadline_s: float
) -> Iterator[tuple[TopicPartition, ConsumedRecord | None]]:
    """Records as they come, and None at the end of a partition, until the deadline. Raises KafkaError."""
    # librdkafka looks for the coordinator of its group.id, which no request here needs.
    unused = (kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,)
    while time.monotonic() < deadline_s:
        first = consumer.poll(_WAIT_S)
        # consume() returns when it has as many records as it may, or at its timeout: it must not wait.
        for message in () if first is None else (first, *consumer.consume(_AT_ONCE, 0)):
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                yield place, record_of(message)
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                yield place, None
            elif not error.retriable() and error.code() not in unused:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.str())


def _unchanged(record: ConsumedRecord) -> ConsumedRecord:
    return record


def _accepted(record: ConsumedRecord, accepts: Filter) -> ConsumedRecord | None:
    return record if accepts(record) else None


def filter_of(query: RecordQuery) -> Filter:
    """Which records a query accepts. Raises FilterError."""
    filters = []
    filters += [text_filter(query.text)] if query.text else []
    filters += [key_filter(query.key)] if query.key else []
    filters += [header_filter(query.header)] if query.header else []
    filters += [expression_filter(query.where)] if query.where else []
    return all_of(filters)


def _bounds(client: AdminClient, query: RecordQuery, *, is_filtered: bool) -> tuple[Offsets, Offsets, Offsets]:
    """The first offset of each partition, where to begin, and where to end; without partitions that have no leader."""
    described = topics.describe_topics(client, [query.topic])[query.topic]
    if isinstance(described, KafkaError):
        raise described
    places = [
        (query.topic, part.partition)
        for part in described.partitions
        if part.leader != topics.NO_LEADER and query.partition in (None, part.partition)
    ]
    if not places:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no broker leads partition {query.partition}")
    starts = _offsets(offsets.list_offsets(client, dict.fromkeys(places, offsets.EARLIEST)))
    ends = _offsets(
        offsets.list_offsets(client, dict.fromkeys(places, offsets.LATEST), read_committed=query.read_committed)
    )
    known = [place for place in places if place in starts and place in ends]
    if query.before and query.start == STARTS[0]:
        ends = {
            place: max(starts.get(place, 0), min(end, query.before.get(place[1], end))) for place, end in ends.items()
        }
    if query.positions:
        wanted = {place: query.positions.get(place[1], ends[place]) for place in known}
    elif query.start == "time":
        found = offset_reset.offsets_at(client, known, query.amount)
        wanted = {place: each for place, each in found.items() if not isinstance(each, KafkaError)}
    elif query.start == "offset":
        wanted = dict.fromkeys(known, query.amount)
    elif query.start == "beginning":
        wanted = {place: starts[place] for place in known}
    else:
        each = (MOST_SCANNED if is_filtered else query.limit) // (len(known) if is_filtered else 1)
        wanted = {place: ends[place] - max(each, query.limit) for place in known}
    return (
        starts,
        {place: min(max(offset, starts[place]), ends[place]) for place, offset in wanted.items()},
        {place: ends[place] for place in wanted},
    )


def older_of(
    records: Sequence[ConsumedRecord], kept: KeptRecords, lower: Offsets, upper: Offsets, limit: int
) -> dict[int, int]:
    """Where each partition ends for the records before those of a page of the newest, of which `lower` was read.

    A record that was dropped for its time is read again, with those of its partition that come after it.
    """
    if len(records) < limit and not kept.dropped:
        return {number: offset for (_, number), offset in lower.items()}
    found = {number: offset for (_, number), offset in upper.items()}
    for each in records:
        found[each.partition] = min(each.offset, found[each.partition])
    for (_, number), end in upper.items():
        after = kept.dropped.get(number, -1) + 1
        found[number] = after if found[number] < after < end else found[number]
    return found


def _offsets(found: Mapping[TopicPartition, offsets.ListedOffset | KafkaError]) -> dict[TopicPartition, int]:
    return {place: each.offset for place, each in found.items() if not isinstance(each, KafkaError)}
