"""The group coordinator's log: the partitions of `__consumer_offsets` (Kafka: PartitionWriter, CoordinatorLoader)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.runtime.state.effects import KeyValue
from odradek.protocol.batch import Header, Record
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.replication.transaction_verification import Support, Transaction


class OffsetsLog(Protocol):
    """The partitions of `__consumer_offsets` that this broker leads."""

    def append(self, partition: int, records: list[KeyValue], done: Callable[[ErrorCode], None]) -> None:
        """Append one batch with acks=all; call `done` with each outcome that `pending_writes` lists."""
        ...

    def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
        """Every record of a partition in order, each with the header of its batch."""
        ...


class TransactionalLog(Protocol):
    """The same partitions, for offsets that belong to transactions (`TransactionalOffsets`)."""

    def ask(
        self, partition: int, transaction: Transaction, support: Support, done: Callable[[ErrorCode, Any], None]
    ) -> None:
        """Send the request to the transaction coordinator; call `done` with a permit for `append`, or with an error."""
        ...

    def append(self, partition: int, entries: list[KeyValue], permit: Any, done: Callable[[ErrorCode], None]) -> None:
        """Append one batch of the transaction with acks=all."""
        ...

    def append_again(self, partition: int, producer_id: int, entries: list[KeyValue]) -> None:
        """Append offsets of the producer's open transaction once more. Raises KafkaError."""
        ...
