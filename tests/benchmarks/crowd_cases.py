"""The cases with many at once: idle consumers, small producers, partitions, and a load at a fixed rate.

Both brokers stay up and take turns, round by round; round 0 warms up and is not counted. The loads come from one light
process (`crowd_loads`), the same for both. The broker's CPU clock is read before and after each load, and the records
written have to be in the log afterwards.

The rate is the highest of RATES_MB that both brokers sustain on this machine, found before the rounds; a broker that
falls behind would show its queue and not its latency.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from odradek.protocol import messages as m
from odradek.wire import METADATA_VERSION, Wire, parse_address
from tests.benchmarks import crowd_loads, logs, usage
from tests.benchmarks.broker_course import BrokerCourse
from tests.benchmarks.cases import TOOL_START_S
from tests.benchmarks.cluster_cases import Measure
from tests.benchmarks.contestants import Contestant, contestant
from tests.benchmarks.crowd_loads import (
    IDLE_CONSUMERS,
    PACED_BATCH_RECORDS,
    PACED_CONNECTIONS,
    PACED_RECORD_BYTES,
    RATES_MB,
    SMALL_BATCH_RECORDS,
    SMALL_PRODUCERS,
    SMALL_RECORD_BYTES,
)
from tests.benchmarks.log_cases import ends_of
from tests.benchmarks.picking import pick_from
from tests.benchmarks.rounds import MB

NAMES: Final = ("kafka", "odradek")
SMALL_PARTITIONS: Final = 20
METADATA_REQUESTS: Final = 50
LED_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.02
_WARM_UP_SHARE: Final = 0.3
_LONGEST_TRIAL_S: Final = 3.0

Kind = Literal["idle", "small", "partitions", "paced"]

LATENCIES: Final = (Measure("p50_ms", "p50 ms", 2), Measure("p99_ms", "p99 ms", 2, largest=1.0))
CPU: Final = Measure("cpu_s", "CPU s", 2, largest=0.5)
RESIDENT: Final = Measure("resident_mb", "resident MB", 0)


@dataclass(frozen=True, slots=True)
class CrowdCase:
    """One crowd. `size` is the length of the load in seconds, or of requests, or of partitions.

    `expected_s` is a guess at the length of a round of both.
    """

    name: str
    title: str
    kind: Kind
    size: float
    expected_s: float
    measures: tuple[Measure, ...]

    def scaled(self, factor: float) -> CrowdCase:
        """The same with `factor` times the size, within reason."""
        least = {"idle": 1.0, "small": 1_000, "partitions": 20, "paced": 0.5}[self.kind]
        size = max(least, self.size * factor)
        expected_s = TOOL_START_S + (self.expected_s - TOOL_START_S) * size / self.size
        return replace(self, size=size if self.kind in ("idle", "paced") else round(size), expected_s=expected_s)

    @property
    def amount(self) -> str:
        """The size in words."""
        units = {"idle": "s", "small": "requests", "partitions": "partitions", "paced": "s"}
        return f"{self.size:,} {units[self.kind]}".replace(".0 ", " ")


CROWD_CASES: tuple[CrowdCase, ...] = (
    CrowdCase(
        "idle-consumers",
        f"{IDLE_CONSUMERS} idle consumers in long polls, {crowd_loads.BESIDE_A_SECOND} records a second beside",
        "idle",
        10.0,
        30,
        (*LATENCIES, CPU, RESIDENT),
    ),
    CrowdCase(
        "small-producers",
        f"{SMALL_PRODUCERS} producers of batches of {SMALL_BATCH_RECORDS} records of {SMALL_RECORD_BYTES} B, acks=1",
        "small",
        60_000,
        20,
        (Measure("records_per_s", "records a second", 0, least=1.0), *LATENCIES, CPU, RESIDENT),
    ),
    CrowdCase(
        "paced-100mb",
        f"1 KB records at a pace over {PACED_CONNECTIONS} partitions, {PACED_BATCH_RECORDS} a batch, acks=1",
        "paced",
        10.0,
        30,
        (
            Measure("rate_mb", "MB a second", 0),
            *LATENCIES,
            Measure("p999_ms", "p99.9 ms", 2),
            CPU,
            RESIDENT,
        ),
    ),
    CrowdCase(
        "partitions-2000",
        "empty partitions: start, memory, metadata of all",
        "partitions",
        2_000,
        60,
        (
            Measure("ready_s", "s to a leader for everything", 2, largest=1.0),
            Measure("start_cpu_s", "CPU s of that", 2),
            RESIDENT,
            Measure("metadata_ms", "ms to a metadata answer", 2, largest=1.0),
            Measure("metadata_cpu_ms", "CPU ms of that", 2),
        ),
    ),
)


def pick(names: Sequence[str]) -> tuple[list[CrowdCase], list[str]]:
    """The cases of these names, all if there are none, and the names that are of no such case."""
    return pick_from(CROWD_CASES, names)


class CrowdCourse(BrokerCourse):
    """The cases, one after the other, each with all rounds."""

    def run(self, cases: Sequence[CrowdCase]) -> None:
        """Run them all. A failure is recorded and does not end the rest."""
        with self._brokers(contestant) as contestants:
            for case in cases:
                try:
                    self._run_case(case, contestants)
                except Exception as error:
                    self._fail(case.name, "both", 0, error)

    def _run_case(self, case: CrowdCase, contestants: Sequence[Contestant]) -> None:
        # The many partitions come last: they stay until the brokers end.
        rate_mb = self._common_rate(contestants, min(_LONGEST_TRIAL_S, case.size)) if case.kind == "paced" else 0
        if case.kind == "partitions":
            for each in contestants:
                self._say(f"{case.name}: making {case.amount}: {each.name}")
                each.make_topic(case.name, int(case.size))
        for number in self._rounds_in_time(case.name):
            load = case if number or case.kind == "partitions" else case.scaled(_WARM_UP_SHARE)
            if number == 0 and case.kind == "partitions":
                continue  # every round is a start
            for each in contestants:
                self._keep(case.name, each.name, number, functools.partial(measure, each, load, number, rate_mb))

    def _common_rate(self, contestants: Sequence[Contestant], seconds: float) -> float:
        """The highest rate that all sustain, in MB a second; the lowest of all, with a printed note, where none
        sustains one.
        """
        for rate_mb in RATES_MB:
            trials = {each.name: measure_paced(each, "trial", rate_mb, seconds)["held"] for each in contestants}
            if all(trials.values()):
                self._say(f"the pace is {rate_mb} MB/s")
                return rate_mb
            behind = ", ".join(name for name, held in trials.items() if not held)
            self._say(f"{rate_mb} MB/s is more than this machine allows: {behind} fell behind")
        return RATES_MB[-1]


def measure(one: Contestant, load: CrowdCase, number: int, rate_mb: float) -> Mapping[str, float]:
    """One load on one broker."""
    if load.kind == "partitions":
        return measure_partitions(one, load.name, int(load.size))
    if load.kind == "paced":
        return measure_paced(one, f"{load.name}-{number}", rate_mb, load.size)
    if load.kind == "small":
        return measure_small(one, f"{load.name}-{number}", int(load.size))
    return measure_idle(one, f"{load.name}-{number}", load.size)


def measure_idle(one: Contestant, topic: str, seconds: float) -> Mapping[str, float]:
    busy = f"{topic}-busy"
    for each in (topic, busy):
        one.make_topic(each, 1)
        _await_leaders(one, each, 1)
    cpu_s = usage.cpu_seconds(one.pid)
    measured = crowd_loads.run(crowd_loads.idle_consumers(one.bootstrap, topic, busy, seconds))
    used = _used(one, cpu_s)
    for each in (busy, topic):
        one.drop_topic(each)
    return {**measured, **used}


def measure_small(one: Contestant, topic: str, requests: int) -> Mapping[str, float]:
    one.make_topic(topic, SMALL_PARTITIONS)
    _await_leaders(one, topic, SMALL_PARTITIONS)
    os.sync()
    cpu_s = usage.cpu_seconds(one.pid)
    load = crowd_loads.small_producers(one.bootstrap, topic, SMALL_PARTITIONS, requests)
    measured = {**crowd_loads.run(load), **_used(one, cpu_s)}
    records = requests * SMALL_BATCH_RECORDS
    logs.check_topic(one.data_dir, topic, records, records * SMALL_RECORD_BYTES)
    one.drop_topic(topic)
    return measured


def measure_paced(one: Contestant, topic: str, rate_mb: float, seconds: float) -> Mapping[str, float]:
    one.make_topic(topic, PACED_CONNECTIONS)
    _await_leaders(one, topic, PACED_CONNECTIONS)
    os.sync()
    cpu_s = usage.cpu_seconds(one.pid)
    load = crowd_loads.paced(one.bootstrap, topic, rate_mb, seconds)
    measured = {**crowd_loads.run(load), **_used(one, cpu_s)}
    records = int(measured["batches"]) * PACED_BATCH_RECORDS
    logs.check_topic(one.data_dir, topic, records, records * PACED_RECORD_BYTES)
    one.drop_topic(topic)
    return {**measured, "rate_mb": rate_mb}


def measure_partitions(one: Contestant, topic: str, partitions: int) -> Mapping[str, float]:
    """A start after a clean stop, and repeated Metadata requests for everything: the time until the last byte
    arrives.
    """
    _await_leaders(one, topic, partitions)
    one.stop()
    one.start()
    _await_leaders(one, topic, partitions)
    ready_s, start_cpu_s = usage.age_s(one.pid), usage.cpu_seconds(one.pid)
    resident_mb = usage.memory(one.pid).resident / MB
    everything, times_ms = m.MetadataRequest(topics=None), []
    with Wire(*parse_address(one.bootstrap), timeout_s=LED_TIMEOUT_S) as wire:
        cpu_s = usage.cpu_seconds(one.pid)
        for _ in range(METADATA_REQUESTS):
            began = time.perf_counter()
            wire.exchange(everything, METADATA_VERSION)
            times_ms.append((time.perf_counter() - began) * 1000)
        cpu_s = usage.cpu_seconds(one.pid) - cpu_s
        answer = wire.metadata()
    found = next(len(each.partitions) for each in answer.topics if each.name == topic)
    if found != partitions:
        raise RuntimeError(f"metadata contains {found} partitions of {topic}, not {partitions}")
    return {
        "ready_s": ready_s,
        "start_cpu_s": start_cpu_s,
        "resident_mb": resident_mb,
        "metadata_ms": statistics.median(times_ms),
        "metadata_cpu_ms": cpu_s * 1000 / METADATA_REQUESTS,
    }


def _used(one: Contestant, cpu_before_s: float) -> dict[str, float]:
    return {
        "cpu_s": usage.cpu_seconds(one.pid) - cpu_before_s,
        "resident_mb": usage.memory(one.pid).resident / MB,
    }


def _await_leaders(one: Contestant, topic: str, partitions: int) -> None:
    """Wait until every partition has a leader that returns its end offset."""
    deadline = time.monotonic() + LED_TIMEOUT_S
    while len(ends_of(one.bootstrap, topic, partitions)) < partitions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not every partition of {topic} is led within {LED_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)
