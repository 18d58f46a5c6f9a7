"""Stalls: how long a lone client waits while a broker with 2,000 partitions works for others.

One process writes BYTES_PER_S in batches of BATCH_BYTES, to one partition after the other: half of them are compacted,
and the others drop old segments. So all partitions roll and are cleaned or shortened while the broker writes its
checkpoints. A lone client writes a record every INTERVAL_S, and another reads it with long polls: its latency is the
time from the one to the other. The broker records the cause of each stall of its loop (`stalls_seam/sitecustomize.py`):
the broker does not cause a stall in which its thread waited for a processor that other programs had.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.ready_process import HOST, OWN_COMMAND
from odradek.wire import Wire
from tests.benchmarks.partitions_load import COMPACTED, PRODUCE, SHORTENED, TIME_MS, produce_request

PARTITIONS: Final = 1_000
"""Of each of the two topics."""
INTERVAL_S: Final = 0.02
LONGEST_STALL_S: Final = 0.02
LOG: Final = {
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.5",
    "retention.bytes": "1048576",
    "file.delete.delay.ms": "1000",
}
PROPERTIES: Final = {"log.retention.check.interval.ms": "5000", "log.flush.offset.checkpoint.interval.ms": "10000"}
LONE: Final = "lone"
FETCH, CREATE_TOPICS = 11, 5

SEAM: Final = Path(__file__).parent / "stalls_seam"
"""The broker imports `sitecustomize.py` of this folder, which records the causes of its stalls."""
CAUSES_SHOWN: Final = 20
NO_SAMPLE: Final = "no sample"
LOCK_WAITS: Final = ("futex", "exit_to_user_mode", "irqentry_exit", "generic_perform_write", "?")
"""Beginnings of a stack whose thread waits for the interpreter lock, or ran or waited for a processor: the kernel may
take the processor away at the end of a call or an interrupt, and between two pages of a write.
"""
_BUCKET: Final = re.compile(r'odradek_event_loop_stall_seconds_bucket\{le="([^"]+)"\} (\S+)')


class MeasuredBroker(BrokerProcess):
    """A broker with a page of metrics, without which it does not measure its loop."""

    def __init__(self, folder: Path) -> None:
        self._stalls_path = folder / "stalls"
        environment = {"PYTHONPATH": str(SEAM), "ODRADEK_TEST_STALLS": str(self._stalls_path)}
        super().__init__(folder, PROPERTIES, command=OWN_COMMAND, environment=environment)
        self._page = f"{HOST}:{free_port(HOST)}"

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), f"--metrics={self._page}"]

    def stalls(self) -> list[tuple[float, int]]:
        """Upper bounds in seconds, and how many stalls of the loop were no longer, since the start."""
        with urllib.request.urlopen(f"http://{self._page}/metrics", timeout=30) as page:
            text = page.read().decode()
        return [(float(bound), int(float(count))) for bound, count in _BUCKET.findall(text)]

    def causes(self) -> list[Cause]:
        """The stalls over 10 ms that have ended, as a timer every 5 ms has measured them."""
        lines = self._stalls_path.read_text().splitlines(keepends=True)
        return [Cause.read(line) for line in lines if line.endswith("\n")]


class Cause(NamedTuple):
    """A stall of the loop and its cause, in ms: `ran` of the thread itself, `queued` for a processor that others had,
    the same of the other threads of the broker, `stolen` by the host of a virtual machine from all processors, in steps
    of 10, and that of collections of reference cycles.
    """

    at_s: float
    late_ms: float
    ran_ms: float
    queued_ms: float
    threads_ran_ms: float
    thread_queued_ms: float
    stolen_ms: int
    collections_ms: float
    stack: str

    @classmethod
    def read(cls, line: str) -> Cause:
        """From a line of `stalls_seam/sitecustomize.py`."""
        row = json.loads(line)
        stacks = row["stacks"]
        most = max(stacks, key=stacks.__getitem__, default=NO_SAMPLE)
        threads = ("threads_cpu_ms", "thread_queued_ms")
        times = ("at", "late_ms", "cpu_ms", "queued_ms", *threads, "stolen_ms", "collections_ms")
        return cls(*(row[name] for name in times), stack=most)

    @property
    def is_of_others(self) -> bool:
        """Whether others had the processors for so long that the rest is no longer than LONGEST_STALL_S.

        Where the loop waited for the interpreter lock, a thread that waited for a processor may have held it.
        """
        others = max(self.queued_ms, self.stolen_ms)
        if self.stack == NO_SAMPLE or self.stack.startswith(LOCK_WAITS):
            others = max(others, self.queued_ms + self.thread_queued_ms)
        return self.late_ms - others <= LONGEST_STALL_S * 1000

    def __str__(self) -> str:
        times = f"{self.late_ms:.0f} ms: ran {self.ran_ms:.0f}, queued {self.queued_ms:.0f}, stolen {self.stolen_ms}"
        threads = f"threads ran {self.threads_ran_ms:.0f}, queued {self.thread_queued_ms:.0f} at most"
        threads += f", collections {self.collections_ms:.0f}"
        return f"  {times}, {threads}, at {self.stack.split(' || ')[0][:400]}"


class LoneClient:
    """Writes records and reads them, in two threads, while the `with` block runs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ended = threading.Event()
        self._sent: dict[int, float] = {}
        self._threads = [threading.Thread(target=each) for each in (self._write, self._read)]
        self._error: Exception | None = None
        self.waits_ms: list[float] = []

    def __enter__(self) -> LoneClient:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        try:
            with Wire(HOST, self._port, 60) as wire:
                while not self._ended.wait(INTERVAL_S):
                    began = time.perf_counter()
                    answer = wire.ask(_produce(LONE, 0, b"x"), PRODUCE).responses[0].partition_responses[0]
                    if answer.error_code:
                        raise RuntimeError(f"the lone client received the error {answer.error_code}")
                    self._sent[answer.base_offset] = began
        except Exception as error:
            self._error = error

    def _read(self) -> None:
        try:
            with Wire(HOST, self._port, 60) as wire:
                offset = 0
                while not self._ended.is_set():
                    found = wire.ask(_fetch(offset), FETCH).responses[0].partitions[0]
                    now = time.perf_counter()
                    for offset in range(offset, found.high_watermark):  # noqa: B020  # one record in each batch
                        began = self._sent.pop(offset, now)  # not in it where its response has not arrived yet
                        self.waits_ms.append((now - began) * 1000)
                    offset = max(offset, found.high_watermark)
        except Exception as error:
            self._error = error


