"""Batches of transactions on their way into a log: at once where the transaction is open there, else after a question.

The batch that would begin a transaction in a partition waits until the coordinator has confirmed that the partition is
in it (KIP-890). The request's bytes are gone by then, so what waits is a copy. Later batches of the same producer queue
up behind the first, without a question of their own, and are written in the order in which they came; so the sequence
holds. The log itself makes sure that the answer is still worth something (`storage.producers.Verification`).

Retriable errors of the verification are told to the client as NOT_ENOUGH_REPLICAS, which every version repeats without
a new look at the metadata; except CONCURRENT_TRANSACTIONS to clients of transactions version 2, which know it here.
Facts of Kafka's ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.replication.partition import Replica
from odradek.broker.replication.transaction_verification import Support, Transaction, TransactionVerification, Verdicts
from odradek.broker.runtime.timers import Clock
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
"""Where a batch stands."""
OnOutcome = Callable[["HeldWrite", Written | KafkaError], None]


class Sender(NamedTuple):
    """What a Produce request with a transactional id says about all of its batches."""

    transactional_id: str
    version: int
    acks: int

    @property
    def support(self) -> Support:
        """What this client can be told."""
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
        transaction: Transaction,
        verification: Verification,
    ) -> None:
        self.sender = sender
        self.replica = replica
        self.records = records
        self.transaction = transaction
        self.verification = verification
        self.on_outcome: OnOutcome | None = None

    def abandon(self) -> None:
        """The request has been answered without it; the batch is not to be written any more."""
        self.on_outcome = None


class TransactionalWrites:
    """The way of transactional batches into the logs that this broker leads."""

    def __init__(self, verification: TransactionVerification, clock: Clock) -> None:
        self._verification = verification
        self._clock = clock
        self._held: dict[tuple[Replica, Transaction], list[HeldWrite]] = {}

    def write(
        self, sender: Sender, replica: Replica, records: memoryview | Prepared | None, now_ms: int
    ) -> Appended | HeldWrite:
        """Append a batch, or take a copy of it that waits once it is handed to `hold`.

        Raises KafkaError as `Replica.produce`.
        """
        acks, version = sender.acks, sender.version
        header = _transactional(records)
        if header is None or records is None:
            return replica.produce(records, acks, now_ms, version)
        if header.producer_id < 0:  # no producer, so no transaction that a coordinator could confirm
            return replica.produce(records, acks, now_ms, version, WAIVED)
        support = sender.support
        if not self._verification.must_ask(support):
            return replica.produce(records, acks, now_ms, version, WAIVED)
        verification = replica.begin_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, support is Support.ADDS
        )
        if verification is OPEN:
            return replica.produce(records, acks, now_ms, version, OPEN)
        if acks == 0:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "a transaction begins with acks=0, which cannot be answered")
        transaction = Transaction(sender.transactional_id, header.producer_id, header.producer_epoch)
        kept = records if isinstance(records, Prepared) else bytearray(records)
        return HeldWrite(sender, replica, kept, transaction, verification)

    def hold(self, writes: list[HeldWrite], on_outcome: OnOutcome) -> None:
        """Ask for these batches of one request, or let them queue up; `on_outcome` is called once for each, perhaps
        before this returns, unless it is abandoned.
        """
        for write in writes:
            write.on_outcome = on_outcome
        if any(write.transaction != writes[0].transaction for write in writes):
            refusal = KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "several producers in one request")
            for write in writes:
                on_outcome(write, refusal)
            return
        transaction = writes[0].transaction
        asking = []
        for write in writes:
            key = write.replica, transaction
            if key in self._held:
                self._held[key].append(write)
            else:
                self._held[key] = [write]
                asking.append(write.replica)
        if asking:
            partitions = [(replica.topic, replica.partition) for replica in asking]
            received = partial(self._verified, transaction, asking)
            self._verification.verify(transaction, partitions, writes[0].sender.support, received)

    def _verified(self, transaction: Transaction, replicas: list[Replica], verdicts: Verdicts) -> None:
        for replica in replicas:
            verdict = verdicts[replica.topic, replica.partition]
            for write in self._held.pop((replica, transaction)):
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
    """The header of a batch that belongs to a transaction; what is no batch is for the log to refuse."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = records.header if isinstance(records, Prepared) else read_header(records)
    return header if header.magic == MAGIC and header.attributes & TRANSACTIONAL else None


class Unconfirmed(KafkaError):  # noqa: N818 - named as the answer is
    """The coordinator has not confirmed that a partition is in the transaction; its log has not been asked."""


def _refusal(verdict: ErrorCode, support: Support) -> KafkaError:
    if verdict in UNCONFIRMED or (verdict is ErrorCode.CONCURRENT_TRANSACTIONS and support is not Support.ADDS):
        return Unconfirmed(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator has not confirmed the transaction: {verdict.name}"
        )
    if verdict is ErrorCode.INVALID_TXN_STATE:
        return Unconfirmed(verdict, "the partition is not in the transaction")
    return Unconfirmed(verdict, f"the coordinator refuses the transaction: {verdict.name}")
