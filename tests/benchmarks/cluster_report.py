"""The report on the clusters and on starts over full directories: a row for each measure, with its ratio to Kafka's and
its goal; as a table and as JSON.

A ratio compares rounds of the same number; shown are its median and, in brackets, the least and the largest.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.benchmarks.cluster_cases import ClusterCase, Measure
from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.crowd_cases import CrowdCase
from tests.benchmarks.log_cases import LogCase
from tests.benchmarks.report import MARKS, Goal, Ratio, ratio_goal
from tests.benchmarks.request_cases import RequestCase
from tests.benchmarks.rounds import Failure
from tests.benchmarks.spark_cases import SparkCase

AnyCase = ClusterCase | LogCase | CrowdCase | RequestCase | SparkCase

_OURS, _RIVAL = "odradek", "kafka"


@dataclass(frozen=True, slots=True)
class ClusterResults:
    """All measurements. `start_s` are seconds until three brokers have each other in their metadata."""

    cases: Sequence[AnyCase]
    samples: Sequence[ClusterSample]
    failures: Sequence[Failure]
    start_s: Mapping[str, float]

    def median(self, case: str, contestant: str, key: str) -> float | None:
        """The median of a measure over the rounds; None where nothing was measured."""
        values = self._by_round(case, contestant, key).values()
        return statistics.median(values) if values else None

    def ratio(self, case: str, key: str) -> Ratio | None:
        """Odradek's value over Kafka's, round by round; None where no round has both."""
        theirs = self._by_round(case, _RIVAL, key)
        ours = self._by_round(case, _OURS, key)
        ratios = [value / theirs[number] for number, value in ours.items() if theirs.get(number)]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None

    def _by_round(self, case: str, contestant: str, key: str) -> dict[int, float]:
        return {
            sample.round: sample.measured[key]
            for sample in self.samples
            if (sample.case, sample.contestant) == (case, contestant)
        }


def goal(results: ClusterResults, case: AnyCase, measure: Measure) -> Goal | None:
    """The goal of a measure and whether it is met; None where there is no goal."""
    if measure.least is None and measure.largest is None:
        return None
    ratio = results.ratio(case.name, measure.key)
    return ratio_goal(case.name, measure.title, ratio, least=measure.least, largest=measure.largest)


def table(results: ClusterResults, heading: str = "three brokers") -> str:
    """The report for the terminal."""
    lines = ["", f"{heading:<32}{'kafka':>10}{'odradek':>10}  {'ratio':<22}{'goal':<9}"]
    for case in results.cases:
        lines.append(f"{case.name}: {case.title}, {case.amount}")
        lines += [_row(results, case, measure) for measure in case.measures]
    if results.start_s:
        seconds = ", ".join(f"{name} {value:.2f} s" for name, value in results.start_s.items())
        lines += ["", f"start until all three know each other: {seconds}"]
    for failure in results.failures:
        lines += ["", f"FAILED {failure.case}, round {failure.round}, {failure.contestant}: {failure.reason}"]
    return "\n".join(lines)


def _row(results: ClusterResults, case: AnyCase, measure: Measure) -> str:
    values = "".join(_cell(results.median(case.name, name, measure.key), measure.digits) for name in (_RIVAL, _OURS))
    ratio = results.ratio(case.name, measure.key)
    wanted = goal(results, case, measure)
    verdict = "" if wanted is None else f"{_limit(measure):<9}{MARKS[wanted.met]}"
    return f"    {measure.title:<28}{values}  {'-' if ratio is None else str(ratio):<22}{verdict}".rstrip()


def _cell(value: float | None, digits: int) -> str:
    return f"{'-':>10}" if value is None else f"{value:>10,.{digits}f}"


def _limit(measure: Measure) -> str:
    return f">= {measure.least:.2f}" if measure.least is not None else f"<= {measure.largest:.2f}"


def as_json(results: ClusterResults) -> dict[str, object]:
    """All samples and goals, for results.json."""
    goals = [found for case in results.cases for measure in case.measures if (found := goal(results, case, measure))]
    return {
        "cases": [asdict(case) for case in results.cases],
        "start_s": dict(results.start_s),
        "samples": [asdict(sample) for sample in results.samples],
        "failures": [asdict(failure) for failure in results.failures],
        "goals": [found._asdict() for found in goals],
    }
