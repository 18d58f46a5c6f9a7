"""The steps of the controller's events, and how they are run.

An event is a generator: it yields steps, plain data, and is sent their results. The shell runs one event to its end
before the next, so an event reads sequentially although it waits for the metadata store many times. Only `Write`
writes, and every write is one transaction that begins with a check of the controller's epoch: a controller whose
successor is elected changes nothing any more, however long it was paused (KAFKA-6082).

An event for thousands of partitions yields `Pause` now and then, so that the controller's broker serves its clients
meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from odradek.broker.registry.interface import Operation


class Read(NamedTuple):
    """The data of these nodes: a list with (data, stat) for each, None for a node that does not exist."""

    paths: tuple[str, ...]
    watch: bool = False


class Children(NamedTuple):
    """The names of the children of a node, an empty list where the node does not exist. A watch is set."""

    path: str


class Watch(NamedTuple):
    """Whether a node exists: its stat or None. A watch is set in both cases."""

    path: str


class Write(NamedTuple):
    """One transaction. The result is the list of results without that of the epoch check; an error is thrown into the
    event.
    """

    operations: tuple[Operation, ...]


class Pause(NamedTuple):
    """The event has worked on many partitions: the event loop serves others before the event continues. No other event
    of the controller runs in between. The result is None.
    """


Step: TypeAlias = Read | Children | Watch | Write | Pause
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]

PAUSE: Final = Pause()
PARTITIONS_BETWEEN_PAUSES: Final = 250
"""After so many partitions an event pauses: a few milliseconds of work."""


def is_pause_due(number: int) -> bool:
    """Whether to pause before the item with this number, counted from 0."""
    return number > 0 and number % PARTITIONS_BETWEEN_PAUSES == 0


def with_pauses(work: Generator[None, None, T]) -> Steps[T]:
    """Run work that is divided into parts, with a pause after each part; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        yield PAUSE


class Send(NamedTuple):
    """A control request for a broker, a message of Kafka's protocol."""

    broker_id: int
    message: Any


class ControllerMovedError(Exception):
    """Another controller has been elected: the state of this one is stale."""
