"""Works in turns that a test steps through: each reading of the clock takes a part of a slice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.broker.runtime.turns import SLICE_NS, Turns


class SteppingClock:
    """A clock that advances by a part of a slice with each reading."""

    def __init__(self, steps: int = 10) -> None:
        self.now = 0
        self._step = SLICE_NS // steps

    def __call__(self) -> int:
        self.now += self._step
        return self.now


async def finished(turns: Turns, work: Callable[[], Any]) -> Any:
    """The result of a work in turns."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    turns.run(run)
    return await done
