"""Dependencies for the machine of one transactional id: a log that may refuse, partitions that receive markers, a
clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odradek.broker.coordinator.state.pending_writes import COMMITTED
from odradek.broker.runtime.state.effects import Append, Now, Reply, SetTimer
from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.records import Status, TransactionMetadata, read_key, read_value
from odradek.broker.transaction.state.transaction import Effects, Outcome, Storing, Transaction, WriteMarkers
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

ID = "payments"
TIMEOUT_MS = 60_000
A0: TopicPartition = ("a", 0)
A1: TopicPartition = ("a", 1)
B0: TopicPartition = ("b", 0)
START_MS = 1_700_000_000_000

LEGAL: dict[Status | None, set[Status | None]] = {
    None: {Status.EMPTY, None},
    Status.EMPTY: {Status.EMPTY, Status.ONGOING, Status.PREPARE_ABORT, None},
    Status.ONGOING: {Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT},
    Status.PREPARE_COMMIT: {Status.COMPLETE_COMMIT},
    Status.PREPARE_ABORT: {Status.COMPLETE_ABORT},
    Status.COMPLETE_COMMIT: {Status.EMPTY, Status.ONGOING, Status.PREPARE_ABORT, None},
    Status.COMPLETE_ABORT: {Status.EMPTY, Status.ONGOING, Status.PREPARE_ABORT, None},
}
"""From the last record in the log to the possible next ones; None is a tombstone, or nothing."""


@dataclass
class Asked:
    """One request; `outcome` is its response."""

    what: str
    outcome: Outcome | None = None


@dataclass
class Harness:
    """The machine, and its requests."""

    machine: Transaction | None = None
    now_ms: int = START_MS
    log: list[TransactionMetadata | None] = field(default_factory=list)
    appends: list[Append] = field(default_factory=list)
    markers: list[WriteMarkers] = field(default_factory=list)
    timer_set: bool = False
    requests: list[Asked] = field(default_factory=list)
    next_id: int = 1000
    is_written: bool = False
    """Whether the oldest append is in the log and not committed yet."""

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms - START_MS)

    @property
    def metadata(self) -> TransactionMetadata:
        assert self.machine is not None
        return self.machine.metadata

    @property
    def last(self) -> TransactionMetadata | None:
        """The last record in the log."""
        return self.log[-1] if self.log else None

    def fresh_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def take(self, effects: Effects) -> None:
        """Record the effects that the machine returns."""
        for effect in effects:
            match effect:
                case Append():
                    assert len(effect.records) == 1
                    self.appends.append(effect)
                case Reply(token, answer):
                    assert token.outcome is None, f"{token.what} was answered twice"
                    token.outcome = answer
                case WriteMarkers(owner, commits, partitions):
                    decided = self.last
                    assert decided is not None, "markers without a decision"
                    wanted = Status.PREPARE_COMMIT if commits else Status.PREPARE_ABORT
                    assert decided.status is wanted, f"a marker has {wanted}, the log has {decided.status}"
                    assert (decided.producer_id, decided.epoch, decided.partitions) == (*owner, partitions)
                    self.markers.append(effect)
                case SetTimer():
                    self.timer_set = True

    # ---- requests

    def init(self, expected: Owner | None = None) -> Asked:
        asked = Asked("InitProducerId")
        self.requests.append(asked)
        if self.machine is None or self.machine.is_dead:
            self.machine = Transaction.fresh(ID, self.fresh_id(), TIMEOUT_MS, self.now)
        self.take(self.machine.init(asked, TIMEOUT_MS, expected, self.fresh_id(), self.now))
        return asked

    def add(self, owner: Owner, *partitions: TopicPartition, version: int = 0) -> Asked:
        return self._ask(
            "AddPartitionsToTxn", lambda machine, asked: machine.add(asked, owner, partitions, version, self.now)
        )

    def end(self, owner: Owner, *, commit: bool, version: int = 0) -> Asked:
        fresh = self.fresh_id()
        return self._ask("EndTxn", lambda machine, asked: machine.end(asked, owner, commit, version, fresh, self.now))

    def _ask(self, what: str, work: Any) -> Asked:
        assert self.machine is not None
        asked = Asked(what)
        self.requests.append(asked)
        self.take(work(self.machine, asked))
        return asked

    # ---- outcomes

    def stored(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """An outcome of the oldest append; after REQUEST_TIMED_OUT it is in the log and has another outcome to come."""
        append = self.appends[0]
        ((key, value),) = append.records
        assert read_key(key) == ID
        assert isinstance(append.token, Storing)
        assert self.machine is not None
        is_late = error is ErrorCode.REQUEST_TIMED_OUT
        if (error in COMMITTED or is_late) and not self.is_written:
            now = read_value(value) if value is not None else None
            before = self.last.status if self.last is not None else None
            after = now.status if now is not None else None
            assert after in LEGAL[before], f"{before} cannot become {after}"
            self.log.append(now)
        self.is_written = is_late
        if not is_late:
            self.appends.pop(0)
        if error not in COMMITTED and not is_late:
            for undo in reversed(append.undo):
                undo()
        self.take(self.machine.appended(append.token, error, self.now))

    def mark(self) -> None:
        """Every partition of the oldest decision has its marker."""
        decided = self.markers.pop(0)
        assert self.machine is not None
        for partition in sorted(decided.partitions):
            self.take(self.machine.marker_written(decided.owner, partition, self.now))

    def settle(self) -> None:
        """Let all pending work succeed."""
        while self.appends or self.markers:
            if self.appends:
                self.stored()
            else:
                self.mark()

    def time_out(self) -> None:
        assert self.machine is not None
        self.take(self.machine.time_out(self.fresh_id(), self.now))

    def reload(self) -> None:
        """The coordinator dies, and another reads the log."""
        if self.machine is not None:
            self.take(self.machine.unload(self.now))
            for append in self.appends:
                self.take(self.machine.appended(append.token, ErrorCode.NOT_COORDINATOR, self.now))
        self.appends.clear()
        self.is_written = False
        self.markers.clear()
        self.timer_set = False
        last = self.last
        self.machine = Transaction(ID, last) if last is not None else None
        if self.machine is not None:
            self.take(self.machine.loaded(self.now))
