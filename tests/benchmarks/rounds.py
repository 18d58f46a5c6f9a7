"""How the rounds run: round by round all cases, in each case all contestants in turn, so that a slow minute of the
machine affects them alike and an early end costs rounds, not cases.

Each run has a topic of its own. Before it, the disk gets time to write what is still dirty (`sync`); the server's CPU
clock is read before and after it; then the log is read and must hold the records sent. Round 0 warms up, with fewer
records, and is not counted. A topic to consume is filled once and read in every round by a new group.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import coordinator_loads, logs, perf_tools, usage
from tests.benchmarks.cases import Case
from tests.benchmarks.contestants import Contestant
from tests.benchmarks.perf_tools import Outcome

GB = 1_000_000_000
MB = 1_000_000
_WARM_UP_SHARE = 0.3

Say = Callable[[str], None]
Beside = Callable[[Contestant], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured run. `cpu_s` are the server's seconds, `resident_mb` and `peak_mb` its memory after the run."""

    case: str
    contestant: str
    round: int
    mib_per_s: float
    records_per_s: float
    average_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    cpu_s: float
    cpu_s_per_gb: float
    resident_mb: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that gave no sample; `reason` is the last line of the tool, the server or the honesty check."""

    case: str
    contestant: str
    round: int
    reason: str


class Progress:
    """Prints the next run and an estimate of the time left, from the duration of the runs so far."""

    def __init__(self, expected_s: float, say: Say) -> None:
        self._left_s = expected_s
        self._done_s = 0.0
        self._started = time.monotonic()
        self._say = say

    def next(self, what: str, expected_s: float) -> None:
        """Announce the next run; the one before it has ended."""
        elapsed_s = time.monotonic() - self._started
        pace = elapsed_s / self._done_s if self._done_s else 1.0
        self._say(f"[{elapsed_s:4.0f} s gone, about {self._left_s * pace:4.0f} s left] {what}")
        self._left_s -= expected_s
        self._done_s += expected_s


class Course:
    """One benchmark over `contestants`, which run already. The results are in `samples` and `failures`.

    No round but the first begins if it would end after `budget_s`. `beside` gives a context in which each counted run
    takes place, for a profiler.
    """

    def __init__(
        self,
        contestants: Sequence[Contestant],
        folder: Path,
        say: Say,
        *,
        budget_s: float,
        beside: Beside = nullcontext,
    ) -> None:
        self.samples: list[Sample] = []
        self.failures: list[Failure] = []
        self._contestants = contestants
        self._text_file = folder / "events.txt"
        self._say = say
        self._deadline = time.monotonic() + budget_s
        self._beside = beside

    def run(self, cases: Sequence[Case], rounds: int) -> None:
        """Run all cases in up to `rounds` rounds. A run that fails is recorded and does not end the others."""
        progress = Progress(sum(self._expected_s(case, rounds) for case in cases), self._say)
        entrants = {case.name: self._prepare(case, progress) for case in cases}
        longest_s = 0.0
        for number in range(rounds + 1):
            began = time.monotonic()
            if number > 1 and began + longest_s > self._deadline:
                self._say(f"the time is up: {number - 1} of {rounds} rounds were counted")
                break
            for case in cases:
                load = case if number else case.scaled(_WARM_UP_SHARE)
                label = f"round {number} of {rounds}" if number else "warm-up"
                for entrant in entrants[case.name]:
                    progress.next(f"{label}, {case.name}: {entrant.name}", load.expected_s)
                    self._run_once(entrant, load, number)
            longest_s = max(longest_s, time.monotonic() - began)

    def _entrants(self, case: Case) -> list[Contestant]:
        return [one for one in self._contestants if one.name != "floor" or case.measures_floor]

    def _expected_s(self, case: Case, rounds: int) -> float:
        runs_s = rounds * case.expected_s + case.scaled(_WARM_UP_SHARE).expected_s
        fill_s = case.expected_s if case.kind == "consume" else 0.0
        return len(self._entrants(case)) * (runs_s + fill_s)

    def _prepare(self, case: Case, progress: Progress) -> list[Contestant]:
        """Create what the case needs, and return the contestants that can take part."""
        if case.text:
            perf_tools.write_text_file(self._text_file, case.record_bytes)
        entrants = self._entrants(case)
        if case.kind == "consume":
            return [one for one in entrants if self._fill(one, case, progress)]
        return entrants

    def _fill(self, entrant: Contestant, case: Case, progress: Progress) -> bool:
        progress.next(f"filling, {case.name}: {entrant.name}", case.expected_s)
        try:
            entrant.make_topic(case.name, case.partitions)
            perf_tools.produce(case, entrant.bootstrap, case.name, self._text_file)  # in plain text, also for TLS
            logs.check_topic(entrant.data_dir, case.name, case.records, case.payload_bytes)
        except Exception as error:
            self._fail(entrant, case, 0, error)
            return False
        return True

    def _run_once(self, entrant: Contestant, load: Case, number: int) -> None:
        try:
            sample = self._measure(entrant, load, number)
        except Exception as error:
            self._fail(entrant, load, number, error)
        else:
            if number:
                self.samples.append(sample)

    def _fail(self, entrant: Contestant, case: Case, number: int, error: Exception) -> None:
        failure = Failure(case.name, entrant.name, number, f"{type(error).__name__}: {error}")
        self.failures.append(failure)
        self._say(f"    failed: {failure.reason}")

    def _measure(self, entrant: Contestant, load: Case, number: int) -> Sample:
        if load.kind == "consume":
            return self._take(entrant, load, load.name, number)
        topic = f"{load.name}-{number}"
        entrant.make_topic(topic, load.partitions)
        try:
            sample = self._take(entrant, load, topic, number)
            logs.check_topic(entrant.data_dir, topic, load.stored_records, load.stored_bytes)
        finally:
            entrant.drop_topic(topic)
        return sample

    def _take(self, entrant: Contestant, load: Case, topic: str, number: int) -> Sample:
        os.sync()
        with self._beside(entrant) if number else nullcontext():
            cpu_before_s = usage.cpu_seconds(entrant.pid)
            outcome = self._drive(entrant, load, topic, number)
            cpu_s = usage.cpu_seconds(entrant.pid) - cpu_before_s
        memory = usage.memory(entrant.pid)
        if outcome.records < load.records:
            raise logs.DishonestLogError(f"{outcome.records:,} records of {load.records:,} were consumed")
        return Sample(
            load.name,
            entrant.name,
            number,
            *(outcome.mib_per_s, outcome.records_per_s, outcome.average_ms, outcome.p50_ms, outcome.p99_ms),
            cpu_s,
            # A poll of the consumer ends with a whole batch, so it may have read more than the requested number of
            # records.
            cpu_s / (outcome.records * load.record_bytes) * GB,
            memory.resident / MB,
            memory.peak / MB,
        )

    def _drive(self, entrant: Contestant, load: Case, topic: str, number: int) -> Outcome:
        address, config = entrant.tls if load.tls and entrant.tls is not None else (entrant.bootstrap, None)
        if load.kind == "produce":
            return perf_tools.produce(load, address, topic, self._text_file, config)
        if load.kind == "consume":
            return perf_tools.consume(load, address, topic, f"{topic}-{number}", config)
        if load.kind == "transactions":
            return coordinator_loads.transactions(load, entrant.bootstrap, topic)
        if load.kind == "commits":
            return coordinator_loads.commits(load, entrant.bootstrap, topic)
        if load.kind == "rebalances":
            return coordinator_loads.rebalances(load, entrant.bootstrap, topic)
        return perf_tools.latency(load, entrant.bootstrap, topic)


def measure_start(contestant: Contestant, times: int) -> float:
    """Start and stop the contestant `times` times; return the median seconds to its answer. It is left running."""
    seconds = [contestant.start()]
    for _ in range(times - 1):
        contestant.stop()
        seconds.append(contestant.start())
    return statistics.median(seconds)
