"""A worker whose calls run when the test releases them, in place of the broker's threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.broker.wire import DEADLINE_S


class HeldWorker:
    """Holds its work until the test releases it."""

    def __init__(self) -> None:
        self.closed = False
        self._kept: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self._came = asyncio.Event()

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        if self.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._kept.append((work, done))
        self._came.set()

    @property
    def waiting(self) -> int:
        """How many pieces of work there are."""
        return len(self._kept)

    async def count(self) -> int:
        """`waiting`, for polls."""
        return len(self._kept)

    async def arrived(self) -> None:
        """Wait until there is work."""
        async with asyncio.timeout(DEADLINE_S):
            await self._came.wait()

    def release(self) -> None:
        """Run the first piece of work."""
        work, done = self._kept.pop(0)
        if not self._kept:
            self._came.clear()
        try:
            work()
        except Exception as error:
            done(error)
        else:
            done(None)
