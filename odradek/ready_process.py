"""A child process for tests: it serves once it has printed its ready line, and logs to a file.

The common part of a broker's process and the registry's: start, stop, kill, pause, resume, and an error message that
ends with the log. Its standard input is a pipe without data; when the process that holds the other end ends, in any
way, this one ends, too (`--until-stdin-ends`). POSIX only, as signals are.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from odradek import forked_process
from odradek.forked_process import ForkedProcess
from odradek.ports import free_port

OWN_COMMAND: Final = (sys.executable, "-P", "-m", "odradek")
"""The command line in a separate process. -P: modules come from the installed Odradek, never from the working
directory, which may hold a click.py of the user or, in a clone, source folders that are no packages of odradek.
"""
HOST: Final = "127.0.0.1"
SHOWN_LOG_BYTES: Final = 16_384
UNTIL_STDIN_ENDS: Final = "--until-stdin-ends"
Process: TypeAlias = subprocess.Popen[bytes] | ForkedProcess


class BrokerError(AssertionError):
    """A process failed a request; the message ends with the last part of its log.

    It is an AssertionError, so that pytest counts a broker that does not start, or ends, as a failure of the test that
    uses it. Code outside of tests catches it by its own name.
    """


class ReadyProcess(ABC):
    """Any number of processes, one after the other, on one port. Subclasses define the command."""

    KIND = "process"

    def __init__(
        self,
        log_path: Path,
        command: Sequence[str] | None,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`command` is the command line to start, or None for `odradek` in a fork of a process that has imported it;
        `timeout_s` bounds every wait; `environment` are variables beside
        those of this process.
        """
        self._environment = {**environment} if environment else {}
        self.log_path: Path = log_path
        self._command = command
        self._timeout_s = timeout_s
        self._port = 0
        self._process: Process | None = None

    @abstractmethod
    def _arguments(self) -> list[str]:
        """The subcommand and its options."""

    # Address

    @property
    def host(self) -> str:
        """The address it listens on, always this machine's loopback."""
        return HOST

    @property
    def port(self) -> int:
        """The port, chosen before the first start and kept over restarts. Raises BrokerError before the first start."""
        if not self._port:
            raise BrokerError(f"the {self.KIND} has not been started")
        return self._port

    @property
    def running(self) -> bool:
        """Whether a process lives (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError when none runs."""
        return self._running_process().pid

    @property
    def output(self) -> str:
        """The log so far, of all processes."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    # Control

    def start(self) -> None:
        """Start a process and wait until it serves. Raises BrokerError with the log when it does not."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start a process and do not wait for it; call `await_ready` afterwards. Raises BrokerError if one runs."""
        if self.running:
            raise BrokerError(f"the {self.KIND} is running already")
        self._port = self._port or free_port(HOST)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = self._spawn([*self._arguments(), UNTIL_STDIN_ENDS], log.fileno())

    def await_ready(self) -> None:
        """Wait until the launched process serves. Raises BrokerError, after ending it."""
        process = self._process
        if process is None:
            raise BrokerError(f"the {self.KIND} is not running")
        try:
            self._port = self._await_ready_line(process)
        except BaseException:
            self._kill(process)
            raise

    def stop(self) -> None:
        """SIGTERM, then wait for the end. Raises BrokerError unless it ends by itself with status 0."""
        process = self._running_process()
        process.send_signal(signal.SIGCONT)  # a paused process would not receive the other signal
        process.terminate()
        try:
            status = process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            self._kill(process)
            raise self._error(f"no end within {self._timeout_s:g} s after SIGTERM") from None
        self._forget(process)
        if status != 0:
            raise self._error(f"exit status {status} after SIGTERM, expected 0")

    def kill(self) -> None:
        """SIGKILL, as a crash would: nothing is flushed, nothing is marked clean."""
        self._kill(self._running_process())

    def restart(self) -> None:
        """`stop` and `start`, on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and sends nothing, as in a long stall. It has stopped on return."""
        process = self._running_process()
        process.send_signal(signal.SIGSTOP)
        # The signal is pending when kill(2) returns; without this wait a thread may still answer. Not on macOS.
        if isinstance(process, ForkedProcess):
            process.await_stopped()
        elif hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT: the end of `pause`."""
        self._running_process().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process, if any. Raises BrokerError when a process did not stop cleanly, after ending it."""
        if self.running:
            self.stop()
        else:
            self.reap()

    def discard(self) -> None:
        """End the process at once, without checks."""
        if self._process is not None:
            self._kill(self._process)

    def reap(self) -> None:
        """Nothing, if a process runs or was ended from here. Raises BrokerError if one ended by itself, with an
        error.
        """
        process = self._process
        if process is not None and (status := process.poll()) is not None:
            self._forget(process)
            if status != 0:
                raise self._error(f"it ended by itself with exit status {status}")

    def _spawn(self, arguments: Sequence[str], log: int) -> Process:
        environment = {**os.environ, **self._environment}
        if self._command is None and (forked := forked_process.start(arguments, environment, log)):
            return forked
        command = [*(self._command or OWN_COMMAND), *arguments]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment)

    def _await_ready_line(self, process: Process) -> int:
        """Read stdout up to the ready line and return its port."""
        assert process.stdout is not None
        deadline = time.monotonic() + self._timeout_s
        received = b""
        while b"\n" not in received:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                raise self._error(f"not ready within {self._timeout_s:g} s")
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                raise self._error(f"exit status {process.wait(self._timeout_s)} before it was ready")
            received += chunk
        line = received.decode("utf-8", "replace").partition("\n")[0]
        port = port_in(line)
        if port is None:
            raise self._error(f"no ready line but {line!r}")
        return port

    def _running_process(self) -> Process:
        process = self._process
        if process is None:
            raise BrokerError(f"the {self.KIND} is not running")
        if (status := process.poll()) is not None:
            self._forget(process)
            raise self._error(f"it has ended by itself with exit status {status}")
        return process

    def _kill(self, process: Process) -> None:
        process.kill()
        process.wait()
        self._forget(process)

    def _forget(self, process: Process) -> None:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        self._process = None

    def _error(self, what: str) -> BrokerError:
        log = self.output[-SHOWN_LOG_BYTES:] or "(empty)"
        return BrokerError(f"{self.KIND} at {HOST}:{self._port or '?'}: {what}; its log ends:\n{log}")


def port_in(ready_line: str) -> int | None:
    """The port in `odradek VERSION ready: WHAT at HOST:PORT, data in PATH`; None in any other line."""
    address = ready_line.partition(" at ")[2].partition(", data in ")[0]
    port = address.rpartition(":")[2]
    return int(port) if " ready: " in ready_line and port.isdigit() else None
