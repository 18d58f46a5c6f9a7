"""Where tests keep their files: in memory, where the machine has room for them.

Tests create tens of thousands of small files and sync most of them. In memory a sync costs nothing, and a test waits
for no other test's. What a sync guarantees is tested with disks that count the calls (`storage/`), not with the
machine's. `TMPDIR` in the environment decides otherwise.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
"""The file system in memory that Linux mounts for shared memory."""
ROOM: Final = 6 * 2**30
"""Bytes that have to be free there. `make test` has at most 2 GiB in it at a time."""


def use_memory(environment: MutableMapping[str, str] = os.environ, memory: Path = MEMORY, room: int = ROOM) -> None:
    """Let this process, and those that it starts, create temporary files in memory if `room` bytes are free there.

    The limit of the file system is no reservation: the machine has to have the memory, too.
    """
    if "TMPDIR" in environment or not os.access(memory, os.W_OK | os.X_OK):
        return
    system = os.statvfs(memory)
    if min(system.f_bavail * system.f_frsize, available_memory()) >= room:
        environment["TMPDIR"] = str(memory)
        tempfile.tempdir = None  # the module keeps the folder that it found first


def available_memory(report: Path = Path("/proc/meminfo")) -> int:
    """Bytes that processes can still use, as Linux estimates it; 0 where the system does not report it."""
    try:
        lines = report.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
