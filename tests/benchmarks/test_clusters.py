"""The benchmark of clusters: its own arithmetic, and that it completes with tiny sizes. These tests time nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks import cluster_report, cluster_rounds, report
from tests.benchmarks.cases import CASES
from tests.benchmarks.cluster_cases import CLUSTER_CASES, ClusterCase, split
from tests.benchmarks.cluster_report import ClusterResults
from tests.benchmarks.cluster_rounds import ClusterCourse, ClusterSample, expected_s
from tests.benchmarks.clusters import SESSION_TIMEOUT_MS, Cluster
from tests.benchmarks.failover import ROUNDS_SPREAD, kill_after_s, longest_gap
from tests.benchmarks.rounds import Failure

REPLICATED, TRANSACTIONS, FAILOVER, CREATE = CLUSTER_CASES
LATENCY = next(case for case in CASES if case.name == "latency")


def sample(contestant: str, number: int, mib_per_s: float, cpu: float = 2.0) -> ClusterSample:
    measured = {"mib_per_s": mib_per_s, "p99_ms": 40.0, "average_ms": 9.0, "cpu_s_per_gb": cpu, "resident_mb": 100.0}
    return ClusterSample("replicated-1k", contestant, number, measured)


def results(*samples: ClusterSample) -> ClusterResults:
    return ClusterResults(CLUSTER_CASES, samples, [], {"kafka": 9.0, "odradek": 1.5})


class TestCases:
    def test_split_finds_each_and_gives_all_for_none(self) -> None:
        assert split([]) == (list(CASES), list(CLUSTER_CASES))
        assert split(["failover", "latency", "replicated-1k"]) == ([LATENCY], [FAILOVER, REPLICATED])
        assert split(["create-2000", "replicated-transactions"]) == ([], [CREATE, TRANSACTIONS])
        with pytest.raises(ValueError, match=r"no case 'fail-over'; cases are produce-1k, .*, failover, create-2000"):
            split(["failover", "fail-over"])

    def test_the_goals(self) -> None:
        goals = {(case.name, each.key): (each.least, each.largest) for case in CLUSTER_CASES for each in case.measures}
        assert goals["replicated-1k", "mib_per_s"] == (1.0, None)
        assert goals["replicated-1k", "cpu_s_per_gb"] == (None, 0.5)
        assert goals["replicated-transactions", "transactions_per_s"] == (1.5, None)
        assert goals["failover", "gap_s"] == (None, 1.0)

    @given(st.sampled_from(CLUSTER_CASES), st.floats(0.0001, 10))
    def test_scaling_changes_the_size_only(self, case: ClusterCase, factor: float) -> None:
        scaled = case.scaled(factor)
        assert replace(scaled, size=case.size, expected_s=case.expected_s) == case
        assert (scaled.size == case.size) or case.kind != "failover"
        assert expected_s([scaled], 1) > 0


class TestGap:
    def test_the_gap_is_the_longest_from_the_last_acknowledgement_before_the_kill(self) -> None:
        assert longest_gap([1.0, 9.0, 9.1, 9.2, 15.0, 15.1], 9.15) == (9.2, 15.0)
        assert longest_gap([1.0, 9.0, 9.1, 15.0, 15.1, 15.2], 9.15) == (9.1, 15.0)

    def test_an_acknowledgement_in_flight_does_not_end_the_gap(self) -> None:
        assert longest_gap([9.0, 9.1, 9.2, 15.0], 9.15) == (9.2, 15.0)

    def test_no_gap_is_an_error(self) -> None:
        with pytest.raises(RuntimeError, match=r"no gap longer than 0\.0"):
            longest_gap([9.0, 9.01, 9.05, 9.1], 9.02)

    def test_the_kills_are_spread_over_the_time_between_two_pings(self) -> None:
        kills = [kill_after_s(3, number) - 3 for number in range(1, ROUNDS_SPREAD + 1)]
        assert kills == sorted(set(kills))
        assert kills[0] == 0
        assert kills[-1] < SESSION_TIMEOUT_MS / 1000 / 3
        assert kill_after_s(3, ROUNDS_SPREAD + 1) == 3


class TestComparison:
    def test_ratios_pair_rounds_and_goals_use_their_median(self) -> None:
        found = results(
            *(sample("kafka", 1, 20.0, 10.0), sample("kafka", 2, 40.0, 10.0)),
            *(sample("odradek", 1, 30.0, 6.0), sample("odradek", 2, 30.0, 5.0), sample("odradek", 3, 900.0)),
        )
        assert found.ratio("replicated-1k", "mib_per_s") == (1.125, 0.75, 1.5)
        throughput, _, _, cpu, _ = (cluster_report.goal(found, REPLICATED, each) for each in REPLICATED.measures)
        assert throughput is not None
        assert throughput.met is True
        assert cpu is not None
        assert cpu.met is False
        gap = cluster_report.goal(found, FAILOVER, FAILOVER.measures[0])
        assert gap is not None
        assert gap.met is None

    def test_the_table_has_a_row_for_each_measure_and_each_failure(self) -> None:
        found = results(sample("kafka", 1, 20.0, 10.0), sample("odradek", 1, 31.25, 6.0))
        failed = replace(found, failures=[Failure("failover", "kafka x 3", 2, "TimeoutError: too late")])
        lines = cluster_report.table(failed).splitlines()
        for case in CLUSTER_CASES:
            assert any(line.startswith(f"{case.name}: {case.title}, {case.amount}") for line in lines)
            assert all(any(measure.title in line for line in lines) for measure in case.measures)
        rows = [line.split() for line in lines]
        assert ["MiB/s", "20.0", "31.2", "1.56", "[1.56-1.56]", ">=", "1.00", "pass"] in rows
        assert ["CPU", "s/GB,", "all", "brokers", "10.00", "6.00", "0.60", "[0.60-0.60]", "<=", "0.50", "MISS"] in rows
        assert "FAILED failover, round 2, kafka x 3: TimeoutError: too late" in lines

    def test_json_holds_the_clusters_too(self, tmp_path: Path) -> None:
        found = cluster_report.as_json(results(sample("kafka", 1, 20.0), sample("odradek", 1, 30.0)))
        report.write_json(report.Results([], [], [], {}), tmp_path / "results.json", cluster=found)
        cluster = json.loads((tmp_path / "results.json").read_text())["cluster"]
        assert [one["measured"]["mib_per_s"] for one in cluster["samples"]] == [20.0, 30.0]
        assert [goal["met"] for goal in cluster["goals"]] == [True, False, None, None]


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.usefixtures("small")
class TestCourse:
    @pytest.mark.parametrize(
        ("name", "cases"),
        [("odradek", CLUSTER_CASES), ("kafka", (REPLICATED, CREATE))],
        ids=["odradek", "kafka"],
    )
    def test_a_cluster_completes(self, name: str, cases: tuple[ClusterCase, ...], tmp_path: Path) -> None:
        tiny = [replace(case, size=1) if case is FAILOVER else case.scaled(0.001) for case in cases]
        printed: list[str] = []
        course = ClusterCourse(tiny, 1, printed.append, expected_clusters=1, budget_s=600)
        course.run(Cluster(name, tmp_path / name))
        assert course.failures == []
        assert list(course.start_s) == [name]
        assert [(one.case, one.contestant, one.round) for one in course.samples] == [
            (case.name, name, 1) for case in tiny
        ]
        for case, one in zip(tiny, course.samples, strict=True):
            assert set(one.measured) == {measure.key for measure in case.measures}
            assert all(value > 0 for value in one.measured.values())

    def test_a_cluster_that_does_not_start_is_a_failure_and_ends(self, tmp_path: Path) -> None:
        course = ClusterCourse([REPLICATED], 1, lambda line: None, expected_clusters=1, budget_s=600)
        cluster = Cluster("odradek", tmp_path / "odradek")
        (tmp_path / "odradek" / "1").write_text("no folder")
        course.run(cluster)
        assert [(failure.case, failure.contestant) for failure in course.failures] == [("start", "odradek x 3")]
        assert course.samples == []


class Noted:
    """A cluster without brokers, which notes its calls."""

    name = "odradek"

    def __init__(self, label: str, calls: list[str]) -> None:
        self.label = label
        self._calls = calls

    def start(self) -> float:
        self._calls.append(f"start {self.label}")
        return 1.0

    def close(self) -> None:
        self._calls.append(f"close {self.label}")


def test_clusters_take_turns_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def create(cluster: Noted, topic: str, partitions: int) -> dict[str, float]:
        calls.append(f"{topic} {cluster.label}")
        return dict.fromkeys((measure.key for measure in CREATE.measures), 1.0)

    monkeypatch.setattr(cluster_rounds, "create", create)
    course = ClusterCourse([replace(CREATE, most_rounds=2)], 2, lambda line: None, expected_clusters=2, budget_s=600)
    course.run_in_turn([cast(Cluster, Noted(label, calls)) for label in ("one", "two")])
    turns = ["create-2000-1 one", "create-2000-1 two", "create-2000-2 two", "create-2000-2 one"]
    assert calls == ["start one", "start two", *turns, "close two", "close one"]
    assert [one.round for one in course.samples] == [1, 1, 2, 2]
    assert course.failures == []


def test_there_are_clusters_of_two_kinds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no cluster of 'floor'; there are clusters of kafka, odradek"):
        Cluster("floor", tmp_path / "floor")
