"""Interface of connectors: what a source and a sink implement (Kafka Connect: SourceTask and SinkTask).

The runner calls all methods of one object from one thread. A method may block for some seconds; the runner is in a
group meanwhile, whose members have to poll within max.poll.interval.ms.

Source: partitions() -> open(partition, offset) -> poll() … -> close(), and again from the beginning after a rebalance.
Sink:   open(group, partitions) -> put(records) … flush() … -> close(), and again after a rebalance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.records import Headers

SourcePartition = Mapping[str, Any]
"""The name of one partition of a source, as {"file": "a.log"}: names and values of JSON, not nested."""
SourceOffset = Mapping[str, Any]
"""The position in a source partition, as {"position": 4711}: names and values of JSON."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record that a source has read (Kafka Connect: SourceRecord).

    `source_offset` is the position after the record: a source that is opened there returns the next one. Bytes are
    written as they are; other keys and values need a serde, or are written as text or JSON. `timestamp` is in ms; None
    is the time of the write. Without `partition` the key decides.
    """

    topic: str
    key: Any
    value: Any
    source_partition: SourcePartition
    source_offset: SourceOffset
    timestamp: int | None = None
    headers: Headers = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """A record of Kafka for a sink (Kafka Connect: SinkRecord): bytes, or what the serde of the configuration makes of
    them. `timestamp` is in ms.
    """

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int
    headers: Headers = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Where the record is."""
        return self.topic, self.partition


class Source(ABC):
    """Reads another system."""

    @abstractmethod
    def partitions(self) -> Iterable[SourcePartition]:
        """The source partitions that exist now, in every process the same. The runner asks again from time to time.
        Raises RetriableError, ConnectError.
        """

    @abstractmethod
    def open(self, partition: SourcePartition, offset: SourceOffset | None) -> None:
        """Begin to read a partition after the committed offset; None: from its beginning. The runner may open more of
        them between two polls. Raises RetriableError, ConnectError.
        """

    @abstractmethod
    def poll(self, max_records: int, timeout_s: float) -> Sequence[SourceRecord]:
        """The next records of the open partitions, in the order of each; none where there is nothing new. It may wait
        for `timeout_s`, and need not. Raises RetriableError, ConnectError.

        After a RetriableError the runner calls it again; the source then returns what it would have returned before.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything that `open` and `poll` acquired; also after an error, and twice. Must not raise."""


class Sink(ABC):
    """Writes to another system.

    A sink that stores offsets together with the records, and returns them from `open`, is exactly once: records and
    offset become visible in one atomic step, and a process whose partitions another one has taken over gets a
    FencedError. Every other sink is at least once.
    """

    stores_offsets: bool = False
    """Whether the sink is exactly once."""

    @abstractmethod
    def open(self, group: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Begin with these partitions of a consumer group. Returns the next offset of each partition for which the sink
        has stored one; the others continue at the group's committed offset. Raises RetriableError, ConnectError.
        """

    @abstractmethod
    def put(self, records: Sequence[SinkRecord]) -> None:
        """Take records, in the order of each partition; all or none of them. They need not be durable before `flush`.

        Raises RetriableError for a failure that may pass, FencedError where another process has taken over; any other
        exception means that one of the records cannot be written.
        """

    @abstractmethod
    def flush(self) -> None:
        """Make all records that were put durable. The runner commits their offsets afterwards (Kafka Connect:
        SinkTask.flush). Raises RetriableError, FencedError, ConnectError.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything, without a flush; also after an error, and twice. Must not raise."""
