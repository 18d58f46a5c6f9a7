"""Large messages and containers are freed in parts, between which the event loop serves others."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from mmap import mmap
from typing import Any

import pytest

from odradek.broker.runtime.freeing import AT_ONCE, Kept, freeing
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import Turns, each, keep, later
from odradek.protocol import messages as m
from odradek.protocol.release import PART_BYTES
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.memory  # what measures branches holds the variables of running functions for a time

Partition = m.ListOffsetsRequest.ListOffsetsPartition
Topic = m.ListOffsetsRequest.ListOffsetsTopic


def partitions() -> int:
    """How many of these structures exist."""
    return sum(type(each) is Partition for each in gc.get_objects())


def message(topics: int, each: int) -> list[Any]:
    return [
        m.ListOffsetsRequest(
            topics=[
                Topic(name=f"t{number}", partitions=[Partition(partition_index=index) for index in range(each)])
                for number in range(topics)
            ]
        )
    ]


def test_a_part_frees_a_limited_number() -> None:
    gc.collect()
    before = partitions()
    messages = message(3, 5 * AT_ONCE // 2)
    most, left = 0, partitions()
    for _ in freeing(messages):
        now = partitions()
        most, left = max(most, left - now), now
    assert (messages, left) == ([], before)
    assert AT_ONCE // 2 <= most <= AT_ONCE


def test_memory_of_the_system_is_freed_in_parts() -> None:
    memory = [mmap(-1, 5 * PART_BYTES // 2)]
    sizes = [[len(each) for each in memory] for _ in freeing(memory)]
    assert sizes == [[3 * PART_BYTES // 2], [PART_BYTES // 2], []]


def test_memory_that_others_read_stays() -> None:
    memory = mmap(-1, 2 * PART_BYTES)
    view = memoryview(memory)
    kept = [memory]
    del memory
    list(freeing(kept))
    assert bytes(view[-1:]) == b"\0"


def test_what_others_keep_stays() -> None:
    (request,) = messages = message(2, 3)
    first, second = request.topics[0], request.topics[1].partitions
    del request
    list(freeing(messages))
    assert [each.partition_index for each in first.partitions] == [0, 1, 2]
    assert [each.partition_index for each in second] == [0, 1, 2]
    whole = message(1, 3)[0]
    list(freeing([whole]))
    assert len(whole.topics[0].partitions) == 3


class Counted:
    """An object that counts itself."""

    alive = 0

    def __init__(self) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


CONTAINERS: dict[str, Callable[[int], Any]] = {
    "list": lambda count: [Counted() for _ in range(count)],
    "tuple": lambda count: tuple(Counted() for _ in range(count)),
    "set": lambda count: {Counted() for _ in range(count)},
    "dict": lambda count: {number: Counted() for number in range(count)},
    "keys": lambda count: dict.fromkeys(Counted() for _ in range(count)),
    "dict of lists": lambda count: {number: [Counted() for _ in range(500)] for number in range(count // 500)},
    "list of dicts": lambda count: [{number: Counted() for number in range(count // 2)} for _ in range(2)],
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_containers_are_freed_in_parts(kind: str) -> None:
    objects, most, left = [CONTAINERS[kind](5 * AT_ONCE)], 0, 5 * AT_ONCE
    assert Counted.alive == left
    for _ in freeing(objects):
        most, left = max(most, left - Counted.alive), Counted.alive
    assert (objects, left) == ([], 0)
    assert most <= AT_ONCE


def test_a_container_in_another_and_beside_it_is_freed_once_and_in_parts() -> None:
    inner = CONTAINERS["list"](3 * AT_ONCE)
    objects = [inner, {"inner": inner}, inner]
    del inner
    most, left = 0, 3 * AT_ONCE
    for _ in freeing(objects):
        most, left = max(most, left - Counted.alive), Counted.alive
    assert left == 0
    assert most <= AT_ONCE


def test_objects_stay_until_the_last_work_has_ended() -> None:
    kept = Kept()
    kept.add([1])
    assert kept.share() is kept
    assert kept.release() == []
    assert kept.release() == [[1]]


class Steps:
    """A clock that notes how many objects were freed between two of its readings, and ends every slice at once."""

    def __init__(self) -> None:
        self.now = self.alive = self.most = 0

    def __call__(self) -> int:
        self.most, self.alive = max(self.most, self.alive - Counted.alive), Counted.alive
        self.now += 10_000_000
        return self.now


async def test_what_the_work_of_a_request_leaves_behind_is_freed_in_parts() -> None:
    """Its handler, the task of it, and the end of a wait, whose frames refer to containers when they end."""
    clock = Steps()
    turns, tasks, waits, lengths = Turns(clock), RequestTasks(), list[Callable[[], None]](), list[int]()
    loop = asyncio.get_running_loop()
    gate, over = loop.create_future(), loop.create_future()

    async def task(request: list[Counted]) -> None:
        own = keep(CONTAINERS["dict"](4 * AT_ONCE))
        await gate
        over.set_result(len(own) + len(request))

    def handle() -> None:
        request = CONTAINERS["list"](8 * AT_ONCE)
        next(iter(each(request)))
        tasks.run(task(request))

        def end() -> None:
            lengths.append(len(request))

        waits.append(later(end))

    turns.run(handle)
    await eventually_async(lambda: Counted.alive, lambda count: count == 12 * AT_ONCE, "the task waits")
    gate.set_result(None)
    assert await over == 12 * AT_ONCE
    waits.pop()()
    await eventually_async(lambda: Counted.alive, lambda count: count == 0, "the objects of the request are freed")
    assert lengths == [8 * AT_ONCE]
    assert clock.most <= AT_ONCE
    await tasks.close()
    turns.close()


async def test_a_cancelled_task_leaves_its_containers_for_turns() -> None:
    clock = Steps()
    turns, tasks = Turns(clock), RequestTasks()
    gate = asyncio.get_running_loop().create_future()

    async def task() -> None:
        own = keep(CONTAINERS["set"](4 * AT_ONCE))
        await gate
        own.clear()

    turns.run(lambda: tasks.run(task()))
    await eventually_async(lambda: Counted.alive, lambda count: count == 4 * AT_ONCE, "the task waits")
    await tasks.close()
    await eventually_async(lambda: Counted.alive, lambda count: count == 0, "the containers are freed")
    assert clock.most <= AT_ONCE
    turns.close()
