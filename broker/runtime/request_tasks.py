"""Work that a request leaves to a task: few, counted, and none is lost sight of.

The plain path of a request has no task. What has to wait for the registry has one; if it fails, the failure is logged
and whoever waits is told that no answer comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class RequestTasks:
    """The tasks of one broker."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    def run(self, work: Coroutine[Any, Any, None], abandon: Callable[[], None] = lambda: None) -> None:
        """Begin this work; `abandon` is called when it fails and nobody else will answer."""
        task = asyncio.get_running_loop().create_task(self._guard(work, abandon))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _guard(self, work: Coroutine[Any, Any, None], abandon: Callable[[], None]) -> None:
        try:
            await work
        except Exception as error:
            log.error("work for a request failed, so it gets no answer: %r", error)
            abandon()

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
