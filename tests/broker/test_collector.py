"""The collector of cycles examines each object once, however many there are (in a process of its own)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from odradek.broker.runtime.collector import YOUNG_OBJECTS

PROGRAM = """
import gc, json, weakref
from odradek.broker.runtime.collector import collect_young_objects_only

class Node:
    pass

def cycle():
    node = Node()
    node.self = node
    return weakref.ref(node)

def keep(phase, info):
    if phase == "start":
        collections.append((info["generation"], len(gc.get_objects(generation=0)) + len(gc.get_objects(generation=1))))

collections = []
collect_young_objects_only()
collect_young_objects_only()
gc.callbacks.append(keep)
held = [[number] for number in range(500_000)]
gc.callbacks.remove(keep)
dead = cycle()
young = [[number] for number in range(20_000)]
print(json.dumps([collections, dead() is None, len(gc.callbacks)]))
"""

OLD_CYCLES = """
import asyncio, gc, json, weakref
from odradek.broker.runtime import collector

class Node:
    pass

def old_cycle():
    node = Node()
    node.self = node
    gc.collect()
    return weakref.ref(node)

async def main():
    found = []
    collector.collect_young_objects_only()
    collector.FULL_INTERVAL_S = 0
    collections = collector.FullCollections(asyncio.get_running_loop())
    few = old_cycle()
    for _ in range(5):
        await asyncio.sleep(0)
    found.append(few() is None)
    held = [[number] for number in range(2 * gc.get_freeze_count())]
    many = old_cycle()
    for _ in range(5):
        await asyncio.sleep(0)
    found.append(few() is None and many() is None)
    again = old_cycle()
    for _ in range(5):
        await asyncio.sleep(0)
    found.append(again() is None)
    collections.close()
    held += [[number] for number in range(3 * gc.get_freeze_count())]
    for _ in range(5):
        await asyncio.sleep(0)
    found.append(again() is None)
    print(json.dumps(found))

asyncio.run(main())
"""

TURNS = """
import asyncio, gc, json, time
from odradek.broker.runtime import turns
from odradek.broker.runtime.collector import collect_young_objects_only

def keep(phase, info):
    if phase == "start":
        examined.append(len(gc.get_objects(generation=0)))

def free():
    for _ in turns.each(range(100_000)):
        old.pop()
    done.append("free")

def create():
    for number in turns.each(range(60_000)):
        new.append([number])
    done.append("create")

async def main():
    now_ns = 0
    def clock():
        nonlocal now_ns
        now_ns += 5_000
        return now_ns
    pool = turns.Turns(clock)
    pool.run(free)
    pool.run(create)
    while len(done) < 2:
        await asyncio.sleep(0)
    pool.close()

examined, new, done = [], [], []
old = [[number] for number in range(100_000)]
collect_young_objects_only()
gc.callbacks.append(keep)
asyncio.run(main())
print(json.dumps(max(examined, default=0)))
"""

TIMER = """
import asyncio, gc, json
from odradek.broker.runtime import collector

def keep(phase, info):
    if phase == "start":
        examined.append(len(gc.get_objects(generation=0)))

async def replace(count):
    for number in range(count):
        old.pop()
        new.append([number])
        if not number % 1_000:
            await asyncio.sleep(0)

async def main():
    collector.YOUNG_INTERVAL_S = 0
    timer = collector.YoungCollections(asyncio.get_running_loop())
    await replace(50_000)
    timer.close()
    of_timer = max(examined)
    examined.clear()
    await replace(50_000)
    collector.examine_young_objects()
    print(json.dumps([of_timer, max(examined)]))

examined, new = [], []
old = [[number] for number in range(100_000)]
collector.collect_young_objects_only()
gc.callbacks.append(keep)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def measured() -> tuple[list[tuple[int, int]], bool, int]:
    """Generation and number of objects of each collection during 500,000 allocations; whether a cycle was freed, and
    how many callbacks the collector has.
    """
    command = [sys.executable, "-c", PROGRAM]
    outcome = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    collections, is_freed, callbacks = outcome
    return collections, is_freed, callbacks


def test_no_collection_examines_more_than_the_objects_that_are_new(
    measured: tuple[list[tuple[int, int]], bool, int],
) -> None:
    collections, _, _ = measured
    assert len(collections) >= 500_000 // YOUNG_OBJECTS - 1
    assert {generation for generation, _ in collections} == {0}
    assert max(examined for _, examined in collections) < 1.1 * YOUNG_OBJECTS


def test_a_young_cycle_is_freed_and_a_second_call_changes_nothing(
    measured: tuple[list[tuple[int, int]], bool, int],
) -> None:
    _, is_freed, callbacks = measured
    assert is_freed
    assert callbacks == 1


def test_an_old_cycle_is_freed_once_there_are_twice_as_many_objects_until_the_end() -> None:
    outcome = subprocess.run([sys.executable, "-c", OLD_CYCLES], capture_output=True, check=True, text=True)
    assert json.loads(outcome.stdout) == [False, True, False, False]


def test_objects_of_a_request_do_not_accumulate_while_those_of_another_are_freed() -> None:
    outcome = subprocess.run([sys.executable, "-c", TURNS], capture_output=True, check=True, text=True)
    assert 0 < json.loads(outcome.stdout) < 2 * YOUNG_OBJECTS


def test_new_objects_do_not_accumulate_while_as_many_old_ones_are_freed_as_long_as_the_timer_runs() -> None:
    outcome = subprocess.run([sys.executable, "-c", TIMER], capture_output=True, check=True, text=True)
    of_timer, without = json.loads(outcome.stdout)
    assert 0 < of_timer < YOUNG_OBJECTS
    assert without > 4 * YOUNG_OBJECTS
