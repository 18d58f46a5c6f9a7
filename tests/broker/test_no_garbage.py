"""Clients leave no garbage behind that only Python's collector of cycles would find.

The broker rarely runs it, and much may depend on an object that should be gone: a request of the broker to itself kept
the log of a deleted topic, with its descriptor and its place on the disk.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from pathlib import Path

import pytest
import uvloop

from tests.broker.wire import running_broker
from tests.soak.life import SHORT_MEMORY, Life


@pytest.mark.slow
@pytest.mark.memory
def test_clients_leave_no_cycles(tmp_path: Path) -> None:
    found = uvloop.run(left_by_clients(tmp_path))  # the broker's setting; asyncio's own transports are cycles
    assert not {name: number for name, number in found.items() if name.startswith("odradek.")}, found


async def left_by_clients(tmp_path: Path) -> Counter[str]:
    """How many objects of each class only the collector finds, after two rounds of client actions."""
    properties = {**SHORT_MEMORY, "offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
    properties |= {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    async with running_broker(tmp_path / "data", properties) as broker:
        life = Life(f"127.0.0.1:{broker.port}", 1, seed=1)
        await asyncio.to_thread(life.begin)
        await asyncio.to_thread(life.round)  # objects that are created once, and stay
        gc.collect()
        gc.disable()
        try:
            for _ in range(2):
                await asyncio.to_thread(life.round)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
