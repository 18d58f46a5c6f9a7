"""Stream application in a process: threads, global stores, state directory and client state (Kafka: KafkaStreams).

    streams = KafkaStreams(builder.build(), {"application.id": "counts", "bootstrap.servers": "localhost:9092"})
    sys.exit(streams.run())  # until SIGINT or SIGTERM

    with KafkaStreams(…) as streams:  # or `async with`
        streams.wait_until(State.RUNNING, 30)
        ...

States and their transitions are Kafka's (org.apache.kafka.streams.KafkaStreams.State):

    CREATED -> REBALANCING <-> RUNNING -> PENDING_SHUTDOWN -> NOT_RUNNING
                    and from either       PENDING_ERROR -> ERROR

REBALANCING lasts until every thread has its tasks, restored. An error that ends a thread goes to the uncaught-exception
handler, which replaces the thread, or shuts down the client or the whole application (KIP-671).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from odradek.streams.checks import check_application
from odradek.streams.client_state import ENDED, ClientState, State, StateListener
from odradek.streams.config import StreamsConfig
from odradek.streams.errors import ShutdownRequestedError, StreamsError, UncaughtResponse
from odradek.streams.extensions import warn_of_missing_extensions
from odradek.streams.group.authentication import security_of
from odradek.streams.group.subscription_info import Hosts
from odradek.streams.interactive_queries import InteractiveQueries
from odradek.streams.java_names import JavaNames
from odradek.streams.lifecycle import Lifecycle
from odradek.streams.metrics import Metrics, client_metrics
from odradek.streams.running.application import Application
from odradek.streams.running.client import Clients
from odradek.streams.running.garbage_collection import YOUNG_OBJECTS
from odradek.streams.running.global_state import GlobalState, make_global_state
from odradek.streams.running.leadership import GroupLeader
from odradek.streams.running.restoration import CONSUMER as RESTORE_CONSUMER
from odradek.streams.running.restoration import RestoreListener
from odradek.streams.running.standby_listener import StandbyUpdateListener
from odradek.streams.running.state_directory import open_state_directory
from odradek.streams.running.stream_threads import StreamThreads, TaskMetadata, ThreadMetadata
from odradek.streams.running.thread import StreamThread
from odradek.streams.sensors import StreamsMetrics
from odradek.streams.topology import Topology

log = logging.getLogger(__name__)


UncaughtExceptionHandler = Callable[[Exception], UncaughtResponse]


class KafkaStreams(JavaNames, InteractiveQueries, Lifecycle):
    """A client. Any thread may call its methods."""

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any],
        *,
        uncaught_exception_handler: UncaughtExceptionHandler | None = None,
        state_listener: StateListener | None = None,
        restore_listener: RestoreListener | None = None,
        standby_update_listener: StandbyUpdateListener | None = None,
    ) -> None:
        """Nothing runs before `start`. Raises StreamsConfigError, TopologyError, LockError, and StreamsError for
        security properties that cannot be applied.

        A thread that ends with an error calls `uncaught_exception_handler`; without one the client shuts down.
        """
        self.config = StreamsConfig(config)
        check_application(topology, self.config)
        security_of(self.config)  # raises now rather than in a thread
        self.failure: Exception | None = None
        """The error that ended the client, in state ERROR."""
        self.failed_threads = 0
        """How many threads have ended with an error so far."""
        self.hosts: Hosts = {}
        """The location of each partition, by application.server, as of the last rebalance."""
        self._handler = uncaught_exception_handler or (lambda error: UncaughtResponse.SHUTDOWN_CLIENT)
        self._restore_listener = restore_listener
        self._standby_listener = standby_update_listener
        self._directory = open_state_directory(topology, self.config)
        client_id = self.config["client.id"] or f"{self.config['application.id']}-{self._directory.process_id}"
        self._clients = Clients(self.config, client_id)
        self._state = ClientState(client_id, state_listener)
        self._threads = StreamThreads(
            self._state,
            self.config["statestore.cache.max.bytes"],
            on_error=self._thread_failed,
            hosts_changed=self._hosts_changed,
        )
        self._sensors = StreamsMetrics(self.config)
        self._global: GlobalState | None = None
        self._on_end = contextlib.ExitStack()
        """What the end of a started client undoes in the process."""
        self._starting = threading.Lock()
        self._starter: threading.Thread | None = None
        """The thread that runs `start`; the thread that closes the client waits for it."""
        self._closer: threading.Thread | None = None
        InteractiveQueries.__init__(self, topology, self.config, self._state, self._threads)

    # ---- lifecycle

    def start(self) -> None:
        """Fill global stores, then start the threads. Raises StreamsError, also when it was started before."""
        with self._starting:
            if self._state.current is not State.CREATED:
                raise StreamsError("The client is either already started or already stopped, cannot re-start")
            warn_of_missing_extensions()
            self._starter = threading.current_thread()
            atexit.register(self._end_with_the_program)
            self._on_end.callback(atexit.unregister, self._end_with_the_program)
            YOUNG_OBJECTS.hold(self.config["gc.young.objects"])
            self._on_end.callback(YOUNG_OBJECTS.release, self.config["gc.young.objects"])
            try:
                self._state.set(State.REBALANCING)
                self._threads.start(self._make_application())
            except BaseException as error:
                self.failure = error if isinstance(error, Exception) else None
                self._shut_down(State.PENDING_ERROR)
                raise
            finally:
                self._starter = None

    def close(self, timeout_s: float | None = None, leave_group: bool = False) -> bool:
        """Commit, close everything, and wait for it. Returns whether it was done in time.

        The members leave the group (internal.leave.group.on.close), but those with a group.instance.id, which another
        start continues; with `leave_group` these leave, too, and other members take over their tasks at once.
        """
        self._shut_down(State.PENDING_SHUTDOWN, leave_group)
        closer = self._closer
        own = (closer, self._starter, *(each.thread for each in self._threads.all))
        if closer is not None and threading.current_thread() not in own:
            closer.join(timeout_s)
        return self._state.has_ended

    @property
    def state(self) -> State:
        """The state of the client."""
        return self._state.current

    def wait_until(self, state: State, timeout_s: float) -> None:
        """Wait for a state. Raises TimeoutError, or StreamsError with the cause when the client ends in another one."""
        reached = self._state.wait_for(state, timeout_s)
        if reached is state:
            return
        if reached in ENDED:
            raise StreamsError(f"the client is {reached.name}, not {state.name}") from self.failure
        raise TimeoutError(f"the client is {reached.name} after {timeout_s:g} s, not {state.name}")

    # ---- threads

    def add_stream_thread(self) -> str | None:
        """Add a thread; returns its name, or None where the client does not run (KIP-663)."""
        thread = self._threads.add()
        return None if thread is None else thread.name

    def remove_stream_thread(self, timeout_s: float | None = None) -> str | None:
        """Remove a thread; its tasks go to other threads at once. Returns its name, or None where there is none.

        Raises TimeoutError when it takes longer than `timeout_s`.
        """
        thread = self._threads.remove(timeout_s)
        return None if thread is None else thread.name

    def pause(self) -> None:
        """Process nothing until `resume`; membership and commits continue (KIP-834)."""
        self._threads.pause()

    def resume(self) -> None:
        """Continue processing."""
        self._threads.resume()

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was called last."""
        return self._threads.paused

    def metadata_for_local_threads(self) -> list[ThreadMetadata]:
        """The threads and their tasks."""
        return self._threads.metadata()

    @property
    def global_state(self) -> GlobalState | None:
        """The global stores; None where the topology has none, and before they are restored."""
        return self._global if self._threads.application is not None else None

    # ---- metrics

    def metrics(self) -> Metrics:
        """The metrics, by group, name and tags, the user's sensors among them; see `metrics.py`."""
        return client_metrics(self) | self._sensors.metrics()

    @property
    def client_id(self) -> str:
        """The prefix of the names of threads and clients."""
        return self._clients.client_id

    # ---- state on disk

    def clean_up(self) -> None:
        """Remove the application's state on this machine. Raises StreamsError while the client runs, OSError."""
        state = self._state.current
        if state is State.CREATED:
            self._directory.clean()
        elif state in ENDED:
            with contextlib.closing(open_state_directory(self.topology, self.config)) as directory:
                directory.clean()
        else:
            raise StreamsError("Cannot clean up while running.")

    # ---- internals

    def _make_application(self) -> Application:
        config, clients = self.config, self._clients
        admin = clients.admin()
        leader = GroupLeader(self.topology, config, admin)
        if self.topology.global_stores:
            self._global = make_global_state(
                self.topology,
                config,
                clients.global_consumer(RESTORE_CONSUMER),
                self._directory,
                listener=self._restore_listener,
                on_failure=self._global_failed,
                sensors=self._sensors,
            )
            self._global.start()
        return Application(
            self.topology,
            config,
            clients,
            self._directory,
            leader,
            admin,
            self._global.stores if self._global is not None else {},
            self._global.lock if self._global is not None else None,
            self._restore_listener,
            self._standby_listener,
            sensors=self._sensors,
        )

    def _hosts_changed(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self._locations.learn(hosts)

    def _thread_failed(self, thread: StreamThread, error: Exception) -> None:
        """Called by a thread that ends with an error; the handler decides what follows."""
        log.error("stream thread failed thread=%s", thread.name, exc_info=error)
        self.failed_threads += 1
        response = _response(self._handler, error)
        if not self._state.is_alive:
            return
        if response is UncaughtResponse.REPLACE_THREAD:
            self._threads.replace(thread)
            return
        self.failure = self.failure or error
        if response is UncaughtResponse.SHUTDOWN_APPLICATION:
            thread.ask_for_shutdown()
        self._shut_down(State.PENDING_ERROR)

    def _global_failed(self, error: Exception) -> None:
        log.error("shutting down the client after an error in the global stores", exc_info=error)
        self.failure = self.failure or error
        self._shut_down(State.PENDING_ERROR)

    def _shut_down(self, state: State, leave_group: bool = False) -> None:
        """Begin to shut down, once, in another thread: the calling thread may be one of those that have to end."""
        with self._state.changed:
            before = self._state.change(State.PENDING_SHUTDOWN if self.state is State.CREATED else state)
            if before is None:
                return
            self._closer = threading.Thread(
                target=self._close_all, args=(before, leave_group), name=f"{self.client_id}-CloseThread", daemon=True
            )
            self._closer.start()

    def _close_all(self, before: State, leave_group: bool) -> None:
        self._state.notify_listener(self._state.current, before)
        if self._global is not None:
            self._global.stop()
        with self._starting:  # `start` has started all threads, or none
            threads = self._threads.stop_all(leave_group)
        for thread in threads:
            thread.join()
        try:
            if self._global is not None:
                self._global.close()
        except Exception as error:
            log.warning("error while closing the global stores error=%r", error)
        self._directory.close()
        self._on_end.close()
        self._state.set(State.ERROR if self._state.current is State.PENDING_ERROR else State.NOT_RUNNING)


def _response(handler: UncaughtExceptionHandler, error: Exception) -> UncaughtResponse:
    """What follows from the error of a thread. An error of the handler shuts down the client."""
    if isinstance(error, ShutdownRequestedError):
        return UncaughtResponse.SHUTDOWN_CLIENT
    try:
        return handler(error)
    except Exception as problem:
        log.error("shutting down the client after an error in the uncaught exception handler", exc_info=problem)
        return UncaughtResponse.SHUTDOWN_CLIENT


__all__ = ["ENDED", "KafkaStreams", "State", "StateListener", "TaskMetadata", "ThreadMetadata"]
