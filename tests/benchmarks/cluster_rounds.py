"""How clusters are measured: one cluster after the other, each started once and put through all cases and rounds.

A cluster is not started anew for each round, for a JVM needs its minute to get warm. Before a load the disk is given
time to write what is still dirty (`sync`); around it stand readings of the CPU clocks of all brokers; after it every
broker's log is read and must hold what was sent. The first load warms up and is not counted: three JVMs, whose work is
cut in three, need more of it than one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import failover, logs, perf_tools
from tests.benchmarks.cluster_cases import REPLICAS, ClusterCase
from tests.benchmarks.clusters import TIMEOUT_S, Cluster
from tests.benchmarks.rounds import GB, MB, Failure, Progress, Say

_START_S = 10.0  # a guess, for the progress lines
_FOLDER_POLL_S = 0.1

Beside = Callable[[Cluster], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """One round of a case; `figures` are its measures by their keys."""

    case: str
    contestant: str
    round: int
    figures: Mapping[str, float]


class ClusterCourse:
    """The cases, run by one cluster after the other. What was found stands in `samples`, `failures`, `start_s`.

    No round is begun after `budget_s` but the first of each case. `beside` gives a context in which each counted load
    takes place, for a profiler.
    """

    def __init__(
        self,
        cases: Sequence[ClusterCase],
        rounds: int,
        say: Say,
        *,
        expected_clusters: int,
        budget_s: float,
        beside: Beside = nullcontext,
    ) -> None:
        self.samples: list[ClusterSample] = []
        self.failures: list[Failure] = []
        self.start_s: dict[str, float] = {}
        self._cases = cases
        self._rounds = rounds
        self._say = say
        self._progress = Progress(expected_clusters * expected_s(cases, rounds), say)
        self._deadline = time.monotonic() + budget_s
        self._beside = beside

    def run(self, cluster: Cluster) -> None:
        """Start the cluster, run all cases, end it. What fails is noted and does not end the rest."""
        self._progress.next(f"starting three brokers: {cluster.name}", _START_S)
        try:
            try:
                self.start_s[cluster.name] = cluster.start()
            except Exception as error:
                self._fail(cluster, "start", 0, error)
                return
            for case in self._cases:
                self._run_case(cluster, case)
        finally:
            cluster.close()

    def _run_case(self, cluster: Cluster, case: ClusterCase) -> None:
        for number in _numbers(case, self._rounds):
            if number > 1 and time.monotonic() > self._deadline:
                self._say(f"the time is up: {number - 1} rounds of {case.name} were counted")
                return
            label = f"round {number}" if number else "warm-up"
            self._progress.next(f"{label}, {case.name}: {cluster.name}", case.expected_s)
            try:
                figures = self._measure(cluster, case, number)
            except Exception as error:
                self._fail(cluster, case.name, number, error)
            else:
                if number:
                    self.samples.append(ClusterSample(case.name, cluster.name, number, figures))

    def _measure(self, cluster: Cluster, case: ClusterCase, number: int) -> Mapping[str, float]:
        topic = f"{case.name}-{number}"
        if case.kind == "failover":
            return failover.measure(cluster, topic, failover.kill_after_s(case.size, number))._asdict()
        if case.kind == "create":
            return create(cluster, topic, case.size)
        return replicate(cluster, topic, case, self._beside if number else nullcontext)

    def _fail(self, cluster: Cluster, case: str, number: int, error: Exception) -> None:
        failure = Failure(case, f"{cluster.name} x 3", number, f"{type(error).__name__}: {error}")
        self.failures.append(failure)
        self._say(f"    failed: {failure.reason}")


def expected_s(cases: Sequence[ClusterCase], rounds: int) -> float:
    """About how long one cluster takes."""
    return _START_S + sum(case.expected_s * len(_numbers(case, rounds)) for case in cases)


def _numbers(case: ClusterCase, rounds: int) -> range:
    """The rounds of a case; 0 warms up."""
    return range(0 if case.kind == "replicated" else 1, min(rounds, case.most_rounds) + 1)


def replicate(cluster: Cluster, topic: str, case: ClusterCase, beside: Beside) -> Mapping[str, float]:
    """Write with the stock producer tool. Raises DishonestLogError unless every broker holds every record."""
    load = case.load
    cluster.create(topic, load.partitions)
    try:
        cluster.await_in_sync(topic, load.partitions)
        os.sync()
        with beside(cluster):
            cpu_before_s = cluster.cpu_seconds()
            outcome = perf_tools.produce(load, cluster.bootstrap, topic, Path())
            cpu_s = cluster.cpu_seconds() - cpu_before_s
        resident_mb = cluster.resident_bytes() / MB
        for node in cluster.nodes.values():
            logs.check_topic(node.data_dir, topic, load.records, load.payload_bytes)
    finally:
        cluster.drop(topic)
    assert outcome.average_ms is not None
    assert outcome.p99_ms is not None
    return {
        "mib_per_s": outcome.mib_per_s,
        "p99_ms": outcome.p99_ms,
        "average_ms": outcome.average_ms,
        "cpu_s_per_gb": cpu_s / load.payload_bytes * GB,
        "resident_mb": resident_mb,
    }


def create(cluster: Cluster, topic: str, partitions: int) -> Mapping[str, float]:
    """Make a topic of many partitions; the clock runs from the request. Raises TimeoutError."""
    os.sync()
    cpu_before_s = cluster.cpu_seconds()
    began = time.monotonic()
    cluster.create(topic, partitions)
    cluster.await_leaders(topic, partitions)
    led_s = time.monotonic() - began
    while (found := cluster.folders(topic)) < partitions * REPLICAS:
        if time.monotonic() - began > TIMEOUT_S:
            raise TimeoutError(f"{found} replicas of {partitions * REPLICAS} have a folder after {TIMEOUT_S:g} s")
        time.sleep(_FOLDER_POLL_S)
    placed_s = time.monotonic() - began
    return {"led_s": led_s, "placed_s": placed_s, "cpu_s": cluster.cpu_seconds() - cpu_before_s}
