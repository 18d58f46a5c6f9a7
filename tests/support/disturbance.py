"""A slow disk and a stepped clock for a broker's process, without any code for it in the broker.

Processes of a test that is `disturbable` import `disturbance_seam/sitecustomize.py`, which reads files beside the
broker's data. Every other way to slow a disk down needs more rights than a test has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from odradek.broker_process import BrokerProcess
from tests.support.eventually import eventually

SEAM: Final = Path(__file__).parent / "disturbance_seam"
SLOW_DISK, CLOCK_STEP = "slow-disk", "clock-step"
FELT_S: Final = 30.0


def disturbable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let faults of this module act on the brokers that this test starts from now on."""
    paths = [str(SEAM), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@contextmanager
def disturbed(broker: BrokerProcess, what: str, by_ms: int) -> Iterator[None]:
    """SLOW_DISK or CLOCK_STEP of a broker for as long as the block lasts; it waits until the fault acts in the broker.

    Raises AssertionError if the fault does not act in the broker.
    """
    flag = broker.data_dir.parent / what
    felt, written = flag.with_suffix(".felt"), flag.with_suffix(".new")
    felt.unlink(missing_ok=True)
    written.write_text(str(by_ms))
    written.replace(flag)  # the broker never reads half a number
    try:
        yield
        eventually(felt.exists, describe=f"{what} has an effect in the broker at {broker.bootstrap}", timeout_s=FELT_S)
    finally:
        flag.unlink()
