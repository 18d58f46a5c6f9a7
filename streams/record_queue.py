"""Record queue: the buffered records of one partition, and how they are read (Kafka: RecordQueue, RecordDeserializer).

A queue deserializes its first record when the task needs the timestamp of that record. It skips records that the
deserialization handler drops, and records with a negative timestamp from the extractor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final, Protocol

from odradek.streams.context import TaskContext
from odradek.streams.errors import SerializationError, StreamsError
from odradek.streams.nodes import default_serde
from odradek.streams.records import NO_TIMESTAMP, Process, Record, RecordMetadata
from odradek.streams.serdes.formats import reads_text, strict_deserializer
from odradek.streams.timestamps import fail_on_invalid_timestamp
from odradek.streams.topology import SourceNode, TimestampExtractor


class Message(Protocol):
    """A record from a client: confluent_kafka.Message, or a driver's."""

    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...
    def offset(self) -> int | None: ...
    def headers(self) -> Any: ...


Row = tuple[Message, int, int, Any, Any, Any]
"""A record of a batch: message, offset, timestamp, headers, key, value."""
Read = Callable[[Any], Any]
Head = tuple[Any, Any, int, Message]
"""A record as objects: key, value, timestamp, and the message that it was."""


_TIME: Final = itemgetter(1)


class RecordQueue:
    """The buffered records of one partition, with their deserializers. The record loop of the task writes the offsets
    and times.
    """

    __slots__ = (
        "_read_key",
        "_read_value",
        "_rest",
        "_strict",
        "_texts",
        "added",
        "consumed",
        "context",
        "extract",
        "head",
        "messages",
        "next_offset",
        "partition",
        "partition_time",
        "process",
        "source",
        "start_offset",
        "topic",
    )

    def __init__(self, topic: str, partition: int, source: SourceNode, process: Process, context: TaskContext) -> None:
        self.topic = topic
        self.partition = partition
        self.source = source.name
        self.process = process
        self.context = context
        where = f"source {source.name} of topic {topic}"
        key_serde = default_serde(source.key, "default.key.serde", context, f"{where} (keys; Consumed)")
        value_serde = default_serde(source.value, "default.value.serde", context, f"{where} (values; Consumed)")
        self._read_key = key_serde.for_topic(topic, True).deserialize
        self._read_value = value_serde.for_topic(topic, False).deserialize
        self._texts = reads_text(self._read_key), reads_text(self._read_value)
        self._strict = strict_deserializer(self._read_key), strict_deserializer(self._read_value)
        self._rest = tuple(None if is_text else read for is_text, read in zip(self._texts, self._strict, strict=True))
        extractor = source.extractor or context.config.get("default.timestamp.extractor")
        # None is the same rule as that extractor's, within the loop.
        self.extract: TimestampExtractor | None = None if extractor is fail_on_invalid_timestamp else extractor
        self.messages: deque[Message] = deque()
        self.added = 0
        """Records added so far."""
        self.head: Head | None = None
        """The first record as objects, once it has been deserialized."""
        self.partition_time = NO_TIMESTAMP
        self.start_offset = 0
        """The committed offset at the start of the task; 0 where there was none."""
        self.next_offset: int | None = None
        """The next offset to commit, after processed or skipped records; None before the first."""
        self.consumed = False
        """Whether records were processed or skipped since the last commit."""

    def update_head(self) -> Head | None:
        """Deserialize the first record; None after it was skipped. Raises StreamsError."""
        message = self.messages[0]
        context = self.context
        context.topic, context.partition = self.topic, self.partition
        context.offset = message.offset()  # type: ignore[assignment]
        context.headers = message.headers()
        timestamp = context.timestamp = message.timestamp()[1]
        try:
            key, value = self._read(message)
        except Exception as error:
            self.handle_unreadable(message, error)
            self._skip()
            return None
        if self.extract is not None:
            timestamp = self._extract_timestamp(self.extract, key, value, timestamp)
        if timestamp < 0:
            if self.extract is None:
                self.reject_timestamp(timestamp)
            context.dropped += 1  # the extractor returned a negative timestamp
            self._skip()
            return None
        self.head = key, value, timestamp, message
        return self.head

    def rows(self, batch: list[Message]) -> tuple[Iterable[Row], Read | None, Read | None]:
        """The rows of a batch for the record loop, and the functions that it calls for keys and values that are not
        None: None where the rows contain objects already. The loop calls `read_again` after an error of either.
        """
        kind: Any = type(batch[0])  # a client's messages are of one class: `map` calls its methods without a lookup
        made = getattr(kind, "rows", None)
        if made is not None:
            return made(batch, *self._texts), *self._rest
        offsets, times, headers, keys, values = (
            map(get, batch) for get in (kind.offset, kind.timestamp, kind.headers, kind.key, kind.value)
        )
        return zip(batch, offsets, map(_TIME, times), headers, keys, values, strict=True), *self._strict

    def _read(self, message: Message) -> tuple[Any, Any]:
        key, value = message.key(), message.value()
        return None if key is None else self._read_key(key), None if value is None else self._read_value(value)

    def read_again(self, message: Message, error: Exception) -> tuple[Any, Any] | None:
        """Key and value of a record that the record loop failed to read; None where the handler drops it. Raises as
        `handle_unreadable` does.
        """
        if isinstance(error, UnicodeDecodeError):  # the texts of Java's deserializer may be no UTF-8
            try:
                return self._read(message)
            except Exception as again:
                error = again
        self.handle_unreadable(message, error)
        return None

    def handle_unreadable(self, message: Message, error: Exception) -> None:
        """Call the handler for a record that cannot be read. Raises SerializationError where it returns FAIL."""
        context = self.context
        context.source_message = message
        where = context.where(self.source)
        record = Record(message.key(), message.value(), message.timestamp()[1], message.headers())
        if not context.failed(context.handlers.deserialization, where, record, error):
            return
        raise SerializationError(
            f"Deserialization exception handler is set to fail upon a deserialization error. If you would rather have "
            f"the streaming pipeline continue after a deserialization error, please set the "
            f"default.deserialization.exception.handler appropriately. {where}: {error}"
        ) from error

    def reject_timestamp(self, timestamp: int) -> None:
        """Raises StreamsError: the current record has no valid timestamp, and the extractor allows none."""
        raise StreamsError(
            f"Input record of {self.context.where(self.source)} has invalid (negative) timestamp {timestamp}. "
            f"Use another timestamp extractor to process it."
        )

    def _extract_timestamp(self, extract: TimestampExtractor, key: Any, value: Any, timestamp: int) -> int:
        origin = RecordMetadata(self.topic, self.partition, self.context.offset)
        try:
            return extract(key, value, timestamp, self.partition_time, origin)
        except StreamsError:
            raise
        except Exception as error:
            raise StreamsError(
                f"Fatal user code error in TimestampExtractor callback for {self.context.where(self.source)}: {error!r}"
            ) from error

    def _skip(self) -> None:
        self.messages.popleft()
        self.next_offset = self.context.offset + 1
        self.consumed = self.context.commit_needed = True
