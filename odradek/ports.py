"""Ports for processes that end and come back on them.

The system gives outgoing connections ports of its own range, from which bind(0) takes, too. A port of a broker that is
down may be given away there: to a stranger, or to a client that tries to reach the broker and finds itself (a TCP
connection from a port to the same port succeeds). The broker cannot come back then. So a port is taken from below.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

FIRST: Final = 10_240
FIRST_OF_SYSTEM: Final = 32_768
"""Where the range begins by default on Linux; elsewhere it begins above that."""
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES: Final = 50


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody uses now and that no outgoing connection is given. Raises OSError where there is none."""
    last = _first_of_system() - 1
    candidates = [random.randint(FIRST, last) for _ in range(_TRIES)] if last > FIRST else []
    for port in [*candidates, 0]:  # 0 lets the system choose
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                if port == 0:
                    raise
                continue
            return int(probe.getsockname()[1])
    raise AssertionError("the loop ends with a port or an error")


def _first_of_system() -> int:
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return FIRST_OF_SYSTEM
