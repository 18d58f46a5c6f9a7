"""The benchmark of starts: its own arithmetic, and that it fills the logs as it reports. These tests time nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from odradek.storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, decode_offsets
from odradek.storage.config import LogConfig
from odradek.storage.directory import Directory, DirectoryRequest
from tests.benchmarks import cluster_report
from tests.benchmarks.cluster_report import ClusterResults
from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.log_cases import LOG_CASES, LogCase, LogCourse, copy_segments, pick
from tests.storage.batches import TOPIC_ID

START, RECOVERY, COMPACT, _ = LOG_CASES


def test_pick_returns_unknown_names() -> None:
    assert pick([]) == (list(LOG_CASES), [])
    assert pick(["latency", "recovery-5g"]) == ([RECOVERY], ["latency"])


def test_scaling_changes_the_number_of_partitions_only() -> None:
    scaled = START.scaled(0.01)
    assert (scaled.partitions, scaled.amount) == (20, "20 partitions, 0.1 GB")
    assert replace(scaled, partitions=2_000, expected_s=START.expected_s) == START
    assert RECOVERY.scaled(0.0001).partitions == 2
    assert COMPACT.scaled(0.1).amount == "500,000 records of 100,000 keys"
    assert START.amount == "2,000 partitions, 10.0 GB"
    assert RECOVERY.amount == "50 partitions, 5.0 GB"


def test_every_partition_gets_a_log_that_opens_as_after_a_clean_stop(tmp_path: Path) -> None:
    case = replace(START, partitions=3, partition_bytes=40_000)
    request = DirectoryRequest(0, "c", 1, random=Random(1))
    directory = Directory.open(str(tmp_path / "data"), request)
    for number in range(3):
        directory.create_log((case.name, number), TOPIC_ID, LogConfig(), now_ms=1)
    directory.close(now_ms=1)
    end = copy_segments(tmp_path / "scratch", tmp_path / "data", case)
    expected = {(case.name, number): end for number in range(3)}
    for checkpoint in (RECOVERY_POINTS, HIGH_WATERMARKS):
        assert decode_offsets((tmp_path / "data" / checkpoint).read_bytes()) == expected
    directory = Directory.open(str(tmp_path / "data"), request)
    assert directory.was_clean
    assert {name: log.end_offset for name, log in directory.logs.items()} == expected
    assert all(40_000 <= log.size < 60_000 and log.producers.get(1000) for log in directory.logs.values())
    directory.close(now_ms=1)


def test_the_report_has_a_row_for_each_measure() -> None:
    measured = {"ready_s": 4.0, "cpu_s": 3.0, "resident_mb": 60.0}
    samples = [
        ClusterSample("start-2000", "odradek", 1, measured),
        ClusterSample("start-2000", "kafka", 1, {**measured, "ready_s": 8.0}),
    ]
    results = ClusterResults([START], samples, [], {})
    lines = cluster_report.table(results, "starts").splitlines()
    assert lines[1].split() == ["starts", "kafka", "odradek", "ratio", "goal"]
    assert lines[3].split() == [*MEASURE, "8.00", "4.00", "0.50", "[0.50-0.50]", "<=", "1.00", "pass"]


MEASURE = START.measures[0].title.split()


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("case", {case.kind: case for case in LOG_CASES}.values(), ids=lambda case: case.kind)
def test_both_run_a_tiny_case(tmp_path: Path, case: LogCase, request: pytest.FixtureRequest) -> None:
    if case is not START:  # which has the JVM of users
        request.getfixturevalue("small")
    course = LogCourse(tmp_path, ("kafka", "odradek"), 1, lambda line: None, budget_s=0)
    course.run([replace(case, partitions=2, partition_bytes=100_000, records=3_000, keys=200)])
    assert course.failures == []
    measured = sorted(measure.key for measure in case.measures)
    assert [(each.contestant, sorted(each.measured)) for each in course.samples] == [
        ("kafka", measured),
        ("odradek", measured),
    ]
    assert list(tmp_path.iterdir()) == []
