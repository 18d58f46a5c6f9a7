"""A condition that holds is returned at once; one that does not fails with the last value or exception."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from tests.support.eventually import eventually, eventually_async


def failing_twice() -> Callable[[], int]:
    numbers = itertools.count()

    def look() -> int:
        number = next(numbers)
        if number < 2:
            raise ConnectionError(f"attempt {number}")
        return number

    return look


async def test_the_value_for_which_the_condition_holds_is_returned() -> None:
    assert eventually(itertools.count().__next__, lambda number: number > 3) == 4
    assert await eventually_async(itertools.count().__next__, lambda number: number > 3) == 4


async def test_a_coroutine_function_is_awaited() -> None:
    numbers = itertools.count()

    async def look() -> int:
        return next(numbers)

    assert await eventually_async(look, lambda number: number > 3) == 4


async def test_exceptions_that_mean_not_yet_are_retried() -> None:
    assert eventually(failing_twice(), retry_on=(ConnectionError,)) == 2
    assert await eventually_async(failing_twice(), retry_on=(ConnectionError,)) == 2


async def test_other_exceptions_end_the_wait() -> None:
    with pytest.raises(ConnectionError, match="attempt 0"):
        eventually(failing_twice())
    with pytest.raises(ConnectionError, match="attempt 0"):
        await eventually_async(failing_twice())


async def test_a_timeout_reports_the_last_value() -> None:
    expected = "not within 0 s: the group is empty; last value: \\['member'\\]"
    with pytest.raises(AssertionError, match=expected):
        eventually(lambda: ["member"], lambda members: not members, "the group is empty", timeout_s=0)
    with pytest.raises(AssertionError, match=expected.replace("0 s", "0.01 s")):
        await eventually_async(lambda: ["member"], lambda members: not members, "the group is empty", timeout_s=0.01)


async def test_a_timeout_reports_the_last_exception() -> None:
    def look() -> int:
        raise ConnectionError("refused")

    with pytest.raises(AssertionError, match=r"last exception: ConnectionError\('refused'\)"):
        eventually(look, retry_on=(ConnectionError,), timeout_s=0)
    with pytest.raises(AssertionError, match=r"last exception: ConnectionError\('refused'\)"):
        await eventually_async(look, retry_on=(ConnectionError,), timeout_s=0.01)


async def test_a_call_that_hangs_is_ended_and_a_timeout_of_the_call_is_its_own_error() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.01 s"):
        await eventually_async(asyncio.Event().wait, timeout_s=0.01)

    async def look() -> int:
        raise TimeoutError("of the call")

    with pytest.raises(TimeoutError, match="of the call"):
        await eventually_async(look)
