"""Names of a daemon's files in its first data directory, and the option of its process."""

from __future__ import annotations

from typing import Final

PID_FILE: Final = "odradek.pid"
LOG_FILE: Final = "odradek.out"
DETACHED: Final = "--detached"
