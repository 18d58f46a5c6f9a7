"""Effects: the interface between a pure state machine and the shell that does its I/O.

A state machine takes an event and the time, changes its own state and returns effects. The shell executes the effects
in the given order and passes their outcomes to the machine as further events. An effect is plain data, so a simulation
can inspect, delay or lose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python's `__new__`."""
TimerName = tuple[str, ...]
Each = Callable[[Iterable[Any]], Iterable[Any]]
"""Returns the items; the shell may interrupt the loop over them before each item."""
KeyValue = tuple[bytes, bytes | None]
"""A record for one of Kafka's internal topics; a value of None is a tombstone."""


class Now(NamedTuple):
    """The time of both clocks: milliseconds since 1970 for timestamps, and the monotonic clock for deadlines."""

    wall_ms: int
    monotonic_ms: int


class Append(NamedTuple):
    """Append these records as one batch to the machine's partition, with acks=all.

    The shell passes `token` back with the error code of each outcome. Before that the machine returns no effect that
    depends on the records being durable. A token of None means that the machine does not need the outcome.
    If the records belong to a client's transaction, `permit` is a value of the shell, which the machine passes back
    unchanged.
    """

    records: list[KeyValue]
    token: Any
    permit: Any = None
    undo: tuple[Callable[[], None], ...] = ()
    """Functions that undo the changes of the machine for these records, called last to first if the log rejects
    them."""


class Reply(NamedTuple):
    """Answer the request of `token`; there is exactly one reply for every token."""

    token: Any
    answer: Any


class SetTimer(NamedTuple):
    """Pass the event `name` to the machine when the monotonic clock reaches `deadline_ms`; replaces a timer of this
    name.
    """

    name: TimerName
    deadline_ms: int


class CancelTimer(NamedTuple):
    """Cancel the timer `name`."""

    name: TimerName


class Offload(NamedTuple):
    """Compute something that takes long, apart from the events of the machine (Kafka: CoordinatorExecutor).

    The shell iterates over `parts(each)` and passes each part to `event` as an event. Events of other requests may come
    before each part, and before each item of a loop over `each(items)`.
    """

    parts: Callable[[Each], Iterator[Any]]
    event: Callable[[Any, Now], list[Any]]
    """Takes a part and the time; returns effects."""


Effect = Append | Reply | SetTimer | CancelTimer | Offload


class Effects:
    """Collects the effects of one event and stores the timers that are set. Each state machine has one."""

    __slots__ = ("_effects", "armed")

    def __init__(self) -> None:
        self.armed: dict[TimerName, int] = {}
        """The timers that are set, with their deadlines (monotonic ms)."""
        self._effects: list[Effect] = []

    def append(self, records: list[KeyValue], token: Any, undo: tuple[Callable[[], None], ...] = ()) -> None:
        """Add an append."""
        self._effects.append(Append(records, token, undo=undo))

    def reply(self, token: Any, answer: Any) -> None:
        """Add a reply."""
        self._effects.append(_new(Reply, (token, answer)))

    def offload(self, parts: Callable[[Each], Iterator[Any]], event: Callable[[Any, Now], list[Any]]) -> None:
        """Add a computation."""
        self._effects.append(Offload(parts, event))

    def arm(self, name: TimerName, deadline_ms: int) -> None:
        """Set a timer; replaces a timer of this name."""
        self.armed[name] = deadline_ms
        self._effects.append(SetTimer(name, deadline_ms))

    def disarm(self, name: TimerName) -> None:
        """Cancel a timer, if it is set."""
        if self.armed.pop(name, None) is not None:
            self._effects.append(CancelTimer(name))

    def fired(self, name: TimerName) -> None:
        """The timer has fired and is not set any more."""
        self.armed.pop(name, None)

    def drain(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects
