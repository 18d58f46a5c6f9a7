"""The benchmark of restarts and kills: its arithmetic, and that both contestants complete a round. No time is
tested.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.contestants import contestant
from tests.benchmarks.rebalances import Outages, Pace, longest_outage, measure, report
from tests.benchmarks.streams_cases import JAVA, OURS


@pytest.mark.parametrize(
    ("began", "ended", "expected"),
    [
        (0.0, 9.0, 4.0),
        (1.5, 2.5, 1.0),  # begins before the event
        (2.5, 9.0, 4.0),
        (6.5, 9.0, 1.0),
        (20.0, 23.0, 3.0),  # no result at all
    ],
)
def test_the_longest_outage_overlaps_the_event(began: float, ended: float, expected: float) -> None:
    assert longest_outage([1.0, 2.0, 6.0, 7.0], began, ended) == expected


def test_the_report_has_medians_and_ranges() -> None:
    rounds = [Outages(OURS, 0.1 * number, 1.0, 0.05, 6.0, 0.2) for number in (1, 2, 6)]
    lines = report([*rounds, Outages(JAVA, 0.3, 2.0, 0.06, 7.0, 0.3)]).splitlines()
    assert lines[2].startswith("| odradek | 200 (100 to 600) | 50 (50 to 50) | 1,000 (1,000 to 1,000) |")
    assert lines[3].startswith("| java | 300 (300 to 300) | 60 (60 to 60) |")


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("kind", [OURS, JAVA])
@pytest.mark.usefixtures("small")
def test_a_restart_and_a_kill_are_measured(kind: str, tmp_path: Path) -> None:
    broker = contestant("odradek", tmp_path / "broker")
    try:
        broker.start()
        pace = Pace(pause_s=0.05, calm_s=0.5, after_s=0.0)
        outages = measure(broker.bootstrap, kind, f"{kind}-tiny", tmp_path, pace)
    finally:
        broker.close()
    assert outages.instances == kind
    assert outages.restarted > 0.05  # a process that ends and starts again makes no progress meanwhile
    assert outages.killed > 1.0  # nor does one whose session has to end first
