"""The checker of transactions finds each anomaly, and finds none in the history of a correct log."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.support.transactions.checker import Operation, Outcome, Poll, Send, anomalies, circles, report
from tests.support.transactions.model import FAULTS, good_history
from tests.support.transactions.offsets import NONE, Commit, Fetched, offset_anomalies
from tests.support.transactions.offsets_model import OFFSET_FAULTS, OffsetHistory, good_offsets, planted

pytestmark = pytest.mark.slow
histories = st.builds(good_history, st.integers(0, 2**32), st.integers(0, 60))
offset_histories = st.builds(good_offsets, st.integers(0, 2**32), st.integers(0, 40))


def kinds(*history: Operation) -> list[str]:
    return [each.kind for each in anomalies(history)]


def wrote(
    *sends: Send,
    outcome: Outcome = Outcome.OK,
    began: int = 0,
    commit_began: int | None = 5,
    reads: tuple[tuple[int, int, int], ...] = (),
    client: str = "writer",
) -> Operation:
    """A transaction from `began` to ten ticks later."""
    steps: tuple[Send | Poll, ...] = (*sends, Poll(reads))
    return Operation(client, outcome, steps, began, began + 10, transaction=True, commit_began=commit_began)


def read(*records: tuple[int, int, int], began: int = 100) -> Operation:
    return Operation("reader", Outcome.OK, (Poll(records),), began, began + 10)


class TestGood:
    def test_an_empty_history_has_no_anomaly(self) -> None:
        assert kinds() == []

    def test_failed_and_unknown_values_may_be_there_or_not(self) -> None:
        history = [
            wrote(Send(0, 1, 0)),
            wrote(Send(0, 2, 1), outcome=Outcome.FAIL, began=20, commit_began=None),
            wrote(Send(0, 3), Send(1, 3), outcome=Outcome.INFO, began=40, commit_began=45),
            wrote(Send(0, 4), outcome=Outcome.INFO, began=60, commit_began=65),
        ]
        assert kinds(*history, read((0, 0, 1), (0, 4, 3), (1, 0, 3))) == []

    @given(histories)
    @settings(max_examples=200)
    def test_the_history_of_a_correct_log_has_no_anomaly(self, history: list[Operation]) -> None:
        assert report(anomalies(history)) == ""

    def test_good_histories_cover_the_cases_they_are_for(self) -> None:
        history = [each for seed in range(50) for each in good_history(seed, 60)]
        assert {each.outcome for each in history if each.transaction} == set(Outcome)
        assert len([each for each in history if each.transaction and any(each.reads) and any(each.sends)]) > 100


class TestEachAnomaly:
    def test_two_values_at_one_offset(self) -> None:
        history = [wrote(Send(0, 1, 0)), wrote(Send(0, 2, 0), client="other")]
        assert kinds(*history, read((0, 0, 1), (0, 1, 2))) == ["inconsistent-offset", "duplicate"]

    def test_one_value_at_two_offsets(self) -> None:
        assert kinds(wrote(Send(0, 1, 0)), read((0, 0, 1), (0, 2, 1))) == ["duplicate"]

    def test_a_value_that_no_producer_sent(self) -> None:
        assert kinds(read((0, 0, 9))) == ["garbage-read"]

    def test_an_aborted_value_is_read(self) -> None:
        aborted = wrote(Send(0, 1, 0), outcome=Outcome.FAIL, commit_began=None)
        assert kinds(aborted, read((0, 0, 1))) == ["aborted-read"]

    @pytest.mark.parametrize("commit_began", [None, 500])
    def test_a_value_is_read_before_its_commit(self, commit_began: int | None) -> None:
        early = wrote(Send(0, 1, 0), outcome=Outcome.INFO, commit_began=commit_began)
        assert kinds(early, read((0, 0, 1))) == ["precommitted-read"]

    def test_a_transaction_reads_its_own_value(self) -> None:
        assert kinds(wrote(Send(0, 1, 0), reads=((0, 0, 1),))) == ["precommitted-read"]

    def test_an_acknowledged_value_is_missing(self) -> None:
        history = [wrote(Send(0, 1, 0)), wrote(Send(0, 2, 2), began=20, commit_began=25)]
        assert kinds(*history, read((0, 2, 2))) == ["lost-write"]

    def test_an_acknowledged_value_is_missing_at_first(self) -> None:
        history = [wrote(Send(0, 1, 0)), wrote(Send(0, 2, 2), began=20, commit_began=25)]
        assert kinds(*history, read((0, 0, 1))) == ["unseen"]

    def test_half_a_transaction(self) -> None:
        torn = wrote(Send(0, 1), Send(1, 2), outcome=Outcome.INFO)
        assert kinds(torn, read((0, 0, 1))) == ["torn-transaction"]
        assert kinds(torn, read((1, 0, 2))) == ["torn-transaction"]

    def test_a_reader_skips_a_value(self) -> None:
        history = [wrote(Send(0, value, value)) for value in range(3)]
        everything = read((0, 0, 0), (0, 1, 1), (0, 2, 2), began=200)
        assert "poll-skip" in kinds(*history, read((0, 0, 0), (0, 2, 2)), replace_client(everything))

    def test_a_reader_goes_back(self) -> None:
        assert kinds(wrote(Send(0, 1, 0)), read((0, 0, 1)), read((0, 0, 1), began=200)) == ["nonmonotonic-poll"]

    def test_sends_are_reordered(self) -> None:
        swapped = wrote(Send(0, 1, 1), Send(0, 2, 0))
        assert kinds(swapped, read((0, 0, 2), (0, 1, 1))) == ["nonmonotonic-send"]

    def test_two_transactions_read_each_others_values(self) -> None:
        one = wrote(Send(0, 1, 0), reads=((1, 0, 2),), client="one")
        two = wrote(Send(1, 2, 0), reads=((0, 0, 1),), client="two")
        assert kinds(one, two, read((0, 0, 1), (1, 0, 2))) == ["write-read-cycle"]

    def test_a_key_has_an_older_value_than_its_last(self) -> None:
        history = [wrote(Send(0, 1, 0, name=7)), wrote(Send(0, 2, 2, name=7), began=20, commit_began=25)]
        before = replace_client(read((0, 0, 1), (0, 2, 2), began=50))
        assert kinds(*history, before, read((0, 0, 1))) == ["stale-map"]
        assert kinds(*history, before, read((0, 0, 1), (0, 2, 2))) == []

    def test_a_deleted_key_has_a_value(self) -> None:
        history = [wrote(Send(0, 1, 0, name=7)), wrote(Send(0, 2, 2, name=7, deletes=True), began=20, commit_began=25)]
        assert kinds(*history, read((0, 0, 1))) == ["stale-map"]
        assert kinds(*history, read((0, 0, 1), (0, 2, 2))) == []

    def test_the_last_value_of_a_key_is_missing(self) -> None:
        assert kinds(wrote(Send(0, 1, 0, name=7)), read()) == ["unseen", "stale-map"]


class TestCompacted:
    def test_replaced_and_deleted_values_may_be_missing(self) -> None:
        history = [
            wrote(Send(0, 1, 0, name=7), Send(0, 2, 1, name=8), Send(1, 1, 0)),
            wrote(Send(0, 3, 3, name=7), Send(0, 4, 4, name=8, deletes=True), began=20, commit_began=25),
        ]
        assert kinds(*history, read((0, 3, 3), (1, 0, 1))) == []

    def test_a_value_that_only_an_aborted_one_replaces_must_be_there(self) -> None:
        aborted = wrote(Send(0, 2, 2, name=7), outcome=Outcome.FAIL, began=20, commit_began=None)
        assert "stale-map" in kinds(wrote(Send(0, 1, 0, name=7)), aborted, read())


class TestOffsets:
    """Of groups."""

    def test_a_commit_is_fetched_and_then_the_next(self) -> None:
        commits = [commit(5, 0), commit(7, 20), commit(9, 40, Outcome.FAIL)]
        fetches = [fetched(NONE, -10), fetched(5, 15), fetched(7, 35), fetched(7, 55)]
        assert offset_kinds(commits, fetches) == []

    def test_a_commit_with_unknown_outcome_may_be_there_or_not(self) -> None:
        commits = [commit(5, 0), commit(7, 20, Outcome.INFO), commit(9, 40, Outcome.INFO)]
        for offset in (5, 7, 9):
            assert offset_kinds(commits, [fetched(offset, 55)]) == []

    def test_a_plain_commit_may_be_late_and_one_of_a_transaction_not(self) -> None:
        late = [commit(5, 0, Outcome.INFO, transaction=False), commit(7, 20)]
        assert offset_kinds(late, [fetched(7, 35), fetched(5, 55)]) == []
        decided = [commit(5, 0, Outcome.INFO), commit(7, 20)]
        assert offset_kinds(decided, [fetched(7, 35), fetched(5, 55)]) == ["lost-commit"]

    @pytest.mark.parametrize("offset", [NONE, 5])
    def test_an_acknowledged_commit_is_lost(self, offset: int) -> None:
        assert offset_kinds([commit(5, 0), commit(7, 20)], [fetched(offset, 35)]) == ["lost-commit"]

    def test_a_commit_that_was_fetched_is_lost(self) -> None:
        commits = [commit(5, 0), commit(7, 20, Outcome.INFO)]
        assert offset_kinds(commits, [fetched(7, 35), fetched(5, 55)]) == ["lost-commit"]

    def test_the_offset_of_an_aborted_transaction(self) -> None:
        assert offset_kinds([commit(5, 0, Outcome.FAIL)], [fetched(5, 15)]) == ["aborted-commit"]

    def test_an_offset_that_no_client_has_committed_yet(self) -> None:
        assert offset_kinds([commit(5, 20)], [fetched(5, 5)]) == ["garbage-commit"]

    @given(offset_histories)
    @settings(max_examples=300)
    def test_a_correct_register_has_no_anomaly(self, history: OffsetHistory) -> None:
        assert report(offset_anomalies(history.commits, history.fetches)) == ""

    @pytest.mark.parametrize("kind", OFFSET_FAULTS)
    @given(history=offset_histories, choice=st.integers(0, 1000))
    @settings(max_examples=60)
    def test_a_planted_fault_is_found(self, kind: str, history: OffsetHistory, choice: int) -> None:
        ways = list(planted(kind, history))
        assume(ways)
        assert kind in offset_kinds(ways[choice % len(ways)].commits, ways[choice % len(ways)].fetches)


def commit(offset: int, began: int, outcome: Outcome = Outcome.OK, *, transaction: bool = True) -> Commit:
    """Of one group and partition, ten ticks long."""
    return Commit("group", 0, offset, outcome, began, began + 10, transaction)


def fetched(offset: int, began: int) -> Fetched:
    return Fetched("group", 0, offset, began, began + 4)


def offset_kinds(commits: Sequence[Commit], fetches: Sequence[Fetched]) -> list[str]:
    return [each.kind for each in offset_anomalies(commits, fetches)]


def replace_client(operation: Operation) -> Operation:
    return Operation("another reader", operation.outcome, operation.steps, operation.began, operation.ended)


@pytest.mark.parametrize("kind", list(FAULTS))
@given(history=histories, choice=st.integers(0, 1000))
@settings(max_examples=60)
def test_a_planted_fault_is_found(kind: str, history: list[Operation], choice: int) -> None:
    planted = list(itertools.islice(FAULTS[kind](history), 200))
    assume(planted)
    assert kind in {each.kind for each in anomalies(planted[choice % len(planted)])}


@given(st.dictionaries(st.integers(0, 8), st.sets(st.integers(0, 8)), max_size=9))
@example({0: {1}, 1: {2}, 2: {0}, 3: {2}})
def test_cycles_are_strongly_connected_operations(follows: dict[int, set[int]]) -> None:
    def reach(start: int) -> set[int]:
        seen: set[int] = set()
        ahead = list(follows.get(start, ()))
        while ahead:
            node = ahead.pop()
            if node not in seen:
                seen.add(node)
                ahead += follows.get(node, ())
        return seen

    expected = {
        frozenset(other for other in range(9) if other in reach(node) and node in reach(other)) for node in range(9)
    }
    assert {frozenset(each) for each in circles(follows)} == {each for each in expected if len(each) > 1}
