"""Worker process: runs the client of one process of an application, and reports its status to the supervisor.

SIGTERM closes the client. So does the end of the supervisor, which the worker detects by the end of the status stream.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.streams.errors import LockError, ShutdownRequestedError, StreamsError
from odradek.streams.metrics import Metrics, flat
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.supervisor.loading import ApplicationError, load_topology, properties_of_process
from odradek.streams.supervisor.status import (
    CollectRequest,
    CollectResponse,
    Message,
    Sample,
    StateChanged,
    TopologyLoaded,
    decode,
    encode,
)
from odradek.streams.supervisor.supervision import CLOSED, FAILED, KILL_AFTER_S, SHUTDOWN_REQUESTED, UNUSABLE
from odradek.streams.topology import Topology
from odradek.streams.topology_view.document import ApplicationDocument
from odradek.streams.topology_view.model import view_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What one worker runs."""

    application: str
    """module:topology"""
    folder: Path
    """The first place to search for the module."""
    properties: Mapping[str, Any]
    process: int
    threads: int | None
    close_timeout_s: float


class StatusReporter:
    """The worker's end of the status protocol. It answers requests in a thread of its own."""

    def __init__(self, channel: socket.socket, on_end: Callable[[], None]) -> None:
        """The thread calls `on_end` when the supervisor has ended."""
        self._channel = channel
        self._on_end = on_end
        self._sending = threading.Lock()
        self.metrics: Callable[[], Metrics] = dict
        threading.Thread(target=self._serve, name="status", daemon=True).start()

    def state_changed(self, state: State, before: State) -> None:
        """Report a state; it is a state listener of a client."""
        self._send(StateChanged(state.name))

    def described(self, application_id: str, topology: Topology) -> None:
        """Report the topology of the application."""
        self._send(TopologyLoaded(ApplicationDocument(application_id, view_of(topology)).text()))

    def _send(self, message: Message) -> None:
        try:
            with self._sending:
                self._channel.sendall(encode(message))
        except OSError as error:  # the supervisor has ended, which `_serve` detects
            log.debug("status not sent error=%s", error)

    def _serve(self) -> None:
        try:
            with self._channel.makefile("rb") as lines:
                for line in lines:
                    self._handle(decode(line))
        except OSError as error:
            log.debug("status stream ended error=%s", error)
        self._on_end()

    def _handle(self, message: Message) -> None:
        if isinstance(message, CollectRequest):
            try:
                samples = [Sample(*each) for each in flat(self.metrics())]
            except Exception:
                log.exception("error while collecting metrics")
                samples = []
            self._send(CollectResponse(message.number, samples))


class ApplicationWorker:
    """One process of an application."""

    def __init__(self, settings: WorkerSettings, channel: socket.socket) -> None:
        self._settings = settings
        self._streams: KafkaStreams | None = None
        self._reporter = StatusReporter(channel, self._end_with_supervisor)

    def run(self) -> int:
        """Run the client until SIGTERM. The main thread calls it once. Returns the exit status of the process, a
        constant of `supervision.py`.
        """
        try:
            streams = self._make_client()
        except LockError as error:
            log.error("state directory in use process=%d error=%s", self._settings.process, error)
            return FAILED
        except (ApplicationError, StreamsError) as error:
            log.error("application not usable application=%s error=%s", self._settings.application, error)
            return UNUSABLE
        except Exception:
            log.exception("error while loading the application application=%s", self._settings.application)
            return UNUSABLE
        return self._run_client(streams)

    def _make_client(self) -> KafkaStreams:
        settings = self._settings
        topology = load_topology(settings.application, settings.folder)
        properties = properties_of_process(settings.properties, settings.process, settings.threads)
        self._streams = KafkaStreams(topology, properties, state_listener=self._reporter.state_changed)
        self._reporter.metrics = self._streams.metrics
        self._reporter.described(self._streams.config["application.id"], topology)
        return self._streams

    def _run_client(self, streams: KafkaStreams) -> int:
        try:
            status = streams.run(close_timeout_s=self._settings.close_timeout_s)
        except ShutdownRequestedError as error:
            log.error("application shut down process=%d error=%s", self._settings.process, error)
            return SHUTDOWN_REQUESTED
        except Exception as error:
            log.error("client failed process=%d", self._settings.process, exc_info=error)
            return FAILED
        if status:
            log.error(
                "client not closed in time process=%d timeout_s=%g",
                self._settings.process,
                self._settings.close_timeout_s,
            )
        return FAILED if status else CLOSED

    def _end_with_supervisor(self) -> None:
        """Close the client as SIGTERM does; a second SIGTERM would end a process that is closing already."""
        streams = self._streams
        if streams is None:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        log.warning("closing the client, as the supervisor has ended process=%d", self._settings.process)
        late = threading.Timer(self._settings.close_timeout_s + KILL_AFTER_S, os._exit, (FAILED,))
        late.daemon = True
        late.start()
        streams.close(0)
