"""How clusters are measured: one cluster after the other, each started once and put through all cases and rounds; or,
with --in-turn, all clusters at once, which take turns in every round.

A cluster is not restarted for each round, because a JVM needs about a minute to get warm. Before a load the disk is
given time to write what is still dirty (`sync`); around it stand readings of the CPU clocks of all brokers; after it
every broker's log is read and must hold what was sent. The first load warms up and is not counted: three JVMs, each
with a third of the work, need more of it than one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import coordinator_loads, failover, logs, perf_tools
from tests.benchmarks.cluster_cases import REPLICAS, WARMED_UP, ClusterCase
from tests.benchmarks.clusters import TIMEOUT_S, Cluster
from tests.benchmarks.rounds import GB, MB, Failure, Progress, Say

_START_S = 10.0  # a guess, for the progress lines
_FOLDER_POLL_S = 0.1

Beside = Callable[[Cluster], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """One round of a case; `measured` are its measures by their keys."""

    case: str
    contestant: str
    round: int
    measured: Mapping[str, float]


class ClusterCourse:
    """The cases, run by one cluster after the other. The results are in `samples`, `failures` and `start_s`.

    Only the first round of each case begins after `budget_s`. `beside` gives a context in which each counted load takes
    place, for a profiler.
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
        """Start the cluster, run all cases, end it. A failure is recorded and does not end the rest."""
        self.run_in_turn([cluster])

    def run_in_turn(self, clusters: Sequence[Cluster]) -> None:
        """Start all clusters and let them take turns in every round, so that a slow minute of the machine
        affects all.
        """
        with ExitStack() as stack:
            for cluster in clusters:
                stack.callback(cluster.close)
            running = [cluster for cluster in clusters if self._start(cluster)]
            for case in self._cases if running else ():
                self._run_case(running, case)

    def _start(self, cluster: Cluster) -> bool:
        self._progress.next(f"starting three brokers: {cluster.name}", _START_S)
        try:
            self.start_s[cluster.name] = cluster.start()
        except Exception as error:
            self._fail(cluster, "start", 0, error)
            return False
        return True

    def _run_case(self, clusters: Sequence[Cluster], case: ClusterCase) -> None:
        for number in _numbers(case, self._rounds):
            if number > 1 and time.monotonic() > self._deadline:
                self._say(f"the time is up: {number - 1} rounds of {case.name} were counted")
                return
            for cluster in clusters if number % 2 else clusters[::-1]:
                self._run_round(cluster, case, number)

    def _run_round(self, cluster: Cluster, case: ClusterCase, number: int) -> None:
        label = f"round {number}" if number else "warm-up"
        self._progress.next(f"{label}, {case.name}: {cluster.name}", case.expected_s)
        try:
            measured = self._measure(cluster, case, number)
        except Exception as error:
            self._fail(cluster, case.name, number, error)
        else:
            if number:
                self.samples.append(ClusterSample(case.name, cluster.name, number, measured))

    def _measure(self, cluster: Cluster, case: ClusterCase, number: int) -> Mapping[str, float]:
        topic = f"{case.name}-{number}"
        if case.kind == "failover":
            return failover.measure(cluster, topic, failover.kill_after_s(case.size, number))._asdict()
        if case.kind == "create":
            return create(cluster, topic, case.size)
        load = transact if case.kind == "transactions" else replicate
        return load(cluster, topic, case, self._beside if number else nullcontext)

    def _fail(self, cluster: Cluster, case: str, number: int, error: Exception) -> None:
        failure = Failure(case, f"{cluster.name} x 3", number, f"{type(error).__name__}: {error}")
        self.failures.append(failure)
        self._say(f"    failed: {failure.reason}")


def expected_s(cases: Sequence[ClusterCase], rounds: int) -> float:
    """The estimated time of one cluster."""
    return _START_S + sum(case.expected_s * len(_numbers(case, rounds)) for case in cases)


def _numbers(case: ClusterCase, rounds: int) -> range:
    """The rounds of a case; round 0 warms up."""
    return range(0 if case.kind in WARMED_UP else 1, min(rounds, case.most_rounds) + 1)


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


def transact(cluster: Cluster, topic: str, case: ClusterCase, beside: Beside) -> Mapping[str, float]:
    """Make transactions of one record, one after the other, with Kafka's producer.

    Raises DishonestLogError unless every broker holds every record and a marker for each.
    """
    load = case.load
    cluster.create(topic, load.partitions)
    try:
        cluster.await_in_sync(topic, load.partitions)
        os.sync()
        with beside(cluster):
            cpu_before_s = cluster.cpu_seconds()
            outcome = coordinator_loads.transactions(load, cluster.bootstrap, topic, records_in_each=1)
            cpu_s = cluster.cpu_seconds() - cpu_before_s
        _await_markers(cluster, topic, load.records * 2, load.payload_bytes)
    finally:
        cluster.drop(topic)
    assert outcome.average_ms is not None
    assert outcome.p50_ms is not None
    assert outcome.p99_ms is not None
    return {
        "transactions_per_s": outcome.records_per_s,
        "p50_ms": outcome.p50_ms,
        "average_ms": outcome.average_ms,
        "p99_ms": outcome.p99_ms,
        "cpu_ms": cpu_s / load.records * 1000,
    }


def _await_markers(cluster: Cluster, topic: str, records: int, least_size: int) -> None:
    """Wait until the logs hold this many records: the coordinator writes the last marker after the commit has returned.

    Raises DishonestLogError when they do not after TIMEOUT_S.
    """
    began = time.monotonic()
    for node in cluster.nodes.values():
        while logs.read_topic(node.data_dir, topic).records < records and time.monotonic() - began < TIMEOUT_S:
            time.sleep(_FOLDER_POLL_S)
        logs.check_topic(node.data_dir, topic, records, least_size)


def create(cluster: Cluster, topic: str, partitions: int) -> Mapping[str, float]:
    """Create a topic of many partitions; the clock runs from the request. Raises TimeoutError."""
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
