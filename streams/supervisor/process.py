"""Worker process as the supervisor has it: its id, its output, its status channel (one object for each start)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Final

from odradek.streams.supervisor.output import copy_lines
from odradek.streams.supervisor.status import (
    LONGEST_LINE,
    CollectRequest,
    CollectResponse,
    Sample,
    StateChanged,
    StatusError,
    TopologyLoaded,
    decode,
    encode,
)

log = logging.getLogger(__name__)

Command = Callable[[int, int], Sequence[str]]
"""The command line of a worker, by its number and the file descriptor of its status channel."""
Mark = Callable[[int, bytes], bytes]
"""Marks a line of a worker's output; see `output.py`."""
_STDOUT: Final = 1
_STDERR: Final = 2
_OUTPUT_S: Final = 5.0
"""How long to wait for output after the end of a process: a child of it may keep the pipe open."""


class StartedWorker:
    """One start of a worker. Only the event loop's thread calls its methods."""

    def __init__(
        self,
        number: int,
        command: Command,
        mark: Mark,
        *,
        on_state: Callable[[StartedWorker, str], None],
        on_exit: Callable[[StartedWorker, int], None],
    ) -> None:
        """Start the process. The loop calls `on_state` for each state of its client, and `on_exit` with the exit status
        once the process has ended and its output is copied. Raises OSError.
        """
        self.number = number
        self.state = "CREATED"
        """The state of its client."""
        self.document: str | None = None
        """The document of its topology, once it has loaded the application."""
        self.started_at = time.monotonic()
        self._on_state = on_state
        self._on_exit = on_exit
        self._requests = itertools.count(1)
        self._responses: dict[int, asyncio.Future[Sequence[Sample]]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._loop = asyncio.get_running_loop()
        own, other = socket.socketpair()
        with other:
            try:
                self._process = subprocess.Popen(
                    command(number, other.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(other.fileno(),),
                    start_new_session=True,  # Ctrl-C is a signal for the supervisor alone
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                )
            except OSError:
                own.close()
                raise
        copiers = [
            self._copy(self._process.stdout, _STDOUT, mark),
            self._copy(self._process.stderr, _STDERR, mark),
        ]
        threading.Thread(target=self._wait, args=(copiers,), name=f"wait-{number}", daemon=True).start()
        self._reading = self._loop.create_task(self._read(own))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def collect(self, timeout_s: float) -> Sequence[Sample]:
        """The metrics of its client; none where it does not answer in time."""
        if self._writer is None:
            return []
        number = next(self._requests)
        response: asyncio.Future[Sequence[Sample]] = self._loop.create_future()
        self._responses[number] = response
        try:
            self._writer.write(encode(CollectRequest(number)))
            async with asyncio.timeout(timeout_s):
                return await response
        except (TimeoutError, OSError):
            log.warning("no metrics from process process=%d pid=%d timeout_s=%g", self.number, self.pid, timeout_s)
            return []
        finally:
            del self._responses[number]

    def _copy(self, source: IO[bytes] | None, descriptor: int, mark: Mark) -> threading.Thread:
        assert source is not None
        marked = functools.partial(mark, self.number)
        name = f"output-{self.number}-{descriptor}"
        thread = threading.Thread(target=copy_lines, args=(source, descriptor, marked), name=name, daemon=True)
        thread.start()
        return thread

    def _wait(self, copiers: Sequence[threading.Thread]) -> None:
        status = self._process.wait()
        for each in copiers:
            each.join(_OUTPUT_S)
        self._loop.call_soon_threadsafe(self._ended, status)

    def _ended(self, status: int) -> None:
        self._reading.cancel()
        self._on_exit(self, status)

    async def _read(self, channel: socket.socket) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=channel, limit=LONGEST_LINE)
        try:
            while line := await reader.readline():
                self._handle(line)
        except (OSError, ValueError) as error:  # ValueError: a line beyond the limit
            log.warning("status channel failed process=%d error=%s", self.number, error)
        finally:
            writer, self._writer = self._writer, None
            writer.close()
            for response in self._responses.values():
                if not response.done():
                    response.set_exception(ConnectionResetError("the process has ended"))

    def _handle(self, line: bytes) -> None:
        try:
            message = decode(line)
        except StatusError as error:
            log.warning("ignoring invalid status process=%d error=%s", self.number, error)
            return
        if isinstance(message, TopologyLoaded):
            self.document = message.document
        elif isinstance(message, StateChanged):
            self.state = message.state
            self._on_state(self, message.state)
        elif isinstance(message, CollectResponse):
            response = self._responses.get(message.number)
            if response is not None and not response.done():
                response.set_result(message.samples)
