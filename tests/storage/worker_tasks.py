"""Functions that the tests of worker processes run there."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import NoReturn

from odradek.protocol.batch import InvalidRecords
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.recovery import LoadRequest, Recovered, recover_folders

_log = logging.getLogger("odradek.storage.worker_tasks")


def add(one: int, *others: int, factor: int = 1) -> int:
    """A sum."""
    return factor * sum((one, *others))


def refuse() -> NoReturn:
    """An exception with values of its own."""
    raise InvalidRecords(ErrorCode.INVALID_RECORD, "three of them", [(3, "no key")])


def run_full(path: str) -> NoReturn:
    """The error of a disk without room."""
    raise OSError(28, "No space left on device", path)


def raise_what_cannot_travel() -> NoReturn:
    """An exception that holds an object of this process."""
    error = ValueError("held")
    error.thread = sys.stdout  # type: ignore[attr-defined]
    raise error


def chatter() -> str:
    """Writes to stdout, where responses are written, and logs."""
    print("a stray line", flush=True)
    os.write(1, b"and a stray byte\n")
    _log.warning("%d bytes of a torn write cut", 5)
    _log.debug("debug message")
    return sys.stdin.read()


def modules() -> list[str]:
    """The modules that the process has imported, and its priority."""
    return [*sys.modules, f"nice {os.nice(0)}"]


def die() -> NoReturn:
    """A kill, as by the kernel when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def work_on(path: str) -> NoReturn:
    """Writes a file to show that it has begun, and never ends. The interpreter lock is busy all the time."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.monotonic()


def die_over_some(requests: list[tuple[str, LoadRequest]]) -> list[Recovered | KafkaError | OSError]:
    """Recovery that is killed over some of the logs, and not over others."""
    outcomes = []
    for path, request in requests:
        if path.endswith(("-2", "-4")):
            die()
        outcomes += recover_folders([(path, request)])
    return outcomes
