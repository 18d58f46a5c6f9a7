"""How long a broker's event loop serves no other connection at a stretch, measured inside of its process.

with BrokerProcess(folder, environment=MEASURED) as broker:
    stretches = Stretches(broker)
    …
    stretches.longest()
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from odradek.broker_process import BrokerProcess

SEAM: Final = Path(__file__).parent / "stretches_seam"
MEASURED: Final = {"PYTHONPATH": os.pathsep.join([str(SEAM), *filter(None, [os.environ.get("PYTHONPATH")])])}
"""The environment of a process that measures (`stretches_seam/sitecustomize.py`)."""


class Stretch(NamedTuple):
    """A stretch. `ms` is what counts: its CPU time in milliseconds, or its duration (`wall_ms`) where that is less; the
    difference is time in which the process did not run.
    """

    ms: float = 0.0
    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    preemptions: int = 0
    pages: int = 0
    """Pages of memory that were mapped."""
    stolen_ms: int = 0
    """What the host took from the virtual machine, in steps of 10 ms, during the stretch or up to 20 ms before it."""


class Stretches:
    """The stretches of one process."""

    def __init__(self, broker: BrokerProcess) -> None:
        """`broker` was started with MEASURED."""
        self._path = broker.data_dir.with_name("stretches")
        self._read = 0

    def longest(self) -> Stretch:
        """The longest stretch that has ended since the last call, one of 0 ms where none took a millisecond.

        Raises FileNotFoundError where the process does not measure.
        """
        with self._path.open() as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole)
        return max(map(_stretch, whole.splitlines()), default=Stretch())


def _stretch(line: str) -> Stretch:
    ms, wall_ms, cpu_ms, preemptions, pages, stolen_ms = line.split()
    return Stretch(float(ms), float(wall_ms), float(cpu_ms), int(preemptions), int(pages), int(stolen_ms))
