"""The benchmark of latencies: its own arithmetic, and that both brokers carry out every API. No test asserts a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.benchmarks.latency_cases import (
    SETTINGS,
    Latency,
    LatencyCourse,
    LatencyResults,
    Setting,
    comparisons,
    summed_up,
    table,
)
from tests.benchmarks.latency_session import error_codes
from tests.benchmarks.rounds import Failure

ALONE = Setting(1, paused=False)


def latency(contestant: str, number: int, p50_ms: float, p99_ms: float) -> Latency:
    return Latency(ALONE, "Metadata", contestant, number, 10, p50_ms, p99_ms)


def test_percentiles_are_of_the_times() -> None:
    times = [float(number) for number in range(100, 0, -1)]
    assert summed_up(ALONE, "Metadata", "kafka", 1, times) == Latency(ALONE, "Metadata", "kafka", 1, 100, 50.5, 100.0)


def test_the_goal_is_a_millisecond_over_both_percentiles_of_kafka() -> None:
    kafka = [latency("kafka", number, 1.0, 5.0) for number in (1, 2, 3)]
    near = [latency("odradek", number, p50, 6.0) for number, p50 in ((1, 9.0), (2, 2.0), (3, 0.1))]
    (met,) = comparisons([*kafka, *near])
    assert (met.kafka_ms, met.odradek_ms, met.met) == ((1.0, 5.0), (2.0, 6.0), True)
    (slow_median,) = comparisons([*kafka, latency("odradek", 1, 2.1, 2.1)])
    (slow_tail,) = comparisons([*kafka, latency("odradek", 1, 0.1, 6.1)])
    (alone,) = comparisons(kafka)
    assert (slow_median.met, slow_tail.met, alone.met) == (False, False, None)


def test_the_report_has_a_row_for_each_api_and_names_the_failures() -> None:
    samples = [latency("kafka", 1, 1.0, 5.0), latency("odradek", 1, 1.5, 6.5)]
    lines = table(LatencyResults(samples, [Failure("latencies", "kafka", 0, "3 brokers: it broke")])).splitlines()
    assert lines[1].split()[:6] == ["latencies", "in", "ms,", "1", "broker,", "back"]
    assert lines[2].split() == ["Metadata", "1.00", "5.00", "1.50", "6.50", "MISSED"]
    assert lines[-1] == "FAILED latencies, kafka: 3 brokers: it broke"


def test_errors_are_found_anywhere_in_a_response() -> None:
    nested = m.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(partition_error_code=51)
    topic = m.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(results_by_partition=[nested])
    answer = m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
    assert [code for code in error_codes(answer) if code] == [ErrorCode.CONCURRENT_TRANSACTIONS]


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.usefixtures("small")
def test_brokers_carry_out_every_request_of_every_scenario(tmp_path: Path) -> None:
    """Both alone, and three of Odradek; three of Kafka are those of test_clusters."""
    courses = []
    for names, brokers in ((("kafka", "odradek"), 1), (("odradek",), 3)):
        courses.append(LatencyCourse(tmp_path, names, 1, lambda line: None, budget_s=0, scale=0.01))
        courses[-1].run([brokers])
        assert courses[-1].failures == []
    asked: dict[tuple[str, Setting], set[str]] = {}
    for each in (sample for course in courses for sample in course.samples):
        asked.setdefault((each.contestant, each.setting), set()).add(each.api)
    assert set(asked) == {
        *(("odradek", setting) for setting in SETTINGS),
        *(("kafka", setting) for setting in SETTINGS if setting.brokers == 1),
    }
    for setting in SETTINGS:
        assert len(asked["odradek", setting]) == 44 if setting.brokers == 1 else 46
        if setting.brokers == 1:
            assert asked["kafka", setting] == asked["odradek", setting]
    assert list(tmp_path.iterdir()) == []
