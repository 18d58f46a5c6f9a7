"""Clients leave no garbage behind that only Python's collector of cycles would find.

In the broker it examines only young objects (`runtime/collector.py`), and much may depend on an object that should be
gone: a request of the broker to itself kept the log of a deleted topic, with its descriptor and its place on the disk.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from collections import Counter
from pathlib import Path

import pytest
import uvloop

from odradek.broker.runtime import request_tasks
from odradek.broker.runtime.request_tasks import WORK, RequestTasks
from odradek.broker.runtime.turns import Turns
from odradek.protocol import messages as m
from odradek.protocol.framing import frame, request_header
from tests.broker.wire import running_broker
from tests.security.tls_broker import HOST, Files, listeners
from tests.soak.life import SHORT_MEMORY, Life
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.memory


@pytest.mark.slow
def test_clients_leave_no_cycles(tmp_path: Path) -> None:
    found = uvloop.run(left_by_clients(tmp_path))  # the broker's setting; asyncio's own transports are cycles
    assert not {name: number for name, number in found.items() if name.startswith("odradek.")}, found


ITERATIONS = 10
"""Iterations of the loop after which the end of a task leaves no references in it."""


def test_connections_with_tls_leave_no_cycles(tmp_path: Path) -> None:
    """The transport of uvloop with TLS refers to the connection, with buffers of 256 KiB, for as long as it exists."""
    found = uvloop.run(left_by_connections(tmp_path))
    assert not {name: number for name, number in found.items() if name.startswith(("odradek.", "_ssl."))}, found


async def left_by_connections(tmp_path: Path) -> Counter[str]:
    """How many objects of each class only the collector finds, after connections that the client or the broker has
    closed, before and after the handshake.
    """
    files = Files(tmp_path / "files")
    files.issue("broker", HOST)
    ports, properties = listeners({"INSIDE": "PLAINTEXT", "OPEN": "SSL"})
    context = files.context()

    def connect() -> None:
        asked = m.ApiVersionsRequest(client_software_name="test", client_software_version="1").encode(3)
        for data in (frame(request_header(18, 3, 1, "test"), asked), b"\x7f\xff\xff\xff", None):
            with socket.create_connection((HOST, ports["OPEN"])) as plain:
                if data is None:
                    continue
                with context.wrap_socket(plain, server_hostname=HOST) as opened:
                    opened.sendall(data)
                    assert len(opened.recv(4)) == (4 if data[0] == 0 else 0)

    async with running_broker(tmp_path / "data", {**properties, **files.stores("broker")}) as broker:
        await asyncio.to_thread(connect)
        await eventually_async(
            lambda: broker.running.sources.listening.connections()["OPEN"], lambda count: not count, "they are closed"
        )
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                await asyncio.to_thread(connect)
            await eventually_async(
                lambda: broker.running.sources.listening.connections()["OPEN"],
                lambda count: not count,
                "they are closed",
            )
            return _garbage()
        finally:
            gc.enable()


@pytest.mark.parametrize("is_measured", [True, False])
@pytest.mark.parametrize("in_turns", [True, False])
@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_task_that_an_exception_ends_leaves_no_cycles(
    monkeypatch: pytest.MonkeyPatch, in_turns: bool, is_measured: bool, is_cancelled: bool
) -> None:
    """What it awaits fails, or it is cancelled meanwhile."""
    monkeypatch.setattr(request_tasks.log, "disabled", True)  # pytest keeps log records, and they the exception
    turns, tasks, over = Turns(time.monotonic_ns), RequestTasks(), asyncio.Event()
    gates = [asyncio.get_running_loop().create_future()]

    objects: list[weakref.ref[Own]] = []

    async def work() -> None:
        own = Own()
        objects.append(weakref.ref(own))
        await gates[0]

    def run() -> None:
        tasks.run(work(), over.set)

    gc.collect()
    gc.disable()
    token = WORK.set(NotMeasured() if is_measured else None)
    try:
        if in_turns:
            turns.run(run)
        else:
            run()
        await eventually_async(lambda: gates[0]._callbacks, bool, "the task waits")
        if not is_cancelled:
            gates[0].set_exception(OSError("lost"))
            await over.wait()
        await tasks.close()
        gates.clear()  # its exception refers to the frames
        for _ in range(ITERATIONS):
            await asyncio.sleep(0)
        assert [each() for each in objects] == [None]
        turns.close()
    finally:
        gc.enable()
        WORK.reset(token)


class Own:
    """An object in the frame of a task."""


class NotMeasured:
    """The measurement of a request that keeps nothing."""

    def begin_step(self) -> None:
        pass

    def end_step(self) -> None:
        pass


def _garbage() -> Counter[str]:
    """The objects of each class that only the collector finds."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


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
            return _garbage()
        finally:
            gc.enable()
