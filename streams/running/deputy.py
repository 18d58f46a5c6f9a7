"""Calls that should return after their own timeout, and sometimes do not.

librdkafka has been observed to block in `send_offsets_to_transaction` forever, with any timeout, when the coordinator
of the group failed at an unlucky moment. A stream thread must not block with it: another thread makes the call, and is
abandoned together with the client if the call does not return.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

LONG_CALL_S: Final = 0.3
"""How long a call lasts before its caller asks whether it is in vain."""
_LOOK_S: Final = 0.05
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

    def call(
        self,
        timeout_s: float,
        function: Callable[..., Any],
        *arguments: Any,
        in_vain: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call, and wait for the result. Raises what the function raises, or NotReturnedError: then the deputy is
        unusable.

        In that case the object whose method `function` is stays referenced forever. While a call lasts, `in_vain` is
        called from time to time in the thread that waits; where it returns True the wait ends as by the timeout.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=_serve, args=(self._calls, self._answers), name=self._name)
            self._thread.daemon = True  # a call that does not return must not block the exit of the process
            self._thread.start()
        self._calls.put((function, arguments))
        error = self._await(time.monotonic() + timeout_s, function, in_vain)
        if error is not None:
            raise error

    def _await(
        self, deadline: float, function: Callable[..., Any], in_vain: Callable[[], bool]
    ) -> BaseException | None:
        wait_s = LONG_CALL_S
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                return self._answers.get(timeout=min(wait_s, left_s))
            except queue.Empty:
                if in_vain():
                    break
                wait_s = _LOOK_S
        _abandoned.append(function)
        raise NotReturnedError

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
