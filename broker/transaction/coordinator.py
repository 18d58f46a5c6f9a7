"""Transaction coordinator: runs the state machines of transactional ids (Kafka: TransactionCoordinator).

A transactional id belongs to one partition of `__transaction_state`, and the broker that leads this partition
coordinates it; every marker contains the leader epoch, so that leaders refuse an older coordinator
(TRANSACTION_COORDINATOR_FENCED). The coordinator finds the id, passes requests, timers and the outcomes of appends and
markers to its state machine, and performs the effects. The rules are those of Kafka's TransactionCoordinator and
TransactionStateManager.

A new coordinator continues transactions from its log only when the whole log is on the in-sync replicas: a decision
that the next leader might not have must not appear in any marker. (Kafka does not wait.)
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.runtime.state.effects import Append, CancelTimer, KeyValue, Now, Reply, SetTimer
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.broker.transaction.markers import Marker, Markers
from odradek.broker.transaction.producer_ids import OnProducerId
from odradek.broker.transaction.state.records import (
    EPOCH_PER_TRANSACTION,
    NO_PRODUCER_ID,
    TransactionMetadata,
    read_key,
    read_value,
)
from odradek.broker.transaction.state.settings import TransactionSettings
from odradek.broker.transaction.state.transaction import Effects, Outcome, Owner, Transaction, WriteMarkers
from odradek.protocol.batch import Header, Record
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RECORDS_AT_A_TIME: Final = 1000
"""How many records a load reads before it returns to the event loop."""
DEADLINE_MS: Final = 100
MOST_EARLY: Final = 8
"""The limit of waiting requests for one transactional id; a client has one such request in flight."""
OnOutcome = Callable[[Outcome], None]


class StateLog(Protocol):
    """The partitions of `__transaction_state` that this broker leads."""

    def append(self, partition: int, entries: list[KeyValue], done: Callable[[ErrorCode], None]) -> None:
        """Append one batch with acks=all; `done` is called with the outcome, perhaps at once."""
        ...

    def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
        """Every record of a partition in order."""
        ...

    def when_replicated(self, partition: int, done: Callable[[], None]) -> None:
        """Call `done` once the present log is on the in-sync replicas."""
        ...


class ProducerIdSource(Protocol):
    """The source of unused producer ids."""

    def take(self, done: OnProducerId) -> None:
        """Call `done` with an id or an error; perhaps before this returns."""
        ...


class Listed(NamedTuple):
    """One transactional id for ListTransactions."""

    transactional_id: str
    metadata: TransactionMetadata


class _Load:
    """A partition that is loading."""

    __slots__ = ("epoch", "found", "records", "timer")

    def __init__(self, epoch: int, records: Iterator[tuple[Header, Record]]) -> None:
        self.epoch = epoch
        self.records = records
        self.found: dict[str, TransactionMetadata] = {}
        self.timer: Timer | None = None


class _Held:
    """A loaded partition whose transactional ids this broker coordinates."""

    __slots__ = ("epoch", "transactions")

    def __init__(self, epoch: int, transactions: dict[str, Transaction]) -> None:
        self.epoch = epoch
        self.transactions = transactions


class TransactionCoordinator:
    """The transactional ids of the partitions that this broker leads."""

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        timers: Timers,
        producer_ids: ProducerIdSource,
        state_log: StateLog,
        markers: Markers,
    ) -> None:
        """The coordinator serves no transactional id before the first `load`."""
        self._settings = settings
        self._clock = clock
        self._set_timer = timers.at
        self._producer_ids = producer_ids
        self._log = state_log
        self._markers = markers
        self._held: dict[int, _Held] = {}
        self._loading: dict[int, _Load] = {}
        self._unreadable: dict[int, None] = {}
        self._timers: dict[str, Timer] = {}
        self._early: dict[str, deque[Callable[[], None]]] = {}
        """Waiting requests that begin the next transaction, by transactional id."""
        self._effects: deque[tuple[Transaction, Any]] = deque()
        self._performing = False
        markers.tell(self._marker_written, self._awaits)

    # --- loading and unloading ---

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` to which an id belongs."""
        return partition_for(transactional_id, self._settings.transaction_state_log_num_partitions)

    def load(self, partition: int, epoch: int) -> None:
        """Load a partition that this broker leads in this epoch, and continue its transactions."""
        held = self._held.get(partition)
        if held is not None:
            # A new epoch of the same leader: no other broker has written in between.
            held.epoch = epoch
            return
        self._unreadable.pop(partition, None)
        load = self._loading.get(partition)
        if load is not None:
            load.epoch = epoch
            return
        self._loading[partition] = _Load(epoch, self._log.read_all(partition))
        self._load_more(partition)

    def unload(self, partition: int) -> None:
        """Unload a partition that this broker no longer leads."""
        self._unreadable.pop(partition, None)
        load = self._loading.pop(partition, None)
        if load is not None and load.timer is not None:
            load.timer.cancel()
        held = self._held.pop(partition, None)
        if held is None:
            return
        for transaction in held.transactions.values():
            self._markers.drop(transaction.transactional_id)
            self._perform(transaction, transaction.unload())
            early = self._early.get(transaction.transactional_id)
            if early is not None:
                self._let_in(transaction.transactional_id, early)  # the answer is NOT_COORDINATOR

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR and cancel all timers."""
        for partition in [*self._held, *self._loading]:
            self.unload(partition)

    def _load_more(self, partition: int) -> None:
        load = self._loading[partition]
        load.timer = None
        try:
            for _ in range(RECORDS_AT_A_TIME):
                found = next(load.records, None)
                if found is None:
                    self._loaded(partition, load)
                    return
                _feed(load.found, partition, found[1])
        except (KafkaError, ProtocolError, OSError):
            log.exception("cannot load __transaction_state partition=%d", partition)
            del self._loading[partition]
            self._unreadable[partition] = None
            return
        load.timer = self._set_timer(self._clock.monotonic_ms(), partial(self._load_more, partition))

    def _loaded(self, partition: int, load: _Load) -> None:
        del self._loading[partition]
        transactions = {each: Transaction(each, metadata) for each, metadata in load.found.items()}
        held = self._held[partition] = _Held(load.epoch, transactions)
        self._log.when_replicated(partition, partial(self._resume, partition, held, list(transactions.values())))

    def _resume(self, partition: int, held: _Held, found: list[Transaction]) -> None:
        if self._held.get(partition) is held:
            now = self._now()
            for transaction in found:
                self._perform(transaction, transaction.resume(now))

    def _check(self, transactional_id: str) -> ErrorCode:
        """Whether this broker serves a transactional id; NONE if it does."""
        partition = self.partition_of(transactional_id)
        if partition in self._held:
            return ErrorCode.NONE
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if partition in self._unreadable else ErrorCode.NOT_COORDINATOR

    def _find(self, transactional_id: str) -> Transaction | None:
        return self._held[self.partition_of(transactional_id)].transactions.get(transactional_id)

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
            if known is None or known.is_exhausted:
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
        now = self._now()
        transaction = self._find(transactional_id)
        if transaction is None and fresh_id != NO_PRODUCER_ID:
            transaction = Transaction.fresh(transactional_id, fresh_id, timeout_ms, now)
            self._held[self.partition_of(transactional_id)].transactions[transactional_id] = transaction
        if transaction is None or (transaction.is_exhausted and fresh_id == NO_PRODUCER_ID):
            answer(Outcome(ErrorCode.CONCURRENT_TRANSACTIONS))  # the id expired, or ran out of epochs, in the meantime
            return
        self._perform(transaction, transaction.init(answer, timeout_ms, expected, fresh_id, now))

    def add(
        self, transactional_id: str, owner: Owner, partitions: Iterable[TopicPartition], version: int, answer: OnOutcome
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn; `version` is the version of the transaction protocol.

        A producer begins its next transaction as soon as it receives the decision, and the markers of the last one are
        written shortly after. Kafka returns CONCURRENT_TRANSACTIONS, and the producer retries after 20 ms or more; here
        the request waits until the markers are written, for DEADLINE_MS at most.
        """
        transaction = self._of_owner(transactional_id, answer)
        if transaction is None:
            return
        early = self._early.setdefault(transactional_id, deque()) if transaction.is_between else None
        if early is None or len(early) >= MOST_EARLY:
            self._perform(transaction, transaction.add(answer, owner, partitions, version, self._now()))
            return
        early.append(partial(self._add, transactional_id, owner, partitions, version, answer))
        if len(early) == 1:
            deadline_ms = self._clock.monotonic_ms() + DEADLINE_MS
            self._set_timer(deadline_ms, partial(self._let_in, transactional_id, early))

    def _add(
        self, transactional_id: str, owner: Owner, partitions: Iterable[TopicPartition], version: int, answer: OnOutcome
    ) -> None:
        transaction = self._of_owner(transactional_id, answer)
        if transaction is not None:
            self._perform(transaction, transaction.add(answer, owner, partitions, version, self._now()))

    def _let_in(self, transactional_id: str, early: deque[Callable[[], None]]) -> None:
        """Handle the waiting requests after the deadline."""
        if self._early.get(transactional_id) is early:
            del self._early[transactional_id]
            for add in early:
                add()

    def _admit(self, transaction: Transaction) -> None:
        """Handle the waiting requests, in order, until the transaction writes a record again."""
        early = self._early.get(transaction.transactional_id)
        if early is None:
            return
        while early and not transaction.is_between:
            early.popleft()()
        if not early and self._early.get(transaction.transactional_id) is early:
            del self._early[transaction.transactional_id]

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
        early = self._early.get(transactional_id)
        if early and not admitted and len(early) < MOST_EARLY:
            early.append(partial(self.end, transactional_id, owner, commit, version, answer, admitted=True))
            return
        transaction = self._of_owner(transactional_id, answer)
        if transaction is None:
            return
        go_on = partial(self._end, transactional_id, owner, commit, version, answer)
        if transaction.is_exhausted and version >= EPOCH_PER_TRANSACTION:
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
            self._perform(transaction, transaction.end(answer, owner, commit, version, fresh_id, self._now()))

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
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._loading else ErrorCode.NONE
        return error, [
            Listed(transaction.transactional_id, transaction.metadata)
            for held in self._held.values()
            for transaction in held.transactions.values()
            if not transaction.is_dead
        ]

    def abort_timed_out(self) -> None:
        """Abort transactions that exceed their timeout; the scheduler calls this periodically."""
        now = self._now()
        for transaction in self._all():
            if not transaction.is_overdue(now):
                continue
            if transaction.is_exhausted:
                self._producer_ids.take(partial(self._time_out, transaction))
            else:
                self._time_out(transaction, NO_PRODUCER_ID, ErrorCode.NONE)

    def _time_out(self, transaction: Transaction, fresh_id: int, error: ErrorCode) -> None:
        held = self._held.get(self.partition_of(transaction.transactional_id))
        # After an error, the next call retries; another broker may have become the coordinator in the meantime.
        if not error and held is not None and held.transactions.get(transaction.transactional_id) is transaction:
            self._perform(transaction, transaction.time_out(fresh_id, self._now()))

    def forget_expired(self) -> None:
        """Remove expired transactional ids; the scheduler calls this periodically."""
        now = self._now()
        for transaction in self._all():
            self._perform(transaction, transaction.expire(now, self._settings.transactional_id_expiration_ms))

    def _all(self) -> list[Transaction]:
        return [each for held in self._held.values() for each in held.transactions.values()]

    # --- effects ---

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.monotonic_ms())

    def _perform(self, transaction: Transaction, effects: Effects) -> None:
        """Perform effects in order; effects that are added meanwhile follow behind them.

        Calls nest: an append for one transaction can complete that of another.
        """
        self._effects.extend((transaction, effect) for effect in effects)
        if not self._performing:
            self._performing = True
            try:
                while self._effects:
                    self._carry_out(*self._effects.popleft())
            finally:
                self._performing = False
        self._admit(transaction)

    def _carry_out(self, transaction: Transaction, effect: Any) -> None:
        transactional_id = transaction.transactional_id
        match effect:
            case Append(records, token):
                partition = self.partition_of(transactional_id)
                self._log.append(partition, records, lambda code: self._appended(transaction, token, code))
            case Reply(token, answer):
                token(answer)
            case WriteMarkers(owner, commits, partitions):
                held = self._held.get(self.partition_of(transactional_id))
                if held is not None:
                    self._markers.write(Marker(transactional_id, owner, commits, held.epoch), partitions)
            case SetTimer(_, deadline_ms):
                self._cancel_timer(transactional_id)
                self._timers[transactional_id] = self._set_timer(deadline_ms, partial(self._fired, transaction))
            case CancelTimer():
                self._cancel_timer(transactional_id)

    def _cancel_timer(self, transactional_id: str) -> None:
        timer = self._timers.pop(transactional_id, None)
        if timer is not None:
            timer.cancel()

    def _fired(self, transaction: Transaction) -> None:
        self._timers.pop(transaction.transactional_id, None)
        self._perform(transaction, transaction.timer(self._now()))

    def _appended(self, transaction: Transaction, token: Any, code: ErrorCode) -> None:
        held = self._held.get(self.partition_of(transaction.transactional_id))
        if held is None or held.transactions.get(transaction.transactional_id) is not transaction:
            return  # unloaded in the meantime; the waiting request has been answered
        self._perform(transaction, transaction.appended(token, code, self._now()))
        if transaction.is_dead:
            del held.transactions[transaction.transactional_id]

    def _awaits(self, marker: Marker) -> bool:
        """Whether this broker still has to write a marker."""
        held = self._held.get(self.partition_of(marker.transactional_id))
        transaction = held.transactions.get(marker.transactional_id) if held is not None else None
        return transaction is not None and transaction.owner == marker.owner and bool(transaction.unmarked)

    def _marker_written(self, marker: Marker, partition: TopicPartition) -> None:
        held = self._held.get(self.partition_of(marker.transactional_id))
        transaction = held.transactions.get(marker.transactional_id) if held is not None else None
        if transaction is not None:
            self._perform(transaction, transaction.marker_written(marker.owner, partition, self._now()))


def _feed(found: dict[str, TransactionMetadata], partition: int, record: Record) -> None:
    try:
        if record.key is None:
            raise ProtocolError("key", 0, "a record of __transaction_state without a key")
        transactional_id = read_key(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            found.pop(transactional_id, None)
        else:
            found[transactional_id] = read_value(record.value)
    except ProtocolError as error:
        log.warning(
            "skipping invalid record of __transaction_state partition=%d offset=%d error=%s",
            partition,
            record.offset,
            error,
        )
