"""What many consumers of the same records cost: CPU seconds for a delivered GB, of the broker and of the clients.

    python -m tests.benchmarks.fanout [--consumers N] [--clients light librdkafka] [--rates MB/s …] [--megabytes N]

Each consumer reads all records of one partition, as the only member of its group would. Rate 0 is a topic that is full
before the consumers start; with any other rate a producer writes while the consumers wait for new records. `light`
consumers send a request and discard the response in the kernel; `librdkafka` consumers pass batches of messages to
Python. From the CPU seconds follows the throughput that a broker of several processes could reach at best on this
machine, where the clients need cores, too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import selectors
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from odradek.protocol import messages as m
from odradek.wire import parse_address
from tests.benchmarks.contestants import contestant
from tests.benchmarks.crowd_loads import FETCH_VERSION, batch_of, fetch_frame, produce_frame

CLIENTS: Final = ("light", "librdkafka")
RECORD_BYTES: Final = 1024
BATCH_RECORDS: Final = 16
FILLING_RECORDS: Final = 64
GB: Final = 1e9
_OFFSET: Final = 0x7A6B5C4D3E2F1A0B
_READ_AT_ONCE: Final = 1 << 20
_TIMEOUT_S: Final = 120.0
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


class Cpu(NamedTuple):
    """CPU seconds."""

    user: float
    system: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(self.user - before.user, self.system - before.system)

    @property
    def total(self) -> float:
        return self.user + self.system


class Delivered(NamedTuple):
    """One load: what arrived at all consumers, and the CPU seconds meanwhile."""

    client: str
    rate_mb: float
    gigabytes: float
    seconds: float
    broker: Cpu
    clients: Cpu
    producer: Cpu

    @property
    def best_factor(self) -> float:
        """The throughput with fetch workers as a multiple of today's, both on all cores, at best: each request costs a
        worker what it costs the broker, all cores are full, and nothing is lost by passing connections on.
        """
        return self._factor(self.broker.total)

    @property
    def free_factor(self) -> float:
        """The same with workers that use no CPU outside the kernel."""
        return self._factor(self.broker.system)

    def _factor(self, with_workers_s: float) -> float:
        cores = os.cpu_count() or 1
        others_s = self.clients.total + self.producer.total
        today_s = max(self.broker.total, (self.broker.total + others_s) / cores)
        return today_s / ((with_workers_s + others_s) / cores)

    def row(self) -> str:
        """The row of the table; CPU seconds are those for a delivered GB."""
        kinds = (self.broker.user, self.broker.system, self.clients.user, self.clients.system, self.producer.total)
        used = self.broker.total + self.clients.total + self.producer.total
        return " | ".join(
            [
                f"| {self.client}",
                f"{self.rate_mb:g}" if self.rate_mb else "stored",
                f"{self.gigabytes * 1000 / self.seconds:,.0f}",
                *(f"{each / self.gigabytes:.2f}" for each in kinds),
                f"{self.broker.total / self.seconds:.2f}",
                f"{used / self.seconds:.2f}",
                f"{self.best_factor:.2f}",
                f"{self.free_factor:.2f} |",
            ]
        )


COLUMNS: Final = (
    "clients",
    "written, MB/s",
    "delivered, MB/s",
    "broker user",
    "broker kernel",
    "clients user",
    "clients kernel",
    "producer",
    "cores, broker",
    "cores, all",
    "workers at best",
    "workers at no cost",
)


class LightConsumer:
    """A consumer that reads nothing but the number of bytes in a response."""

    def __init__(self, bootstrap: str, topic: str, batch_bytes: int, batch_records: int) -> None:
        self.offset = 0
        self.socket = socket.create_connection(parse_address(bootstrap))
        self._request = bytearray(fetch_frame(topic, _OFFSET, 0, -1))
        self._offset_at = self._request.index(_OFFSET.to_bytes(8, "big"))
        self._head = bytearray(_head_bytes(topic))
        self._batch = (batch_bytes, batch_records)
        self._filled = self._records = self._left = 0
        self._discarded = bytearray(_READ_AT_ONCE)
        self.ask()

    def ask(self) -> None:
        """Send the next request."""
        at = self._offset_at
        self._request[at : at + 8] = self.offset.to_bytes(8, "big")
        self._filled = 0
        self.socket.sendall(self._request)

    def read(self) -> None:
        """Read what has arrived; at the end of a response, ask for the next records."""
        head = self._head
        if self._filled < len(head):
            self._filled += self.socket.recv_into(memoryview(head)[self._filled :])
            if self._filled < len(head):
                return
            self._left = self._records = max(0, int.from_bytes(head[-4:], "big", signed=True))
        if self._left:
            size = min(self._left, len(self._discarded))
            try:
                self._left -= self.socket.recv_into(self._discarded, size, socket.MSG_TRUNC | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
        if not self._left:
            batch_bytes, batch_records = self._batch
            self.offset += self._records // batch_bytes * batch_records
            self.ask()


def _head_bytes(topic: str) -> int:
    """The size of a response before its records, with its length."""
    partition = m.FetchResponse.PartitionData(aborted_transactions=None, records=b"")
    answered = m.FetchResponse.FetchableTopicResponse(topic=topic, partitions=[partition])
    return 8 + len(m.FetchResponse(responses=[answered]).encode(FETCH_VERSION))


def consume_lightly(bootstrap: str, topic: str, consumers: int, records: int, batch: tuple[int, int]) -> None:
    """Read all records with each of the consumers, in one thread."""
    ready = selectors.DefaultSelector()
    for _ in range(consumers):
        each = LightConsumer(bootstrap, topic, *batch)
        ready.register(each.socket, selectors.EVENT_READ, each)
    left = consumers
    while left:
        for key, _ in ready.select(_TIMEOUT_S):
            key.data.read()
            if key.data.offset >= records:
                ready.unregister(key.data.socket)
                key.data.socket.close()
                left -= 1


def consume_with_librdkafka(bootstrap: str, topic: str, consumers: int, records: int, _: tuple[int, int]) -> None:
    """The same with a thread for each consumer."""

    def consume(number: int) -> None:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"fanout-{number}", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        while seen < records:
            seen += len(consumer.consume(1_000, 0.5))
        consumer.close()

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(consumers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def produce(bootstrap: str, topic: str, records: int, batch_records: int, rate_mb: float) -> None:
    """Write the records, each batch when it is due, or all at once for rate 0; one request is in flight."""
    sent = produce_frame(topic, 0, batch_of(batch_records, RECORD_BYTES))
    with socket.create_connection(parse_address(bootstrap)) as connection:
        began = time.monotonic()
        for number in range(records // batch_records):
            if rate_mb:
                due = began + number * batch_records * RECORD_BYTES / (rate_mb * 1e6)
                time.sleep(max(0.0, due - time.monotonic()))
            connection.sendall(sent)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            connection.recv(size, socket.MSG_WAITALL)


def _in_process(work: Callable[..., None], *arguments: Any) -> Callable[[], Cpu]:
    """Run `work` in a process; the returned function waits for its end and returns the CPU seconds of the work."""
    ours, theirs = multiprocessing.Pipe()
    # Not forked: librdkafka's threads in this process may hold a lock, which no thread would release in the copy.
    process = multiprocessing.get_context("spawn").Process(target=_measured, args=(theirs, work, *arguments))
    process.start()

    def joined() -> Cpu:
        if not ours.poll(_TIMEOUT_S):
            process.terminate()
            raise TimeoutError(f"{work.__name__} did not end")
        used: Cpu = ours.recv()
        process.join()
        return used

    return joined


def _measured(result: Connection, work: Callable[..., None], *arguments: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    work(*arguments)
    after = resource.getrusage(resource.RUSAGE_SELF)
    result.send(Cpu(after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime))


def broker_cpu(pid: int) -> Cpu:
    """The CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Cpu(int(fields[11]) / _TICKS_A_SECOND, int(fields[12]) / _TICKS_A_SECOND)


