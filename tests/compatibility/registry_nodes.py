"""Waits for nodes of a metadata store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

DEADLINE_S = 60.0


def await_node(registry: KazooClient, path: str, holds: Callable[[bytes | None], bool]) -> None:
    """Wait until a node, or its absence, is as wanted."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        changed = threading.Event()
        watch = lambda event, changed=changed: changed.set()  # noqa: E731
        try:
            data = registry.get(path)[0] if registry.exists(path, watch=watch) is not None else None
        except NoNodeError:  # it was deleted in between
            data = None
        if holds(data):
            return
        changed.wait(deadline - time.monotonic())
    raise TimeoutError(f"{path} is not as wanted after {DEADLINE_S} s")
