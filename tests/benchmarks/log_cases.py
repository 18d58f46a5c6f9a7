"""The cases of a broker over existing logs: its start after a clean stop, its start with everything to recover, and
compaction.

One directory serves both brokers in turn, over one ZooKeeper, so both find the same bytes in the same state of the
system's cache. It is filled once: a broker creates a topic, and while no broker runs every partition gets a copy of one
segment of 1 KB records in 16 KB batches by an idempotent producer, as clients write by default.

The clock runs from the start of the process until the broker leads every partition and returns its end offset, which
must be the one of the filled log. For a recovery the clean shutdown file and the recovery points are removed before the
start, so that every byte is to be checked. Both may use a thread, or process, for each core.

A compaction begins when the topic's dirty ratio is lowered beside a broker that serves, and ends when the checkpoint
covers all closed segments; each round begins with the same files, and has to leave as many records as there are keys.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final, Literal

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.batch import Header, Record, build
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.ready_process import OWN_COMMAND
from odradek.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.disk import Folder, OsDisk
from odradek.storage.log import Log
from odradek.storage.segment import Segment
from odradek.wire import Wire, parse_address
from tests.benchmarks import usage
from tests.benchmarks.cases import TOOL_START_S
from tests.benchmarks.cluster_cases import Measure
from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.contestants import PROPERTIES
from tests.benchmarks.picking import pick_from
from tests.benchmarks.rounds import MB, Failure, Say
from tests.jvm.kafka import STOCK_JVM, Kafka
from tests.registry.zookeeper_server import ZooKeeperServer

NAMES: Final = ("kafka", "odradek")
TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.05
_RECORD_BYTES: Final = 1024
_RECORDS_IN_A_BATCH: Final = 16
_LEAST_PARTITIONS: Final = 2
_LATEST: Final = -1
_SEGMENT_BYTES: Final = 100_000_000
_SMALL_RECORD_BYTES: Final = 100
_SMALL_RECORDS_IN_A_BATCH: Final = 150

MEASURES: Final = (
    Measure("ready_s", "s to a leader for everything", 2, largest=1.0),
    Measure("cpu_s", "CPU s of that", 2),
    Measure("resident_mb", "resident MB", 0),
)


COMPACTION_MEASURES: Final = (
    Measure("clean_s", "s to a clean log", 2, largest=1.0),
    Measure("cpu_s", "CPU s of that", 2, largest=0.5),
    Measure("records_a_second", "records a second", 0),
)


@dataclass(frozen=True, slots=True)
class LogCase:
    """A number of partitions of a number of bytes. `expected_s` estimates the length of a round.

    A compaction has one partition of `records` records of 100 bytes, compressed with `codec`, whose keys are drawn from
    `keys`.
    """

    name: str
    title: str
    kind: Literal["clean", "recovery", "compaction"]
    partitions: int
    partition_bytes: int
    expected_s: float
    measures: tuple[Measure, ...] = MEASURES
    records: int = 0
    keys: int = 0
    codec: int = 0

    def scaled(self, factor: float) -> LogCase:
        """The same with `factor` times the partitions, or records and keys."""
        if self.kind == "compaction":
            records, keys = (max(10_000, round(each * factor)) for each in (self.records, self.keys))
            return replace(self, records=records, keys=keys, expected_s=TOOL_START_S + self.expected_s * factor)
        partitions = max(_LEAST_PARTITIONS, round(self.partitions * factor))
        expected_s = TOOL_START_S + (self.expected_s - TOOL_START_S) * partitions / self.partitions
        return replace(self, partitions=partitions, expected_s=expected_s)

    @property
    def amount(self) -> str:
        """The size in words."""
        if self.kind == "compaction":
            return f"{self.records:,} records of {self.keys:,} keys"
        return f"{self.partitions:,} partitions, {self.partitions * self.partition_bytes / 1e9:.1f} GB"


LOG_CASES: tuple[LogCase, ...] = (
    LogCase("start-2000", "start after a clean stop", "clean", 2_000, 5_000_000, 60),
    LogCase("recovery-5g", "start with everything to recover", "recovery", 50, 100_000_000, 90),
    *(
        LogCase(name, title, "compaction", 1, 0, 60, COMPACTION_MEASURES, 5_000_000, 1_000_000, codec)
        for name, title, codec in (
            ("compact", "compaction, 100 B records", Codec.NONE),
            ("compact-lz4", "compaction, 100 B records, lz4", Codec.LZ4),
        )
    ),
)


def pick(names: Sequence[str]) -> tuple[list[LogCase], list[str]]:
    """The cases of these names, all if there are none, and the names that are not of a case here."""
    return pick_from(LOG_CASES, names)


class LogCourse:
    """The cases, one after the other, each with both brokers in turn. The results are in `samples` and `failures`.

    Only the first round of each case begins after `budget_s`.
    """

    def __init__(self, folder: Path, names: Sequence[str], rounds: int, say: Say, *, budget_s: float) -> None:
        self.samples: list[ClusterSample] = []
        self.failures: list[Failure] = []
        self._folder = folder
        self._names = names
        self._rounds = rounds
        self._say = say
        self._deadline = time.monotonic() + budget_s

    def run(self, cases: Sequence[LogCase]) -> None:
        """Run them all. A failure is recorded and does not end the rest."""
        for case in cases:
            folder = self._folder / case.name
            folder.mkdir(parents=True)
            pair = CompactingPair(folder) if case.kind == "compaction" else Pair(folder)
            try:
                self._say(f"filling a directory: {case.amount}")
                pair.start()
                ends = pair.fill(case)
                for number in range(1, self._rounds + 1):
                    if number > 1 and time.monotonic() > self._deadline:
                        self._say(f"the time is up: {number - 1} rounds of {case.name} were counted")
                        break
                    self._round(pair, case, ends, number)
            except Exception as error:
                self._fail(case, "both", 0, error)
            finally:
                pair.close()
                shutil.rmtree(folder, ignore_errors=True)

    def _round(self, pair: Pair, case: LogCase, ends: Mapping[int, int], number: int) -> None:
        for name in self._names:
            self._say(f"round {number}, {case.name}, about {case.expected_s / 2:.0f} s: {name}")
            try:
                measured = pair.measure(name, case, ends)
            except Exception as error:
                self._fail(case, name, number, error)
            else:
                self.samples.append(ClusterSample(case.name, name, number, measured))

    def _fail(self, case: LogCase, who: str, number: int, error: Exception) -> None:
        self.failures.append(Failure(case.name, who, number, f"{type(error).__name__}: {error}"))
        self._say(f"    failed: {self.failures[-1].reason}")


class Pair:
    """Kafka and Odradek as one broker, of which one runs at a time, and their ZooKeeper. All files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._zookeeper = ZooKeeperServer(folder, folder / "zookeeper")
        connect = self._zookeeper.connect
        values = {
            **PROPERTIES,
            "broker.id": "0",
            "num.recovery.threads.per.data.dir": str(os.cpu_count() or 1),
            "log.cleaner.backoff.ms": "100",
            "zookeeper.session.timeout.ms": "10000",
        }
        self._kafka = Kafka(folder / "kafka", values, STOCK_JVM, zookeeper=connect)
        self.data_dir = self._kafka.data_dir
        address = f"PLAINTEXT://{self._kafka.bootstrap}"
        own = {"zookeeper.connect": connect, "log.dirs": str(self.data_dir), "listeners": address}
        broker = {**values, **own}
        self._odradek = BrokerProcess(folder / "odradek", broker, command=OWN_COMMAND, timeout_s=TIMEOUT_S)

    def start(self) -> None:
        """Start ZooKeeper."""
        self._zookeeper.start()

    def close(self) -> None:
        """End the processes that run."""
        self._kafka.close()
        self._odradek.discard()
        self._zookeeper.stop()

    def fill(self, case: LogCase) -> dict[int, int]:
        """Create the topic and its logs; returns the end offset of each partition."""
        self._odradek.start()
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap, "log_level": 2})
        topic = NewTopic(case.name, case.partitions, 1)
        for done in admin.create_topics([topic], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S).values():
            done.result(TIMEOUT_S)
        self._await(case, dict.fromkeys(range(case.partitions), 0))
        self._odradek.stop()
        end = copy_segments(self._folder / "one", self.data_dir, case)
        return dict.fromkeys(range(case.partitions), end)

    def measure(self, name: str, case: LogCase, ends: Mapping[int, int]) -> Mapping[str, float]:
        """Start one of the two, wait until it leads everything, and stop it."""
        if case.kind == "recovery":
            for each in (CLEAN_SHUTDOWN, RECOVERY_POINTS):
                (self.data_dir / each).unlink(missing_ok=True)
        elif not (self.data_dir / CLEAN_SHUTDOWN).exists():
            raise RuntimeError("the stop before this start was not a clean one")
        os.sync()
        server = self._kafka if name == "kafka" else self._odradek
        server.start()
        self._await(case, ends)
        measured = {
            "ready_s": usage.age_s(server.pid),
            "cpu_s": usage.cpu_seconds(server.pid),
            "resident_mb": usage.memory(server.pid).resident / MB,
        }
        server.stop()
        return measured

    def _await(self, case: LogCase, ends: Mapping[int, int]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while ends_of(self._kafka.bootstrap, case.name, case.partitions) != ends:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not every partition of {case.name} is led within {TIMEOUT_S:g} s")
            time.sleep(_POLL_S)


class CompactingPair(Pair):
    """The same for compaction."""

    def fill(self, case: LogCase) -> dict[int, int]:
        self._odradek.start()
        config = {"cleanup.policy": "compact", "segment.bytes": str(_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "1"}
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap, "log_level": 2})
        for done in admin.create_topics([NewTopic(case.name, 1, 1, config=config)]).values():
            done.result(TIMEOUT_S)
        self._await(case, {0: 0})
        self._odradek.stop()
        self._clean_to, self._kept, end = fill_for_compaction(self._folder / "one", case)
        return {0: end}

    def measure(self, name: str, case: LogCase, ends: Mapping[int, int]) -> Mapping[str, float]:
        self._lay_out(case, ends[0])
        server = self._kafka if name == "kafka" else self._odradek
        server.start()
        self._await(case, ends)
        began, cpu_s = time.monotonic(), usage.cpu_seconds(server.pid)
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap, "log_level": 2})
        down_converted = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ResourceType.TOPIC, case.name, incremental_configs=[down_converted])
        for done in admin.incremental_alter_configs([topic]).values():
            done.result(TIMEOUT_S)
        path = self.data_dir / CLEANER_OFFSETS
        while decode_offsets(path.read_bytes() or b"0\n0\n").get((case.name, 0)) != self._clean_to:
            if time.monotonic() - began > TIMEOUT_S:
                raise TimeoutError(f"{case.name} is not compacted within {TIMEOUT_S:g} s")
            time.sleep(_POLL_S / 5)
        seconds = time.monotonic() - began
        measured = {
            "clean_s": seconds,
            "cpu_s": usage.cpu_seconds(server.pid) - cpu_s,
            "records_a_second": case.records / seconds,
        }
        server.stop()
        kept = sum(each.record_count for each in _headers(self.data_dir / f"{case.name}-0"))
        if kept != self._kept:
            raise RuntimeError(f"{name} left {kept} records, not {self._kept}")
        return measured

    def _lay_out(self, case: LogCase, end: int) -> None:
        """The files as they were before any compaction."""
        folder = self.data_dir / f"{case.name}-0"
        for each in [each for each in folder.iterdir() if each.name[0].isdigit()]:
            each.unlink()
        for each in (self._folder / "one" / "one-0").iterdir():
            if each.name[0].isdigit():
                shutil.copy(each, folder / each.name)
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            path = self.data_dir / name
            path.write_bytes(encode_offsets(decode_offsets(path.read_bytes()) | {(case.name, 0): end}))
        (self.data_dir / CLEANER_OFFSETS).write_bytes(encode_offsets({}))
        os.sync()


