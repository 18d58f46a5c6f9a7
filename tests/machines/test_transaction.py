"""The machine of a transactional id: transcripts of what happens, and what holds whatever happens (T3, T4)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.broker.transaction.state import transaction as module
from odradek.broker.transaction.state.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    Status,
    read_key,
    read_value,
    record,
)
from odradek.broker.transaction.state.transaction import ENDING, LAST_EPOCH, Owner
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.machines.transaction_world import A0, A1, B0, TIMEOUT_MS, Asked, World

NONE = ErrorCode.NONE
OUTCOMES = (
    NONE,
    NONE,
    NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)
"""What an append comes to."""


@pytest.fixture
def world() -> World:
    return World()


def owned(world: World, expected: Owner | None = None) -> Owner:
    """The id is taken over; returns who has it."""
    asked = world.init(expected)
    world.settle()
    assert asked.outcome is not None
    assert asked.outcome.error is NONE
    return asked.outcome.owner


def error(asked: Asked) -> ErrorCode:
    assert asked.outcome is not None, f"{asked.what} has no answer"
    return asked.outcome.error


def test_a_transaction_from_its_begin_to_its_end(world: World) -> None:
    owner = owned(world)
    assert owner == (1001, 0)
    added = world.add(owner, A0, B0)
    assert added.outcome is None, "not before it is durable"
    world.stored()
    assert error(added) is NONE
    assert error(world.add(owner, A0)) is NONE
    assert not world.appends, "it has that partition already"
    ended = world.end(owner, commit=True)
    assert (ended.outcome, world.markers) == (None, [])
    world.stored()
    assert error(ended) is NONE
    assert error(world.end(owner, commit=True)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert error(world.add(owner, A1)) is ErrorCode.CONCURRENT_TRANSACTIONS
    world.settle()
    assert world.metadata.status is Status.COMPLETE_COMMIT
    assert error(world.end(owner, commit=True)) is NONE, "the answer was lost"
    assert error(world.end(owner, commit=False)) is ErrorCode.INVALID_TXN_STATE
    assert [each.status.label for each in world.log if each] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "CompleteCommit",
    ]


def test_a_successor_fences_and_the_transaction_is_aborted(world: World) -> None:
    old = owned(world)
    world.add(old, A0)
    world.settle()
    taken = world.init()
    assert error(taken) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert error(world.add(old, A1)) is ErrorCode.PRODUCER_FENCED, "at once, before the abort is durable"
    assert error(world.end(old, commit=True)) is ErrorCode.PRODUCER_FENCED
    world.settle()
    assert world.metadata.status is Status.COMPLETE_ABORT
    new = owned(world)
    assert new == (old.producer_id, old.epoch + 2)
    assert error(world.end(old, commit=True)) is ErrorCode.PRODUCER_FENCED


def test_a_fence_that_the_log_refuses_is_none(world: World) -> None:
    old = owned(world)
    world.add(old, A0)
    world.settle()
    before = world.metadata
    for _ in range(3):
        world.init()
        world.stored(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert world.metadata.status is Status.ONGOING
        assert world.metadata == before
    assert error(world.add(old, A0)) is NONE
    world.init()
    world.settle()
    assert (world.metadata.status, world.metadata.epoch) == (Status.COMPLETE_ABORT, old.epoch + 1)


def test_an_id_that_the_log_refuses_is_forgotten(world: World) -> None:
    asked = world.init()
    world.stored(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert error(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.machine is not None
    assert world.machine.is_dead


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_that_the_log_takes_too_late_cannot_be_reversed(world: World, commit: bool) -> None:
    owner = owned(world)
    world.add(owner, A0)
    world.settle()
    asked = world.end(owner, commit=commit)
    world.stored(ErrorCode.REQUEST_TIMED_OUT)
    assert error(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error(world.end(owner, commit=not commit)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not world.markers, "no marker before the decision is committed"
    world.stored(ErrorCode.REQUEST_TIMED_OUT)
    world.settle()
    assert world.metadata.status is (Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT)
    assert error(world.end(owner, commit=commit)) is NONE


def test_a_decision_that_too_few_replicas_have_is_carried_out(world: World) -> None:
    owner = owned(world)
    world.add(owner, A0)
    world.settle()
    asked = world.end(owner, commit=True)
    world.stored(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert error(asked) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.settle()
    assert world.metadata.status is Status.COMPLETE_COMMIT


def test_a_producer_that_goes_on_says_who_it_was(world: World) -> None:
    """KIP-360."""
    first = owned(world)
    second = owned(world, first)
    assert second == (first.producer_id, 1)
    assert owned(world, first) == second, "the answer was lost, and it asks again"
    third = owned(world, second)
    assert error(world.init(first)) is ErrorCode.PRODUCER_FENCED
    assert error(world.init(Owner(7, 0))) is ErrorCode.PRODUCER_FENCED
    assert third.epoch == 2


def test_epochs_run_out(world: World) -> None:
    owner = owned(world)
    while owner.epoch < LAST_EPOCH:
        owner = owned(world)
    after = owned(world)
    assert after.producer_id != owner.producer_id
    assert after.epoch == 0
    assert error(world.add(owner, A0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_epochs_of_version_2_run_out_at_the_end_of_a_transaction() -> None:
    world = World()
    owned(world)
    assert world.machine is not None
    world.machine.metadata = world.metadata._replace(epoch=LAST_EPOCH)
    owner = world.machine.owner
    world.add(owner, A0, version=2)
    world.settle()
    ended = world.end(owner, commit=True, version=2)
    world.stored()
    assert ended.outcome is not None
    new = ended.outcome.owner
    assert (new.epoch, new.producer_id != owner.producer_id) == (0, True)
    assert world.markers[0].owner == (owner.producer_id, LAST_EPOCH + 1), "the marker has an epoch of its own"
    world.settle()
    assert world.machine.owner == new
    again = world.end(owner, commit=True, version=2)
    assert again.outcome is not None
    assert (again.outcome.error, again.outcome.owner) == (NONE, new)


def test_the_epoch_that_fences_is_nobodys() -> None:
    """It is the largest there is: were it anybody's, the next bump would not fit into a record."""
    world = World()
    owned(world)
    assert world.machine is not None
    world.machine.metadata = world.metadata._replace(epoch=LAST_EPOCH)
    world.add(world.machine.owner, A0)
    world.settle()
    world.now_ms += TIMEOUT_MS + 1
    world.time_out()
    world.settle()
    fenced = world.machine.owner
    assert (world.metadata.status, fenced.epoch) == (Status.COMPLETE_ABORT, LAST_EPOCH + 1)
    assert error(world.add(fenced, A0)) is ErrorCode.PRODUCER_FENCED
    assert error(world.end(fenced, commit=False)) is ErrorCode.PRODUCER_FENCED
    last = Owner(fenced.producer_id, LAST_EPOCH)
    assert error(world.end(last, commit=False)) is ErrorCode.PRODUCER_FENCED
    assert error(world.init(last)) is ErrorCode.PRODUCER_FENCED
    assert owned(world).producer_id != fenced.producer_id


@pytest.mark.parametrize("by", ["a successor", "time"])
def test_an_owner_of_version_2_whose_last_epoch_is_fenced_goes_on_with_another_id(by: str) -> None:
    world = World()
    owned(world)
    assert world.machine is not None
    world.machine.metadata = world.metadata._replace(epoch=LAST_EPOCH)
    last = world.machine.owner
    world.add(last, A0, version=2)
    world.settle()
    if by == "time":
        world.now_ms += TIMEOUT_MS + 1
        world.time_out()
    else:
        world.init()
    world.stored()
    assert world.markers[0].owner == (last.producer_id, LAST_EPOCH + 1)
    world.settle()
    turned = world.machine.owner
    assert (world.metadata.status, turned.epoch) == (Status.COMPLETE_ABORT, 0)
    assert turned.producer_id != last.producer_id
    again = world.end(last, commit=False, version=2)
    assert again.outcome is not None
    assert (again.outcome.error, again.outcome.owner) == (NONE, turned)
    assert owned(world, last) == turned


@pytest.mark.parametrize("version", [0, 2])
def test_who_was_fenced_goes_on_if_nobody_came_between(version: int) -> None:
    """A producer whose transaction took too long (KIP-588)."""
    world = World()
    owner = owned(world)
    world.add(owner, A0, version=version)
    world.settle()
    world.now_ms += TIMEOUT_MS + 1
    world.time_out()
    world.settle()
    raised = Owner(owner.producer_id, owner.epoch + 1)
    assert owned(world, owner) == raised
    successor = owned(world)
    assert successor.epoch == raised.epoch + 1
    assert error(world.init(owner)) is ErrorCode.PRODUCER_FENCED


