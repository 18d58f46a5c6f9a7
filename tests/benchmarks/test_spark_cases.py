"""The benchmark of the Spark jobs: its own arithmetic, and that each job completes on both brokers, untimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks import cluster_report
from tests.benchmarks.cluster_report import ClusterResults
from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.spark_cases import SPARK_CASES, SparkCourse, pick

ARCHIVE, *_ = SPARK_CASES


def test_pick_returns_unknown_names() -> None:
    assert pick([]) == (list(SPARK_CASES), [])
    assert pick(["latency", "spark-archive-1kb"]) == ([ARCHIVE], ["latency"])


def test_every_job_has_both_sizes() -> None:
    assert {(case.job, case.value_bytes) for case in SPARK_CASES} == {
        (job, size) for job in ("archive", "windows", "mirror") for size in (1_000, 100)
    }
    assert [case.scaled(0.1).records for case in SPARK_CASES[:2]] == [5_000, 20_000]


def test_the_report_has_a_row_for_each_measure() -> None:
    measured = dict.fromkeys((measure.key for measure in ARCHIVE.measures), 2.0)
    samples = [
        ClusterSample(ARCHIVE.name, "odradek", 1, {**measured, "records_per_s": 3.0}),
        ClusterSample(ARCHIVE.name, "kafka", 1, measured),
    ]
    lines = cluster_report.table(ClusterResults([ARCHIVE], samples, [], {}), "Spark jobs").splitlines()
    (row,) = [line for line in lines if "records a second" in line]
    assert row.split()[3:] == ["2", "3", "1.50", "[1.50-1.50]", ">=", "1.00", "pass"]


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.xdist_group("Spark")  # it uses the session of the process, where there is one
@pytest.mark.usefixtures("small")
def test_jobs_complete_over_tiny_topics(tmp_path: Path) -> None:
    """On one of the two: the jobs' own tests show that jobs run on both, and other benchmarks start a Kafka."""
    cases = [replace(case, records=25_000 if case.job == "windows" else 400) for case in SPARK_CASES[1::2]]
    course = SparkCourse(tmp_path, ("odradek",), 1, lambda line: None, budget_s=0, warm_up=False)
    course.run(cases)
    assert course.failures == []
    assert [(each.case, each.contestant) for each in course.samples] == [(case.name, "odradek") for case in cases]
    assert list(tmp_path.iterdir()) == []
