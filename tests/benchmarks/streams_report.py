"""The report on the stream applications: a row for each contestant of a case, then the goals; as a table and as JSON.

Shown is the median over the rounds. CPU is that of the application alone, not of the broker, which works beside it on
the same machine; where other work runs, too, records per second of CPU are more reliable than records per second.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.report import MARKS, Goal
from tests.benchmarks.rounds import Failure
from tests.benchmarks.streams_cases import JAVA, OURS, OWN, TIMES, StreamsCase

_CPU: Final = "cpu_s_per_million"


@dataclass(frozen=True, slots=True)
class StreamsResults:
    """All measurements; `broker` is the one that served."""

    broker: str
    cases: Sequence[StreamsCase]
    samples: Sequence[ClusterSample]
    failures: Sequence[Failure]
    left_out: Sequence[str] = ()
    """Runs that were skipped because the time was up."""

    def median(self, case: str, contestant: str, key: str) -> float | None:
        """The median of a measure over the rounds; None where nothing was measured."""
        values = [
            sample.measured[key] for sample in self.samples if (sample.case, sample.contestant) == (case, contestant)
        ]
        return statistics.median(values) if values else None


def goals(results: StreamsResults) -> list[Goal]:
    """Goals of Odradek's applications; `met` is None where the rival was not measured."""
    found: list[Goal] = []
    for case in results.cases:
        ours = results.median(case.name, OURS, "records_per_s")
        if ours is None:
            continue
        if case.goal is not None:
            found.append(Goal(case.name, f">= {case.goal:,} rec/s", f"{ours:,.0f}", ours >= case.goal))
        cpu_s = results.median(case.name, OURS, _CPU)
        for rival, times in TIMES.items():
            if rival in case.contestants:
                found.append(_ratio(case, "CPU", times, rival, results.median(case.name, rival, _CPU), cpu_s))
        own_cpu_s = results.median(case.name, OWN, _CPU)
        if own_cpu_s is not None:
            for rival, times in TIMES.items():
                theirs = results.median(case.name, rival, _CPU)
                if theirs is not None:
                    found.append(_ratio(case, f"CPU, {OWN}", times, rival, theirs, own_cpu_s))
    return found


def _ratio(case: StreamsCase, what: str, times: float, rival: str, theirs: float | None, cpu_s: float | None) -> Goal:
    reached = f"{theirs / cpu_s:.1f}" if theirs is not None and cpu_s else "not measured"
    met = theirs >= times * cpu_s if theirs is not None and cpu_s else None
    return Goal(case.name, f">= {times:g} times {rival} ({what})", reached, met)


def table(results: StreamsResults) -> str:
    """The report for the terminal."""
    lines = [
        "",
        f"streams, broker: {results.broker}",
        f"{'case':<28}{'':<9}{'rec/s':>10}{'to Java':>9}{'rec/CPU s':>11}{'to Java':>9}{'CPU s/M':>9}{'RSS MB':>8}",
    ]
    for case in results.cases:
        lines.append(f"{case.name}: {case.title}, {case.amount}")
        for name in case.contestants:
            rate = results.median(case.name, name, "records_per_s")
            cpu_s = results.median(case.name, name, _CPU)
            resident = results.median(case.name, name, "resident_mb")
            if rate is None or cpu_s is None or resident is None:
                continue
            rate_ratio, cpu_ratio = (
                _to_java(results, case, "records_per_s", rate),
                _to_java(results, case, _CPU, cpu_s, inverse=True),
            )
            a_cpu_s = 1_000_000 / cpu_s if cpu_s else 0.0
            lines.append(
                f"{'':<28}{name:<9}{rate:>10,.0f}{rate_ratio:>9}{a_cpu_s:>11,.0f}{cpu_ratio:>9}{cpu_s:>9,.1f}{resident:>8,.0f}"
            )
    reached = goals(results)
    if reached:
        lines += ["", f"{'goal of':<28}{'what':<30}{'reached':<22}"]
        lines += [f"{goal.case:<28}{goal.text:<30}{goal.reached:<22}{MARKS[goal.met]}" for goal in reached]
    if results.left_out:
        lines += ["", f"left out, for the time was up (--minutes): {', '.join(results.left_out)}"]
    for failure in results.failures:
        lines += ["", f"FAILED {failure.case}, round {failure.round}, {failure.contestant}: {failure.reason}"]
    return "\n".join(lines)


def _to_java(results: StreamsResults, case: StreamsCase, key: str, value: float, inverse: bool = False) -> str:
    theirs = results.median(case.name, JAVA, key)
    if not theirs or not value:
        return "-"
    return f"{theirs / value if inverse else value / theirs:.2f}"


def as_json(results: StreamsResults) -> dict[str, object]:
    """All samples and goals, for results.json."""
    return {
        "broker": results.broker,
        "cases": [asdict(case) for case in results.cases],
        "samples": [asdict(sample) for sample in results.samples],
        "failures": [asdict(failure) for failure in results.failures],
        "left_out": list(results.left_out),
        "goals": [found._asdict() for found in goals(results)],
    }
