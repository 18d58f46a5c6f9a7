"""`odradek broker --daemon`, a broker in a session of its own that outlives the terminal, and `odradek stop`.

The command waits until the broker serves, prints its ready line and ends; where the broker does not start, it prints
the reason and ends with status 1. Pid file and log are in the broker's first data directory unless options set other
paths; Kafka ignores both there.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from odradek.daemon_files import DETACHED
from odradek.pid_file import await_end, running_process
from odradek.ready_process import OWN_COMMAND
from odradek.standard_streams import print_line

_SHOWN_LINES: Final = 25


class DaemonError(Exception):
    """The daemon has not started, or cannot be stopped; the message contains the reason."""


def start(arguments: Sequence[str], pid_file: Path, log_file: Path) -> None:
    """Start `odradek broker` with `arguments` as a daemon and wait until it serves. Raises DaemonError, OSError."""
    pid = running_process(pid_file)
    if pid is not None:
        raise DaemonError(f"process {pid} runs already, with the pid file {pid_file}; odradek stop ends it")
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        begin = log.tell()
        process = subprocess.Popen(
            [*OWN_COMMAND, "broker", *arguments, f"--pid-file={pid_file}", DETACHED],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().decode("utf-8", "replace").rstrip()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if not ready:
        process.wait()
        raise DaemonError(_reason(log_file, begin))
    print_line(ready)
    print_line(f"process {process.pid}, pid file {pid_file}, log in {log_file}")


def _reason(log_file: Path, begin: int) -> str:
    """The reason for a failed start: the broker's error line, or else the end of its log."""
    with log_file.open("rb") as log:
        log.seek(begin)
        lines = log.read().decode("utf-8", "replace").splitlines()
    if lines and lines[-1].startswith("odradek: "):
        return lines[-1].removeprefix("odradek: ")
    shown = "".join(f"\n    {line}" for line in lines[-_SHOWN_LINES:]) or " is empty"
    return f"the broker has not started; {log_file}{' ends:' if lines else ''}{shown}"


def stop(pid_file: Path, timeout_s: float) -> int:
    """Stop the process that holds the pid file, wait for its end, and return its id. Raises DaemonError."""
    try:
        pid = running_process(pid_file)
    except OSError as error:
        raise DaemonError(f"cannot read {pid_file}: {error.strerror}") from error
    if pid is None:
        raise DaemonError(
            f"no broker runs with the pid file {pid_file}. Name the server.properties that it was started with, "
            "or its --pid-file"
        )
    try:
        process = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return pid
    except PermissionError:
        raise DaemonError(f"not allowed to stop process {pid}, which belongs to another user") from None
    if not (await_end(pid_file, timeout_s) and (process is None or _has_ended(process, timeout_s))):
        raise DaemonError(f"process {pid} has not ended within {timeout_s:g} s after SIGTERM")
    return pid


def _has_ended(process: int, timeout_s: float) -> bool:
    """Whether a process, a pidfd, ends in time: its lock of the pid file ends before its last sockets are closed."""
    events = select.poll()
    events.register(process, select.POLLIN)
    return bool(events.poll(timeout_s * 1000))
