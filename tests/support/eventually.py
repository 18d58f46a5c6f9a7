"""Waits for a condition that another thread, task or process fulfills. No other module of the tests polls with a sleep.

The pause between two polls begins at a millisecond and doubles, so that a condition that holds soon costs no time and
one that holds late costs no processor.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")
TIMEOUT_S: Final = 150.0
"""The default suits a machine that is five times slower: only a test that fails waits for it."""
_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.02


def eventually(
    poll: Callable[[], T],
    holds: Callable[[T], object] = bool,
    describe: str | Callable[[], str] = "",
    *,
    timeout_s: float = TIMEOUT_S,
    retry_on: tuple[type[Exception], ...] = (),
) -> T:
    """Poll `poll` until `holds` is true of its value, and return that value.

    `retry_on` has the exceptions of `poll` that only mean "not yet". Raises AssertionError after `timeout_s`, with
    `describe` and the last value or exception.
    """
    deadline = time.monotonic() + timeout_s
    for pause_s in _pauses():
        last: object
        failure: Exception | None = None
        try:
            value = poll()
        except retry_on as raised:
            last = failure = raised
        else:
            if holds(value):
                return value
            last = value
        if time.monotonic() > deadline:
            raise AssertionError(_report(timeout_s, describe, last)) from failure
        time.sleep(pause_s)
    raise AssertionError("unreachable")


@overload
async def eventually_async(
    poll: Callable[[], Awaitable[T]],
    holds: Callable[[T], object] = bool,
    describe: str | Callable[[], str] = "",
    *,
    timeout_s: float = TIMEOUT_S,
    retry_on: tuple[type[Exception], ...] = (),
) -> T: ...


@overload
async def eventually_async(
    poll: Callable[[], T],
    holds: Callable[[T], object] = bool,
    describe: str | Callable[[], str] = "",
    *,
    timeout_s: float = TIMEOUT_S,
    retry_on: tuple[type[Exception], ...] = (),
) -> T: ...


async def eventually_async(
    poll: Callable[[], Any],
    holds: Callable[[Any], object] = bool,
    describe: str | Callable[[], str] = "",
    *,
    timeout_s: float = TIMEOUT_S,
    retry_on: tuple[type[Exception], ...] = (),
) -> Any:
    """As `eventually`, on an event loop: `poll` may be a coroutine function, and `timeout_s` also ends its calls."""
    last: object = "no value yet"
    failure: Exception | None = None
    try:
        async with asyncio.timeout(timeout_s) as limit:
            for pause_s in _pauses():
                try:
                    found = poll()
                    value = await found if inspect.isawaitable(found) else found
                except retry_on as raised:
                    last = failure = raised
                else:
                    if holds(value):
                        return value
                    last, failure = value, None
                await asyncio.sleep(pause_s)
    except TimeoutError:
        if not limit.expired():
            raise  # it is an error of `poll`
        raise AssertionError(_report(timeout_s, describe, last)) from failure
    raise AssertionError("unreachable")


def _pauses() -> Iterator[float]:
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _report(timeout_s: float, describe: str | Callable[[], str], last: object) -> str:
    what = (describe if isinstance(describe, str) else describe()) or "the condition does not hold"
    kind = "exception" if isinstance(last, Exception) else "value"
    return f"not within {timeout_s:g} s: {what}; last {kind}: {last!r}"
