"""Runner: runs a source or a sink until it is stopped (Kafka Connect: Worker).

    sys.exit(run_sink(PostgresSink("dbname=shop", "orders"), {"application.id": "orders-to-postgres", …}))

    with sink_runner(…) as runner:  # in a program that has other work
        ...

A runner has one thread, in which it calls the connector. The thread goes from session to session: a session ends when
another process takes over its partitions, or when a transaction is aborted, and the next one continues at the stored
offsets. Every other error ends the runner, and is raised by `run`.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from odradek.streams.client_state import ClientState, State, StateListener
from odradek.streams.config import EXACTLY_ONCE_V2, StreamsConfigError
from odradek.streams.connectors.config import ConnectorConfig
from odradek.streams.connectors.conversions import deserializer, serializer
from odradek.streams.connectors.errors import FencedError, RetriableError, StoppedError
from odradek.streams.connectors.interface import Sink, Source
from odradek.streams.connectors.retries import Retries
from odradek.streams.connectors.sink_clients import KafkaSinkInput
from odradek.streams.connectors.sink_worker import SinkSettings, SinkWorker
from odradek.streams.connectors.source_clients import KafkaTaskGroup
from odradek.streams.connectors.source_worker import SourceSettings, SourceWorker
from odradek.streams.errors import StreamsError
from odradek.streams.lifecycle import Lifecycle
from odradek.streams.running.client import Clients

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class ConnectorSession(Protocol):
    """A SourceWorker or a SinkWorker."""

    commits: int

    @property
    def is_assigned(self) -> bool:
        """Whether the group has assigned work to this process."""

    def step(self) -> None:
        """Work for some milliseconds. Any exception ends the session."""

    def commit(self) -> None:
        """Commit everything that was done."""

    def close(self) -> None:
        """Release everything. Does not raise."""


class ConnectorRunner(Lifecycle):
    """Runs one connector. Any thread may call its methods."""

    def __init__(
        self,
        config: ConnectorConfig,
        make_session: Callable[[ConnectorConfig, Clients, Retries], ConnectorSession],
        state_listener: StateListener | None = None,
    ) -> None:
        """Nothing runs before `start`. The thread calls `make_session` at the beginning of each session."""
        self.config = config
        self.failure: Exception | None = None
        """The error that ended the runner, in state ERROR."""
        self.sessions = 0
        """The sessions that were begun so far."""
        client_id = config["client.id"] or f"{config['name']}-{uuid.uuid4()}"
        self._clients = Clients(config.streams, client_id)
        self._make_session = make_session
        self._stopping = threading.Event()
        self._retries = Retries(
            config["errors.retry.timeout"],
            config["retry.backoff.ms"],
            config["errors.retry.delay.max.ms"],
            time.monotonic,
            self._stopping.wait,
        )
        self._state = ClientState(client_id, state_listener)
        self._thread = threading.Thread(target=self._main, name=f"{client_id}-connector", daemon=True)

    @property
    def client_id(self) -> str:
        """The prefix of the names of the thread and the clients."""
        return self._clients.client_id

    @property
    def state(self) -> State:
        """REBALANCING until the group has assigned something, then RUNNING; the others as of a stream application."""
        return self._state.current

    def start(self) -> None:
        """Start the thread. Raises StreamsError where it was started before."""
        if self._state.change(State.REBALANCING) is None:
            raise StreamsError("The connector is either already started or already stopped, cannot re-start")
        atexit.register(self._end_with_the_program)
        self._thread.start()

    def close(self, timeout_s: float | None = None, leave_group: bool = False) -> bool:
        """Flush, commit, leave the group, and wait for it. Returns whether it was done in time. A member with a
        group.instance.id stays in the group for session.timeout.ms.
        """
        self._shut_down(State.PENDING_SHUTDOWN)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return self._state.has_ended

    def _shut_down(self, state: State, leave_group: bool = False) -> None:
        before = self._state.current
        self._state.set(state)
        self._stopping.set()
        if before is State.CREATED:
            self._state.set(State.NOT_RUNNING)

    # ---- the thread

    def _main(self) -> None:
        try:
            self._run_sessions()
        except StoppedError as error:
            log.warning("connector stopped connector=%s error=%s", self.config["name"], error)
        except BaseException as error:  # includes sys.exit() in a connector, which no other code reports
            log.exception("connector failed connector=%s", self.config["name"])
            self.failure = error if isinstance(error, Exception) else StreamsError(repr(error))
        finally:
            atexit.unregister(self._end_with_the_program)
            if self.failure is None:
                self._state.set(State.PENDING_SHUTDOWN)
                self._state.set(State.NOT_RUNNING)
            elif self._state.current is State.PENDING_SHUTDOWN:  # it failed while it closed
                self._state.set(State.NOT_RUNNING)
            else:
                self._state.set(State.PENDING_ERROR)
                self._state.set(State.ERROR)

    def _run_sessions(self) -> None:
        """Begin sessions until the runner is stopped. Raises the error of a session that no other one can repair, and
        any error that returns for task.timeout.ms.
        """
        timeout_s = self.config["task.timeout.ms"] / 1000
        deadline = time.monotonic() + timeout_s
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            self.sessions += 1
            session: ConnectorSession | None = None
            try:
                session = self._make_session(self.config, self._clients, self._retries)
                self._run_session(session)
            except (FencedError, RetriableError) as error:
                if session is not None and session.commits:
                    deadline, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
                if time.monotonic() > deadline:
                    raise
                log.warning("session ended connector=%s pause_s=%.1f error=%s", self.config["name"], pause_s, error)
            finally:
                if session is not None:
                    session.close()
            self._state.set(State.REBALANCING)
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _run_session(self, session: ConnectorSession) -> None:
        while not self._stopping.is_set():
            session.step()
            self._state.set(State.RUNNING if session.is_assigned else State.REBALANCING)
        session.commit()


def source_runner(
    source: Source, properties: Mapping[str, Any], *, state_listener: StateListener | None = None
) -> ConnectorRunner:
    """A runner of a source. Raises StreamsConfigError."""

    def make_session(config: ConnectorConfig, clients: Clients, retries: Retries) -> ConnectorSession:
        settings = SourceSettings(
            connector=config["name"],
            key=serializer(config["default.key.serde"], is_key=True),
            value=serializer(config["default.value.serde"], is_key=False),
            max_records=config["max.poll.records"],
            poll_s=config["poll.ms"] / 1000,
            commit_s=config["commit.interval.ms"] / 1000,
            refresh_s=config["source.partitions.refresh.interval.ms"] / 1000,
        )
        return SourceWorker(
            source, settings, lambda listener: KafkaTaskGroup(config, clients, listener), retries, time.monotonic
        )

    return ConnectorRunner(ConnectorConfig(properties, is_source=True), make_session, state_listener)


def sink_runner(
    sink: Sink, properties: Mapping[str, Any], *, state_listener: StateListener | None = None
) -> ConnectorRunner:
    """A runner of a sink. Raises StreamsConfigError, also where processing.guarantee=exactly_once_v2 is given and the
    sink does not store offsets.
    """
    config = ConnectorConfig(properties, is_source=False)
    if config.requires_exactly_once and not sink.stores_offsets:
        raise StreamsConfigError(
            f"processing.guarantee is {EXACTLY_ONCE_V2}, but {type(sink).__name__} is at least once: it does not store "
            "offsets with the records"
        )

    def make_session(config: ConnectorConfig, clients: Clients, retries: Retries) -> ConnectorSession:
        settings = SinkSettings(
            connector=config["name"],
            group=config.group,
            key=deserializer(config["default.key.serde"], is_key=True),
            value=deserializer(config["default.value.serde"], is_key=False),
            max_records=config["max.poll.records"],
            poll_s=config["poll.ms"] / 1000,
            commit_s=config["commit.interval.ms"] / 1000,
            tolerant=config["errors.tolerance"] == "all",
            dead_letter_topic=config["errors.deadletterqueue.topic.name"],
            dead_letter_headers=config["errors.deadletterqueue.context.headers.enable"],
        )
        return SinkWorker(
            sink, settings, lambda listener: KafkaSinkInput(config, clients, listener), retries, time.monotonic
        )

    return ConnectorRunner(config, make_session, state_listener)


def run_source(source: Source, properties: Mapping[str, Any], **options: Any) -> int:
    """Run a source until SIGINT or SIGTERM; see `Lifecycle.run` for the options and the result. Raises
    StreamsConfigError, and the error that ended it.
    """
    return source_runner(source, properties).run(**options)


def run_sink(sink: Sink, properties: Mapping[str, Any], **options: Any) -> int:
    """Run a sink until SIGINT or SIGTERM; see `Lifecycle.run` for the options and the result. Raises
    StreamsConfigError, and the error that ended it.
    """
    return sink_runner(sink, properties).run(**options)
