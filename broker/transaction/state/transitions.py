"""Transition table of a transactional id (Kafka: TransactionState.validPreviousStates, TransactionCoordinator).

`TABLE` has one row for each event and one column for each state: the state that follows, and the error that the request
gets. `Transaction` looks up every decision here; docs/transactions.md shows the table. A Dead id is unknown,
and PrepareEpochFence is never written.

An EndTxn of a producer of transactions version 2 raises the epoch. So an EndTxn with the present epoch is a new
request, which may abort a transaction that has not begun, because the producer cannot detect that; one with the epoch
before is a repetition, of which only the end that it repeats is valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from odradek.broker.transaction.state.records import Status
from odradek.protocol.errors import ErrorCode


class TransactionEvent(Enum):
    """A request or another event, as the table in docs/transactions.md prints it."""

    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn, AddOffsetsToTxn"
    COMMIT = "EndTxn: commit"
    ABORT = "EndTxn: abort"
    COMMIT_V2 = "EndTxn v2: commit"
    ABORT_V2 = "EndTxn v2: abort"
    REPEATED_COMMIT = "EndTxn v2: commit, repeated"
    REPEATED_ABORT = "EndTxn v2: abort, repeated"
    MARKERS_WRITTEN = "every partition has its marker"
    TIMEOUT = "the transaction timeout has passed"
    EXPIRATION = "the expiration time of the id has passed"


class Transition(NamedTuple):
    """The effect of an event: the next state (None: no change) and the error of the request."""

    to: Status | None = None
    error: ErrorCode = ErrorCode.NONE


STATES: Final = tuple(Status)[:6]
"""The columns of the table: Empty to CompleteAbort."""

_SAME: Final = Transition()
_BUSY: Final = Transition(error=ErrorCode.CONCURRENT_TRANSACTIONS)
_WRONG: Final = Transition(error=ErrorCode.INVALID_TXN_STATE)
_FENCED: Final = Transition(error=ErrorCode.PRODUCER_FENCED)
_EMPTY: Final = Transition(Status.EMPTY)
_ONGOING: Final = Transition(Status.ONGOING)
_COMMITS: Final = Transition(Status.PREPARE_COMMIT)
_ABORTS: Final = Transition(Status.PREPARE_ABORT)
_COMMITTED: Final = Transition(Status.COMPLETE_COMMIT)
_ABORTED: Final = Transition(Status.COMPLETE_ABORT)
_DIES: Final = Transition(Status.DEAD)
_UNKNOWN: Final = Transition(error=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_FENCES: Final = Transition(Status.PREPARE_ABORT, ErrorCode.CONCURRENT_TRANSACTIONS)
"""The producer of InitProducerId retries until the abort is complete."""

_ROWS: Final[Mapping[TransactionEvent, tuple[Transition, ...]]] = {
    # ........................ Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort
    TransactionEvent.INIT: (_EMPTY, _FENCES, _BUSY, _BUSY, _EMPTY, _EMPTY),
    TransactionEvent.ADD: (_ONGOING, _ONGOING, _BUSY, _BUSY, _ONGOING, _ONGOING),
    TransactionEvent.COMMIT: (_WRONG, _COMMITS, _BUSY, _WRONG, _SAME, _WRONG),
    TransactionEvent.ABORT: (_WRONG, _ABORTS, _WRONG, _BUSY, _WRONG, _SAME),
    TransactionEvent.COMMIT_V2: (_WRONG, _COMMITS, _FENCED, _FENCED, _WRONG, _WRONG),
    TransactionEvent.ABORT_V2: (_ABORTS, _ABORTS, _FENCED, _FENCED, _ABORTS, _ABORTS),
    TransactionEvent.REPEATED_COMMIT: (_FENCED, _FENCED, _BUSY, _WRONG, _SAME, _WRONG),
    TransactionEvent.REPEATED_ABORT: (_FENCED, _FENCED, _WRONG, _BUSY, _WRONG, _SAME),
    TransactionEvent.MARKERS_WRITTEN: (_SAME, _SAME, _COMMITTED, _ABORTED, _SAME, _SAME),
    TransactionEvent.TIMEOUT: (_SAME, _ABORTS, _SAME, _SAME, _SAME, _SAME),
    TransactionEvent.EXPIRATION: (_DIES, _SAME, _SAME, _SAME, _DIES, _DIES),
}

TABLE: Final[Mapping[tuple[Status, TransactionEvent], Transition]] = {
    (status, event): transition
    for event, row in _ROWS.items()
    for status, transition in zip(Status, (*row, _UNKNOWN, _UNKNOWN), strict=True)
}

TRANSITIONS: Final[Mapping[Status, frozenset[Status]]] = {
    status: frozenset(
        transition.to for (before, _), transition in TABLE.items() if before is status and transition.to is not None
    )
    for status in Status
}
"""From each state, the states that may follow."""


def end_event(*, commit: bool, is_v2: bool, is_repeated: bool) -> TransactionEvent:
    """The event of an EndTxn."""
    if is_repeated:
        return TransactionEvent.REPEATED_COMMIT if commit else TransactionEvent.REPEATED_ABORT
    if is_v2:
        return TransactionEvent.COMMIT_V2 if commit else TransactionEvent.ABORT_V2
    return TransactionEvent.COMMIT if commit else TransactionEvent.ABORT
