"""Pending writes of one state machine: the changes of each append, and their revert (Kafka: SnapshotRegistry).

Kafka's CoordinatorRuntime keeps its state in timeline structures, keyed by the offset of the last write, and reverts
to the snapshot before a write when the log rejects it. Here each write carries the changes that it made, as functions
that undo them. A rejected write undoes its own changes and those of every later write of the group or transactional id,
newest first, so the state is again exactly the log plus the writes before it. `CoordinatorEventProcessor` does this for
every coordinator.

An append has one of these outcomes:

| outcome                                             | the records            | the state | the requests       |
|-----------------------------------------------------|------------------------|-----------|--------------------|
| NONE                                                | are committed          | stays     | are answered       |
| NOT_ENOUGH_REPLICAS_AFTER_APPEND                    | are committed          | stays     | receive the error  |
| REQUEST_TIMED_OUT                                   | are in the leader's log | stays    | receive the error  |
| any other error                                     | are not in the log     | reverts   | receive the error  |

After REQUEST_TIMED_OUT the write stays pending until the next outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from odradek.broker.runtime.state.effects import Append
from odradek.protocol.errors import ErrorCode

COMMITTED: Final = frozenset({ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})
"""Outcomes of an append that every in-sync replica has."""
RETRY_MS: Final = 500
"""After this time a group repeats a timer's write that the log has rejected (Kafka: CoordinatorTimerImpl)."""


class PendingWrite:
    """Token of an append: the state machine's own token, and the functions that undo the changes."""

    __slots__ = ("is_void", "token", "undo")

    def __init__(self, token: Any, undo: tuple[Callable[[], None], ...]) -> None:
        self.token = token
        self.undo = undo
        self.is_void = False
        """An earlier write was rejected, so this one must not be appended."""


class PendingWrites:
    """The writes of one state machine without a final outcome, in the order of the log."""

    __slots__ = ("_writes",)

    def __init__(self) -> None:
        self._writes: list[PendingWrite] = []

    def __len__(self) -> int:
        return len(self._writes)

    def begin(self, append: Append) -> PendingWrite:
        """The write of an append that follows all others in the log."""
        write = PendingWrite(append.token, append.undo)
        self._writes.append(write)
        return write

    def commit(self, write: PendingWrite) -> None:
        """The records are committed: the changes of this write can no longer be undone."""
        self._writes.remove(write)

    def revert(self, write: PendingWrite) -> list[PendingWrite]:
        """Undo this write and all later ones, newest first. Returns them in the order of the log."""
        at = self._writes.index(write)
        reverted, self._writes = self._writes[at:], self._writes[:at]
        for each in reversed(reverted):
            each.is_void = True
            for undo in reversed(each.undo):
                undo()
        return reverted

    def drop(self) -> list[PendingWrite]:
        """Drop all writes: this broker no longer coordinates the key, and their outcomes no longer count.

        Returns them in the order of the log.
        """
        dropped, self._writes = self._writes, []
        for write in dropped:
            write.is_void = True
            write.undo = ()
        return dropped
