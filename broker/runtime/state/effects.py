"""What machines ask for: the vocabulary between a machine, which decides, and its shell, which does.

A machine takes an event and the time, changes its own state and returns effects; the shell carries them out in the
order given and feeds their outcomes back as further events. An effect is plain data, so a simulation can look at it,
delay it or lose it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

TimerName = tuple[str, ...]
KeyValue = tuple[bytes, bytes | None]
"""A record for one of Kafka's own compacted topics; a value of None is a tombstone."""


class Now(NamedTuple):
    """One reading of both clocks: milliseconds since 1970 for what is written down, and the clock of deadlines."""

    wall_ms: int
    monotonic_ms: int


class Append(NamedTuple):
    """Append these records as one batch to the machine's partition, with acks=all.

    When the outcome is known the shell hands `token` back with the error code. Nothing that depends on the records
    being durable leaves the machine before that. A token of None says that nobody waits for the outcome.
    `permit` is the shell's own where the records belong to a client's transaction, and goes back as it came.
    """

    records: list[KeyValue]
    token: Any
    permit: Any = None
    undo: tuple[Callable[[], None], ...] = ()
    """Undo, last to first, what the machine has changed for these records; called when the log refuses them."""


class Reply(NamedTuple):
    """Answer the request that came with `token`; every token gets exactly one."""

    token: Any
    answer: Any


class SetTimer(NamedTuple):
    """Send the machine the event `name` once the monotonic clock reads `deadline_ms`; replaces a timer of that name."""

    name: TimerName
    deadline_ms: int


class CancelTimer(NamedTuple):
    """The event `name` is no longer wanted."""

    name: TimerName


Effect = Append | Reply | SetTimer | CancelTimer


class Effects:
    """The effects of one event, as they come up, and the timers that stand set. A machine owns one."""

    __slots__ = ("_effects", "armed")

    def __init__(self) -> None:
        self.armed: dict[TimerName, int] = {}
        """The timers that are set, with their deadlines (monotonic ms)."""
        self._effects: list[Effect] = []

    def append(self, records: list[KeyValue], token: Any, undo: tuple[Callable[[], None], ...] = ()) -> None:
        """Ask for an append."""
        self._effects.append(Append(records, token, undo=undo))

    def reply(self, token: Any, answer: Any) -> None:
        """Ask for an answer."""
        self._effects.append(Reply(token, answer))

    def arm(self, name: TimerName, deadline_ms: int) -> None:
        """Set a timer, in place of the one of that name."""
        self.armed[name] = deadline_ms
        self._effects.append(SetTimer(name, deadline_ms))

    def disarm(self, name: TimerName) -> None:
        """Cancel a timer, if it is set."""
        if self.armed.pop(name, None) is not None:
            self._effects.append(CancelTimer(name))

    def fired(self, name: TimerName) -> None:
        """The timer has fired and is set no more."""
        self.armed.pop(name, None)

    def drain(self) -> list[Effect]:
        """What has come up since the last call."""
        effects, self._effects = self._effects, []
        return effects
