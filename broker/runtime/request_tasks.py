"""Request tasks: the asyncio tasks of requests that are not answered synchronously.

Most requests need no task. A request that waits for the metadata store has one. If the task fails, the broker logs the
failure and calls the task's `abandon` callback, because the request will have no response. The task of a large request,
whose handler runs in a turn, runs in turns as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Protocol

from odradek.broker.runtime.turns import in_turns

log = logging.getLogger(__name__)


class Work(Protocol):
    """Measures for how long a request keeps the event loop."""

    def begin_step(self) -> None:
        """The event loop begins to work for the request."""
        ...

    def end_step(self) -> None:
        """The request waits, or is complete."""
        ...


WORK: Final[ContextVar[Work | None]] = ContextVar("WORK", default=None)
"""Measures the tasks that are started in this context; None where nothing has to be measured."""


class _Steps:
    """Awaits a coroutine, and measures each of its steps."""

    __slots__ = ("_coroutine", "_work")

    def __init__(self, coroutine: Coroutine[Any, Any, None], work: Work) -> None:
        self._coroutine = coroutine
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        send: Callable[[], Any] = partial(self._coroutine.send, None)
        awaited: Any = None
        try:
            while True:
                self._work.begin_step()
                try:
                    awaited = send()
                except StopIteration:
                    return
                finally:
                    self._work.end_step()
                try:
                    yield awaited
                except BaseException as error:
                    send = partial(self._coroutine.throw, error)
                else:
                    send = partial(self._coroutine.send, None)
        finally:
            del send, awaited  # an exception that leaves this frame refers to it: they would be a cycle


class RequestTasks:
    """The tasks of one broker."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    def run(self, work: Coroutine[Any, Any, None], abandon: Callable[[], None] = lambda: None) -> None:
        """Run this coroutine in a task; `abandon` is called if it fails, because then the request has no response."""
        task = asyncio.get_running_loop().create_task(self._guard(in_turns(work), abandon))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _guard(self, work: Coroutine[Any, Any, None], abandon: Callable[[], None]) -> None:
        measured = WORK.get()
        try:
            await (work if measured is None else _Steps(work, measured))
        except Exception as error:
            log.error("request task failed, sending no response error=%r", error)
            abandon()

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
