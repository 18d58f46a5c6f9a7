"""A network of its own for commands with fixed ports, so that two runs of them, or other programs, do not meet."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_HOLD = "ip link set lo up && echo ready && exec cat"


@contextmanager
def own_network() -> Iterator[list[str] | None]:
    """The words before a command that runs it in a new network with loopback only; None where the user can make none.

    It takes Linux with unshare, nsenter and ip.
    """
    as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    try:
        holder = subprocess.Popen(
            ["unshare", "--net", *as_user, "sh", "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        yield None
        return
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        try:
            is_ready = holder.stdout.readline() == b"ready\n"
            user = ["--user", "--preserve-credentials"] if as_user else []
            yield ["nsenter", "--target", str(holder.pid), "--net", *user, "--"] if is_ready else None
        finally:
            holder.stdin.close()  # ends it
