"""State machine of one transactional id (KIP-98, KIP-360, KIP-588, KIP-890; Kafka: TransactionMetadata).

The rules are those of Kafka's TransactionCoordinator and TransactionMetadata, for producers of transactions version 2
(Kafka 4.x) and before. The whole state is in a record of `__transaction_state`; a request returns the record to append,
and the state changes when the record is durable. One append is pending at a time: until its outcome is final, other
requests get CONCURRENT_TRANSACTIONS. No marker is sent before the decision is durable.

`transitions.TABLE` decides what an event does in each state, and `preparation` computes the record.

Fencing raises the epoch while the abort is being written: unless the log refuses the abort, requests of the old owner
get PRODUCER_FENCED (Kafka's PrepareEpochFence, which is never written). A producer of version 2 gets a new epoch at the
end of each transaction, so a late EndTxn cannot end the next one; it may abort a transaction that has not begun; when
its epochs are exhausted, the end of the transaction assigns it another producer id, with epoch 0.

When the log refuses a record, the former state is restored, including the epoch of a fenced owner (Kafka keeps that
epoch raised: hasFailedEpochFence), and an id without any record in the log is removed. A record whose append times out
is in the log: the request gets the error, and the transaction stays busy until the record is committed. Kafka restores
the former state, which then contradicts its own log.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from odradek.broker.coordinator.state.pending_writes import COMMITTED
from odradek.broker.runtime.state.effects import Append, Each, Effect, Now, Reply, SetTimer, TimerName
from odradek.broker.transaction.state import preparation
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.records import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Status,
    TransactionMetadata,
    record,
    tombstone,
)
from odradek.broker.transaction.state.transitions import TABLE, TRANSITIONS, TransactionEvent, end_event
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

COMPLETE: Final = ("complete",)
AGAIN_MS: Final = 100
ENDING: Final = frozenset({Status.PREPARE_COMMIT, Status.PREPARE_ABORT})
ENDED: Final = frozenset({Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT})

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


class Outcome(NamedTuple):
    """The answer to every request; it contains the owner where the response has it."""

    error: ErrorCode
    owner: Owner = Owner(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


DONE: Final = Outcome(ErrorCode.NONE)


class WriteMarkers(NamedTuple):
    """Effect: send markers with the durable decision to the leaders of these partitions.

    The coordinator calls `marker_written` for each partition.
    """

    owner: Owner
    commits: bool
    partitions: frozenset[TopicPartition]


class AdmitNext(NamedTuple):
    """Effect: no append is pending any more, so requests that wait for the next transaction may go on."""


class Storing:
    """Token of an append: the new state, the former state, and the request that waits for the outcome."""

    __slots__ = ("before", "fences", "outcome", "reply_to", "target")

    def __init__(
        self,
        target: TransactionMetadata,
        before: TransactionMetadata,
        reply_to: Any = None,
        outcome: Outcome = DONE,
        *,
        fences: bool = False,
    ) -> None:
        self.target = target
        self.before = before
        self.reply_to = reply_to
        self.outcome = outcome
        self.fences = fences


Effects = list[Effect | WriteMarkers | AdmitNext]


class Transaction:
    """The state machine. The caller performs the effects that its methods return, in order."""

    __slots__ = ("_began", "_storing", "_unmarked", "metadata", "transactional_id")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """`metadata` is the state from the log; `fresh` creates that of a new id."""
        self.transactional_id = transactional_id
        self.metadata = metadata
        self._began: tuple[int, int] | None = None  # its start by both clocks: (metadata.started_ms, monotonic ms)
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
    def is_removable(self) -> bool:
        """Whether nothing is left of the id."""
        return self.is_dead

    @property
    def unmarked(self) -> frozenset[TopicPartition]:
        """The partitions whose marker is not written yet."""
        return frozenset(self._unmarked)

    @property
    def is_between(self) -> bool:
        """Whether the next transaction has to wait until a record of this one, or its markers, are written."""
        return self.busy or self.metadata.status in ENDING

    @property
    def owner(self) -> Owner:
        """The producer that owns the id now."""
        return Owner(self.metadata.producer_id, self.metadata.epoch)

    # --- requests ---

    def init(self, token: Any, timeout_ms: int, expected: Owner | None, fresh_id: int, now: Now) -> Effects:
        """Make a producer the owner of the id, or bump its epoch after an error if it sends its former owner (KIP-360).

        Answered with the owner's id and epoch. `fresh_id` is an unused producer id, needed where the epochs have run
        out.
        """
        metadata = self.metadata
        if self.busy:
            return [Reply(token, Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if expected is not None and not preparation.may_continue(metadata, expected):
            return [Reply(token, Outcome(ErrorCode.PRODUCER_FENCED))]
        transition = TABLE[metadata.status, TransactionEvent.INIT]
        if transition.error:
            fence = self._fence(fresh_id, now) if transition.to is not None else []
            return [*fence, Reply(token, Outcome(transition.error))]
        target = preparation.prepare_owner(metadata, timeout_ms, expected, fresh_id, now)
        if target is None:
            return [Reply(token, Outcome(ErrorCode.PRODUCER_FENCED))]
        return self._store(target, token, Outcome(ErrorCode.NONE, Owner(target.producer_id, target.epoch)))

    def add(self, token: Any, owner: Owner, partitions: Iterable[TopicPartition], version: int, now: Now) -> Effects:
        """Add partitions to the transaction; the first ones begin it."""
        metadata = self.metadata
        wanted = frozenset(partitions)
        error = self._check_owner(owner)
        if not error:
            error = (
                ErrorCode.CONCURRENT_TRANSACTIONS if self.busy else TABLE[metadata.status, TransactionEvent.ADD].error
            )
        if error or (metadata.status is Status.ONGOING and wanted <= metadata.partitions):
            return [Reply(token, Outcome(error))]
        return self._store(preparation.prepare_add(metadata, wanted, version, now), token)

    def verify(self, owner: Owner, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Whether the transaction has these partitions (KIP-890)."""
        error = self._check_owner(owner)
        if not error:
            error = TABLE[self.metadata.status, TransactionEvent.ADD].error
        inside = self.metadata.partitions if self.metadata.status is Status.ONGOING else frozenset[TopicPartition]()
        return {
            each: error or (ErrorCode.NONE if each in inside else ErrorCode.TRANSACTION_ABORTABLE)
            for each in partitions
        }

    def _check_owner(self, owner: Owner) -> ErrorCode:
        if owner.producer_id != self.metadata.producer_id or self.is_dead:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        is_current = preparation.is_current(self.metadata, owner.epoch)
        return ErrorCode.NONE if is_current else ErrorCode.PRODUCER_FENCED

    def end(self, token: Any, owner: Owner, commit: bool, version: int, fresh_id: int, now: Now) -> Effects:
        """Commit or abort. Answered with the new owner.

        `fresh_id` is an unused producer id, needed where `metadata.is_exhausted` and the producer uses version 2.
        """
        error = self._check_end(owner, commit, version)
        if error is not None:
            return [Reply(token, Outcome(error, Owner(NO_PRODUCER_ID, NO_PRODUCER_EPOCH) if error else self.owner))]
        return self._decide(token, commit, version, fresh_id, now)

    def _check_end(self, owner: Owner, commit: bool, version: int) -> ErrorCode | None:
        """The code of a request that needs no decision; None for a request that does."""
        metadata, is_v2 = self.metadata, version >= EPOCH_PER_TRANSACTION
        has_turned = is_v2 and preparation.has_turned(metadata, owner)
        if (owner.producer_id != metadata.producer_id and not has_turned) or self.is_dead:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        is_fencing = self._storing is not None and self._storing.fences
        is_repeated = is_v2 and preparation.is_repeated_end(metadata, owner, is_fencing=is_fencing)
        if not is_repeated and not preparation.is_current(metadata, owner.epoch):
            return ErrorCode.PRODUCER_FENCED
        transition = TABLE[metadata.status, end_event(commit=commit, is_v2=is_v2, is_repeated=is_repeated)]
        if self.busy and transition.error is not ErrorCode.PRODUCER_FENCED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return transition.error if transition.to is None else None

    def _decide(self, token: Any, commit: bool, version: int, fresh_id: int, now: Now) -> Effects:
        decision = Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT
        target = preparation.prepare_end(self.metadata, decision, version, fresh_id, now)
        after = preparation.prepare_complete(target, now)
        return self._store(target, token, Outcome(ErrorCode.NONE, Owner(after.producer_id, after.epoch)))

    # --- time ---

    def is_overdue(self, now: Now) -> bool:
        """Whether a transaction has exceeded its timeout, so that it must be aborted.

        Kafka compares with the wall clock. Here a step of that clock neither aborts a transaction nor keeps it open.
        """
        metadata = self.metadata
        if self._began is not None and self._began[0] == metadata.started_ms:
            overdue = self._began[1] + metadata.timeout_ms < now.monotonic_ms
        else:
            overdue = metadata.started_ms + metadata.timeout_ms < now.wall_ms
        return overdue and not self.busy and TABLE[metadata.status, TransactionEvent.TIMEOUT].to is not None

    def time_out(self, fresh_id: int, now: Now) -> Effects:
        """Abort a transaction that is overdue; this fences its producer. `fresh_id` is as in `init`."""
        return self._fence(fresh_id, now) if self.is_overdue(now) else []

    def _fence(self, fresh_id: int, now: Now) -> Effects:
        """Fence the owner and abort its transaction."""
        before = self.metadata
        target = preparation.prepare_fence(before, fresh_id, now)
        # At once, not when the abort is durable: no request of the old owner may come in between.
        self.metadata = before._replace(epoch=target.epoch, last_epoch=target.last_epoch)
        return self._append(Storing(target, before, fences=True))

    def expire(self, now: Now, expiration_ms: int) -> Effects:
        """Remove a transactional id that was unused for the expiration time."""
        metadata = self.metadata
        target = TABLE[metadata.status, TransactionEvent.EXPIRATION].to
        if target is None or self.busy or metadata.updated_ms + expiration_ms > now.wall_ms:
            return []
        return self._store(metadata._replace(status=target))

    # --- the log ---

    def _store(self, target: TransactionMetadata, reply_to: Any = None, outcome: Outcome = DONE) -> Effects:
        before = self.metadata
        if before.epoch == NO_PRODUCER_EPOCH:
            before = before._replace(status=Status.DEAD)  # it has no record in the log
        return self._append(Storing(target, before, reply_to, outcome))

    def _append(self, storing: Storing) -> Effects:
        assert storing.target.status in TRANSITIONS[self.metadata.status], (
            f"{self.transactional_id}: {self.metadata.status.label} cannot become {storing.target.status.label}"
        )
        dies = storing.target.status is Status.DEAD
        entry = tombstone(self.transactional_id) if dies else record(self.transactional_id, storing.target)
        self._storing = storing
        return [Append([entry], storing, undo=(partial(self._restore, storing.before),))]

    def _restore(self, before: TransactionMetadata) -> None:
        """Undo an append: the log has refused its record."""
        self._storing = None
        self.metadata = before

    def appended(self, token: Storing, error: ErrorCode, now: Now) -> Effects:
        """Handle an outcome of an append, as the table at the head of `pending_writes` defines."""
        effects: Effects = []
        if token.reply_to is not None:
            answer = token.outcome if not error else Outcome(STORE_ERRORS.get(error, error))
            effects.append(Reply(token.reply_to, answer))
            token.reply_to = None
        if error is ErrorCode.REQUEST_TIMED_OUT:
            return effects
        if error in COMMITTED:
            self._storing = None
            self.metadata = token.target
            effects += self.loaded(now)
        elif token.target.status in ENDED and STORE_ERRORS.get(error, error) is not ErrorCode.NOT_COORDINATOR:
            # The transaction is decided, and every partition has its marker: only the record is late.
            effects.append(SetTimer(COMPLETE, now.monotonic_ms + AGAIN_MS))
        return [*effects, AdmitNext()]

    def reverted(self, error: ErrorCode, now: Now) -> Effects:
        """The log has refused a record; `appended` has answered the request."""
        return []

    # --- markers ---

    def loaded(self, now: Now) -> Effects:
        """Send the markers of a decision that is durable, after its append or after a load."""
        metadata = self.metadata
        if self._began is None or self._began[0] != metadata.started_ms:
            # After a load the wall clock is the only measure of the time before it.
            self._began = metadata.started_ms, now.monotonic_ms - max(0, now.wall_ms - metadata.started_ms)
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

    def timer(self, name: TimerName, now: Now) -> Effects:
        """Handle the timer COMPLETE: retry the record that completes the transaction."""
        return self._complete(now) if self.metadata.status in ENDING and not self._unmarked and not self.busy else []

    def _complete(self, now: Now) -> Effects:
        return self._store(preparation.prepare_complete(self.metadata, now))

    def unload(self, now: Now, each: Each = iter) -> Effects:
        """This broker no longer coordinates the id; `appended` answers the waiting request."""
        return []
