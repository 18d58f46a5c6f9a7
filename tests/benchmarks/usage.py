"""The resources that a process has used: CPU time and memory, read from Linux's /proc (proc(5)), its children
included.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class Memory(NamedTuple):
    """Resident memory in bytes, summed over a process and its children; `peak` since each was started."""

    resident: int
    peak: int


class _Stat(NamedTuple):
    parent: int
    cpu_ticks: int  # user and system, with those of children that the process waited for
    start_ticks: int  # after boot


def cpu_seconds(pid: int) -> float:
    """CPU seconds that the process and its children have used so far. Raises ProcessLookupError if it is gone."""
    return sum(_stat(member).cpu_ticks for member in _family(pid)) / _TICKS_A_SECOND


def memory(pid: int) -> Memory:
    """Resident memory of the process and its children. Raises ProcessLookupError if it is gone."""
    members = [_status(member) for member in _family(pid)]
    return Memory(sum(member["VmRSS"] for member in members), sum(member["VmHWM"] for member in members))


def age_s(pid: int) -> float:
    """Seconds since the process was started, to a tick (10 ms). Raises ProcessLookupError if it is gone."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - _stat(pid).start_ticks / _TICKS_A_SECOND


def _family(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                children.setdefault(_stat(int(entry.name)).parent, []).append(int(entry.name))
            except ProcessLookupError:
                continue  # it ended while the folder was read
    members = [pid]
    for member in members:
        members += children.get(member, [])
    return members


def _stat(pid: int) -> _Stat:
    # The name of the program is in brackets and may hold anything; the numbers begin after the last bracket.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return _Stat(int(fields[1]), sum(map(int, fields[11:15])), int(fields[19]))


def _status(pid: int) -> dict[str, int]:
    lines = (line.split() for line in _read(pid, "status").splitlines() if line.startswith(("VmRSS", "VmHWM")))
    return {"VmRSS": 0, "VmHWM": 0} | {name.rstrip(":"): int(kib) * 1024 for name, kib, _ in lines}


def _read(pid: int, name: str) -> str:
    try:
        return (_PROC / str(pid) / name).read_text()
    except FileNotFoundError:
        raise ProcessLookupError(f"no process {pid}") from None
