"""The campaign itself: its criterion for growth, and that it completes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading

import pytest

from tests.soak import campaign, stalls
from tests.soak.footprint import ENOUGH, Footprint, footprint, growth

STILL = Footprint(50.0, 60, 4)


def test_a_process_that_warms_up_and_stays_does_not_grow() -> None:
    warming = [Footprint(30.0 + number, 40 + number, 3) for number in range(10)]
    breathing = [Footprint(50.0 + number % 4, 60 + 5 * (number % 3), 4 + number % 2) for number in range(20)]
    assert growth([*warming, *breathing]) == {}


@pytest.mark.parametrize(
    ("name", "each"),
    [("megabytes", Footprint(0.3, 0, 0)), ("descriptors", Footprint(0, 1, 0)), ("threads", Footprint(0, 0, 1))],
)
def test_a_growing_resource_is_named(name: str, each: Footprint) -> None:
    notes = [
        Footprint(
            STILL.megabytes + each.megabytes * number,
            STILL.descriptors + each.descriptors * number,
            STILL.threads + each.threads * number,
        )
        for number in range(60)
    ]
    before, after = (getattr(STILL, name) + getattr(each, name) * at for at in (29.5, 49.5))
    assert growth(notes) == {name: pytest.approx((before, after))}


def test_a_single_peak_is_no_growth_and_few_measurements_give_no_verdict() -> None:
    assert growth([*[STILL] * 20, Footprint(500.0, 900, 90), STILL]) == {}
    with pytest.raises(ValueError, match="8 measurements are too few"):
        growth([STILL] * (ENOUGH - 1))


@pytest.mark.slow
def test_a_lone_client_and_the_loop_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is not checked: other programs may hold the loop up."""
    monkeypatch.setattr(stalls, "PARTITIONS", 3)
    stalls.stalls(0.02, 1)
    others, client, loop, causes, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"the others wrote \d+\.\d MB a second to 6 partitions", others)
    assert re.fullmatch(r"lone client, \d+ records, ms: median .*, p99 .*, p99.9 .*, max \d+\.\d", client)
    assert re.match(r"stalls of the loop: \d+ to 10 ms", loop)
    assert re.fullmatch(r"stalls over 20 ms: \d+, of these caused by the broker: \d+", causes)


@pytest.mark.parametrize(
    ("ran", "queued", "thread", "stolen", "waits", "status"),
    [
        (35, 1, 0, 0, "?", 1),
        (1, 1, 0, 0, "?", 1),
        (3, 33, 0, 0, "?", 0),
        (3, 0, 0, 30, "?", 0),
        (1, 1, 30, 0, "futex_do_wait", 0),  # for the interpreter lock of a thread that waited for a processor
        (1, 1, 30, 0, "io_schedule", 1),
    ],
)
def test_a_stall_counts_unless_others_had_the_processors(
    ran: int, queued: int, thread: int, stolen: int, waits: str, status: int
) -> None:
    times = {"late_ms": 35, "cpu_ms": ran, "queued_ms": queued, "stolen_ms": stolen, "collections_ms": 0}
    threads = {"threads_cpu_ms": 1, "thread_queued_ms": thread}
    stacks = {f"{waits} log.py:1 append": 2, "? net.py:1 send": 1}
    cause = stalls.Cause.read(json.dumps({"at": 1, **times, **threads, "stacks": stacks}))
    assert stalls._judge([cause]) == status
    assert str(cause).endswith(f"at {waits} log.py:1 append")


def test_a_footprint_needs_a_running_process() -> None:
    before = footprint(os.getpid())
    read, write = os.pipe()
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    after = footprint(os.getpid())
    ended.set()
    thread.join()
    os.close(read)
    os.close(write)
    assert (after.descriptors - before.descriptors, after.threads - before.threads) == (2, 1)
    assert before.megabytes > 10
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ProcessLookupError, match=f"no process {gone.pid}"):
        footprint(gone.pid)


def test_an_unknown_part_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        campaign.main(["endurence"])
    assert caught.value.code == 2
    assert "endurence is no part; there are endurance, faults, searches" in capsys.readouterr().err


@pytest.mark.slow
def test_a_round_completes(capsys: pytest.CaptureFixture[str]) -> None:
    """A verdict takes longer."""
    assert campaign.main(["--minutes", "0.01", "endurance"]) == 0
    printed = capsys.readouterr().out
    assert "round 1, 2,000 records: broker 1" in printed
    assert "too few for a verdict" in printed
