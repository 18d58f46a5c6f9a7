"""An event loop with virtual time, for a whole cluster in one thread.

It runs callbacks, tasks and timers as asyncio does, but nothing waits: when no callback is ready the clock jumps to the
next timer. Which of the ready callbacks runs next is drawn from the seed, where asyncio would take the oldest.
Everything that a simulated process starts carries the process in its context, so that a killed process runs no more and
a paused one runs later.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from random import Random
from typing import Any

OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)


class Owner:
    """The owner of callbacks: an incarnation of a process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.deferred: list[asyncio.Handle] = []


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The loop of one simulation."""

    def __init__(self, random: Random, *, disorder: float = 0.2) -> None:
        """`disorder` is how often a ready callback other than the oldest goes first."""
        self._random = random
        self._disorder = disorder
        self._now_s = 0.0
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._exception: BaseException | None = None
        self.after_each: Callable[[], None] = lambda: None
        self.steps = 0

    # ---- calls of asyncio

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio.TimerHandle calls this; a cancelled timer is passed over when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """There are no threads: the call is made a little later."""
        future = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self._random.random() * 0.01, call)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if "was destroyed" in context["message"]:
            return  # a task of a process that was killed
        error = context.get("exception")
        self._exception = self._exception or error or RuntimeError(context["message"])

    async def shutdown_asyncgens(self) -> None:
        return

    # ---- running

    def run(self, until: Callable[[], bool], *, deadline_s: float) -> bool:
        """Run until the condition holds or the (virtual) time is reached; returns whether the condition holds.

        Raises the exception of a callback whose result no task awaits.
        """
        asyncio._set_running_loop(self)
        try:
            while not until():
                if not self._advance(deadline_s):
                    return until()
                self._step()
            return True
        finally:
            asyncio._set_running_loop(None)

    def _advance(self, deadline_s: float) -> bool:
        """See that a callback is ready; False when none will be before the deadline."""
        timers = self._timers
        while timers and (timers[0][0] <= self._now_s or not self._ready):
            when, _, timer = timers[0]
            if timer.cancelled():
                heapq.heappop(timers)
                continue
            if when > deadline_s:
                break
            heapq.heappop(timers)
            self._now_s = max(self._now_s, when)
            self._ready.append(timer)
        if not self._ready:
            self._now_s = max(self._now_s, deadline_s)
            return False
        return True

    def _step(self) -> None:
        index = 0
        if len(self._ready) > 1 and self._random.random() < self._disorder:
            index = self._random.randrange(len(self._ready))
        handle = self._ready.pop(index)
        if handle.cancelled():
            return
        owner = handle._context.get(OWNER)  # type: ignore[attr-defined]
        if owner is not None:
            if not owner.alive:
                return
            if owner.paused:
                owner.deferred.append(handle)
                return
        self.steps += 1
        handle._run()
        if self._exception is not None:
            error, self._exception = self._exception, None
            raise error
        self.after_each()

    def resume(self, owner: Owner) -> None:
        """A paused process continues, with everything that became ready meanwhile."""
        owner.paused = False
        deferred, owner.deferred = owner.deferred, []
        self._ready.extend(deferred)
