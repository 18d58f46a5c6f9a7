"""Calls of coroutine functions: one call for each record of an asynchronous operator, run on the event loop.

A stream thread makes calls and waits for their results; the event loop runs them. A call has all that the stream thread
needs to forward its result later, when other records are the current ones of the task.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.streams.context import TaskContext
from odradek.streams.records import Headers

if TYPE_CHECKING:
    import asyncio

    from odradek.streams.event_loop import EventLoopThread

CoroutineFunction = Callable[[Any, Any], Awaitable[Any]]
"""A function of key and value."""


class AsyncCall:
    """The call for one record, with the context of that record."""

    __slots__ = (
        "_headers",
        "_message",
        "_source",
        "_stream_time",
        "_timestamp",
        "done",
        "ended_s",
        "error",
        "headers",
        "key",
        "result",
        "started_s",
        "timestamp",
        "value",
    )

    def __init__(self, key: Any, value: Any, timestamp: int, headers: Headers, context: TaskContext) -> None:
        """The record, and the current record of the task."""
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = headers
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        """Whether `result` or `error` is set; the event loop sets it last."""
        self.started_s: float | None = None
        """When the event loop started the call, on the monotonic clock; None before that."""
        self.ended_s = 0.0
        self._source = context.topic, context.partition, context.offset
        self._message = context.source_message
        self._timestamp, self._headers = context.timestamp, context.headers
        self._stream_time = context.stream_time

    def restore(self, context: TaskContext) -> None:
        """Make the record of the call the current one of its task, at the stream time of then: what follows the
        operator sees the same as if the result had been there at once.
        """
        context.topic, context.partition, context.offset = self._source
        context.source_message = self._message
        context.timestamp, context.headers = self._timestamp, self._headers
        context.stream_time = self._stream_time


class CallRunner:
    """The calls of one node of one task on the event loop, which starts them in order and at most `concurrency` at a
    time. The public methods belong to the stream thread; all others run on the loop.
    """

    def __init__(
        self, loop: EventLoopThread, function: CoroutineFunction, concurrency: int, ready: threading.Event
    ) -> None:
        """`ready` is set whenever a call has ended."""
        self._thread = loop
        self._function = function
        self._concurrency = concurrency
        self._ready = ready
        self._waiting: deque[AsyncCall] = deque()
        self._tasks: dict[AsyncCall, asyncio.Task[None]] = {}

    def start(self, calls: Sequence[AsyncCall]) -> None:
        """Start these calls, after those of before."""
        self._thread.call(self._start, calls)

    def abandon(self, call: AsyncCall) -> None:
        """Cancel a call whose result is not awaited any more. Others take its place at once, also where its function
        ignores the cancellation.
        """
        self._thread.call(self._abandon, call)

    def cancel(self) -> None:
        """Cancel all calls."""
        self._thread.call(self._cancel)

    # ---- on the event loop

    def _start(self, calls: Sequence[AsyncCall]) -> None:
        self._waiting.extend(calls)
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._tasks) < self._concurrency:
            call = self._waiting.popleft()
            call.started_s = time.monotonic()
            self._tasks[call] = self._thread.create_task(self._run(call))

    async def _run(self, call: AsyncCall) -> None:
        try:
            call.result = await self._function(call.key, call.value)
        except BaseException as error:  # sys.exit() in a function must not end the event loop
            call.error = error
        self._end(call)

    def _end(self, call: AsyncCall) -> None:
        if self._tasks.pop(call, None) is not None:  # else it was abandoned before
            call.ended_s = time.monotonic()
            call.done = True
            self._ready.set()
            self._fill()

    def _abandon(self, call: AsyncCall) -> None:
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()
            self._end(call)

    def _cancel(self) -> None:
        self._waiting.clear()
        for task in self._tasks.values():
            task.cancel()