def test_every_transaction_of_version_2_has_an_epoch_of_its_own(world: World) -> None:
    """KIP-890: an EndTxn that comes late does not end the next transaction."""
    first = owned(world)
    world.add(first, A0, version=2)
    world.settle()
    ended = world.end(first, commit=True, version=2)
    world.settle()
    assert ended.outcome is not None
    second = ended.outcome.owner
    assert second == (first.producer_id, first.epoch + 1)
    again = world.end(first, commit=True, version=2)
    assert again.outcome is not None
    assert (again.outcome.error, again.outcome.owner) == (NONE, second)
    world.add(second, B0, version=2)
    world.settle()
    assert error(world.end(first, commit=True, version=2)) is ErrorCode.PRODUCER_FENCED
    assert world.metadata.status is Status.ONGOING


def test_version_2_may_abort_what_has_not_begun(world: World) -> None:
    owner = owned(world)
    assert error(world.end(owner, commit=True, version=2)) is ErrorCode.INVALID_TXN_STATE
    ended = world.end(owner, commit=False, version=2)
    world.settle()
    assert ended.outcome is not None
    assert (ended.outcome.error, ended.outcome.owner.epoch) == (NONE, owner.epoch + 1)
    assert world.metadata.status is Status.COMPLETE_ABORT
    assert error(world.end(owner, commit=False)) is ErrorCode.PRODUCER_FENCED


def test_what_runs_too_long_is_aborted_and_its_producer_fenced(world: World) -> None:
    owner = owned(world)
    world.add(owner, A0)
    world.settle()
    world.now_ms += TIMEOUT_MS
    world.time_out()
    assert not world.appends
    world.now_ms += 1
    world.time_out()
    world.settle()
    assert world.metadata.status is Status.COMPLETE_ABORT
    assert error(world.end(owner, commit=True)) is ErrorCode.PRODUCER_FENCED


def test_an_id_that_nobody_uses_is_forgotten(world: World) -> None:
    owner = owned(world)
    assert world.machine is not None
    world.now_ms += 1000
    world.take(world.machine.expire(world.now, 1001))
    assert not world.appends
    world.take(world.machine.expire(world.now, 1000))
    world.stored()
    assert world.machine.is_dead
    assert world.last is None
    assert owned(world).producer_id != owner.producer_id


def test_a_completion_that_could_not_be_written_is_written_later(world: World) -> None:
    owner = owned(world)
    world.add(owner, A0)
    world.settle()
    world.end(owner, commit=True)
    world.stored()
    world.mark()
    world.stored(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert world.timer_set
    assert world.machine is not None
    world.take(world.machine.timer(world.now))
    world.settle()
    assert world.metadata.status is Status.COMPLETE_COMMIT


def test_verification_says_what_is_in_the_transaction(world: World) -> None:
    owner = owned(world)
    assert world.machine is not None
    assert set(world.machine.verify(owner, [A0]).values()) == {ErrorCode.TRANSACTION_ABORTABLE}
    world.add(owner, A0)
    world.settle()
    assert world.machine.verify(owner, [A0, B0]) == {A0: NONE, B0: ErrorCode.TRANSACTION_ABORTABLE}
    stranger = Owner(owner.producer_id, owner.epoch + 1)
    assert world.machine.verify(stranger, [A0]) == {A0: ErrorCode.PRODUCER_FENCED}
    world.end(owner, commit=True)
    world.stored()
    assert world.machine.verify(owner, [A0]) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}


@pytest.mark.parametrize("version", [0, 2])
def test_records_come_back_as_they_were(version: int) -> None:
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


def test_the_table_names_every_state() -> None:
    text = (module.__doc__ or "").split("\n\n")
    table = next(part for part in text if part.startswith("| state"))
    named = set(re.findall(r"^\| (\w+)", table, re.MULTILINE)) - {"state"}
    assert named == {status.label for status in Status} - {Status.PREPARE_EPOCH_FENCE.label}
    page = (Path(__file__).resolve().parents[2] / "docs" / "transactions.md").read_text()
    assert table.strip() in page, "docs/transactions.md shows another table"


