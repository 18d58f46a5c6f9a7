"""Calls that should return after their own timeout, and sometimes do not.

librdkafka has been observed to block in `send_offsets_to_transaction` forever, with any timeout, when the coordinator
of the group failed at an unlucky moment. A stream thread must not block with it: another thread makes the call, and is
abandoned together with the client if the call does not return.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final

_abandoned: Final[list[Any]] = []
"""Clients with a call that has not returned. Releasing such a client would block until the call returns."""


class NotReturnedError(Exception):
    """A call has not returned."""


class Deputy:
    """A thread that makes calls for another thread, which waits for each. It ends with `close`."""

    def __init__(self, name: str) -> None:
        """The thread starts with the first call."""
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, timeout_s: float, function: Callable[..., Any], *arguments: Any) -> None:
        """Call, and wait for the result. Raises what the function raises, or NotReturnedError: then the deputy is
        unusable.

        In that case the object whose method `function` is stays referenced forever.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._calls, self._answers), name=self._name)
            self._thread.daemon = True  # a call that does not return must not block the exit of the process
            self._thread.start()
        self._calls.put((function, arguments))
        try:
            error = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            _abandoned.append(function)
            raise NotReturnedError from None
        if error is not None:
            raise error

    def close(self) -> None:
        """Accept no more calls."""
        self._calls.put(None)


def _serve(
    calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None],
    answers: queue.SimpleQueue[BaseException | None],
) -> None:
    while (call := calls.get()) is not None:
        function, arguments = call
        try:
            function(*arguments)
        except BaseException as error:
            answers.put(error)
        else:
            answers.put(None)
        del call, function, arguments  # so that an idle thread references no client
