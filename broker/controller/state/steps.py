"""What the controller machine asks for, and how it is run.

An event is a generator: it yields steps, plain data, and is sent their results. The shell runs one event to its end
before the next, so an event reads like a text although it waits for the registry many times. Nothing is written but by
`Write`, and every write is one transaction that begins with a check of the controller's epoch: a controller that
another has followed, however long it slept, changes nothing any more (KAFKA-6082).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from odradek.broker.registry.interface import Operation


class Read(NamedTuple):
    """The data of these nodes: a list with (data, stat) for each, None for one that is not there."""

    paths: tuple[str, ...]
    watch: bool = False


class Children(NamedTuple):
    """The names below a node, an empty list where the node is not there. A watch is set."""

    path: str


class Watch(NamedTuple):
    """Whether a node exists: its stat or None. A watch is set in both cases."""

    path: str


class Write(NamedTuple):
    """One transaction. The result is the list of results without that of the epoch check; a refusal is thrown into the
    event.
    """

    operations: tuple[Operation, ...]


Step: TypeAlias = Read | Children | Watch | Write
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]


class Send(NamedTuple):
    """An order for a broker: a request of Kafka's protocol."""

    broker_id: int
    message: Any


class ControllerMovedError(Exception):
    """Another controller has been elected: what this one knows is over."""
