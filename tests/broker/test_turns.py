"""Turns of threads with the event loop: interruption, order, failures and the end (no broker)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.broker.apis.offset_fetch import without_duplicates
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import THREADS, SlicedList, Turns, each, in_turn, in_turns, keep, list_of
from tests.broker.stepping_turns import SteppingClock, finished
from tests.support.eventually import eventually_async


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    made = Turns(SteppingClock())
    yield made
    made.close()


async def test_the_loop_runs_between_the_items_of_a_long_work(turns: Turns) -> None:
    seen: list[int] = []
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        if len(seen) < 1000:
            loop.call_soon(tick)

    loop = asyncio.get_running_loop()
    loop.call_soon(tick)
    await finished(turns, lambda: seen.extend(each(range(1000))))
    assert seen == list(range(1000))
    assert turns.interruptions >= 50
    assert ticks >= turns.interruptions


async def test_a_thread_never_runs_at_the_same_time_as_the_loop(turns: Turns) -> None:
    running: list[str] = []

    def work() -> None:
        for _ in each(range(200)):
            running.append("work")
            assert running == ["work"]
            running.clear()

    works = [asyncio.ensure_future(finished(turns, work)) for _ in range(THREADS + 2)]
    while not all(each_work.done() for each_work in works):
        running.append("loop")
        assert running == ["loop"]
        running.clear()
        await asyncio.sleep(0)
    for done in works:
        done.result()


async def test_works_share_the_turns_in_one_iteration_of_the_loop_one_slice(turns: Turns) -> None:
    order: list[str] = []

    def work(name: str) -> None:
        order.extend(name for _ in each(range(30)))

    await asyncio.gather(*(finished(turns, lambda name=name: work(name)) for name in "ab"))
    assert order.index("b") < 29, "the second work waited for the end of the first"


async def test_at_most_so_many_works_have_begun(turns: Turns) -> None:
    begun, most = 0, 0

    def work() -> None:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        for _ in each(range(100)):
            pass
        begun -= 1

    await asyncio.gather(*(finished(turns, work) for _ in range(3 * THREADS)))
    assert most == THREADS


@pytest.mark.parametrize("fails", ["in the work", "while its objects are freed"])
async def test_a_work_that_fails_leaves_its_thread_to_others(
    turns: Turns, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[str] = []

    def work() -> None:
        begun.append("failed")
        if fails == "in the work":
            raise ValueError("no such item")
        keep(object())  # neither a message nor a container

    for _ in range(2 * THREADS):
        turns.run(work)
    await asyncio.wait_for(finished(turns, lambda: begun.append("after")), 10)
    assert begun == ["failed"] * 2 * THREADS + ["after"]
    assert [record.message for record in caplog.records] == ["work in turns failed"] * 2 * THREADS


async def test_on_the_loop_nothing_is_interrupted(turns: Turns) -> None:
    items = SlicedList(range(5))
    assert not in_turn()
    assert each(items) is items
    assert type(iter(items)) is type(iter([]))
    assert type(list_of(range(5))) is list  # for the encoders in C


async def test_in_a_turn_a_list_of_items_is_interrupted(turns: Turns) -> None:
    kinds: list[type] = []
    await finished(turns, lambda: kinds.append(type(list_of(range(5)))))
    assert kinds == [SlicedList]


async def test_a_handler_in_a_turn_may_start_tasks_and_timers(turns: Turns) -> None:
    fired = asyncio.Event()

    async def later() -> None:
        assert not in_turn()
        fired.set()

    tasks: list[Any] = []
    await finished(turns, lambda: tasks.append(asyncio.get_running_loop().create_task(later())))
    await fired.wait()


async def test_the_task_of_a_large_request_runs_in_turns_and_awaits_on_the_loop(turns: Turns) -> None:
    requests = RequestTasks()
    loop = asyncio.get_running_loop()
    gate, over = loop.create_future(), loop.create_future()
    seen: list[tuple[int, bool]] = []

    async def work() -> None:
        for item in SlicedList(range(40)):
            seen.append((item, in_turn()))
            if item == 20:
                assert await gate == "open"
        over.set_result(None)

    await finished(turns, lambda: requests.run(work()))
    await eventually_async(lambda: len(seen), lambda count: count == 21, "the task waits for the gate")
    gate.set_result("open")
    await over
    assert seen == [(item, True) for item in range(40)]
    assert turns.interruptions >= 2
    await requests.close()


async def test_a_task_can_be_cancelled_while_a_step_of_it_is_interrupted(turns: Turns) -> None:
    outcomes, begun = list[BaseException](), asyncio.Event()

    async def work() -> None:
        begun.set()
        for _ in each(range(1000)):
            pass

    tasks: list[asyncio.Task[None]] = []

    def start() -> None:
        steps = in_turns(work())

        async def run() -> None:
            try:
                await steps
            except BaseException as error:
                outcomes.append(error)

        tasks.append(asyncio.get_running_loop().create_task(run()))

    turns.run(start)
    await begun.wait()
    tasks[0].cancel()
    await tasks[0]
    assert [type(error) for error in outcomes] == [asyncio.CancelledError]


async def test_an_exception_that_a_task_awaits_reaches_it_and_its_failure_abandons_it(turns: Turns) -> None:
    requests = RequestTasks()
    loop = asyncio.get_running_loop()
    abandoned = asyncio.Event()

    async def fails() -> None:
        raise ValueError("lost")

    async def work() -> None:
        try:
            await loop.create_task(fails())
        except ValueError as error:
            raise KeyError(str(error)) from error

    await finished(turns, lambda: requests.run(work(), abandoned.set))
    await abandoned.wait()
    await requests.close()


async def test_close_ends_interrupted_works_and_their_tasks() -> None:
    clock = SteppingClock(steps=1)
    turns, requests = Turns(clock), RequestTasks()
    ended: list[str] = []

    def endless() -> None:
        try:
            for _ in each(iter(int, 1)):
                pass
        finally:
            ended.append("work")

    async def endless_task() -> None:
        try:
            for _ in each(iter(int, 1)):
                pass
        finally:
            ended.append("task")

    async def waiting_task() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("waiting")

    await finished(turns, lambda: requests.run(waiting_task()))
    await finished(turns, lambda: requests.run(endless_task()))
    turns.run(endless)
    for _ in range(20):
        await asyncio.sleep(0)
    turns.close()
    await requests.close()
    assert sorted(ended) == ["task", "waiting", "work"]
    await eventually_async(lambda: not [each for each in threading.enumerate() if each.name == "request handler"])


async def test_the_partitions_of_an_offset_fetch_are_found_with_interruptions(turns: Turns) -> None:
    found = await finished(turns, lambda: without_duplicates([("t", number % 3) for number in range(300)]))
    assert found == [("t", 0), ("t", 1), ("t", 2)]
    assert turns.interruptions > 10
