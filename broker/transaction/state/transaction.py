"""State machine of one transactional id (KIP-98, KIP-360, KIP-588, KIP-890; Kafka: TransactionMetadata).

The rules are those of Kafka's TransactionCoordinator and TransactionMetadata, for producers of transactions version 2
(Kafka 4.x) and before. The whole state is in a record of `__transaction_state`; a request returns the record to append,
and the state changes when the record is durable. One append is pending at a time: until its outcome is final, other
requests get CONCURRENT_TRANSACTIONS. No marker is sent before the decision is durable.

| state          | InitProducerId       | adding partitions | EndTxn                                | time             |
|----------------|----------------------|-------------------|---------------------------------------|------------------|
| Empty          | next epoch           | Ongoing           | INVALID_TXN_STATE; v2: may abort      | expires          |
| Ongoing        | fences and aborts    | Ongoing           | PrepareCommit or PrepareAbort         | fences and aborts|
| PrepareCommit  | CONCURRENT           | CONCURRENT        | commit: CONCURRENT; else INVALID      | –                |
| PrepareAbort   | CONCURRENT           | CONCURRENT        | abort: CONCURRENT; else INVALID       | –                |
| CompleteCommit | next epoch           | Ongoing           | commit again: NONE; else INVALID      | expires          |
| CompleteAbort  | next epoch           | Ongoing           | abort again: NONE; else INVALID       | expires          |
| Dead           | the id is unknown    | the same          | the same                              | –                |

PrepareCommit becomes CompleteCommit, and PrepareAbort CompleteAbort, when every partition has its marker. Fencing
raises the epoch while the abort is being written: unless the log refuses the abort, requests of the old owner get
PRODUCER_FENCED (Kafka's PrepareEpochFence, which is never written). A producer of version 2 gets a new epoch at the end
of each transaction, so a late EndTxn cannot end the next one; it may abort a transaction that has not begun; when its
epochs are exhausted, the end of the transaction assigns it another producer id, with epoch 0.

When the log refuses a record, the former state is restored, including the epoch of a fenced owner (Kafka keeps that
epoch raised: hasFailedEpochFence), and an id without any record in the log is removed. A record whose append times out
is in the log: the request gets the error, and the transaction stays busy until the record is committed. Kafka restores
the former state, which then contradicts its own log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from odradek.broker.coordinator.state.pending_writes import COMMITTED
from odradek.broker.runtime.state.effects import Append, CancelTimer, Effect, Now, Reply, SetTimer
from odradek.broker.transaction.state.records import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    Status,
    TransactionMetadata,
    record,
    tombstone,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

LAST_EPOCH: Final = 2**15 - 2
"""The last epoch that a client gets; one more is reserved for fencing it."""
COMPLETE: Final = ("complete",)
AGAIN_MS: Final = 100
ENDING: Final = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
ENDED: Final = frozenset({Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})
IDLE: Final = frozenset({Status.EMPTY, *ENDED})

# The error of a request when the log refuses a record (Kafka's TransactionStateManager.appendTransactionToLog).
STORE_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Owner(NamedTuple):
    """The owner of a transactional id, or the sender of a request: a producer id and its epoch."""

    producer_id: int
    epoch: int


class Outcome(NamedTuple):
    """The answer to every request; it contains the owner where the response has it."""

    error: ErrorCode
    owner: Owner = Owner(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class WriteMarkers(NamedTuple):
    """Effect: send markers with the durable decision to the leaders of these partitions.

    The coordinator calls `marker_written` for each partition.
    """

    owner: Owner
    commits: bool
    partitions: frozenset[TopicPartition]


class Storing(NamedTuple):
    """Token of an append: the new state, the former state, and the request that waits for it."""

    target: TransactionMetadata
    reply_to: Any = None
    outcome: Outcome = Outcome(ErrorCode.NONE)
    fences: bool = False
    before: TransactionMetadata | None = None


Effects = list[Effect | WriteMarkers]


class Transaction:
    """The state machine. The caller performs the effects that its methods return, in order."""

    __slots__ = ("_storing", "_unmarked", "metadata", "transactional_id")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """`metadata` is the state from the log; `fresh` creates that of a new id."""
        self.transactional_id = transactional_id
        self.metadata = metadata
        self._storing: Storing | None = None
        self._unmarked: set[TopicPartition] = set()

    @classmethod
    def fresh(cls, transactional_id: str, producer_id: int, timeout_ms: int, now: Now) -> Transaction:
        """A new transactional id; it has no record in the log yet."""
        return cls(
            transactional_id,
            TransactionMetadata(Status.EMPTY, producer_id, NO_PRODUCER_EPOCH, timeout_ms, updated_ms=now.wall_ms),
        )

    @property
    def busy(self) -> bool:
        """Whether the outcome of an append is open."""
        return self._storing is not None

    @property
    def is_dead(self) -> bool:
        """Whether the id has been removed."""
        return self.metadata.status is Status.DEAD

    @property
    def unmarked(self) -> frozenset[TopicPartition]:
        """The partitions whose marker is not written yet."""
        return frozenset(self._unmarked)

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch needs another producer id."""
        return self.metadata.epoch >= LAST_EPOCH

    @property
    def is_between(self) -> bool:
        """Whether the next transaction has to wait until a record of this one, or its markers, are written."""
        return self.busy or self.metadata.status in ENDING

    @property
    def owner(self) -> Owner:
        """The producer that owns the id now."""
        return Owner(self.metadata.producer_id, self.metadata.epoch)

    # --- InitProducerId ---

    def init(self, token: Any, timeout_ms: int, expected: Owner | None, fresh_id: int, now: Now) -> Effects:
        """Make a producer the owner of the id, or bump its epoch after an error if it sends its former owner (KIP-360).

        Answered with the owner's id and epoch. `fresh_id` is an unused producer id, needed where `is_exhausted`.
        """
        metadata = self.metadata
        if self.busy:
            return [Reply(token, Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if expected is not None and not self._was(expected):
            return [Reply(token, Outcome(ErrorCode.PRODUCER_FENCED))]
        if metadata.status in ENDING:
            return [Reply(token, Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if metadata.status is Status.ONGOING:
            # The producer retries until the abort is complete.
            return [*self._fence(now, fresh_id), Reply(token, Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))]
        target = self._next_owner(timeout_ms, expected, fresh_id, now)
        if target is None:
            return [Reply(token, Outcome(ErrorCode.PRODUCER_FENCED))]
        return self._store(Storing(target, token, Outcome(ErrorCode.NONE, Owner(target.producer_id, target.epoch))))

    def _was(self, expected: Owner) -> bool:
        """Whether this producer owns the id, or is its previous owner."""
        metadata = self.metadata
        return (
            metadata.epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == metadata.producer_id
            or (expected.producer_id == metadata.previous_producer_id and expected.epoch >= LAST_EPOCH)
        )

    def _next_owner(
        self, timeout_ms: int, expected: Owner | None, fresh_id: int, now: Now
    ) -> TransactionMetadata | None:
        metadata = self.metadata
        empty = metadata._replace(
            status=Status.EMPTY,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NOT_STARTED,
            updated_ms=now.wall_ms,
            next_producer_id=NO_PRODUCER_ID,
        )
        if self.is_exhausted and (expected is None or expected.epoch == metadata.epoch):
            return empty._replace(
                producer_id=fresh_id,
                previous_producer_id=metadata.producer_id,
                epoch=0,
                last_epoch=NO_PRODUCER_EPOCH if expected is None else metadata.epoch,
            )
        bumped = metadata.epoch + 1
        if expected is None:
            return empty._replace(epoch=bumped, last_epoch=NO_PRODUCER_EPOCH)
        if metadata.epoch in (NO_PRODUCER_EPOCH, expected.epoch):
            return empty._replace(epoch=bumped, last_epoch=metadata.epoch)
        if expected.epoch == metadata.last_epoch:
            return empty  # a repeated request: return the same epoch again
        return None

    def _fence(self, now: Now, fresh_id: int = NO_PRODUCER_ID) -> Effects:
        """Fence the owner and abort its transaction; the fenced owner may continue from there (KAFKA-19367)."""
        metadata = self.metadata
        turns_to = fresh_id if self.is_exhausted and metadata.version >= EPOCH_PER_TRANSACTION else NO_PRODUCER_ID
        last_epoch = NO_PRODUCER_EPOCH if self.is_exhausted and turns_to == NO_PRODUCER_ID else metadata.epoch
        before = metadata
        if metadata.epoch <= LAST_EPOCH:
            # At once, not when the abort is durable: no request of the old owner may come in between.
            metadata = self.metadata = metadata._replace(epoch=metadata.epoch + 1, last_epoch=last_epoch)
        target = metadata._replace(status=Status.PREPARE_ABORT, updated_ms=now.wall_ms, next_producer_id=turns_to)
        return self._store(Storing(target, fences=True, before=before))

    # --- partitions ---

    def add(self, token: Any, owner: Owner, partitions: Iterable[TopicPartition], version: int, now: Now) -> Effects:
        """Add partitions to the transaction; the first ones begin it."""
        metadata = self.metadata
        error = self._check_owner(owner)
        wanted = frozenset(partitions)
        if not error and self.is_between:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error or (metadata.status is Status.ONGOING and wanted <= metadata.partitions):
            return [Reply(token, Outcome(error))]
        begins = metadata.status in IDLE
        target = metadata._replace(
            status=Status.ONGOING,
            partitions=wanted if begins else metadata.partitions | wanted,
            started_ms=now.wall_ms if begins else metadata.started_ms,
            updated_ms=now.wall_ms,
            version=version,
        )
        return self._store(Storing(target, token))

    def verify(self, owner: Owner, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Whether the transaction has these partitions (KIP-890)."""
        error = self._check_owner(owner)
        if not error and self.metadata.status in ENDING:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        inside = self.metadata.partitions if self.metadata.status is Status.ONGOING else frozenset[TopicPartition]()
        return {
            each: error or (ErrorCode.NONE if each in inside else ErrorCode.TRANSACTION_ABORTABLE)
            for each in partitions
        }

    def _check_owner(self, owner: Owner) -> ErrorCode:
        if owner.producer_id != self.metadata.producer_id or self.is_dead:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if self._is_current(owner.epoch) else ErrorCode.PRODUCER_FENCED

    def _is_current(self, epoch: int) -> bool:
        # The epoch after the last one, for fencing, has no owner, and neither has the one before the first.
        return epoch == self.metadata.epoch and 0 <= epoch <= LAST_EPOCH

    # --- EndTxn ---

    def end(self, token: Any, owner: Owner, commit: bool, version: int, fresh_id: int, now: Now) -> Effects:
        """Commit or abort. Answered with the new owner.

        `fresh_id` is an unused producer id, needed where `is_exhausted` and the producer uses version 2.
        """
        error = self._judge_end(owner, commit, version)
        if error is not None:
            return [Reply(token, Outcome(error, Owner(NO_PRODUCER_ID, NO_PRODUCER_EPOCH) if error else self.owner))]
        return self._decide(token, commit, version, fresh_id, now)

    def _judge_end(self, owner: Owner, commit: bool, version: int) -> ErrorCode | None:
        """The code of a request that needs no decision; None for a request that does."""
        metadata = self.metadata
        status, bumps = metadata.status, version >= EPOCH_PER_TRANSACTION
        turned = bumps and (owner.producer_id, owner.epoch, metadata.epoch) == (
            metadata.previous_producer_id,
            LAST_EPOCH,
            0,
        )
        if (owner.producer_id != metadata.producer_id and not turned) or self.is_dead:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        bumped = metadata.epoch <= LAST_EPOCH and owner.epoch == metadata.epoch - 1
        again = turned or (bumps and bumped and not self._fencing)
        same = not turned and self._is_current(owner.epoch)
        if bumps:
            valid = {True: again, False: same}[status in ENDING] or (status in ENDED and again)
        else:
            valid = same
        if not valid:
            return ErrorCode.PRODUCER_FENCED
        if self.busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if status is Status.ONGOING:
            return None
        if status in ENDING:
            is_same = commit == (status is Status.PREPARE_COMMIT)
            return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE
        if status in ENDED and (again or not bumps):
            is_same = commit == (status is Status.COMPLETE_COMMIT)
            return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE
        # No transaction has begun: a producer of version 2 may still abort, because it cannot detect that.
        return None if bumps and not commit else ErrorCode.INVALID_TXN_STATE

    @property
    def _fencing(self) -> bool:
        return self._storing is not None and self._storing.fences

    def _decide(self, token: Any, commit: bool, version: int, fresh_id: int, now: Now) -> Effects:
        metadata = self.metadata
        bumps = version >= EPOCH_PER_TRANSACTION
        began = metadata.status is Status.ONGOING
        target = metadata._replace(
            status=Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT,
            epoch=metadata.epoch + 1 if bumps else metadata.epoch,
            last_epoch=metadata.epoch if bumps else metadata.last_epoch,
            next_producer_id=fresh_id if bumps and self.is_exhausted else NO_PRODUCER_ID,
            partitions=metadata.partitions if began else frozenset(),
            started_ms=metadata.started_ms if began else now.wall_ms,
            updated_ms=now.wall_ms,
            version=version,
        )
        after = _completed(target, now)
        outcome = Outcome(ErrorCode.NONE, Owner(after.producer_id, after.epoch))
        return self._store(Storing(target, token, outcome))

    # --- time ---

    def is_overdue(self, now: Now) -> bool:
        """Whether a transaction has exceeded its timeout, so that it must be aborted."""
        metadata = self.metadata
        overdue = metadata.started_ms + metadata.timeout_ms < now.wall_ms
        return metadata.status is Status.ONGOING and not self.busy and overdue

    def time_out(self, fresh_id: int, now: Now) -> Effects:
        """Abort a transaction that is overdue; this fences its producer. `fresh_id` is needed where `is_exhausted`."""
        return self._fence(now, fresh_id) if self.is_overdue(now) else []

    def expire(self, now: Now, expiration_ms: int) -> Effects:
        """Remove a transactional id that was unused for the expiration time."""
        metadata = self.metadata
        if metadata.status not in IDLE or self.busy or metadata.updated_ms + expiration_ms > now.wall_ms:
            return []
        return self._store(Storing(metadata._replace(status=Status.DEAD)))

    # --- the log ---

    def _store(self, storing: Storing) -> Effects:
        dies = storing.target.status is Status.DEAD
        entry = tombstone(self.transactional_id) if dies else record(self.transactional_id, storing.target)
        self._storing = storing
        return [Append([entry], storing)]

    def appended(self, token: Storing, error: ErrorCode, now: Now) -> Effects:
        """Handle an outcome of an append, as the table at the head of `pending_writes` defines."""
        if self._storing is None or token.target is not self._storing.target:
            return []
        token = self._storing
        answer = token.outcome if not error else Outcome(STORE_ERRORS.get(error, error))
        effects: Effects = [Reply(token.reply_to, answer)] if token.reply_to is not None else []
        if error is ErrorCode.REQUEST_TIMED_OUT:
            self._storing = token._replace(reply_to=None)
            return effects
        self._storing = None
        if error not in COMMITTED:
            return effects + self._refused(token, error, now)
        self.metadata = token.target
        return effects + (self.resume(now) if self.metadata.status in ENDING else [])

    def _refused(self, token: Storing, error: ErrorCode, now: Now) -> Effects:
        if token.before is not None:
            self.metadata = token.before
        if self.metadata.epoch == NO_PRODUCER_EPOCH:
            self.metadata = self.metadata._replace(status=Status.DEAD)  # it has no record in the log
        is_lost = STORE_ERRORS.get(error) is ErrorCode.NOT_COORDINATOR
        if token.target.status in ENDED and not is_lost:
            # The transaction is decided, and every partition has its marker: only the record is late.
            return [SetTimer(COMPLETE, now.monotonic_ms + AGAIN_MS)]
        return []

    # --- markers ---

    def resume(self, now: Now) -> Effects:
        """Send the markers of a decision that is durable, after its append or after a load."""
        metadata = self.metadata
        if metadata.status not in ENDING or self.busy or self._unmarked:
            return []
        self._unmarked = set(metadata.partitions)
        if not self._unmarked:
            return self._complete(now)
        commits = metadata.status is Status.PREPARE_COMMIT
        return [WriteMarkers(self.owner, commits, metadata.partitions)]

    def marker_written(self, owner: Owner, partition: TopicPartition, now: Now) -> Effects:
        """Handle a partition that has its marker, or does not exist any more."""
        if owner != self.owner or self.metadata.status not in ENDING or partition not in self._unmarked:
            return []
        self._unmarked.discard(partition)
        return [] if self._unmarked else self._complete(now)

    def timer(self, now: Now) -> Effects:
        """Handle the timer COMPLETE: retry the record that completes the transaction."""
        return self._complete(now) if self.metadata.status in ENDING and not self._unmarked and not self.busy else []

    def _complete(self, now: Now) -> Effects:
        return self._store(Storing(_completed(self.metadata, now)))

    def unload(self) -> Effects:
        """Answer the waiting request, because this broker no longer coordinates the id."""
        storing, self._storing = self._storing, None
        effects: Effects = [CancelTimer(COMPLETE)]
        if storing is not None and storing.reply_to is not None:
            effects.append(Reply(storing.reply_to, Outcome(ErrorCode.NOT_COORDINATOR)))
        return effects


def _completed(metadata: TransactionMetadata, now: Now) -> TransactionMetadata:
    """The state that follows a decision once every partition has its marker."""
    after = metadata._replace(
        status=Status.COMPLETE_COMMIT if metadata.status is Status.PREPARE_COMMIT else Status.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now.wall_ms,
        next_producer_id=NO_PRODUCER_ID,
    )
    if metadata.next_producer_id != NO_PRODUCER_ID:
        # The epochs are exhausted: the client changes from its last epoch to another producer id with epoch 0.
        after = after._replace(
            producer_id=metadata.next_producer_id, previous_producer_id=metadata.producer_id, epoch=0
        )
    return after
