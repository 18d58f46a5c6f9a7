"""Runs clients that misbehave over time (`clients.py`) beside a well-behaved one, and reports what they cost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.hostile.attack import QUIET_TOPIC, RECOVERY_S, Target, peak_bytes, reset_peak
from tests.hostile.bystander import Bystander, Latencies

ROOT: Final = Path(__file__).parents[2]
END_TIMEOUT_S: Final = 60.0
WIDTHS: Final = (10, 9, 9, 9, 7, 7)
COLUMNS: Final = ("requests", "p99 ms", "max ms", "cpu ms", "MB", "files")
HEADING: Final = f"{'clients':<24}" + "".join(f"{name:>{n}}" for name, n in zip(COLUMNS, WIDTHS, strict=True)) + "  did"


class ClientOutcome(NamedTuple):
    """What one kind of client cost. `did` is their own report, `files` the descriptors of the broker afterwards."""

    name: str
    latencies: Latencies
    did: str
    peak_bytes: int
    files: int


def misbehave(target: Target, name: str, seconds: float) -> ClientOutcome:
    """Run the clients of this name for so many seconds beside the well-behaved client.

    Raises OSError where the broker does not answer the well-behaved client within RECOVERY_S, RuntimeError where the
    clients fail.
    """
    reset_peak(target.pid)
    with _clients(name, target.port) as process:
        _line(process)
        with Bystander(target.port, target.pid, QUIET_TOPIC, RECOVERY_S) as bystander:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.stdin.close()  # type: ignore[union-attr]
            did = _line(process)
    files = len(os.listdir(f"/proc/{target.pid}/fd"))
    return ClientOutcome(name, bystander.latencies(), did, peak_bytes(target.pid), files)


@contextmanager
def _clients(name: str, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.hostile.clients", name, str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the clients have failed with status {process.wait(END_TIMEOUT_S)}")
    return line.strip()


def client_row(outcome: ClientOutcome) -> str:
    """A line of the table."""
    latencies = outcome.latencies
    times = (latencies.p99_ms, latencies.longest_ms, latencies.cpu_ms)
    numbers = (outcome.peak_bytes >> 20, outcome.files)
    cells = (str(latencies.requests), *(f"{each:.0f}" for each in times), *map(str, numbers))
    return (
        f"{outcome.name:<24}"
        + "".join(f"{cell:>{n}}" for cell, n in zip(cells, WIDTHS, strict=True))
        + f"  {outcome.did}"
    )
