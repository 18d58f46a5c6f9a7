"""The purgatory completes each delayed operation once: by a change of a key, or at its deadline."""

from __future__ import annotations

import pytest

from odradek.broker.runtime.purgatory import DelayedOperation, DelayedOperationPurgatory, Watchers, check_and_complete
from tests.machines.group_harness import VirtualTime

TIMEOUT_MS = 100


class Counter:
    """A key: a number that operations wait for."""

    def __init__(self) -> None:
        self.value = 0
        self.watchers: Watchers = {}

    def add(self) -> None:
        self.value += 1
        check_and_complete(self)


class Reaches(DelayedOperation[Counter]):
    """Waits until one of its counters has reached a number."""

    def __init__(self, number: int, completed: list[int]) -> None:
        super().__init__()
        self.number = number
        self._completed = completed

    def try_complete(self, key: Counter) -> None:
        if key.value >= self.number:
            self.force_complete()

    def on_complete(self) -> None:
        self._completed.append(self.number)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def purgatory(time: VirtualTime) -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory(time)


def test_a_change_completes_the_operation_and_removes_its_timer_and_watches(
    time: VirtualTime, purgatory: DelayedOperationPurgatory
) -> None:
    first, second = Counter(), Counter()
    completed: list[int] = []
    purgatory.try_complete_else_watch(Reaches(2, completed), (first, second), TIMEOUT_MS)
    first.add()
    assert (completed, len(first.watchers), time.waiting) == ([], 1, 1)
    first.add()
    assert (completed, first.watchers, second.watchers, time.waiting) == ([2], {}, {}, 0)
    second.add()
    time.advance(TIMEOUT_MS)
    assert completed == [2]


def test_a_change_before_the_watch_completes_the_operation_at_once(
    time: VirtualTime, purgatory: DelayedOperationPurgatory
) -> None:
    counter, completed = Counter(), []  # type: tuple[Counter, list[int]]
    counter.add()
    purgatory.try_complete_else_watch(Reaches(1, completed), (counter,), TIMEOUT_MS)
    assert (completed, counter.watchers, time.waiting) == ([1], {}, 0)


def test_the_deadline_completes_the_operation(time: VirtualTime, purgatory: DelayedOperationPurgatory) -> None:
    counter = Counter()
    completed: list[int] = []
    operation = Reaches(1, completed)
    purgatory.try_complete_else_watch(operation, (counter,), TIMEOUT_MS)
    time.advance(TIMEOUT_MS - 1)
    assert not operation.is_completed
    time.advance(1)
    assert (completed, counter.watchers, operation.force_complete()) == ([1], {}, False)


def test_a_second_timer_replaces_the_first(time: VirtualTime, purgatory: DelayedOperationPurgatory) -> None:
    counter = Counter()
    completed: list[int] = []
    operation = Reaches(1, completed)
    purgatory.try_complete_else_watch(operation, (counter,), TIMEOUT_MS)
    time.advance(TIMEOUT_MS // 2)
    purgatory.start_timer(operation, TIMEOUT_MS)
    time.advance(TIMEOUT_MS - 1)
    assert (completed, time.waiting) == ([], 1)
    time.advance(1)
    assert completed == [1]


def test_an_operation_that_a_nested_change_completes_is_completed_once(purgatory: DelayedOperationPurgatory) -> None:
    counter = Counter()
    completed: list[int] = []

    class Adds(Reaches):
        def on_complete(self) -> None:
            super().on_complete()
            counter.add()

    purgatory.try_complete_else_watch(Adds(1, completed), (counter,), TIMEOUT_MS)
    for number in (1, 2, 3):
        purgatory.try_complete_else_watch(Reaches(number, completed), (counter,), TIMEOUT_MS)
    counter.add()
    assert completed == [1, 1, 2]
    assert len(counter.watchers) == 1


def test_an_operation_that_leaves_one_watch_list_waits_for_the_others(purgatory: DelayedOperationPurgatory) -> None:
    first, second = Counter(), Counter()
    completed: list[int] = []
    operation = Reaches(1, completed)
    purgatory.try_complete_else_watch(operation, (first, second), TIMEOUT_MS)
    operation.unwatch(first)
    first.add()
    assert completed == []
    second.add()
    assert completed == [1]
