"""The benchmark of small requests: its own arithmetic, and that each kind completes. These tests time nothing."""

from __future__ import annotations

import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from tests.benchmarks import request_loads
from tests.benchmarks.cluster_report import ClusterResults, table
from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.report import interpreter
from tests.benchmarks.request_cases import KINDS, REBALANCE, REQUEST_CASES, RequestCourse, pick


def test_pick_takes_names_and_the_name_of_the_group() -> None:
    assert pick([]) == (list(REQUEST_CASES), [])
    assert pick(["requests", "latency"]) == (list(REQUEST_CASES), ["latency"])
    (heartbeat,) = (case for case in REQUEST_CASES if case.kind == "heartbeat")
    assert pick(["latency", "request-heartbeat"]) == ([heartbeat], ["latency"])
    assert {case.kind for case in REQUEST_CASES} == {*KINDS, REBALANCE}


def test_scaling_stays_within_limits() -> None:
    assert [case.scaled(0.1).size for case in REQUEST_CASES[:6]] == [4_000, 4_000, 4_000, 4_000, 4_000, 2_000]
    assert REQUEST_CASES[0].scaled(0.001).amount == "500 requests"


def test_the_report_has_the_cost_of_a_request() -> None:
    case = REQUEST_CASES[0]
    samples = [
        ClusterSample(case.name, "odradek", 1, {"cpu_us": 14.0, "requests_per_s": 9.0}),
        ClusterSample(case.name, "kafka", 1, {"cpu_us": 40.0, "requests_per_s": 9.0}),
    ]
    lines = table(ClusterResults([case], samples, [], {}), "small requests").splitlines()
    (row,) = [line for line in lines if "CPU us" in line]
    assert row.split()[4:] == ["40.0", "14.0", "0.35", "[0.35-0.35]", "<=", "0.50", "pass"]


@pytest.mark.parametrize(
    ("options", "warns"), [("'--enable-optimizations' '--prefix=/usr'", False), ("", True), (None, True)]
)
def test_a_report_warns_of_an_interpreter_without_optimizations(
    monkeypatch: pytest.MonkeyPatch, options: str | None, warns: bool
) -> None:
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: options)
    assert ("without" in interpreter()) is warns


@pytest.mark.slow
def test_an_error_in_an_answer_ends_a_load(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        request = request_loads.produce(broker.bootstrap, "absent", 0)
        with pytest.raises(RuntimeError, match="ProduceResponse: UNKNOWN_TOPIC_OR_PARTITION"):
            request_loads.repeat(broker.bootstrap, [request], 1, 3)


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("servers", "names"),
    # Three brokers of Kafka are started by test_clusters.py, and its newest release alone is new here.
    [("single", ("kafka", "odradek")), ("newest", ("kafka",)), ("three", ("odradek",))],
)
def test_each_kind_completes(tmp_path: Path, servers: str, names: tuple[str, ...]) -> None:
    printed: list[str] = []
    cases = [case for case in REQUEST_CASES if case.servers == servers]
    course = RequestCourse(tmp_path, names, 1, printed.append, budget_s=0, warm_up=False)
    course.run([replace(case, size=200, connections=min(case.connections, 20)) for case in cases])
    assert course.failures == []
    assert [(each.case, each.contestant) for each in course.samples] == [
        (case.name, name) for case in cases for name in names
    ]
    for case, each in zip([case for case in cases for _ in names], course.samples, strict=True):
        assert {measure.key for measure in case.measures} <= each.measured.keys()
        assert each.measured["requests"] >= 200
    assert list(tmp_path.iterdir()) == []
