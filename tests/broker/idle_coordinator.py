"""A transaction coordinator that is never called."""

from __future__ import annotations

from typing import Any

from odradek.broker.replication.partition import Replica


class Idle:
    """A worker and a controller that are not needed here."""

    def run(self, work: Any, done: Any) -> None:
        raise AssertionError("nothing is to be flushed")

    def submit(self, replica: Replica, change: Any) -> None:
        raise AssertionError("the ISR does not change")
