"""The checker finds each kind of contradiction, and finds none in a correct history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.support.checker import History, Value

ONCE = "once"  # the idempotent producer
TWICE = "twice"


def value(serial: int, producer: str = ONCE) -> Value:
    return Value(producer, serial)


def judged(
    final: Mapping[int, Value], acknowledged: Mapping[int, Value] | None = None, polls: Sequence[tuple[int, Value]] = ()
) -> list[str]:
    """The kinds found in a history of one partition and three values of each producer."""
    history = History(1, frozenset({ONCE}))
    for producer in (ONCE, TWICE):
        for _ in range(3):
            history.next_value(0, producer)
    for offset, each in (acknowledged or {}).items():
        history.acknowledge(0, offset, each)
    history.poll(history.assign(), [(0, offset, each) for offset, each in polls])
    return [anomaly.kind for anomaly in history.anomalies([final])]


def test_a_value_survives_its_encoding() -> None:
    assert Value.decode(Value("a b", 17).encode()) == Value("a b", 17)


def test_a_correct_history_has_no_contradictions() -> None:
    log = {0: value(0), 2: value(1), 3: value(0, TWICE), 4: value(2), 5: value(0, TWICE)}
    assert judged(log, {0: value(0), 5: value(0, TWICE)}, list(log.items())) == []


def test_an_unacknowledged_record_in_the_log_is_no_contradiction() -> None:
    assert judged({0: value(0), 1: value(2)}, {1: value(2)}) == []


def test_a_lost_write() -> None:
    assert judged({0: value(0)}, {0: value(0), 1: value(1)}) == ["lost-write"]


def test_an_acknowledgement_may_lack_the_offset() -> None:
    assert judged({0: value(0)}, {-1: value(0)}) == []
    assert judged({0: value(0)}, {-1: value(1)}) == ["lost-write"]


def test_two_values_at_one_offset() -> None:
    history = History(1)
    for _ in range(2):
        history.acknowledge(0, 0, history.next_value(0, TWICE))
    kinds = {anomaly.kind for anomaly in history.anomalies([{0: value(0, TWICE), 1: value(1, TWICE)}])}
    assert kinds == {"duplicate-offset", "inconsistent-offset"}


@pytest.mark.parametrize("final", [{}, {0: value(1)}], ids=["vanished", "another"])
def test_an_offset_that_was_read_holds_another_value_in_the_final_log(final: dict[int, Value]) -> None:
    assert judged(final, {}, [(0, value(0))]) == ["inconsistent-offset"]


def test_a_reader_that_skips_and_one_that_goes_back() -> None:
    log = {0: value(0), 1: value(1), 2: value(2)}
    assert judged(log, {}, [(0, value(0)), (2, value(2))]) == ["poll-skip"]
    assert judged(log, {}, [(0, value(0)), (1, value(1)), (1, value(1))]) == ["nonmonotonic-poll"]


def test_a_value_that_no_producer_sent() -> None:
    assert judged({0: value(3)}) == ["unknown-value"]
    assert judged({0: value(0, "stranger")}) == ["unknown-value"]


def test_an_idempotent_producers_values_appear_once_and_in_order() -> None:
    assert judged({0: value(0), 1: value(1), 2: value(0)}) == ["duplicate"]
    assert judged({0: value(1), 1: value(0)}) == ["reordered"]


def test_a_pipelined_producers_values_appear_once_and_in_order_in_each_of_its_sessions() -> None:
    history = History(1, pipelined=frozenset({ONCE}))
    for _ in range(3):
        history.next_value(0, ONCE)
    log = {0: value(0), 1: value(1), 2: value(0), 3: value(2)}

    def kinds(*epochs: int) -> list[str]:
        sessions = {offset: (17, epoch) for offset, epoch in enumerate(epochs)}
        return [anomaly.kind for anomaly in history.anomalies([log], [sessions])]

    assert kinds(0, 0, 1, 1) == []
    assert kinds(0, 0, 0, 0) == ["duplicate"]
    assert kinds(0, 1, 1, 1) == ["reordered"]


def test_progress_is_an_acknowledgement_and_a_new_record() -> None:
    history = History(2)
    history.acknowledge(0, 0, history.next_value(0, ONCE))
    with pytest.raises(TimeoutError, match=r"partitions 0: \(1, 0\)"):
        history.await_more([0], 0)