class Transactions(RuleBasedStateMachine):
    """Any order of requests, outcomes, time and failovers."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.owners: list[Owner] = []
        """Everybody to whom the id was given, in order."""
        self.waiting: list[tuple[Asked, Owner | None]] = []
        self.versions: dict[int, int] = {}

    @initialize(epochs_left=st.sampled_from((None, None, 0, 1, 2)))
    def begin(self, epochs_left: int | None) -> None:
        """Some ids have been in use for long."""
        if epochs_left is not None:
            world = self.world
            world.init()
            world.settle()
            world.log[-1] = world.metadata._replace(epoch=LAST_EPOCH - epochs_left)
            world.reload()
            assert world.machine is not None
            self.owners.append(world.machine.owner)

    def _speak(self, owner: Owner) -> int:
        return self.versions.setdefault(owner.producer_id, owner.producer_id % 2 * 2)

    def _note(self) -> None:
        """Who has been told that the id is theirs."""
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
        self.waiting.append((self.world.init(expected), expected))
        self._note()

    @precondition(lambda self: self.owners and self.world.machine is not None)
    @rule(which=st.sampled_from((0, 0, 0, 1, 2)), partitions=st.sets(st.sampled_from((A0, A1, B0)), min_size=1))
    def add(self, which: int, partitions: set[tuple[str, int]]) -> None:
        if which < len(self.owners):
            owner = self.owners[-1 - which]
            asked = self.world.add(owner, *sorted(partitions), version=self._speak(owner))
            self._judge(asked, owner)

    @precondition(lambda self: self.owners and self.world.machine is not None)
    @rule(which=st.sampled_from((0, 0, 0, 1, 2)), commit=st.booleans())
    def end(self, which: int, commit: bool) -> None:
        if which < len(self.owners):
            owner = self.owners[-1 - which]
            before = self.world.metadata.status
            asked = self.world.end(owner, commit=commit, version=self._speak(owner))
            if which > 0 and before is Status.ONGOING:
                assert asked.outcome is not None, "who is not the owner has decided"
                assert asked.outcome.error is not NONE
            self.waiting.append((asked, owner))
            self._note()

    @precondition(lambda self: self.world.machine is not None and not self.world.machine.is_dead)
    @rule(commit=st.booleans(), version=st.sampled_from((0, 2)), adds=st.booleans())
    def forge(self, commit: bool, version: int, adds: bool) -> None:
        """Somebody who guesses the epoch that fences after the last one."""
        forger = Owner(self.world.metadata.producer_id, LAST_EPOCH + 1)
        world = self.world
        asked = world.add(forger, A0, version=version) if adds else world.end(forger, commit=commit, version=version)
        assert asked.outcome is not None
        assert asked.outcome.error is ErrorCode.PRODUCER_FENCED

    def _judge(self, asked: Asked, owner: Owner) -> None:
        assert self.world.machine is not None
        if asked.outcome is None or asked.outcome.error is NONE:
            assert owner == self.world.machine.owner, "only the owner adds partitions"

    @precondition(lambda self: self.world.appends)
    @rule(error=st.sampled_from(OUTCOMES))
    def stored(self, error: ErrorCode) -> None:
        """What is in the log, but late, cannot be refused any more."""
        self.world.stored(NONE if self.world.is_written and error is ErrorCode.NOT_ENOUGH_REPLICAS else error)
        self._note()

    @precondition(lambda self: self.world.markers)
    @rule()
    def mark(self) -> None:
        self.world.mark()

    @precondition(lambda self: self.world.timer_set and self.world.machine is not None)
    @rule()
    def timer(self) -> None:
        assert self.world.machine is not None
        self.world.timer_set = False
        self.world.take(self.world.machine.timer(self.world.now))

    @precondition(lambda self: self.world.machine is not None)
    @rule(passed_ms=st.sampled_from((1, TIMEOUT_MS // 2, TIMEOUT_MS + 1)))
    def time(self, passed_ms: int) -> None:
        self.world.now_ms += passed_ms
        self.world.time_out()

    @precondition(lambda self: self.world.machine is not None and not self.world.machine.is_dead)
    @rule()
    def expire(self) -> None:
        assert self.world.machine is not None
        self.world.take(self.world.machine.expire(self.world.now, TIMEOUT_MS * 3))

    @rule()
    def reload(self) -> None:
        self.world.reload()
        self._note()

    @invariant()
    def the_machine_is_what_the_log_says(self) -> None:
        """A reload equals the state before an append in flight, or the one after it where the append is written."""
        machine, last = self.world.machine, self.world.last
        if machine is None:
            return
        storing = machine._storing
        if storing is not None:
            assert len(self.world.appends) == 1
            expected = storing.target if self.world.is_written else storing.before or machine.metadata
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
        for metadata in self.world.log:
            if metadata is not None:
                assert metadata.epoch >= known.get(metadata.producer_id, -1)
                known[metadata.producer_id] = metadata.epoch

    def teardown(self) -> None:
        """Whatever has happened, it comes to rest, and everybody is answered."""
        world = self.world
        world.settle()
        if world.machine is not None:
            world.take(world.machine.timer(world.now))
            world.settle()
            assert world.metadata.status not in ENDING
        assert all(asked.outcome is not None for asked in world.requests)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
