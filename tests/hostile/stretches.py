"""How long a broker's event loop serves no other connection at a stretch, measured inside of its process.

with BrokerProcess(folder, environment=MEASURED) as broker:
    stretches = Stretches(broker)
    …
    stretches.longest_ms()
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from odradek.broker_process import BrokerProcess

SEAM: Final = Path(__file__).parent / "stretches_seam"
MEASURED: Final = {"PYTHONPATH": os.pathsep.join([str(SEAM), *filter(None, [os.environ.get("PYTHONPATH")])])}
"""The environment of a process that measures (`stretches_seam/sitecustomize.py`)."""


class Stretches:
    """The stretches of one process."""

    def __init__(self, broker: BrokerProcess) -> None:
        """`broker` was started with MEASURED."""
        self._path = broker.data_dir.with_name("stretches")
        self._read = 0

    def longest_ms(self) -> float:
        """The longest stretch that has ended since the last call, 0 where none took a millisecond.

        Raises FileNotFoundError where the process does not measure.
        """
        with self._path.open() as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._read += len(whole)
        return max(map(float, whole.split()), default=0.0)