def stalls(minutes: float, seed: int) -> int:
    """Prints the latencies of the lone client and the stalls of the loop; 1 if the broker caused one of over 20 ms."""
    del seed  # nothing is drawn
    with tempfile.TemporaryDirectory(prefix="odradek-soak-") as folder:
        broker = MeasuredBroker(Path(folder))
        with broker:
            return _measure(broker, minutes)


def _measure(broker: MeasuredBroker, minutes: float) -> int:
    _create_topics(broker.port)
    before, began_s = dict(broker.stalls()), time.time()
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.partitions_load",
        str(broker.port),
        str(minutes * 60),
        str(PARTITIONS),
    ]
    with LoneClient(broker.port) as client, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        for line in load.stdout:
            print(line.strip(), flush=True)
    if load.returncode:
        return 1
    ended_s = time.time()
    found = [(bound, count - before[bound]) for bound, count in broker.stalls()]
    waits = sorted(client.waits_ms)
    print(f"lone client, {len(waits):,} records, ms: median {waits[len(waits) // 2]:.1f}, " + _high(waits))
    counts = [(bound, count - lower) for (bound, count), lower in zip(found, [0, *(n for _, n in found)], strict=False)]
    print("stalls of the loop: " + ", ".join(f"{count} to {bound * 1000:g} ms" for bound, count in counts if count))
    return _judge([each for each in broker.causes() if began_s <= each.at_s <= ended_s])


def _judge(causes: list[Cause]) -> int:
    """Print the stalls over 20 ms, the longest first; 1 if the broker itself caused one."""
    long = sorted((each for each in causes if each.late_ms > LONGEST_STALL_S * 1000), key=lambda each: -each.late_ms)
    own = [each for each in long if not each.is_of_others]
    print(f"stalls over {LONGEST_STALL_S * 1000:g} ms: {len(long)}, of these caused by the broker: {len(own)}")
    for each in own[:CAUSES_SHOWN]:
        print(each)
    return int(bool(own))


def _high(waits: list[float]) -> str:
    high = (0.99, 0.999)
    return ", ".join(f"p{100 * part:g} {waits[int(part * len(waits))]:.1f}" for part in high) + f", max {waits[-1]:.1f}"


def _create_topics(port: int) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic
    config = m.CreateTopicsRequest.CreatableTopicConfig

    def configs(policy: str) -> list[m.CreateTopicsRequest.CreatableTopicConfig]:
        return [config(name=name, value=value) for name, value in {**LOG, "cleanup.policy": policy}.items()]

    topics = [
        topic(name=COMPACTED, num_partitions=PARTITIONS, replication_factor=1, configs=configs("compact")),
        topic(name=SHORTENED, num_partitions=PARTITIONS, replication_factor=1, configs=configs("delete")),
        topic(name=LONE, num_partitions=1, replication_factor=1),
    ]
    with Wire(HOST, port, 120) as wire:
        for each in topics:
            answer = wire.ask(m.CreateTopicsRequest(topics=[each], timeout_ms=100_000), CREATE_TOPICS)
            if answer.topics[0].error_code:
                raise RuntimeError(f"topic {each.name} was not created: {answer.topics[0]}")


def _produce(topic: str, partition: int, value: bytes) -> m.ProduceRequest:
    return produce_request(topic, partition, bytes(build([Record(0, TIME_MS, None, value)])))


def _fetch(offset: int) -> m.FetchRequest:
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return m.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[m.FetchRequest.FetchTopic(topic=LONE, partitions=[partition])],
    )
