"""A request quota on Odradek and on Apache Kafka 3.9.2 at the same time: a client sends requests that cost CPU time.

Both brokers measure for how long they work on a request, and a busy machine adds the time in which they do not run. So
there are two witnesses. The CPU time of the broker is not more than that, and the time until the client gets its
responses is not less; on a quiet machine they differ by the work for the connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.broker_process import BrokerProcess
from odradek.protocol.compression import Codec
from odradek.wire import Wire, parse_address
from tests.broker.wire import batch, produce_request
from tests.compatibility.brokers import create_topic
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.quota.shares import TOLERANCE

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC = "inflated"
CLIENT = "worker"
PERCENTAGE = 20
ALLOWED = PERCENTAGE / 100
"""Seconds of work for each second."""
DEMAND = 1.2
BEFORE_S = 11.0
MEASURED_S = 22.0
INFLATED_BYTES = 16_000_000
"""Of a small batch that the broker decompresses to validate it."""
PRODUCE_VERSION = 9
TIMEOUT_S = 60.0
HANDLERS = "data-plane-kafka"[:15]
"""How the name of Kafka's threads begins that handle requests; the system keeps 15 characters."""


class Shares(NamedTuple):
    """What a client got of a broker's time, as shares of its quota."""

    cpu: float
    waited: float


def cpu_s(pid: int, of_threads: str) -> float:
    """CPU seconds of the threads of a process whose names begin so (schedstat of Linux's proc)."""
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "comm").read_text().startswith(of_threads):
                used += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended meanwhile
    return used / 1e9


def work(bootstrap: str, used_s: Callable[[], float]) -> Shares:
    """Send requests that demand more than the quota; `used_s` is the broker's CPU time."""
    request = produce_request(TOPIC, batch(bytes(INFLATED_BYTES), codec=Codec.GZIP))
    started_s = due_s = time.monotonic()
    waited_s = 0.0
    before: tuple[float, float, float] | None = None
    with Wire(*parse_address(bootstrap), TIMEOUT_S, client_id=CLIENT) as wire:
        while time.monotonic() < started_s + BEFORE_S + MEASURED_S:
            if before is None and time.monotonic() >= started_s + BEFORE_S:
                before = time.monotonic(), used_s(), waited_s
            sent_s = time.monotonic()
            answer = wire.ask(request, PRODUCE_VERSION)
            took_s = time.monotonic() - sent_s
            waited_s += took_s
            due_s = max(due_s, sent_s - 5) + took_s / (ALLOWED * DEMAND)
            pause_s = max(answer.throttle_time_ms / 1000, due_s - time.monotonic(), 0.0)
            threading.Event().wait(pause_s)  # the demand, and the throttle time, as Kafka's clients wait for it
    assert before is not None
    allowed_s = ALLOWED * (time.monotonic() - before[0])
    return Shares((used_s() - before[1]) / allowed_s, (waited_s - before[2]) / allowed_s)


def prepare(broker: BrokerProcess | Kafka) -> None:
    create_topic(broker, TOPIC)
    where = ["--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "clients", "--entity-name", CLIENT]
    run_tool("3.9.2", "kafka-configs", [*where, "--add-config", f"request_percentage={PERCENTAGE}"])


def test_requests_take_as_much_time_as_their_quota_allows(tmp_path: Path, kafka: Kafka) -> None:
    with BrokerProcess(tmp_path, {"offsets.topic.num.partitions": "4"}) as odradek:
        for broker in (odradek, kafka):
            prepare(broker)
        with ThreadPoolExecutor(2) as threads:
            running = {
                "odradek": threads.submit(work, odradek.bootstrap, lambda: cpu_s(odradek.pid, "")),
                "kafka": threads.submit(work, kafka.bootstrap, lambda: cpu_s(kafka.pid, HANDLERS)),
            }
            found = {name: each.result() for name, each in running.items()}
    for name, shares in found.items():
        print(f"request {name} {shares.cpu:.3f} of the quota by CPU time, {shares.waited:.3f} by time of the client")
        assert shares.cpu <= 1 + (2 if name == "odradek" else 5) * TOLERANCE, found
        assert shares.waited >= 1 - TOLERANCE, found
