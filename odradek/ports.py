"""Ports for processes that end and return to them.

The system assigns ports of its own range to outgoing connections, and bind(0) takes from that range, too. The port of a
stopped broker may be assigned there: to a foreign process, or to a client that connects to the broker and reaches
itself (a TCP connection from a port to the same port succeeds). The broker cannot return to it then. So a port is taken
from below that range.

No other process may get it either, though no process listens there while the broker is down. The ports below are
divided into blocks: a block belongs to the process that has bound the UDP port of its first number, until that process
ends.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FIRST: Final = 10_240
FIRST_OF_SYSTEM: Final = 32_768
"""The start of the range by default on Linux; on other systems it is higher."""
BLOCK: Final = 64
HOST: Final = "127.0.0.1"
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(host: str = HOST) -> int:
    """A port that no process uses now, that the system assigns to no outgoing connection, and that this function has
    returned to no other process on this machine, as long as those processes live. Raises OSError where there is none.
    """
    with _lock:
        for port in _by_process.setdefault(os.getpid(), _Blocks()).ports():
            if _is_free(host, port):
                return port
    with socket.socket() as probe:  # all are taken: let the system choose
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class _Blocks:
    """The blocks of one process."""

    def __init__(self) -> None:
        self._held: list[int] = []  # descriptors, which stay open to the end of the process without a warning
        self._rest: Iterator[int] = iter(())

    def ports(self) -> Iterator[int]:
        """The rest of the current block, then ports of further ones. Each yielded port is used up."""
        yield from self._rest
        firsts = range(FIRST, _first_of_system() - BLOCK + 1, BLOCK)
        # Tests seed the global generator, in several processes with the same number.
        for first in random.SystemRandom().sample(firsts, len(firsts)):
            if self._take(first):
                self._rest = iter(range(first, first + BLOCK))
                yield from self._rest

    def _take(self, first: int) -> bool:
        claim = socket.socket(type=socket.SOCK_DGRAM)
        try:
            claim.bind((HOST, first))
        except OSError:
            claim.close()
            return False
        self._held.append(claim.detach())
        return True


_lock = threading.Lock()
_by_process: dict[int, _Blocks] = {}
"""By process id: a forked process has none of its parent's."""


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _first_of_system() -> int:
    try:
        return int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return FIRST_OF_SYSTEM
