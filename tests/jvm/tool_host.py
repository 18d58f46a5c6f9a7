"""Stock tools in a JVM that stays (ToolHost.java), so that a run costs only the tool and not the start of Java.

One host runs one tool at a time. Hosts are kept for each release and taken by the thread that runs a tool; threads that
run tools side by side get a host each. A host whose tool is not done in time is killed, and so are all when the process
ends.
"""

from __future__ import annotations

import atexit
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.jvm.process import (
    QUICK_START,
    QUIET,
    Result,
    ToolError,
    failure_report,
    java_command,
)
from tests.jvm.watchdog import watchdog

SOURCE = Path(__file__).with_name("ToolHost.java")
OPENED = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
"""For the field of a thread that leads to an admin client that its tool has not closed."""
MOST_RUNS = 200
"""After this many runs a new host replaces one: the leftovers of tools (metrics, threads) stay bounded."""


class Host:
    """One JVM that runs tools of one release."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._runs = 0
        self._busy = False  # a leftover of a tool still works
        self._process = subprocess.Popen(
            java_command(version, str(SOURCE), [], (*QUICK_START, *QUIET, *OPENED)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        watchdog().watch(self._process.pid)
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._collector = threading.Thread(target=self._collect, daemon=True)
        self._collector.start()

    @property
    def usable(self) -> bool:
        """Whether another tool can be run here."""
        return self._process.poll() is None and self._runs < MOST_RUNS and not self._busy

    def run(
        self, main_class: str, arguments: Sequence[str], stdin: str | Path, stdout: Path | None, timeout_s: float
    ) -> Result:
        """Run a class to its end. Raises ToolError, and ends this host, when that is not done in time."""
        self._runs += 1
        with tempfile.TemporaryDirectory(prefix="odradek-tool-") as name:
            folder = Path(name)
            source = stdin if isinstance(stdin, Path) else folder / "stdin"
            if isinstance(stdin, str):
                source.write_text(stdin)
            sink, complaints = stdout or folder / "stdout", folder / "stderr"
            words = [main_class, str(source.resolve()), str(sink.resolve()), str(complaints), *arguments]
            status = self._ask(words, timeout_s)
            errors = complaints.read_bytes() if complaints.exists() else b""
            printed = sink.read_bytes() if stdout is None and sink.exists() else b""
            if status is None:
                self.end()
                raise ToolError(
                    failure_report([main_class, *arguments], f"not done after {timeout_s:g} s", printed, errors)
                )
            return Result(status, printed.decode(), errors.decode(errors="replace"))

    def _ask(self, words: Sequence[str], timeout_s: float) -> int | None:
        assert self._process.stdin is not None
        self._process.stdin.write(b" ".join(b"x" + word.encode().hex().encode() for word in words) + b"\n")
        self._process.stdin.flush()
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return None
        status, _, left = answer.decode().partition(" ")
        self._busy = bool(left)
        return int(status) if status else self._process.wait(timeout_s)

    def _collect(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._answers.put(line)
        self._answers.put(b"")  # the tool has ended the JVM

    def end(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._collector.join()
        watchdog().forget(self._process.pid)


class Hosts:
    """The idle hosts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[str, list[Host]] = {}

    def run(
        self,
        version: str,
        main_class: str,
        arguments: Sequence[str],
        stdin: str | Path,
        stdout: Path | None,
        timeout_s: float,
    ) -> Result:
        """Run a class of a release to its end. Raises ToolError when that is not done in time."""
        with self._lock:
            idle = self._idle.setdefault(version, [])
            host = idle.pop() if idle else None
        if host is None:
            host = Host(version)
        result = host.run(main_class, arguments, stdin, stdout, timeout_s)
        if host.usable:
            with self._lock:
                idle.append(host)
        else:
            host.end()
        return result

    def end(self) -> None:
        """End all that are idle."""
        with self._lock:
            for idle in self._idle.values():
                for host in idle:
                    host.end()
            self._idle.clear()


HOSTS = Hosts()
atexit.register(HOSTS.end)
