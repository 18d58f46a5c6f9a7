"""A broker in a process of its own, for tests and scripts: start, stop, kill, pause, all on one port and one folder.

    with BrokerProcess(tmp_path) as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

The pytest plugin gives these out as fixtures. POSIX only, as signals are.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

DEFAULT_OVERRIDES: Final[Mapping[str, str]] = {
    "broker.id": "0",
    # One broker is the whole cluster, and a test does not wait for members that never come.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
"""What differs from Kafka's defaults unless a test says otherwise."""

_HOST: Final = "127.0.0.1"
_SHOWN_LOG_BYTES: Final = 16_384


class BrokerError(AssertionError):
    """The broker did not do what was asked; the message ends with the last of its log."""


class BrokerProcess:
    """One broker over the life of its data: any number of processes, one after the other, on one port.

    `folder` holds the data and the log. `overrides` are broker properties by Kafka's names, over DEFAULT_OVERRIDES;
    who sets `listeners` there chooses the port, too, and keeps it over restarts only by naming it.
    `command` starts the command line, in case it is not that of this interpreter. `timeout_s` bounds every wait.
    """

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        command: Sequence[str] = (sys.executable, "-m", "odradek"),
        timeout_s: float = 15.0,
    ) -> None:
        self.data_dir: Path = Path(folder) / "data"
        self.log_path: Path = Path(folder) / "broker.log"
        self._overrides = {**DEFAULT_OVERRIDES, "log.dirs": str(self.data_dir), **(overrides or {})}
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> BrokerProcess:
        if not self.running:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Where it is

    @property
    def host(self) -> str:
        """The address it listens on, always this machine's loopback."""
        return _HOST

    @property
    def port(self) -> int:
        """The port, chosen at the first start and kept over restarts. Raises BrokerError before the first start."""
        if not self._port:
            raise BrokerError("the broker has not been started")
        return self._port

    @property
    def bootstrap(self) -> str:
        """host:port, as a client's `bootstrap.servers` wants it."""
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether a process of this broker lives (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError when none runs."""
        return self._running_process().pid

    @property
    def output(self) -> str:
        """All that the broker has logged so far, over all its processes."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    # What can be done to it

    def start(self) -> None:
        """Start a process and wait until it serves. Raises BrokerError with the log when it does not."""
        if self.running:
            raise BrokerError("the broker is running already")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        arguments = [f"--override={name}={value}" for name, value in self._all_overrides().items()]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "broker", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            self._port = self._await_ready_line(self._process)
        except BaseException:
            self._kill(self._process)
            raise

    def stop(self) -> None:
        """SIGTERM, then wait for the end. Raises BrokerError unless the broker ends by itself with status 0."""
        process = self._running_process()
        process.send_signal(signal.SIGCONT)  # a paused process would not see the other signal
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
        """SIGSTOP: the broker keeps its connections and says nothing, as in a long stall. It is still on return."""
        process = self._running_process()
        process.send_signal(signal.SIGSTOP)
        # The signal is on its way when kill(2) returns; without this wait a thread may still answer. Not on macOS.
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT: the end of `pause`."""
        self._running_process().send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End whatever runs. Raises BrokerError when a running broker did not stop cleanly, after ending it."""
        if self.running:
            self.stop()
        elif self._process is not None:
            status = self._process.wait()
            self._forget(self._process)
            if status != 0:
                raise self._error(f"it ended by itself with exit status {status}")

    def _all_overrides(self) -> dict[str, str]:
        listeners = {"listeners": f"PLAINTEXT://{_HOST}:{self._port}"}
        return {**listeners, **self._overrides}

    def _await_ready_line(self, process: subprocess.Popen[bytes]) -> int:
        """Read stdout up to the ready line and return the port that it names."""
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
        return self._port_in(received.decode("utf-8", "replace").partition("\n")[0])

    def _port_in(self, ready_line: str) -> int:
        # odradek VERSION ready: broker 0 at 127.0.0.1:9092, data in PATH
        address = ready_line.partition(" at ")[2].partition(", data in ")[0]
        port = address.rpartition(":")[2]
        if " ready: " not in ready_line or not port.isdigit():
            raise self._error(f"no ready line but {ready_line!r}")
        return int(port)

    def _running_process(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is None:
            raise BrokerError("the broker is not running")
        if (status := process.poll()) is not None:
            self._forget(process)
            raise self._error(f"it has ended by itself with exit status {status}")
        return process

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self._forget(process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is not None:
            process.stdout.close()
        self._process = None

    def _error(self, what: str) -> BrokerError:
        return BrokerError(f"broker at {_HOST}:{self._port or '?'}: {what}; its log ends:\n{self._end_of_log()}")

    def _end_of_log(self) -> str:
        return self.output[-_SHOWN_LOG_BYTES:] or "(empty)"
