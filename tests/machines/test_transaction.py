"""The machine of a transactional id: transcripts of scenarios, and invariants of any history (T3, T4)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.transaction.state.preparation import Owner
from odradek.broker.transaction.state.records import (
    LAST_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Status,
    TransactionMetadata,
    read_key,
    read_value,
    record,
)
from odradek.broker.transaction.state.transaction import COMPLETE, ENDING
from odradek.broker.transaction.state.transitions import STATES, TABLE, TRANSITIONS, TransactionEvent, Transition
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.machines.transaction_harness import A0, A1, B0, LEGAL, TIMEOUT_MS, Asked, Harness

NONE = ErrorCode.NONE
OUTCOMES = (
    NONE,
    NONE,
    NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
"""The outcome of an append."""


@pytest.fixture
def harness() -> Harness:
    return Harness()


def owned(harness: Harness, expected: Owner | None = None) -> Owner:
    """InitProducerId with this id; returns its new owner."""
    asked = harness.init(expected)
    harness.settle()
    assert asked.outcome is not None
    assert asked.outcome.error is NONE
    return asked.outcome.owner


def error(asked: Asked) -> ErrorCode:
    assert asked.outcome is not None, f"{asked.what} has no response"
    return asked.outcome.error


def test_a_transaction_from_its_begin_to_its_end(harness: Harness) -> None:
    owner = owned(harness)
    assert owner == (1001, 0)
    added = harness.add(owner, A0, B0)
    assert added.outcome is None, "not before it is durable"
    harness.stored()
    assert error(added) is NONE
    assert error(harness.add(owner, A0)) is NONE
    assert not harness.appends, "it has that partition already"
    ended = harness.end(owner, commit=True)
    assert (ended.outcome, harness.markers) == (None, [])
    harness.stored()
    assert error(ended) is NONE
    assert error(harness.end(owner, commit=True)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert error(harness.add(owner, A1)) is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.settle()
    assert harness.metadata.status is Status.COMPLETE_COMMIT
    assert error(harness.end(owner, commit=True)) is NONE, "the answer was lost"
    assert error(harness.end(owner, commit=False)) is ErrorCode.INVALID_TXN_STATE
    assert [each.status.label for each in harness.log if each] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
    ]


def test_a_successor_fences_and_the_transaction_is_aborted(harness: Harness) -> None:
    old = owned(harness)
    harness.add(old, A0)
    harness.settle()
    taken = harness.init()
    assert error(taken) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert error(harness.add(old, A1)) is ErrorCode.PRODUCER_FENCED, "at once, before the abort is durable"
    assert error(harness.end(old, commit=True)) is ErrorCode.PRODUCER_FENCED
    harness.settle()
    assert harness.metadata.status is Status.COMPLETE_ABORT
    new = owned(harness)
    assert new == (old.producer_id, old.epoch + 2)
    assert error(harness.end(old, commit=True)) is ErrorCode.PRODUCER_FENCED


def test_a_fence_that_the_log_refuses_is_reverted(harness: Harness) -> None:
    old = owned(harness)
    harness.add(old, A0)
    harness.settle()
    before = harness.metadata
    for _ in range(3):
        harness.init()
        harness.stored(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert harness.metadata.status is Status.ONGOING
        assert harness.metadata == before
    assert error(harness.add(old, A0)) is NONE
    harness.init()
    harness.settle()
    assert (harness.metadata.status, harness.metadata.epoch) == (Status.COMPLETE_ABORT, old.epoch + 1)


def test_an_id_that_the_log_refuses_is_removed(harness: Harness) -> None:
    asked = harness.init()
    harness.stored(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert error(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.machine is not None
    assert harness.machine.is_dead


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_that_times_out_cannot_be_reversed(harness: Harness, commit: bool) -> None:
    owner = owned(harness)
    harness.add(owner, A0)
    harness.settle()
    asked = harness.end(owner, commit=commit)
    harness.stored(ErrorCode.REQUEST_TIMED_OUT)
    assert error(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error(harness.end(owner, commit=not commit)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not harness.markers, "no marker before the decision is committed"
    harness.stored(ErrorCode.REQUEST_TIMED_OUT)
    harness.settle()
    assert harness.metadata.status is (Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT)
    assert error(harness.end(owner, commit=commit)) is NONE


def test_a_decision_on_too_few_replicas_is_carried_out(harness: Harness) -> None:
    owner = owned(harness)
    harness.add(owner, A0)
    harness.settle()
    asked = harness.end(owner, commit=True)
    harness.stored(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert error(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.settle()
    assert harness.metadata.status is Status.COMPLETE_COMMIT


def test_a_producer_that_continues_sends_its_previous_id_and_epoch(harness: Harness) -> None:
    """KIP-360."""
    first = owned(harness)
    second = owned(harness, first)
    assert second == (first.producer_id, 1)
    assert owned(harness, first) == second, "the response was lost, and the client repeats the request"
    third = owned(harness, second)
    assert error(harness.init(first)) is ErrorCode.PRODUCER_FENCED
    assert error(harness.init(Owner(7, 0))) is ErrorCode.PRODUCER_FENCED
    assert third.epoch == 2


@pytest.mark.slow
def test_epochs_run_out(harness: Harness) -> None:
    owner = owned(harness)
    while owner.epoch < LAST_EPOCH:
        owner = owned(harness)
    after = owned(harness)
    assert after.producer_id != owner.producer_id
    assert after.epoch == 0
    assert error(harness.add(owner, A0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_epochs_of_version_2_run_out_at_the_end_of_a_transaction() -> None:
    harness = Harness()
    owned(harness)
    assert harness.machine is not None
    harness.machine.metadata = harness.metadata._replace(epoch=LAST_EPOCH)
    owner = harness.machine.owner
    harness.add(owner, A0, version=2)
    harness.settle()
    ended = harness.end(owner, commit=True, version=2)
    harness.stored()
    assert ended.outcome is not None
    new = ended.outcome.owner
    assert (new.epoch, new.producer_id != owner.producer_id) == (0, True)
    assert harness.markers[0].owner == (owner.producer_id, LAST_EPOCH + 1), "the marker has an epoch of its own"
    harness.settle()
    assert harness.machine.owner == new
    again = harness.end(owner, commit=True, version=2)
    assert again.outcome is not None
    assert (again.outcome.error, again.outcome.owner) == (NONE, new)


def test_no_producer_has_the_epoch_that_fences() -> None:
    """It is the largest epoch: if a producer had it, the next bump would not fit into a record."""
    harness = Harness()
    owned(harness)
    assert harness.machine is not None
    harness.machine.metadata = harness.metadata._replace(epoch=LAST_EPOCH)
    harness.add(harness.machine.owner, A0)
    harness.settle()
    harness.now_ms += TIMEOUT_MS + 1
    harness.time_out()
    harness.settle()
    fenced = harness.machine.owner
    assert (harness.metadata.status, fenced.epoch) == (Status.COMPLETE_ABORT, LAST_EPOCH + 1)
    assert error(harness.add(fenced, A0)) is ErrorCode.PRODUCER_FENCED
    assert error(harness.end(fenced, commit=False)) is ErrorCode.PRODUCER_FENCED
    last = Owner(fenced.producer_id, LAST_EPOCH)
    assert error(harness.end(last, commit=False)) is ErrorCode.PRODUCER_FENCED
    assert error(harness.init(last)) is ErrorCode.PRODUCER_FENCED
    assert owned(harness).producer_id != fenced.producer_id


@pytest.mark.parametrize("by", ["a successor", "time"])
def test_an_owner_of_version_2_whose_last_epoch_is_fenced_continues_with_another_id(by: str) -> None:
    harness = Harness()
    owned(harness)
    assert harness.machine is not None
    harness.machine.metadata = harness.metadata._replace(epoch=LAST_EPOCH)
    last = harness.machine.owner
    harness.add(last, A0, version=2)
    harness.settle()
    if by == "time":
        harness.now_ms += TIMEOUT_MS + 1
        harness.time_out()
    else:
        harness.init()
    harness.stored()
    assert harness.markers[0].owner == (last.producer_id, LAST_EPOCH + 1)
    harness.settle()
    turned = harness.machine.owner
    assert (harness.metadata.status, turned.epoch) == (Status.COMPLETE_ABORT, 0)
    assert turned.producer_id != last.producer_id
    again = harness.end(last, commit=False, version=2)
    assert again.outcome is not None
    assert (again.outcome.error, again.outcome.owner) == (NONE, turned)
    assert owned(harness, last) == turned


@pytest.mark.parametrize("version", [0, 2])
def test_a_fenced_producer_continues_if_no_other_came_between(version: int) -> None:
    """A producer whose transaction took too long (KIP-588)."""
    harness = Harness()
    owner = owned(harness)
    harness.add(owner, A0, version=version)
    harness.settle()
    harness.now_ms += TIMEOUT_MS + 1
    harness.time_out()
    harness.settle()
    raised = Owner(owner.producer_id, owner.epoch + 1)
    assert owned(harness, owner) == raised
    successor = owned(harness)
    assert successor.epoch == raised.epoch + 1
    assert error(harness.init(owner)) is ErrorCode.PRODUCER_FENCED


def test_every_transaction_of_version_2_has_an_epoch_of_its_own(harness: Harness) -> None:
    """KIP-890: an EndTxn that comes late does not end the next transaction."""
    first = owned(harness)
    harness.add(first, A0, version=2)
    harness.settle()
    ended = harness.end(first, commit=True, version=2)
    harness.settle()
    assert ended.outcome is not None
    second = ended.outcome.owner
    assert second == (first.producer_id, first.epoch + 1)
    again = harness.end(first, commit=True, version=2)
    assert again.outcome is not None
    assert (again.outcome.error, again.outcome.owner) == (NONE, second)
    harness.add(second, B0, version=2)
    harness.settle()
    assert error(harness.end(first, commit=True, version=2)) is ErrorCode.PRODUCER_FENCED
    assert harness.metadata.status is Status.ONGOING


def test_version_2_may_abort_a_transaction_that_has_not_begun(harness: Harness) -> None:
    owner = owned(harness)
    assert error(harness.end(owner, commit=True, version=2)) is ErrorCode.INVALID_TXN_STATE
    ended = harness.end(owner, commit=False, version=2)
    harness.settle()
    assert ended.outcome is not None
    assert (ended.outcome.error, ended.outcome.owner.epoch) == (NONE, owner.epoch + 1)
    assert harness.metadata.status is Status.COMPLETE_ABORT
    assert error(harness.end(owner, commit=False)) is ErrorCode.PRODUCER_FENCED


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(harness: Harness) -> None:
    owner = owned(harness)
    harness.add(owner, A0)
    harness.settle()
    harness.now_ms += TIMEOUT_MS
    harness.time_out()
    assert not harness.appends
    harness.now_ms += 1
    harness.time_out()
    harness.settle()
    assert harness.metadata.status is Status.COMPLETE_ABORT
    assert error(harness.end(owner, commit=True)) is ErrorCode.PRODUCER_FENCED


def test_an_unused_id_expires(harness: Harness) -> None:
    owner = owned(harness)
    assert harness.machine is not None
    harness.now_ms += 1000
    harness.take(harness.machine.expire(harness.now, 1001))
    assert not harness.appends
    harness.take(harness.machine.expire(harness.now, 1000))
    harness.stored()
    assert harness.machine.is_dead
    assert harness.last is None
    assert owned(harness).producer_id != owner.producer_id


def test_a_completion_that_could_not_be_written_is_written_later(harness: Harness) -> None:
    owner = owned(harness)
    harness.add(owner, A0)
    harness.settle()
    harness.end(owner, commit=True)
    harness.stored()
    harness.mark()
    harness.stored(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert harness.timer_set
    assert harness.machine is not None
    harness.take(harness.machine.timer(COMPLETE, harness.now))
    harness.settle()
    assert harness.metadata.status is Status.COMPLETE_COMMIT


def test_verification_returns_the_partitions_of_the_transaction(harness: Harness) -> None:
    owner = owned(harness)
    assert harness.machine is not None
    assert set(harness.machine.verify(owner, [A0]).values()) == {ErrorCode.TRANSACTION_ABORTABLE}
    harness.add(owner, A0)
    harness.settle()
    assert harness.machine.verify(owner, [A0, B0]) == {A0: NONE, B0: ErrorCode.TRANSACTION_ABORTABLE}
    stranger = Owner(owner.producer_id, owner.epoch + 1)
    assert harness.machine.verify(stranger, [A0]) == {A0: ErrorCode.PRODUCER_FENCED}
    harness.end(owner, commit=True)
    harness.stored()
    assert harness.machine.verify(owner, [A0]) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}


@pytest.mark.parametrize("version", [0, 2])
def test_records_read_back_unchanged(version: int) -> None:
    for metadata in (
        TransactionMetadata(Status.ONGOING, 5, 3, 100, frozenset({A0, A1, B0}), 10, 20),
        TransactionMetadata(Status.EMPTY, 5, 3, 100, updated_ms=20),
        TransactionMetadata(Status.PREPARE_COMMIT, 5, 3, 100, frozenset({A0}), 10, 20, -1, 4, 6),
    ):
        key, value = record("id", metadata._replace(version=version))
        assert read_key(key) == "id"
        assert value is not None
        expected = metadata._replace(version=version)
        if version == 0:
            expected = expected._replace(previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID)
        assert read_value(value) == expected
        for end in range(len(value)):
            with pytest.raises(ProtocolError):
                read_value(value[:end])


def transition_table() -> str:
    """The transition table as docs/transactions.md shows it."""

    def shown(transition: Transition) -> str:
        names = {ErrorCode.CONCURRENT_TRANSACTIONS: "CONCURRENT", ErrorCode.INVALID_TXN_STATE: "INVALID"}
        names[ErrorCode.PRODUCER_FENCED] = "FENCED"
        parts = [transition.to.label] if transition.to is not None else []
        parts += [names[transition.error]] if transition.error else []
        return ", ".join(parts)

    rows = [["event", *(status.label for status in STATES)]]
    rows += [[event.value, *(shown(TABLE[status, event]) or "–" for status in STATES)] for event in TransactionEvent]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def test_the_page_shows_the_transition_table() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "transactions.md").read_text()
    assert transition_table() in page, f"docs/transactions.md should have\n{transition_table()}"


def test_every_state_has_the_transitions_that_kafka_allows() -> None:
    """TransactionState.validPreviousStates, and a second transaction without a record of Empty in between."""
    assert {
        status: frozenset(Status.DEAD if each is None else each for each in LEGAL.get(status, set()))
        for status in Status
    } == TRANSITIONS


def test_a_transition_that_the_table_does_not_have_is_an_error(harness: Harness) -> None:
    owner = owned(harness)
    harness.add(owner, A0)
    harness.settle()
    assert harness.machine is not None
    with pytest.raises(AssertionError, match="Ongoing cannot become CompleteCommit"):
        harness.machine._store(harness.metadata._replace(status=Status.COMPLETE_COMMIT))


class Transactions(RuleBasedStateMachine):
    """Any order of requests, outcomes, time and failovers."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.owners: list[Owner] = []
        """Every producer that has received the id, in order."""
        self.waiting: list[tuple[Asked, Owner | None]] = []
        self.versions: dict[int, int] = {}

    @initialize(epochs_left=st.sampled_from((None, None, 0, 1, 2)))
    def begin(self, epochs_left: int | None) -> None:
        """Some ids have been in use for long."""
        if epochs_left is not None:
            harness = self.harness
            harness.init()
            harness.settle()
            harness.log[-1] = harness.metadata._replace(epoch=LAST_EPOCH - epochs_left)
            harness.reload()
            assert harness.machine is not None
            self.owners.append(harness.machine.owner)

    def _speak(self, owner: Owner) -> int:
        return self.versions.setdefault(owner.producer_id, owner.producer_id % 2 * 2)

    def _note(self) -> None:
        """The producers that have received the id as theirs."""
        for asked, expected in list(self.waiting):
            outcome = asked.outcome
            if outcome is None:
                continue
            self.waiting.remove((asked, expected))
            if outcome.error or outcome.owner.producer_id == NO_PRODUCER_ID:
                continue
            if outcome.owner in self.owners:
                assert expected is not None, f"{outcome.owner} was given to two"
                assert self.owners[-1] == outcome.owner
            else:
                self.owners.append(outcome.owner)

    @rule(going_on=st.booleans(), which=st.integers(0, 3))
    def init(self, going_on: bool, which: int) -> None:
        expected = self.owners[-1 - which] if going_on and len(self.owners) > which else None
        self.waiting.append((self.harness.init(expected), expected))
        self._note()

    @precondition(lambda self: self.owners and self.harness.machine is not None)
    @rule(which=st.sampled_from((0, 0, 0, 1, 2)), partitions=st.sets(st.sampled_from((A0, A1, B0)), min_size=1))
    def add(self, which: int, partitions: set[tuple[str, int]]) -> None:
        if which < len(self.owners):
            owner = self.owners[-1 - which]
            asked = self.harness.add(owner, *sorted(partitions), version=self._speak(owner))
            self._judge(asked, owner)

    @precondition(lambda self: self.owners and self.harness.machine is not None)
    @rule(which=st.sampled_from((0, 0, 0, 1, 2)), commit=st.booleans())
    def end(self, which: int, commit: bool) -> None:
        if which < len(self.owners):
            owner = self.owners[-1 - which]
            before = self.harness.metadata.status
            asked = self.harness.end(owner, commit=commit, version=self._speak(owner))
            if which > 0 and before is Status.ONGOING:
                assert asked.outcome is not None, "a producer that is not the owner has decided"
                assert asked.outcome.error is not NONE
            self.waiting.append((asked, owner))
            self._note()

    @precondition(lambda self: self.harness.machine is not None and not self.harness.machine.is_dead)
    @rule(commit=st.booleans(), version=st.sampled_from((0, 2)), adds=st.booleans())
    def forge(self, commit: bool, version: int, adds: bool) -> None:
        """A client that guesses the epoch that fences after the last one."""
        forger = Owner(self.harness.metadata.producer_id, LAST_EPOCH + 1)
        harness = self.harness
        asked = (
            harness.add(forger, A0, version=version) if adds else harness.end(forger, commit=commit, version=version)
        )
        assert asked.outcome is not None
        assert asked.outcome.error is ErrorCode.PRODUCER_FENCED

    def _judge(self, asked: Asked, owner: Owner) -> None:
        assert self.harness.machine is not None
        if asked.outcome is None or asked.outcome.error is NONE:
            assert owner == self.harness.machine.owner, "only the owner adds partitions"

    @precondition(lambda self: self.harness.appends)
    @rule(error=st.sampled_from(OUTCOMES))
    def stored(self, error: ErrorCode) -> None:
        """An append that is in the log, but late, cannot be refused any more."""
        self.harness.stored(NONE if self.harness.is_written and error is ErrorCode.NOT_ENOUGH_REPLICAS else error)
        self._note()

    @precondition(lambda self: self.harness.markers)
    @rule()
    def mark(self) -> None:
        self.harness.mark()

    @precondition(lambda self: self.harness.timer_set and self.harness.machine is not None)
    @rule()
    def timer(self) -> None:
        assert self.harness.machine is not None
        self.harness.timer_set = False
        self.harness.take(self.harness.machine.timer(COMPLETE, self.harness.now))

    @precondition(lambda self: self.harness.machine is not None)
    @rule(passed_ms=st.sampled_from((1, TIMEOUT_MS // 2, TIMEOUT_MS + 1)))
    def time(self, passed_ms: int) -> None:
        self.harness.now_ms += passed_ms
        self.harness.time_out()

    @precondition(lambda self: self.harness.machine is not None and not self.harness.machine.is_dead)
    @rule()
    def expire(self) -> None:
        assert self.harness.machine is not None
        self.harness.take(self.harness.machine.expire(self.harness.now, TIMEOUT_MS * 3))

    @rule()
    def reload(self) -> None:
        self.harness.reload()
        self._note()

    @invariant()
    def the_machine_is_what_the_log_says(self) -> None:
        """A reload equals the state before an append in flight, or the one after it where the append is written."""
        machine, last = self.harness.machine, self.harness.last
        if machine is None:
            return
        storing = machine._storing
        if storing is not None:
            assert len(self.harness.appends) == 1
            expected = storing.target if self.harness.is_written else storing.before
        else:
            expected = machine.metadata
        if expected.status is Status.DEAD or expected.epoch == NO_PRODUCER_EPOCH:
            assert last is None
        else:
            _, value = record("id", expected)
            assert value is not None
            assert read_value(value) == last

    @invariant()
    def epochs_only_grow(self) -> None:
        known: dict[int, int] = {}
        for metadata in self.harness.log:
            if metadata is not None:
                assert metadata.epoch >= known.get(metadata.producer_id, -1)
                known[metadata.producer_id] = metadata.epoch

    def teardown(self) -> None:
        """After any history the machine comes to rest, and every request has a response."""
        harness = self.harness
        harness.settle()
        if harness.machine is not None:
            harness.take(harness.machine.timer(COMPLETE, harness.now))
            harness.settle()
            assert harness.metadata.status not in ENDING
        assert all(asked.outcome is not None for asked in harness.requests)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
