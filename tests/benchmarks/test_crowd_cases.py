"""The benchmark of crowds: its own arithmetic, and that each load completes on both brokers. These tests time
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import cluster_report
from tests.benchmarks.cluster_report import ClusterResults
from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.crowd_cases import CROWD_CASES, CrowdCourse, pick
from tests.benchmarks.crowd_loads import percentiles

_, _, PACED, _ = CROWD_CASES


def test_pick_returns_unknown_names() -> None:
    assert pick([]) == (list(CROWD_CASES), [])
    assert pick(["latency", "paced-100mb"]) == ([PACED], ["latency"])


def test_scaling_stays_within_limits() -> None:
    assert [case.scaled(0.1).size for case in CROWD_CASES] == [1.0, 6_000, 1.0, 200]
    assert [case.scaled(1.0) for case in CROWD_CASES] == list(CROWD_CASES)
    assert [case.amount for case in CROWD_CASES] == ["10 s", "60,000 requests", "10 s", "2,000 partitions"]


def test_percentiles_are_of_the_times() -> None:
    times = [float(number) for number in range(1000, 0, -1)]
    assert percentiles(times, p50_ms=0.5, p999_ms=0.999, most=1.0) == {"p50_ms": 501, "p999_ms": 1000, "most": 1000}
    assert percentiles([3.0], p50_ms=0.5) == {"p50_ms": 3.0}


def test_the_report_has_a_row_for_each_measure() -> None:
    measured = {measure.key: 2.0 for measure in PACED.measures}
    samples = [
        ClusterSample(PACED.name, "odradek", 1, measured),
        ClusterSample(PACED.name, "kafka", 1, {**measured, "cpu_s": 8.0}),
    ]
    lines = cluster_report.table(ClusterResults([PACED], samples, [], {}), "crowds").splitlines()
    rows = {line.split("  ")[2]: line for line in lines if line.startswith("    ")}
    assert list(rows) == [measure.title for measure in PACED.measures]
    assert rows["CPU s"].split()[2:] == ["8.00", "2.00", "0.25", "[0.25-0.25]", "<=", "0.50", "pass"]


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.usefixtures("small")
def test_both_complete_tiny_crowds(tmp_path: Path) -> None:
    printed: list[str] = []
    course = CrowdCourse(tmp_path, ("kafka", "odradek"), 1, printed.append, budget_s=0, warm_up=False)
    sizes = {"idle": 1.0, "small": 1_000, "partitions": 20, "paced": 0.5}
    course.run([replace(case, size=sizes[case.kind]) for case in CROWD_CASES])
    assert course.failures == []
    assert [(each.case, each.contestant) for each in course.samples] == [
        (case.name, name) for case in CROWD_CASES for name in ("kafka", "odradek")
    ]
    for case in CROWD_CASES:
        for sample in course.samples:
            if sample.case == case.name:
                assert {measure.key for measure in case.measures} <= set(sample.measured)
    assert any(line.startswith("the pace is") or "fell behind" in line for line in printed)
    assert list(tmp_path.iterdir()) == []
