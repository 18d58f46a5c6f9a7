"""Calls that should return after a timeout of their own, and sometimes do not.

librdkafka has been seen to stay within `send_offsets_to_transaction` for good when the coordinator of the group went
away at an unlucky moment, whatever timeout it was given. A stream thread must not stay there with it: another thread
makes the call, and is given up along with the client where it does not come back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final

_abandoned: Final[list[Any]] = []
"""Clients that a call is still within. To let go of one would wait for the call."""


class NotReturnedError(Exception):
    """A call has not come back."""


class Deputy:
    """One thread that makes calls for another one, which waits for each. It ends with `close`."""

    def __init__(self, name: str) -> None:
        """The thread begins with the first call."""
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, timeout_s: float, function: Callable[..., Any], *arguments: Any) -> None:
        """Call, and wait for the end. Raises what the function raises, or NotReturnedError: then it is of no more use.

        The object whose method `function` is, is kept for ever in that case.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._calls, self._answers), name=self._name)
            self._thread.daemon = True  # one that does not come back must not keep the process
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
        """No more calls."""
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
        del call, function, arguments  # not to hold a client while there is nothing to do
