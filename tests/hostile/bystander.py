"""A well-behaved client beside a hostile one: sends ApiVersions and writes a record every 10 ms."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.protocol.framing import frame, request_header

INTERVAL_S: Final = 0.01
TIMESTAMP: Final = 35
"""SO_TIMESTAMPNS of Linux, which `socket` does not name: when the last received bytes arrived."""
API_VERSIONS: Final = 3
PRODUCE: Final = 9


class Latencies(NamedTuple):
    """What a client measured. Times are in milliseconds; `cpu_ms` is the most CPU time that the broker used while one
    request of the client waited: other processes of the machine do not change it. A response that has arrived, and
    waits for the client, does not count.
    """

    requests: int
    p99_ms: float
    longest_ms: float
    cpu_ms: float


class Bystander:
    """The client, in a thread of its own while the `with` block runs."""

    def __init__(self, port: int, pid: int, topic: str, timeout_s: float) -> None:
        versions = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        self._connections = (
            _Connection(port, versions, API_VERSIONS, timeout_s),
            _Connection(port, _produce(topic), PRODUCE, timeout_s),
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
        for each in self._connections:
            each.close()

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
                for each in self._connections:
                    before, started = cpu_s(self._pid), time.monotonic()
                    until_it_arrived_s = each.exchange()
                    wait_s, used_s = time.monotonic() - started, cpu_s(self._pid) - before
                    self._waits.append((wait_s, min(used_s, until_it_arrived_s)))
                if self._stop.wait(INTERVAL_S):
                    return
        except Exception as error:
            self._error = error


class _Connection:
    """A connection that sends one request again and again."""

    def __init__(self, port: int, request: Any, version: int, timeout_s: float) -> None:
        self._frame = frame(request_header(request.API_KEY, version, 1, "bystander"), request.encode(version))
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, TIMESTAMP, 1)

    def exchange(self) -> float:
        """Send the request and receive the response; returns the seconds until its last bytes arrived, or until they
        were read where the system has not recorded that, as of the first ones. Raises OSError.
        """
        started_ns, arrived_ns = time.time_ns(), 0
        self._socket.sendall(self._frame)
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            data, controls, _, _ = self._socket.recvmsg(1 << 16, socket.CMSG_SPACE(16))
            if not data:
                raise ConnectionError("the broker closed the connection")
            received += data
            for _, kind, content in controls:
                if kind == TIMESTAMP:
                    seconds, nanoseconds = struct.unpack("=qq", content)
                    arrived_ns = seconds * 1_000_000_000 + nanoseconds
        return ((arrived_ns or time.time_ns()) - started_ns) / 1e9

    def close(self) -> None:
        self._socket.close()


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
