"""A well-behaved client beside a hostile one: sends ApiVersions and writes a record every 10 ms."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.wire import Wire

INTERVAL_S: Final = 0.01
API_VERSIONS: Final = 3
PRODUCE: Final = 9


class Latencies(NamedTuple):
    """What a client measured. Times are in milliseconds; `cpu_ms` is the most CPU time that the broker used while one
    request of the client waited: other processes of the machine do not change it.
    """

    requests: int
    p99_ms: float
    longest_ms: float
    cpu_ms: float


class Bystander:
    """The client, in a thread of its own while the `with` block runs."""

    def __init__(self, port: int, pid: int, topic: str, timeout_s: float) -> None:
        self._wires = Wire("127.0.0.1", port, timeout_s), Wire("127.0.0.1", port, timeout_s)
        self._requests = (
            (
                self._wires[0],
                m.ApiVersionsRequest(client_software_name="test", client_software_version="1"),
                API_VERSIONS,
            ),
            (self._wires[1], _produce(topic), PRODUCE),
        )
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander")
        self._waits: list[tuple[float, float]] = []
        self._error: Exception | None = None

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for wire in self._wires:
            wire.close()

    def latencies(self) -> Latencies:
        """The latencies since the start. Raises the error of the client, if it has had one."""
        if self._error is not None:
            raise self._error
        waits = self._waits
        ordered = sorted(wait for wait, _ in waits)
        p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        return Latencies(len(waits), p99 * 1000, ordered[-1] * 1000, max(cpu for _, cpu in waits) * 1000)

    def _run(self) -> None:
        try:
            _precede()
            while True:
                for wire, request, version in self._requests:
                    before, started = cpu_s(self._pid), time.monotonic()
                    wire.exchange(request, version)
                    self._waits.append((time.monotonic() - started, cpu_s(self._pid) - before))
                if self._stop.wait(INTERVAL_S):
                    return
        except Exception as error:
            self._error = error


def _precede() -> None:
    """Where the process has a real-time priority (chrt), put this thread before the other clients: the cores of one
    machine are shared by clients that would be on others.
    """
    policy = os.sched_getscheduler(0)
    if policy in (os.SCHED_RR, os.SCHED_FIFO):
        os.sched_setscheduler(0, policy, os.sched_param(os.sched_getparam(0).sched_priority + 1))


def cpu_s(pid: int) -> float:
    """CPU seconds of the threads of a process (schedstat of Linux's proc)."""
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            used += int(task.joinpath("schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended meanwhile
    return used / 1e9


def _produce(topic: str) -> m.ProduceRequest:
    records = build([Record(0, 1_700_000_000_000, None, b"value", [])])
    data = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    return m.ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )
