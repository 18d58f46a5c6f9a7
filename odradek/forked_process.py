"""A process of `odradek` that is forked from the fork server of this process, with the interface of `subprocess.Popen`.

The server starts with the first process. It is left out where the system has no pidfd (Linux has), for other
interpreter variables than the server's, for another PYTHONPATH than this process was started with (its `sitecustomize`
may read arguments, which a fork gets too late), and in a request that is too long; `start` then returns None.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from odradek.fork_server import MOST_BYTES

_OF_THE_INTERPRETER: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "SSL_")
"""Variables with these prefixes act when a process starts, or when it imports."""
UNKNOWN_STATUS: Final = 255
"""The exit status of a process whose fork server had ended before it: only a parent learns it."""


class ForkedProcess:
    """A child of the fork server. `args`, `pid`, `stdin` and `stdout` are those of `subprocess.Popen`."""

    def __init__(
        self, server: _Server, args: list[str], pid: int, descriptor: int, stdin: IO[bytes], stdout: IO[bytes]
    ) -> None:
        self._server = server
        self.args = args
        """The arguments of `odradek`; the system shows those of the server."""
        self.pid = pid
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, minus the number of a signal that ended it, or None."""
        return self._await_end(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Returns the exit status; raises subprocess.TimeoutExpired after `timeout` seconds."""
        status = self._await_end(None if timeout is None else timeout * 1000)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def await_stopped(self) -> None:
        """Wait until SIGSTOP has stopped it."""
        self._server.ask({"pid": self.pid, "stopped": True})

    def _await_end(self, timeout_ms: float | None) -> int | None:
        if self.returncode is None:
            ends = select.poll()
            ends.register(self._descriptor, select.POLLIN)
            if ends.poll(timeout_ms):
                self.returncode = UNKNOWN_STATUS
                with contextlib.suppress(OSError):
                    self.returncode = self._server.ask({"pid": self.pid, "stopped": False})["status"]
                self._close()
        return self.returncode


def start(arguments: Sequence[str], environment: Mapping[str, str], stderr: int) -> ForkedProcess | None:
    """Run `odradek` with these arguments; standard error is `stderr`, the other streams are pipes. None: do it
    otherwise.

    Raises OSError where the server does not run.
    """
    if not hasattr(os, "pidfd_open") or environment.get("PYTHONPATH") != _path_at_start():
        return None
    with _Server.lock:
        server = _Server.of_this_process(environment)
    request = {"arguments": [*arguments], "environment": {**environment}, "folder": str(Path.cwd())}
    message = json.dumps(request).encode()
    if len(message) > MOST_BYTES or server.variables != _of_the_interpreter(environment):
        return None
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    try:
        answer, descriptor = server.fork(message, (read_in, write_out, stderr))
    except BaseException:
        os.close(write_in)
        os.close(read_out)
        raise
    finally:
        os.close(read_in)
        os.close(write_out)
    return ForkedProcess(server, [*arguments], answer["pid"], descriptor, io.FileIO(write_in, "w"), io.FileIO(read_out))


@cache
def _path_at_start() -> str | None:
    variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    found = [each.partition(b"=")[2] for each in variables if each.startswith(b"PYTHONPATH=")]
    return os.fsdecode(found[0]) if found else None


def _of_the_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_THE_INTERPRETER)}


class _Server:
    """The fork server of one process. A process that this one forks has another."""

    lock: Final = threading.Lock()
    _present: _Server | None = None

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.variables = _of_the_interpreter(environment)
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "odradek.fork_server", str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**environment},
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End the server; its children go on."""
        if self._owner == os.getpid():
            self._socket.close()
            self._process.wait()

    @property
    def running(self) -> bool:
        """Whether this process has started it and it lives."""
        return self._owner == os.getpid() and self._process.poll() is None

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str]) -> _Server:
        """The server, started if there is none that runs."""
        if cls._present is None or not cls._present.running:
            cls._present = cls(environment)
        return cls._present

    def ask(self, request: Mapping[str, Any]) -> dict[str, int]:
        """The answer to a request. Raises OSError where the server has ended."""
        return self._answer(json.dumps(request).encode(), [])[0]

    def fork(self, request: bytes, streams: Sequence[int]) -> tuple[dict[str, int], int]:
        """The answer to a request to fork, and the descriptor of the child."""
        answer, descriptors = self._answer(request, streams)
        return answer, descriptors[0]

    def _answer(self, request: bytes, descriptors: Sequence[int]) -> tuple[dict[str, int], list[int]]:
        with self._lock:
            socket.send_fds(self._socket, [request], descriptors)
            received, found, _, _ = socket.recv_fds(self._socket, MOST_BYTES, 1)
        if not received:
            raise ConnectionResetError("the fork server has ended")
        answer: dict[str, int] = json.loads(received)
        return answer, found
