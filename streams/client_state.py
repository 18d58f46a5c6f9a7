"""Client states and their transitions (Kafka: KafkaStreams.State)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.Enum):
    """The state of a client."""

    CREATED = enum.auto()
    REBALANCING = enum.auto()
    RUNNING = enum.auto()
    PENDING_SHUTDOWN = enum.auto()
    NOT_RUNNING = enum.auto()
    PENDING_ERROR = enum.auto()
    ERROR = enum.auto()


NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.CREATED: frozenset({State.REBALANCING, State.PENDING_SHUTDOWN}),
    State.REBALANCING: frozenset({State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
    State.RUNNING: frozenset({State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
    State.PENDING_SHUTDOWN: frozenset({State.NOT_RUNNING}),
    State.NOT_RUNNING: frozenset(),
    State.PENDING_ERROR: frozenset({State.ERROR}),
    State.ERROR: frozenset(),
}
ENDED: Final = frozenset({State.NOT_RUNNING, State.ERROR})
ALIVE: Final = frozenset({State.REBALANCING, State.RUNNING})
"""States in which its threads run or are about to run."""
