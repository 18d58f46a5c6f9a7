"""The measurement of many consumers: its arithmetic, and that each kind of consumer reads everything. No test asserts a
time.
"""

from __future__ import annotations

import os

import pytest

from tests.benchmarks import fanout
from tests.benchmarks.fanout import COLUMNS, Cpu, Delivered


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def delivered(broker: Cpu, clients: Cpu) -> Delivered:
    return Delivered("light", 0, 1.0, 1.0, broker, clients, Cpu(0, 0))


@pytest.mark.usefixtures("two_cores")
def test_workers_double_the_throughput_only_where_clients_cost_nothing() -> None:
    assert delivered(Cpu(3, 1), Cpu(0, 0)).best_factor == 2
    assert delivered(Cpu(3, 1), Cpu(1, 0)).best_factor == pytest.approx(1.6)
    assert delivered(Cpu(3, 1), Cpu(1, 0)).free_factor == 4
    for clients_s in (4, 8):  # both cores are full today
        assert delivered(Cpu(3, 1), Cpu(clients_s, 0)).best_factor == 1


def test_the_report_has_the_median_round_of_each_load() -> None:
    rounds = [delivered(Cpu(cost, 0), Cpu(1, 0)) for cost in (5, 2, 3)]
    head, _, row = fanout.report(rounds).splitlines()
    assert head.count("|") == row.count("|") == len(COLUMNS) + 1
    assert row.startswith("| light | stored | 1,000 | 3.00 | 0.00 | 1.00 | 0.00 |")


@pytest.mark.slow
def test_each_kind_of_consumer_reads_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert fanout.main(["--consumers", "2", "--rates", "0", "50", "--megabytes", "0.2", "--rounds", "1"]) == 0
    rows = capsys.readouterr().out.splitlines()[-4:]
    assert [row.split(" | ")[:2] for row in rows] == [
        [f"| {client}", rate] for client in fanout.CLIENTS for rate in ("stored", "50")
    ]
