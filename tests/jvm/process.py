"""Processes beside the tests, Java ones above all: how they are started, how their output is kept, and how tests wait
for them.

A process that ends by itself is run to its end (`run_java`); one that serves or follows is a `BackgroundProcess`, whose
lines are collected by a thread as they come, so that a test can wait for the line it needs instead of for a while.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

from tests.jvm.cache import cache_folder
from tests.jvm.jars import classpath
from tests.jvm.java import find_java
from tests.jvm.programs import compiled
from tests.jvm.watchdog import watchdog

# A tool lives for a second or two: the interpreter and the quick compiler serve it better than the optimizing one.
QUICK_START = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xms32m", "-Xmx256m"),
    # Classes that no archive has come from released jars, whose bytecode needs no verification.
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
_ARCHIVES = ("-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit=")
CLIENTS, OLDEST_CLIENTS = "clients", "oldest-clients"
"""The folders of the cache with the archives of clients' classes."""
_LOGGING = "-Dorg.slf4j.simpleLogger."
QUIET = (f"{_LOGGING}defaultLogLevel=warn",)


class Result(NamedTuple):
    """The result of a process that ended: exit status, and its output decoded as UTF-8."""

    status: int
    stdout: str
    stderr: str


class ToolError(Exception):
    """A stock tool ended with an error, or did not end in time. The message holds its output."""


def java_command(version: str, main_class: str, arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """The command line that runs a class of Kafka `version`, or a program with it: a file that ends in .java.

    With options that allow shared classes, those of its clients come from an archive (`tests.jvm.archives`).
    """
    jars = tuple(classpath(version))
    if "-Xshare:auto" in options and not any(each.startswith(_ARCHIVES) for each in options):
        options = (*options, *clients_archive(version))
    if main_class.endswith(".java"):
        source = Path(main_class)
        jars, main_class = (*jars, compiled(version, source)), source.stem
    return [str(find_java()), *options, "-cp", ":".join(map(str, jars)), main_class, *arguments]


def clients_archive(version: str) -> tuple[str, ...]:
    """Java's options for the archive of a release's clients, if there is one. Java ignores an archive that does not fit
    without a warning, so the output is the tool's own.
    """
    archives = (cache_folder() / "classes" / name / f"{version}.jsa" for name in (CLIENTS, OLDEST_CLIENTS))
    archive = next(filter(Path.exists, archives), None)
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off,cds+dynamic=off") if archive else ()


def archive_options(version: str, main_class: str) -> tuple[str, ...]:
    """Java's option for the archive of a program's classes, if `tests.jvm.archives` has made one."""
    archive = cache_folder() / "classes" / version / f"{main_class}.jsa"
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def run_java(
    command: Sequence[str], *, stdin: str | Path = "", timeout_s: float, check: bool = True, stdout: Path | None = None
) -> Result:
    """Runs a command to its end.

    `stdin` is text, or a file to read. `stdout` may name a file to fill; `Result.stdout` is then empty.

    Raises ToolError when it is not done after `timeout_s`, and with `check` also when its exit status is not 0.
    """
    source = open(stdin, "rb") if isinstance(stdin, Path) else subprocess.PIPE  # noqa: SIM115
    sink = open(stdout, "wb") if stdout is not None else subprocess.PIPE  # noqa: SIM115
    try:
        process = subprocess.Popen(command, stdin=source, stdout=sink, stderr=subprocess.PIPE)
        watchdog().watch(process.pid)
        try:
            printed, complaints = process.communicate(
                stdin.encode() if isinstance(stdin, str) else None, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            process.kill()
            printed, complaints = process.communicate()
            raise ToolError(failure_report(command, f"not done after {timeout_s:g} s", printed, complaints)) from None
        finally:
            process.kill()
            process.wait()
            watchdog().forget(process.pid)
    finally:
        for stream in (source, sink):
            if not isinstance(stream, int):
                stream.close()
    if check and process.returncode != 0:
        raise ToolError(failure_report(command, f"exit status {process.returncode}", printed, complaints))
    return Result(process.returncode, (printed or b"").decode(), complaints.decode(errors="replace"))


def failure_report(command: Sequence[str], what: str, printed: bytes | None, complaints: bytes) -> str:
    """The message of a ToolError: the error, the command, and the end of its output."""
    # The class path alone is longer than the rest of the message.
    shown = " ".join(argument for argument in command if ".jar" not in argument)
    tail = b"\n".join(((printed or b"") + complaints).splitlines()[-40:]).decode(errors="replace")
    return f"{what}: {shown}\n{tail}"


class Output:
    """The lines that a process prints on one stream, collected as they come; `changed` is notified of each."""

    def __init__(self, stream: IO[bytes], changed: threading.Condition) -> None:
        self._lines: list[str] = []
        self._ended = False
        self._changed = changed
        threading.Thread(target=self._collect, args=(stream,), daemon=True).start()

    def lines(self) -> list[str]:
        """All lines so far, without their ends."""
        with self._changed:
            return list(self._lines)

    def wait_until(self, holds: Callable[[list[str]], bool], timeout_s: float) -> list[str]:
        """Waits until `holds` is true of the lines so far, and returns them.

        Raises TimeoutError, or EOFError if the process closes the stream before.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not holds(self._lines):
                if self._ended:
                    raise EOFError("the process ended; last lines:\n" + "\n".join(self._lines[-30:]))
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"not after {timeout_s:g} s; last lines:\n" + "\n".join(self._lines[-30:]))
            return list(self._lines)

    def wait_for(self, text: str, timeout_s: float) -> str:
        """Waits for a line that holds `text` and returns it."""
        lines = self.wait_until(lambda lines: any(text in line for line in lines), timeout_s)
        return next(line for line in lines if text in line)

    def wait_for_end(self, timeout_s: float) -> list[str]:
        """Waits until the process has closed the stream and returns all lines."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended, timeout_s):
                raise TimeoutError(f"still open after {timeout_s:g} s")
            return list(self._lines)

    def _collect(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self._lines.append(line.decode(errors="replace").rstrip("\r\n"))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class BackgroundProcess:
    """A process that runs until it is stopped. As a context manager it is killed on exit if it still runs.

    `changed`, if given, is notified of every line on either stream: several processes can share it, so that a test
    waits for the first line of any of them.
    """

    def __init__(self, command: Sequence[str], changed: threading.Condition | None = None) -> None:
        # A group of its own: an interrupt at the terminal ends the tests, and the tests end this.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        watchdog().watch(self._process.pid)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        changed = changed or threading.Condition()
        self.stdout = Output(self._process.stdout, changed)
        self.stderr = Output(self._process.stderr, changed)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def write_line(self, line: str) -> None:
        """Writes a line to the process's standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def stop(self, timeout_s: float = 60) -> int:
        """Sends SIGTERM to the process, waits for its end and returns its exit status (143 or -15 for most of Java)."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """Ends the process at once (SIGKILL), without a chance to close its connections."""
        self._end(signal.SIGKILL, 30)

    def _end(self, how: signal.Signals, timeout_s: float) -> int:
        if self.running:
            self._process.send_signal(how)
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            watchdog().forget(self._process.pid)
            if self._process.stdin is not None and not self._process.stdin.closed:
                self._close_stdin()
        return status

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            return  # unsent input of a process that is gone

    def __enter__(self) -> BackgroundProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