def fill_for_compaction(scratch: Path, case: LogCase) -> tuple[int, int, int]:
    """Write a log of closed segments and a short active one; returns their end offset, how many records stay when they
    are compacted, those behind them included, and the log end offset.
    """
    now_ms = time.time_ns() // 1_000_000
    directory = Directory.open(str(scratch), DirectoryRequest(0, "scratch", now_ms))
    config = LogConfig(segment_bytes=_SEGMENT_BYTES, cleanup_policy=("compact",))
    log = directory.create_log(("one", 0), bytes(16), config, now_ms=now_ms)
    random = Random(1)
    seen: set[int] = set()
    while log.end_offset < case.records:
        keys = [random.randrange(case.keys) for _ in range(_SMALL_RECORDS_IN_A_BATCH)]
        seen.update(keys)
        _append_keys(log, keys, case, random, now_ms)
    log.roll(now_ms)
    clean_to = log.end_offset
    _append_keys(log, [0], case, random, now_ms)
    end = log.end_offset
    directory.close(now_ms=now_ms)
    return clean_to, len(seen) + 1, end


def _append_keys(log: Log, keys: Sequence[int], case: LogCase, random: Random, now_ms: int) -> None:
    noise = random.randbytes(_SMALL_RECORD_BYTES // 2).hex().encode()
    records = [
        Record(number, now_ms, b"%012d" % key, b"%06d" % number + noise[: _SMALL_RECORD_BYTES - 18])
        for number, key in enumerate(keys)
    ]
    log.append(build(records, codec=case.codec), leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)


def _headers(folder: Path) -> Iterator[Header]:
    for path in sorted(folder.glob("*.log")):
        segment = Segment(Folder(OsDisk(), str(folder)), int(path.stem), path.stat().st_size, LogConfig())
        for _, header in segment.headers():
            yield header


def ends_of(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The end offsets of the partitions that the broker leads, with one request for all."""
    asked = m.ListOffsetsRequest.ListOffsetsTopic(
        name=topic,
        partitions=[
            m.ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=_LATEST)
            for number in range(partitions)
        ],
    )
    try:
        with Wire(*parse_address(bootstrap), timeout_s=TIMEOUT_S) as wire:
            answer: m.ListOffsetsResponse = wire.ask(m.ListOffsetsRequest(replica_id=-1, topics=[asked]))
    except (OSError, ProtocolError):
        return {}  # it is starting
    return {
        each.partition_index: each.offset
        for found in answer.topics
        for each in found.partitions
        if each.error_code == ErrorCode.NONE
    }


def copy_segments(scratch: Path, data_dir: Path, case: LogCase) -> int:
    """Give every partition in a directory that no broker has open a log of `partition_bytes`; returns their end
    offsets.
    """
    now_ms = time.time_ns() // 1_000_000
    directory = Directory.open(str(scratch), DirectoryRequest(0, "scratch", now_ms))
    log = directory.create_log(("one", 0), bytes(16), LogConfig(), now_ms=now_ms)
    while log.size < case.partition_bytes:
        log.append(_batch(log.end_offset, now_ms), leader_epoch=0, now_ms=now_ms)
    end = log.end_offset
    directory.close(now_ms=now_ms)
    files = [each for each in (scratch / "one-0").iterdir() if each.name[0].isdigit()]
    for number in range(case.partitions):
        for each in files:
            shutil.copy(each, data_dir / f"{case.name}-{number}" / each.name)
    for checkpoint in (RECOVERY_POINTS, HIGH_WATERMARKS):
        path = data_dir / checkpoint
        offsets = decode_offsets(path.read_bytes()) if path.exists() else {}
        path.write_bytes(encode_offsets(offsets | {(case.name, number): end for number in range(case.partitions)}))
    shutil.rmtree(scratch)
    return end


def _batch(sequence: int, now_ms: int) -> bytes:
    value = Random(sequence).randbytes(_RECORD_BYTES)
    records = [Record(number, now_ms, None, value) for number in range(_RECORDS_IN_A_BATCH)]
    return bytes(build(records, producer_id=1000, producer_epoch=0, base_sequence=sequence))
