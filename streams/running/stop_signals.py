"""Stop signals: waits in the main thread for SIGINT, SIGTERM or the end of a client.

A handler alone is not enough. The system may deliver a signal to any thread of the process; Python then runs the
handler in the main thread, but only once the main thread ends its wait for a lock. So the main thread waits for a
socket, to which Python's own handler writes a byte in whichever thread it runs (signal.set_wakeup_fd).
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """A context manager that handles SIGINT and SIGTERM; in a thread that is not the main thread it handles none."""

    def __init__(self, on_signal: Callable[[], None]) -> None:
        """The main thread calls `on_signal` at the first signal, between two instructions; it must not wait. A second
        signal has the effect that it had before.
        """
        self.received: signal.Signals | None = None
        """The first signal."""
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._reader, self._writer = socket.socketpair()
        for each in (self._reader, self._writer):
            each.setblocking(False)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            for each in STOPPING:
                self._before[each] = signal.signal(each, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            self._restore()
            signal.set_wakeup_fd(self._wakeup_before)
        self._reader.close()
        self._writer.close()

    def wake(self) -> None:
        """End `wait`. Any thread may call it."""
        try:
            self._writer.send(b"\0")
        except OSError:  # the buffer is full, so that `wait` ends anyway, or it has ended
            return

    def wait(self, ended: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Return at the first signal, when `ended` holds after `wake`, or after `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while self.received is None and not ended():
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            if select.select([self._reader], [], [], left_s)[0]:
                self._reader.recv(4096)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        self._restore()
        self._on_signal()
        self.wake()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
