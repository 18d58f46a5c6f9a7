"""Counts the calls of the product's functions between two points, as a measure of work that depends on no machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class CallCounter:
    """Counts the calls of the product's functions between two steps: a measurement of branches calls functions of its
    own. Each resumption of a generator counts.
    """

    def __init__(self) -> None:
        self.most = self._calls = 0

    def step(self) -> None:
        """A step begins: what follows is counted anew."""
        self.most, self._calls = max(self.most, self._calls), 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count in this block."""

        def profile(frame: FrameType, event: str, argument: object) -> None:
            if event == "call" and frame.f_globals.get("__name__", "odradek.").startswith("odradek."):
                self._calls += 1

        self._calls = 0
        sys.setprofile(profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.step()
