"""Transactional produce: verifies and appends transactional batches (Kafka: ReplicaManager.handleProduceAppend).

If the transaction is open in the partition, the leader appends the batch at once.
The first batch of a transaction in a partition waits until the coordinator has confirmed that the partition is in the
transaction (KIP-890). The buffer of the request is reused by then, so the leader keeps a copy of the batch. Later
batches of the same producer queue behind the first without a verification of their own. The leader appends them in
order of arrival, so their sequence numbers stay in order. The log checks that the verification is still valid at the
append (`storage.producers.Verification`).

The leader returns retriable errors of the verification as NOT_ENOUGH_REPLICAS, which clients of every version retry
without a metadata update. The exception is CONCURRENT_TRANSACTIONS for clients of transactions version 2, which support
it in this response.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.replication.partition import Replica
from odradek.broker.replication.transaction_verification import (
    ProducerTransaction,
    Support,
    TransactionVerification,
    Verdicts,
)
from odradek.broker.runtime.timers import Clock
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import later
from odradek.protocol.batch import HEADER_SIZE, MAGIC, TRANSACTIONAL, Header, read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.producers import OPEN, WAIVED, Verification
from odradek.storage.validation import Appended, Prepared

KNOWS_ABORTABLE: Final = 11
ADDS_PARTITIONS: Final = 12
UNCONFIRMED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

Written = Appended
"""The result of an append."""
OnOutcome = Callable[["HeldWrite", Written | KafkaError], None]


class Sender(NamedTuple):
    """The fields of a Produce request that apply to all of its batches."""

    transactional_id: str | None
    version: int
    acks: int

    @property
    def support(self) -> Support:
        """The error codes that this client supports."""
        if self.version >= ADDS_PARTITIONS:
            return Support.ADDS
        return Support.ALL_ERRORS if self.version >= KNOWS_ABORTABLE else Support.OLD_ERRORS


class HeldWrite:
    """A batch that waits for the coordinator."""

    __slots__ = ("on_outcome", "records", "replica", "sender", "transaction", "verification")

    def __init__(
        self,
        sender: Sender,
        replica: Replica,
        records: bytearray | Prepared,
        transaction: ProducerTransaction,
        verification: Verification,
    ) -> None:
        self.sender = sender
        self.replica = replica
        self.records = records
        self.transaction = transaction
        self.verification = verification
        self.on_outcome: OnOutcome | None = None

    def abandon(self) -> None:
        """The request is answered without this batch, so it must not be appended any more."""
        self.on_outcome = None


class TransactionalWrites:
    """Appends transactional batches to the partitions that this broker leads."""

    def __init__(self, verification: TransactionVerification, clock: Clock) -> None:
        self._verification = verification
        self._clock = clock
        # A batch that arrives after a marker has another verification than those before: it does not wait for theirs,
        # whose response may be from before the marker.
        self._held: dict[tuple[Verification, ProducerTransaction], list[HeldWrite]] = {}

    def write(
        self,
        sender: Sender,
        replica: Replica,
        records: memoryview | Prepared | None,
        now_ms: int,
        *,
        may_roll: bool = True,
    ) -> Appended | HeldWrite:
        """Append a batch, or return a copy of it that waits for its verification after a call of `hold`.

        A batch without a transaction needs no verification. Raises KafkaError as `Replica.produce`.
        """
        transactional_id, version, acks = sender
        header = _transactional(records) if transactional_id is not None else None
        if header is None or records is None or transactional_id is None:
            return replica.produce(records, acks, now_ms, version, may_roll=may_roll)
        if header.producer_id < 0:  # no producer id, so no transaction to verify
            return replica.produce(records, acks, now_ms, version, WAIVED, may_roll=may_roll)
        support = sender.support
        if not self._verification.must_verify(support):
            return replica.produce(records, acks, now_ms, version, WAIVED, may_roll=may_roll)
        verification = replica.begin_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, support is Support.ADDS
        )
        if verification is OPEN:
            return replica.produce(records, acks, now_ms, version, OPEN, may_roll=may_roll)
        if acks == 0:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the first batch of a transaction has acks=0")
        transaction = ProducerTransaction(transactional_id, header.producer_id, header.producer_epoch)
        kept = records if isinstance(records, Prepared) else bytearray(records)
        return HeldWrite(sender, replica, kept, transaction, verification)

    def hold(self, writes: list[HeldWrite], on_outcome: OnOutcome) -> None:
        """Start the verification of these batches of one request, or queue them behind an earlier one. `on_outcome` is
        called once for each, perhaps before this returns, unless the batch is abandoned.
        """
        for write in items_of(writes):
            write.on_outcome = on_outcome
        if any(write.transaction != writes[0].transaction for write in items_of(writes)):
            refusal = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "several producers in one request")
            for write in items_of(writes):
                on_outcome(write, refusal)
            return
        transaction = writes[0].transaction
        asking = []
        for write in items_of(writes):
            key = write.verification, transaction
            if key in self._held:
                self._held[key].append(write)
            else:
                self._held[key] = [write]
                asking.append(write)
        if asking:
            partitions = [(write.replica.topic, write.replica.partition) for write in asking]
            received = later(partial(self._verified, asking))
            self._verification.verify(transaction, partitions, writes[0].sender.support, received)

    def _verified(self, asking: list[HeldWrite], verdicts: Verdicts) -> None:
        for first in items_of(asking):
            verdict = verdicts[first.replica.topic, first.replica.partition]
            for write in self._held.pop((first.verification, first.transaction)):
                if write.on_outcome is not None:
                    write.on_outcome(write, self._finish(write, verdict))

    def _finish(self, write: HeldWrite, verdict: ErrorCode) -> Appended | KafkaError:
        sender = write.sender
        if verdict:
            return _refusal(verdict, sender.support)
        try:
            records = write.records if isinstance(write.records, Prepared) else memoryview(write.records)
            return write.replica.produce(records, sender.acks, self._clock.now_ms(), sender.version, write.verification)
        except KafkaError as error:
            return error


def _transactional(records: memoryview | Prepared | None) -> Header | None:
    """The header of a transactional batch, None for others. The log rejects invalid batches."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = records.header if isinstance(records, Prepared) else read_header(records)
    return header if header.magic == MAGIC and header.attributes & TRANSACTIONAL else None


class Unconfirmed(KafkaError):  # noqa: N818 - named after the result of the verification
    """The coordinator has not confirmed that a partition is in the transaction; nothing was appended."""


def _refusal(verdict: ErrorCode, support: Support) -> KafkaError:
    if verdict in UNCONFIRMED or (verdict is ErrorCode.CONCURRENT_TRANSACTIONS and support is not Support.ADDS):
        return Unconfirmed(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator has not confirmed the transaction: {verdict.name}"
        )
    if verdict is ErrorCode.INVALID_TXN_STATE:
        return Unconfirmed(verdict, "the partition is not in the transaction")
    return Unconfirmed(verdict, f"the coordinator rejects the transaction: {verdict.name}")
