"""Lifecycle of a client in a program: run until a signal, context managers, and the end of the program."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from odradek.streams.client_state import ClientState, State
from odradek.streams.running.stop_signals import StopSignals

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 30.0
"""How long the end of a program waits for the close of a client."""


class Lifecycle(ABC):
    """What a client does in the threads of the program that uses it."""

    _state: ClientState
    failure: Exception | None = None
    """The error that ended the client, in state ERROR."""

    @abstractmethod
    def start(self) -> None:
        """Start the threads of the client. Raises StreamsError."""

    @abstractmethod
    def close(self, timeout_s: float | None = None, leave_group: bool = False) -> bool:
        """Commit, close everything, and wait for it. Returns whether it was done in time."""

    @abstractmethod
    def _shut_down(self, state: State, leave_group: bool = False) -> None:
        """Begin to shut down, without waiting for it."""

    @property
    @abstractmethod
    def client_id(self) -> str:
        """The prefix of the names of threads and clients."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            self._shut_down(State.PENDING_SHUTDOWN)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def run(
        self,
        timeout_s: float | None = None,
        *,
        on_start: Callable[[], None] | None = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> int:
        """Start, wait for SIGINT or SIGTERM, and close. Returns the status for sys.exit(): 0, or 1 where the close
        takes longer than `close_timeout_s`.

        It calls `on_start` once the threads of the client have been started. It also returns after `timeout_s`, or when
        another thread closes the client. Raises the failure of a client that ends by an error. The main thread has to
        call it for signals to be handled; a client that was started before is not started again. A second signal has
        its usual effect.
        """
        with StopSignals(lambda: self._shut_down(State.PENDING_SHUTDOWN)) as signals:
            self._state.at_end.append(signals.wake)
            try:
                if self._state.current is State.CREATED:
                    self.start()
                if on_start is not None:
                    on_start()
                signals.wait(lambda: self._state.has_ended, timeout_s)
            finally:
                closed = self.close(close_timeout_s)
                self._state.at_end.remove(signals.wake)
        if self.failure is not None:
            raise self.failure
        return 0 if closed else 1

    async def failed(self) -> None:
        """Wait until the client has ended. Raises its failure; returns where it was closed without one."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def callback() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

        self._state.at_end.append(callback)
        try:
            if not self._state.has_ended:
                await ended.wait()
        finally:
            self._state.at_end.remove(callback)
        if self.failure is not None:
            raise self.failure

    def _end_with_the_program(self) -> None:
        """The threads of the client are daemons: the end of the main thread would end them without a commit."""
        if self._state.has_ended:
            return
        log.warning(
            "closing the client, as the program ends; KafkaStreams.run() keeps a program running until it is stopped "
            "client=%s",
            self.client_id,
        )
        if not self.close(CLOSE_TIMEOUT_S):
            log.error("the client was not closed in time client=%s timeout_s=%g", self.client_id, CLOSE_TIMEOUT_S)
