"""The checker of transactions finds each anomaly, and finds none in what a log that keeps its promises gave."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.cluster.transactions_checker import Operation, Outcome, Poll, Send, anomalies, circles, report
from tests.cluster.transactions_model import FAULTS, good_history

histories = st.builds(good_history, st.integers(0, 2**32), st.integers(0, 60))


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
    steps = (*sends, Poll(reads))
    return Operation(client, outcome, steps, began, began + 10, transaction=True, commit_began=commit_began)


def read(*records: tuple[int, int, int], began: int = 100) -> Operation:
    return Operation("reader", Outcome.OK, (Poll(records),), began, began + 10)


class TestGood:
    def test_nothing_is_nobodys_fault(self) -> None:
        assert kinds() == []

    def test_what_failed_and_what_is_not_known_may_be_there_or_not(self) -> None:
        history = [
            wrote(Send(0, 1, 0)),
            wrote(Send(0, 2, 1), outcome=Outcome.FAIL, began=20, commit_began=None),
            wrote(Send(0, 3), Send(1, 3), outcome=Outcome.INFO, began=40, commit_began=45),
            wrote(Send(0, 4), outcome=Outcome.INFO, began=60, commit_began=65),
        ]
        assert kinds(*history, read((0, 0, 1), (0, 4, 3), (1, 0, 3))) == []

    @given(histories)
    @settings(max_examples=200)
    def test_a_log_that_keeps_its_promises_is_not_blamed(self, history: list[Operation]) -> None:
        assert report(anomalies(history)) == ""

    def test_good_histories_hold_what_they_are_for(self) -> None:
        history = [each for seed in range(50) for each in good_history(seed, 60)]
        assert {each.outcome for each in history if each.transaction} == set(Outcome)
        assert sum(1 for each in history if each.transaction and list(each.reads) and list(each.sends)) > 100


class TestEachAnomaly:
    def test_two_values_at_one_offset(self) -> None:
        history = [wrote(Send(0, 1, 0)), wrote(Send(0, 2, 0), client="other")]
        assert kinds(*history, read((0, 0, 1), (0, 1, 2))) == ["inconsistent-offset", "duplicate"]

    def test_one_value_at_two_offsets(self) -> None:
        assert kinds(wrote(Send(0, 1, 0)), read((0, 0, 1), (0, 2, 1))) == ["duplicate"]

    def test_a_value_that_nobody_sent(self) -> None:
        assert kinds(read((0, 0, 9))) == ["garbage-read"]

    def test_an_aborted_value_is_read(self) -> None:
        aborted = wrote(Send(0, 1, 0), outcome=Outcome.FAIL, commit_began=None)
        assert kinds(aborted, read((0, 0, 1))) == ["aborted-read"]

    @pytest.mark.parametrize("commit_began", [None, 500])
    def test_a_value_is_read_before_its_commit(self, commit_began: int | None) -> None:
        early = wrote(Send(0, 1, 0), outcome=Outcome.INFO, commit_began=commit_began)
        assert kinds(early, read((0, 0, 1))) == ["precommitted-read"]

    def test_a_transaction_reads_itself(self) -> None:
        assert kinds(wrote(Send(0, 1, 0), reads=((0, 0, 1),))) == ["precommitted-read"]

    def test_an_acknowledged_value_is_gone(self) -> None:
        history = [wrote(Send(0, 1, 0)), wrote(Send(0, 2, 2), began=20, commit_began=25)]
        assert kinds(*history, read((0, 2, 2))) == ["lost-write"]

    def test_an_acknowledged_value_is_not_there_yet(self) -> None:
        history = [wrote(Send(0, 1, 0)), wrote(Send(0, 2, 2), began=20, commit_began=25)]
        assert kinds(*history, read((0, 0, 1))) == ["unseen"]

    def test_half_a_transaction(self) -> None:
        torn = wrote(Send(0, 1), Send(1, 2), outcome=Outcome.INFO)
        assert kinds(torn, read((0, 0, 1))) == ["torn-transaction"]
        assert kinds(torn, read((1, 0, 2))) == ["torn-transaction"]

    def test_a_reader_passes_over_a_value(self) -> None:
        history = [wrote(Send(0, value, value)) for value in range(3)]
        everything = read((0, 0, 0), (0, 1, 1), (0, 2, 2), began=200)
        assert "poll-skip" in kinds(*history, read((0, 0, 0), (0, 2, 2)), replace_client(everything))

    def test_a_reader_goes_back(self) -> None:
        assert kinds(wrote(Send(0, 1, 0)), read((0, 0, 1)), read((0, 0, 1), began=200)) == ["nonmonotonic-poll"]

    def test_sends_change_places(self) -> None:
        swapped = wrote(Send(0, 1, 1), Send(0, 2, 0))
        assert kinds(swapped, read((0, 0, 2), (0, 1, 1))) == ["nonmonotonic-send"]

    def test_two_transactions_read_each_other(self) -> None:
        one = wrote(Send(0, 1, 0), reads=((1, 0, 2),), client="one")
        two = wrote(Send(1, 2, 0), reads=((0, 0, 1),), client="two")
        assert kinds(one, two, read((0, 0, 1), (1, 0, 2))) == ["write-read-cycle"]


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
def test_circles_are_those_who_reach_each_other(follows: dict[int, set[int]]) -> None:
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
