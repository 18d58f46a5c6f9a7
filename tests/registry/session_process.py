"""A process that holds a session with ZooKeeper and an ephemeral node, and prints each state of the session.

    python -m tests.registry.session_process HOST:PORT SESSION_TIMEOUT_MS PATH

It ends when the session has, by expiry.
"""

from __future__ import annotations

import asyncio
import sys

from odradek.broker.registry import zookeeper
from odradek.broker.registry.interface import SessionState


async def main(hosts: str, timeout_ms: int, path: str) -> None:
    registry = await zookeeper.connect(hosts, session_timeout_ms=timeout_ms, connection_timeout_ms=30_000)
    expired = asyncio.Event()

    def received(state: SessionState) -> None:
        print(state.value, flush=True)
        if state is SessionState.EXPIRED:
            expired.set()

    registry.add_listener(received)
    await registry.create(path, ephemeral=True)
    print("holding", flush=True)
    await expired.wait()
    await registry.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
