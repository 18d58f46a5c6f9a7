"""Pending calls of a task: waits for the results of its asynchronous operators.

A commit needs a task without pending calls: its offsets would otherwise cover records without results, or its
transaction would contain effects of records whose offsets it does not. The thread therefore stops the intake of such
tasks when a commit is due (`holding`) and commits when the last result is forwarded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from odradek.streams.errors import TaskMigratedError

if TYPE_CHECKING:
    from odradek.streams.node_calls import NodeCalls

LOOK_S: Final = 0.05
"""How often a thread that waits for results checks for timeouts."""


class TaskCalls:
    """The pending calls of all asynchronous nodes of one task."""

    def __init__(self, nodes: Sequence[NodeCalls]) -> None:
        """One node at least; a node is before those that follow it in the topology."""
        self.nodes = nodes
        self.holding = False
        """Whether the task takes no new records, because a commit waits for the results."""
        self._ready = nodes[0].ready

    @property
    def room(self) -> int:
        """How many records the task may take."""
        return 0 if self.holding else min(node.room for node in self.nodes)

    @property
    def pending(self) -> int:
        """How many results have not been forwarded."""
        return sum(len(node.pending) for node in self.nodes)

    @property
    def has_result(self) -> bool:
        """Whether `forward` has anything to do."""
        return any(node.has_result for node in self.nodes)

    def start(self) -> None:
        """Start the calls of the records that were processed."""
        for node in self.nodes:
            node.start()

    def forward(self) -> int:
        """Forward the results that are next in order, and start the calls that follow from them. Returns how many.
        Raises StreamsError.
        """
        count = 0
        for node in self.nodes:
            count += node.forward()
            node.start()
        return count

    def complete(self, deadline_s: float) -> None:
        """Wait until all results are forwarded. Raises StreamsError, and TaskMigratedError after the deadline, a time
        of the monotonic clock.
        """
        while self.pending:
            self._ready.clear()
            if self.forward():
                continue
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TaskMigratedError(
                    f"{self.pending} calls of {', '.join(node.name for node in self.nodes)} did not end in time for a "
                    "commit"
                )
            self._ready.wait(min(left_s, LOOK_S))
