"""Transaction coordinator shard: the transactional ids of one partition of `__transaction_state`.

Kafka: TransactionStateManager's TxnMetadataCacheEntry.
"""

from __future__ import annotations

from odradek.broker.coordinator.event_processor import CoordinatorShard
from odradek.broker.runtime.state.effects import Now
from odradek.broker.transaction.markers import Markers, PendingMarker
from odradek.broker.transaction.next_transaction_queue import NextTransactionQueue
from odradek.broker.transaction.state.records import TransactionMetadata, read_key, read_value
from odradek.broker.transaction.state.transaction import AdmitNext, Transaction, WriteMarkers
from odradek.protocol.batch import Header, Record
from odradek.protocol.errors import ProtocolError


class TransactionCoordinatorShard(CoordinatorShard[Transaction]):
    """The transactional ids of one partition."""

    def __init__(self, markers: Markers, next_transactions: NextTransactionQueue) -> None:
        self.machines: dict[str, Transaction] = {}
        self._markers = markers
        self._next_transactions = next_transactions
        self._found: dict[str, TransactionMetadata] = {}

    def replay(self, header: Header, record: Record) -> None:
        """Apply one record of the log: the last one of an id is its state. Raises ProtocolError."""
        if record.key is None:
            raise ProtocolError("key", 0, "a record of __transaction_state without a key")
        transactional_id = read_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self._found.pop(transactional_id, None)
        else:
            self._found[transactional_id] = read_value(record.value)

    def on_loaded(self, now: Now) -> None:
        """Create the state machines of the ids."""
        found, self._found = self._found, {}
        self.machines = {each: Transaction(each, metadata) for each, metadata in found.items()}

    def on_unloaded(self) -> None:
        """Drop the markers; the waiting requests are answered with NOT_COORDINATOR."""
        for transactional_id in self.machines:
            self._markers.drop(transactional_id)
            self._next_transactions.release(transactional_id)

    def perform(self, machine: Transaction, effect: object, epoch: int) -> None:
        """Send markers, or handle the requests that wait for the next transaction."""
        match effect:
            case WriteMarkers(owner, commits, partitions):
                self._markers.write(PendingMarker(machine.transactional_id, owner, commits, epoch), partitions)
            case AdmitNext():
                self._next_transactions.admit(machine)