def measure(one: Any, topic: str, client: str, consumers: int, rate_mb: float, megabytes: float) -> Delivered:
    """One load on a broker that runs. `megabytes` are those that each consumer reads."""
    batch_records = BATCH_RECORDS if rate_mb else FILLING_RECORDS
    records = max(1, round(megabytes * 1e6 / RECORD_BYTES / batch_records)) * batch_records
    one.make_topic(topic, 1)
    work = consume_lightly if client == "light" else consume_with_librdkafka
    if not rate_mb:
        produce(one.bootstrap, topic, records, batch_records, 0)
    batch = (len(batch_of(batch_records, RECORD_BYTES)), batch_records)
    before, began = broker_cpu(one.pid), time.monotonic()
    consumed = _in_process(work, one.bootstrap, topic, consumers, records, batch)
    produced = _in_process(produce, one.bootstrap, topic, records, batch_records, rate_mb) if rate_mb else None
    clients = consumed()
    producer = produced() if produced is not None else Cpu(0, 0)
    seconds, broker = time.monotonic() - began, broker_cpu(one.pid).since(before)
    one.drop_topic(topic)
    delivered = records * RECORD_BYTES * consumers / GB
    return Delivered(client, rate_mb, delivered, seconds, broker, clients, producer)


def report(measured: Sequence[Delivered]) -> str:
    """The table: for each kind of load the round with the median CPU of all processes."""
    rows = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for client, rate_mb in dict.fromkeys((each.client, each.rate_mb) for each in measured):
        same = [each for each in measured if (each.client, each.rate_mb) == (client, rate_mb)]
        costs = [(each.broker.total + each.clients.total + each.producer.total) / each.gigabytes for each in same]
        rows.append(same[costs.index(statistics.median_low(costs))].row())
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    """Run the loads, the kinds in turn, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fanout")
    parser.add_argument("--consumers", type=int, default=20)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=CLIENTS)
    parser.add_argument("--rates", nargs="+", type=float, default=[0, 5, 20])
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    measured: list[Delivered] = []
    with tempfile.TemporaryDirectory(prefix="fanout-") as name:
        one = contestant("odradek", Path(name) / "broker")
        try:
            one.start()
            for number in range(options.rounds):
                for client in options.clients:
                    for rate_mb in options.rates:
                        topic = f"{client}-{rate_mb:g}-{number}"
                        measured.append(measure(one, topic, client, options.consumers, rate_mb, options.megabytes))
                        print(measured[-1].row(), f"load average {os.getloadavg()[0]:.1f}", flush=True)
        finally:
            one.close()
    print(report(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
