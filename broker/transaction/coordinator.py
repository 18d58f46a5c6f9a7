"""Transaction coordinator: the requests of transactional producers (Kafka: TransactionCoordinator).

A transactional id belongs to one partition of `__transaction_state`, and the broker that leads this partition
coordinates it; every marker contains the leader epoch, so that leaders refuse an older coordinator
(TRANSACTION_COORDINATOR_FENCED). The coordinator decides what precedes a transaction: whether this broker coordinates
the id, and whether the id needs a producer id. The state machine of the id decides the rest, and the coordinator
runtime performs its effects. The rules are those of Kafka's TransactionCoordinator and TransactionStateManager.

A new coordinator continues transactions from its log only when the whole log is on the in-sync replicas: a decision
that the next leader might not have must not appear in any marker. (Kafka does not wait.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol

from odradek.broker.coordinator.runtime import CoordinatorLog, CoordinatorRuntime
from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.metadata.state.topics import TRANSACTION_STATE
from odradek.broker.runtime.timers import Clock, Timers
from odradek.broker.runtime.turns import Run, at_once
from odradek.broker.transaction.markers import NewMarkers, PendingMarker
from odradek.broker.transaction.next_transaction_queue import NextTransactionQueue
from odradek.broker.transaction.producer_ids import OnProducerId
from odradek.broker.transaction.shard import TransactionCoordinatorShard
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.records import EPOCH_PER_TRANSACTION, NO_PRODUCER_ID, TransactionMetadata
from odradek.broker.transaction.state.settings import TransactionSettings
from odradek.broker.transaction.state.transaction import Outcome, Transaction
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

OnOutcome = Callable[[Outcome], None]


class ProducerIdSource(Protocol):
    """The source of unused producer ids."""

    def take(self, done: OnProducerId) -> None:
        """Call `done` with an id or an error; perhaps before this returns."""
        ...


class Listed(NamedTuple):
    """One transactional id for ListTransactions."""

    transactional_id: str
    metadata: TransactionMetadata


class TransactionCoordinator:
    """The transactional ids of the partitions that this broker leads."""

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        timers: Timers,
        producer_ids: ProducerIdSource,
        state_log: CoordinatorLog,
        markers: NewMarkers,
        run_in_turns: Run = at_once,
    ) -> None:
        """The coordinator serves no transactional id before the first load; `markers` creates the marker sender."""
        self._settings = settings
        self._producer_ids = producer_ids
        self.markers = markers(on_written=self._marker_written, is_wanted=self._awaits)
        self._next_transactions = NextTransactionQueue(clock, timers)
        self.runtime = CoordinatorRuntime[Transaction, TransactionCoordinatorShard](
            TRANSACTION_STATE,
            lambda partition: TransactionCoordinatorShard(self.markers, self._next_transactions),
            state_log,
            clock,
            timers,
            awaits_replication=True,
            run_in_turns=run_in_turns,
        )
        """Loads and unloads the partitions."""

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR, cancel all timers, and send no more markers."""
        self.markers.close()
        self.runtime.close()

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` to which an id belongs."""
        return partition_for(transactional_id, self._settings.transaction_state_log_num_partitions)

    def _check(self, transactional_id: str) -> ErrorCode:
        """Whether this broker serves a transactional id; NONE if it does."""
        return self.runtime.check(self.partition_of(transactional_id))

    def _find(self, transactional_id: str) -> Transaction | None:
        """The state machine of an id; its partition has to be active."""
        return self.runtime.find(self.partition_of(transactional_id), transactional_id)

    def _known(self, transactional_id: str) -> Transaction | None:
        """The state machine of an id; None also where this broker does not serve it."""
        return self._find(transactional_id) if not self._check(transactional_id) else None

    # --- requests ---

    def init(self, transactional_id: str, timeout_ms: int, expected: Owner | None, answer: OnOutcome) -> None:
        """InitProducerId with a transactional id."""
        if not transactional_id:
            answer(Outcome(ErrorCode.INVALID_REQUEST))
            return
        error = self._check(transactional_id)
        if error:
            answer(Outcome(error))
        elif not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            answer(Outcome(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        else:
            known = self._find(transactional_id)
            go_on = partial(self._init, transactional_id, timeout_ms, expected, answer)
            if known is None or known.metadata.is_exhausted:
                self._producer_ids.take(go_on)
            else:
                go_on(NO_PRODUCER_ID, ErrorCode.NONE)

    def _init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Owner | None,
        answer: OnOutcome,
        fresh_id: int,
        error: ErrorCode,
    ) -> None:
        error = error or self._check(transactional_id)  # the id may have been unloaded during the allocation
        if error:
            answer(Outcome(error))
            return
        now = self.runtime.now()
        transaction = self._find(transactional_id)
        if transaction is None and fresh_id != NO_PRODUCER_ID:
            transaction = Transaction.fresh(transactional_id, fresh_id, timeout_ms, now)
            self.runtime.put(self.partition_of(transactional_id), transactional_id, transaction)
        if transaction is None or (transaction.metadata.is_exhausted and fresh_id == NO_PRODUCER_ID):
            answer(Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))  # the id expired, or ran out of epochs, in the meantime
            return
        self.runtime.perform(transaction, transaction.init(answer, timeout_ms, expected, fresh_id, now))

    def add(
        self, transactional_id: str, owner: Owner, partitions: Iterable[TopicPartition], version: int, answer: OnOutcome
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn; `version` is the version of the transaction protocol."""
        transaction = self._of_owner(transactional_id, answer)
        if transaction is None:
            return
        if transaction.is_between:
            add = partial(self._add, transactional_id, owner, partitions, version, answer)
            if self._next_transactions.add(transactional_id, add):
                return
        self.runtime.perform(transaction, transaction.add(answer, owner, partitions, version, self.runtime.now()))

    def _add(
        self, transactional_id: str, owner: Owner, partitions: Iterable[TopicPartition], version: int, answer: OnOutcome
    ) -> None:
        transaction = self._of_owner(transactional_id, answer)
        if transaction is not None:
            self.runtime.perform(transaction, transaction.add(answer, owner, partitions, version, self.runtime.now()))

    def verify(
        self, transactional_id: str, owner: Owner, partitions: list[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """AddPartitionsToTxn with verify_only: a top-level code, and when that is NONE one for each partition."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, {}
        error = self._check(transactional_id)
        if error:
            return error, {}
        transaction = self._find(transactional_id)
        if transaction is None:
            return ErrorCode.NONE, dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return ErrorCode.NONE, transaction.verify(owner, partitions)

    def end(
        self,
        transactional_id: str,
        owner: Owner,
        commit: bool,
        version: int,
        answer: OnOutcome,
        *,
        admitted: bool = False,
    ) -> None:
        """EndTxn; `version` is the version of the transaction protocol.

        A producer may abort before it has the response about its partitions. EndTxn stays behind those requests, since
        Kafka handles a request of a connection after the response to the one before. `admitted` is set for a request
        that has waited in that queue.
        """
        if not admitted and self._next_transactions.waits(transactional_id):
            end = partial(self.end, transactional_id, owner, commit, version, answer, admitted=True)
            if self._next_transactions.add(transactional_id, end):
                return
        transaction = self._of_owner(transactional_id, answer)
        if transaction is None:
            return
        go_on = partial(self._end, transactional_id, owner, commit, version, answer)
        if transaction.metadata.is_exhausted and version >= EPOCH_PER_TRANSACTION:
            self._producer_ids.take(go_on)
        else:
            go_on(NO_PRODUCER_ID, ErrorCode.NONE)

    def _end(
        self,
        transactional_id: str,
        owner: Owner,
        commit: bool,
        version: int,
        answer: OnOutcome,
        fresh_id: int,
        error: ErrorCode,
    ) -> None:
        if error:
            answer(Outcome(error))
            return
        transaction = self._of_owner(transactional_id, answer)
        if transaction is not None:
            effects = transaction.end(answer, owner, commit, version, fresh_id, self.runtime.now())
            self.runtime.perform(transaction, effects)

    def _of_owner(self, transactional_id: str, answer: OnOutcome) -> Transaction | None:
        if not transactional_id:
            answer(Outcome(ErrorCode.INVALID_REQUEST))
            return None
        error = self._check(transactional_id)
        transaction = self._find(transactional_id) if not error else None
        if transaction is None:
            answer(Outcome(error or ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return transaction

    # --- administration ---

    def describe(self, transactional_id: str) -> tuple[ErrorCode, TransactionMetadata | None]:
        """DescribeTransactions."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, None
        error = self._check(transactional_id)
        transaction = self._find(transactional_id) if not error else None
        if transaction is None or transaction.is_dead:
            return error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return ErrorCode.NONE, transaction.metadata

    def list_all(self) -> tuple[ErrorCode, list[Listed]]:
        """Every transactional id that this broker coordinates, and an error while some are loading."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.runtime.is_loading else ErrorCode.NONE
        return error, [
            Listed(transaction.transactional_id, transaction.metadata) for transaction in self.runtime.machines()
        ]

    def abort_timed_out(self) -> None:
        """Abort transactions that exceed their timeout; the scheduler calls this periodically."""
        now = self.runtime.now()
        for transaction in self.runtime.machines():
            if not transaction.is_overdue(now):
                continue
            if transaction.metadata.is_exhausted:
                self._producer_ids.take(partial(self._time_out, transaction))
            else:
                self._time_out(transaction, NO_PRODUCER_ID, ErrorCode.NONE)

    def _time_out(self, transaction: Transaction, fresh_id: int, error: ErrorCode) -> None:
        # After an error, the next call retries; another broker may have become the coordinator in the meantime.
        if not error and self._known(transaction.transactional_id) is transaction:
            self.runtime.perform(transaction, transaction.time_out(fresh_id, self.runtime.now()))

    def forget_expired(self) -> None:
        """Remove expired transactional ids; the scheduler calls this periodically."""
        now = self.runtime.now()
        for transaction in self.runtime.machines():
            self.runtime.perform(transaction, transaction.expire(now, self._settings.transactional_id_expiration_ms))

    # --- markers ---

    def _awaits(self, marker: PendingMarker) -> bool:
        """Whether this broker still has to write a marker."""
        transaction = self._known(marker.transactional_id)
        return transaction is not None and transaction.owner == marker.owner and bool(transaction.unmarked)

    def _marker_written(self, marker: PendingMarker, partition: TopicPartition) -> None:
        transaction = self._known(marker.transactional_id)
        if transaction is not None:
            effects = transaction.marker_written(marker.owner, partition, self.runtime.now())
            self.runtime.perform(transaction, effects)
