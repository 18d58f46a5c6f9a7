"""Event loop of the process, in a thread of its own, for the coroutine functions of operators.

There is one loop for a process and not one for each stream thread: a client that a function creates at its first call
(an HTTP session, a connection pool) belongs to the loop on which it was created, so it serves all tasks only if they
share that loop; and the threads of a Python process share one interpreter lock, so more loops would not add
parallelism. The thread starts with the first task that has such a function and ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop

THREAD_NAME: Final = "odradek-streams-event-loop"
_END_S: Final = 5.0
"""How long the end of the process waits for functions that handle their cancellation."""


class EventLoopThread:
    """A running event loop. Any thread may call `call`."""

    def __init__(self) -> None:
        """Starts the thread."""
        self.loop = uvloop.new_event_loop()
        self.process_id = os.getpid()
        self._tasks: set[asyncio.Task[None]] = set()
        """Running tasks: asyncio itself holds no reference to a task that waits for an object of its own."""
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the loop, soon; calls keep their order. No effect once the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine. Only the loop itself may call this."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """Cancel all tasks of the loop, wait for them briefly, and end the thread."""
        self.call(self.loop.stop)
        self._thread.join(_END_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()


_lock: Final = threading.Lock()
_shared: EventLoopThread | None = None


def event_loop() -> EventLoopThread:
    """The event loop of this process; the first call starts it. A forked process gets a loop of its own."""
    global _shared
    with _lock:
        if _shared is None or _shared.process_id != os.getpid():
            _shared = EventLoopThread()
        return _shared


def _close_shared() -> None:
    if _shared is not None and _shared.process_id == os.getpid():
        _shared.close()


# Registered at import, before any client starts, so that it runs after the clients have closed (atexit is a stack).
atexit.register(_close_shared)
