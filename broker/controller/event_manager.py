"""Event manager: runs the controller's events one after the other (Kafka: ControllerEventManager)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

ControllerEvent = Callable[[], Awaitable[None]]


class ControllerEventManager:
    """The queue of the controller's events."""

    def __init__(self) -> None:
        """No event runs before `start`."""
        self._queue: asyncio.Queue[ControllerEvent] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run the events of the queue; further calls have no effect."""
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def put(self, event: ControllerEvent) -> None:
        """Run an event after the events before it."""
        self._queue.put_nowait(event)

    async def close(self) -> None:
        """Cancel the running event, and run no more."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await event()
            except Exception:
                log.exception("controller event failed")
