"""The state of a broker's directory in memory: equal after equal lives, and different after any change of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.storage.compaction_crashes import Life, some
from tests.storage.disks import MemoryDisk, MemoryFile
from tests.storage.memory_state import state_of


def after(*steps: Callable[[Life], None]) -> object:
    life = Life(MemoryDisk())
    life.open()
    some(life)
    for step in steps:
        step(life)
    return state_of(life.directory, (MemoryDisk, MemoryFile))


def test_equal_lives_end_in_equal_states() -> None:
    assert after(some, Life.roll, Life.compact) == after(some, Life.roll, Life.compact)


@pytest.mark.parametrize("step", [some, Life.roll, Life.begin_epoch, Life.flush])
def test_a_step_changes_the_state(step: Callable[[Life], None]) -> None:
    assert after(step) != after()


def test_attributes_of_all_classes_and_shared_parts_count() -> None:
    class Base:
        __slots__ = ("first",)

    class Derived(Base):
        def __init__(self, first: object, second: object) -> None:
            self.first, self.second = first, second

    shared = [1]
    assert state_of(Derived(1, {2: b"3"})) == state_of(Derived(1, {2: b"3"}))
    assert state_of(Derived(1, 2)) != state_of(Derived(0, 2))
    assert state_of(Derived(1, 2)) != state_of(Derived(1, 0))
    assert state_of((shared, shared)) != state_of(([1], [1]))
    assert state_of(shared, (list,)) == state_of([1], (list,))
