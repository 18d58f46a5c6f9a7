"""The group coordinator's log for offsets that belong to transactions (`transaction.offset_commits`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.coordinator.event_processor import TransactionalWriter
from odradek.broker.runtime.state.effects import KeyValue
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.replication.transaction_verification import ProducerTransaction, Support


class TransactionalLog(TransactionalWriter, Protocol):
    """The partitions of `__consumer_offsets` that this broker leads."""

    def request_permit(
        self, partition: int, transaction: ProducerTransaction, support: Support, done: Callable[[ErrorCode, Any], None]
    ) -> None:
        """Send the request to the transaction coordinator; call `done` with a permit for `append`, or with an error."""
        ...

    def append_again(self, partition: int, producer_id: int, entries: list[KeyValue]) -> None:
        """Append offsets of the producer's open transaction once more. Raises KafkaError."""
        ...
