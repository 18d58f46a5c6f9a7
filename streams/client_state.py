"""Client states, their transitions, and the state of one client (Kafka: KafkaStreams.State)."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from odradek.streams.errors import InvalidStateStoreError, StreamsError

log = logging.getLogger(__name__)


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

StateListener = Callable[[State, State], None]
"""A listener, called with the new state and the previous one."""


class ClientState:
    """The state of one client. Any thread may call its methods."""

    def __init__(self, client_id: str, listener: StateListener | None) -> None:
        self.changed = threading.Condition(threading.RLock())
        """Guards the state, and what may change only together with it."""
        self.current = State.CREATED
        self.at_end: list[Callable[[], None]] = []
        """What to call, without arguments, when the client has ended; it must not wait."""
        self._client_id = client_id
        self._listener = listener

    @property
    def is_alive(self) -> bool:
        """Whether the threads of the client run or are about to run."""
        return self.current in ALIVE

    @property
    def has_ended(self) -> bool:
        """Whether the client is closed, or has ended with an error."""
        return self.current in ENDED

    def check_alive(self) -> None:
        """Raises InvalidStateStoreError for a client that was not started, StreamsError for one that has ended."""
        state = self.current
        if state is State.CREATED:
            raise InvalidStateStoreError("the client was not started yet: call start() before")
        if state not in ALIVE:
            raise StreamsError(f"the client is not running: it is {state.name}")

    def set(self, state: State) -> None:
        """Change the state, where the transition is valid, and call the listener. The caller must not hold
        `changed`.
        """
        before = self.change(state)
        if before is not None:
            self.notify_listener(state, before)

    def change(self, state: State) -> State | None:
        """Change the state, where the transition is valid; returns the previous one. `notify_listener` follows."""
        with self.changed:
            before = self.current
            if state is before or state not in NEXT[before]:
                return None
            self.current = state
            self.changed.notify_all()
            callbacks = [*self.at_end] if state in ENDED else []
        for callback in callbacks:
            callback()
        return before

    def notify_listener(self, state: State, before: State) -> None:
        """Log the transition and call the listener. Errors of the listener go to the log."""
        log.info("client state changed client=%s old=%s new=%s", self._client_id, before.name, state.name)
        if self._listener is not None:
            try:
                self._listener(state, before)
            except Exception:
                log.exception("error in the state listener")

    def wait_for(self, state: State, timeout_s: float) -> State:
        """Wait until the client has this state or has ended, or the time is over; returns the state it has then."""
        with self.changed:
            self.changed.wait_for(lambda: self.current is state or self.has_ended, timeout_s)
            return self.current
