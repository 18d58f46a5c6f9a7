"""`latencies`: how long each API takes beside Apache Kafka, on one broker and on three, back to back and with pauses.

The goal is Kafka's median and 99th percentile plus one millisecond: a request that Kafka answers at once must not wait
for a timer or a poll interval here. One contestant of one size runs at a time; it is started once, warms up with a part
of a round that is not counted, and goes through all rounds. Reported are medians over the rounds.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.clusters import Cluster
from tests.benchmarks.contestants import contestant
from tests.benchmarks.latency_scenarios import SCENARIOS, make_topics
from tests.benchmarks.latency_session import Session
from tests.benchmarks.rounds import Failure, Say

NAME: Final = "latencies"
NAMES: Final = ("kafka", "odradek")
SLACK_MS: Final = 1.0
PAUSE_S: Final = 0.01
PAUSED_SHARE: Final = 0.3
"""Of the repetitions, with pauses between the requests: they take several times as long."""
_WARM_UP_SHARE: Final = 0.5
_LEAST_REPETITIONS: Final = 2


class Setting(NamedTuple):
    """The conditions under which an API is measured."""

    brokers: int
    paused: bool

    def __str__(self) -> str:
        return f"{self.brokers} broker{'s' * (self.brokers > 1)}, {'with pauses' if self.paused else 'back to back'}"


SETTINGS: Final = tuple(Setting(brokers, paused) for brokers in (1, 3) for paused in (False, True))


@dataclass(frozen=True, slots=True)
class Latency:
    """The times of one API in one round: median and 99th percentile, in milliseconds, of `count` requests."""

    setting: Setting
    api: str
    contestant: str
    round: int
    count: int
    p50_ms: float
    p99_ms: float


class LatencyResults(NamedTuple):
    """All measurements and failures."""

    samples: Sequence[Latency]
    failures: Sequence[Failure]


class LatencyCourse:
    """All scenarios on both contestants. The measurements are in `samples`, the failures in `failures`.

    `scale` multiplies the repetitions. Only the first round begins after `budget_s`.
    """

    def __init__(
        self, folder: Path, names: Sequence[str], rounds: int, say: Say, *, budget_s: float, scale: float
    ) -> None:
        self.samples: list[Latency] = []
        self.failures: list[Failure] = []
        self._folder = folder
        self._names = names
        self._rounds = rounds
        self._say = say
        self._deadline = time.monotonic() + budget_s
        self._scale = scale

    def run(self, sizes: Sequence[int] = (1, 3)) -> None:
        """Measure every contestant of every size. A failure is recorded and does not end the rest."""
        for brokers in sizes:
            for name in self._names:
                try:
                    with _started(name, brokers, self._folder / f"{name}-{brokers}") as bootstrap:
                        self._rounds_of(name, brokers, bootstrap)
                except Exception as error:
                    self.failures.append(Failure(NAME, name, 0, f"{brokers} brokers: {type(error).__name__}: {error}"))
                    self._say(f"    failed: {self.failures[-1].reason}")

    def _rounds_of(self, name: str, brokers: int, bootstrap: str) -> None:
        for number in range(self._rounds + 1):
            if number > 1 and time.monotonic() > self._deadline:
                self._say(f"the time is up: {number - 1} rounds of {NAME} were counted")
                return
            for paused in (False, True) if number else (False,):
                setting = Setting(brokers, paused)
                self._say(f"{f'round {number}' if number else 'warm-up'}, {NAME}, {setting}: {name}")
                share = (PAUSED_SHARE if paused else 1.0) if number else _WARM_UP_SHARE
                times = measure(bootstrap, PAUSE_S if paused else 0.0, f"{number}-{int(paused)}", self._scale * share)
                if number:
                    self.samples += [summed_up(setting, api, name, number, found) for api, found in times.items()]


def measure(bootstrap: str, pause_s: float, label: str, scale: float) -> dict[str, list[float]]:
    """The times of every API in milliseconds, from one round of all scenarios."""
    with Session(bootstrap, pause_s) as session:
        make_topics(session)
        for name, (scenario, times) in SCENARIOS.items():
            scenario(session, f"{name}-{label}", max(_LEAST_REPETITIONS, round(times * scale)))
        return dict(session.times_ms)


def summed_up(setting: Setting, api: str, name: str, number: int, times_ms: Sequence[float]) -> Latency:
    """Median and 99th percentile of one API's times."""
    ordered = sorted(times_ms)
    p99_ms = ordered[int(len(ordered) * 0.99)]
    return Latency(setting, api, name, number, len(ordered), statistics.median(ordered), p99_ms)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One API under one setting: the medians over the rounds, as (p50, p99) in milliseconds."""

    setting: Setting
    api: str
    kafka_ms: tuple[float, float] | None
    odradek_ms: tuple[float, float] | None

    @property
    def met(self) -> bool | None:
        """Whether both percentiles are at most Kafka's plus SLACK_MS; None where one of the two was not measured."""
        if self.kafka_ms is None or self.odradek_ms is None:
            return None
        return all(ours <= theirs + SLACK_MS for ours, theirs in zip(self.odradek_ms, self.kafka_ms, strict=True))


def comparisons(samples: Sequence[Latency]) -> list[Comparison]:
    """Every API under every setting in which it was measured, in the order of the scenarios."""

    def middle(setting: Setting, api: str, name: str) -> tuple[float, float] | None:
        rounds = [each for each in samples if (each.setting, each.api, each.contestant) == (setting, api, name)]
        if not rounds:
            return None
        return statistics.median(each.p50_ms for each in rounds), statistics.median(each.p99_ms for each in rounds)

    known = dict.fromkeys((each.setting, each.api) for each in samples)
    return [Comparison(*key, *(middle(*key, name) for name in NAMES)) for key in known]


def table(results: LatencyResults) -> str:
    """The report for the terminal: p50 and p99 of both, and whether the goal is met."""
    lines, last = [], None
    for each in comparisons(results.samples):
        if each.setting != last:
            last = each.setting
            lines += ["", f"{f'latencies in ms, {last}':<42}{'kafka p50':>10}{'p99':>9}{'odradek p50':>13}{'p99':>9}"]
        cells = [f"{value:.2f}" for pair in (each.kafka_ms, each.odradek_ms) for value in pair or ()]
        if len(cells) == 4:
            theirs, ours = f"{cells[0]:>10}{cells[1]:>9}", f"{cells[2]:>13}{cells[3]:>9}"
            lines.append(f"    {each.api:<38}{theirs}{ours}  {'pass' if each.met else 'MISSED'}")
        else:
            lines.append(f"    {each.api:<38}  only one contestant: {' '.join(cells)}")
    for failure in results.failures:
        lines += ["", f"FAILED {failure.case}, {failure.contestant}: {failure.reason}"]
    return "\n".join(lines)


def as_json(results: LatencyResults) -> dict[str, object]:
    """All samples, for results.json."""
    return {name: [asdict(each) for each in found] for name, found in results._asdict().items()}


@contextmanager
def _started(name: str, brokers: int, folder: Path) -> Iterator[str]:
    """The address of a contestant of that size, which ends with the context, its files with it."""
    if brokers == 1:
        folder.mkdir()
    one = contestant(name, folder) if brokers == 1 else Cluster(name, folder)
    try:
        one.start()
        yield one.bootstrap
    finally:
        one.close()
        shutil.rmtree(folder, ignore_errors=True)
