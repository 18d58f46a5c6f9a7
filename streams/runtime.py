"""Stream application in a process: threads, global stores, state directory and client state (Kafka: KafkaStreams).

    with KafkaStreams(builder.build(), {"application.id": "counts", "bootstrap.servers": "localhost:9092"}) as streams:
        streams.wait_until(State.RUNNING, 30)
        ...

States and their transitions are Kafka's (org.apache.kafka.streams.KafkaStreams.State):

    CREATED -> REBALANCING <-> RUNNING -> PENDING_SHUTDOWN -> NOT_RUNNING
                    and from either       PENDING_ERROR -> ERROR

REBALANCING lasts until every thread has its tasks, restored. An error that ends a thread goes to the uncaught-exception
handler, which replaces the thread, or shuts down the client or the whole application (KIP-671).
"""

from __future__ import annotations

import logging
import operator
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.client_state import ALIVE, NEXT
from odradek.streams.client_state import ENDED as ENDED
from odradek.streams.client_state import State as State
from odradek.streams.config import StreamsConfig
from odradek.streams.context import TaskContext
from odradek.streams.errors import InvalidStateStoreError, ShutdownRequestedError, StreamsError, UncaughtResponse
from odradek.streams.group.subscription_info import Hosts
from odradek.streams.metrics import Metrics, client_metrics
from odradek.streams.queries import (
    Kind,
    LocalStores,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
    make_view,
)
from odradek.streams.records import TaskId
from odradek.streams.running.application import Application, now_ms
from odradek.streams.running.client import Clients, partitions_of
from odradek.streams.running.global_state import GLOBAL_TASK, GlobalState
from odradek.streams.running.leadership import GroupLeader, end_offsets
from odradek.streams.running.locations import (
    KeyQueryMetadata,
    LagInfo,
    Locations,
    Serializer,
    StreamsMetadata,
    local_lags,
)
from odradek.streams.running.restoration import CONSUMER as RESTORE_CONSUMER
from odradek.streams.running.restoration import RestoreListener
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.running.thread import StreamThread
from odradek.streams.running.thread_context import ThreadState
from odradek.streams.serdes import Serde
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.topology import Partitioner, Topology

log = logging.getLogger(__name__)


StateListener = Callable[[State, State], None]
"""A listener, called with the new state and the previous one."""
UncaughtExceptionHandler = Callable[[Exception], UncaughtResponse]


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """A snapshot of a task. Offsets are those of the last commit; the partitions of a standby are its changelogs'."""

    task_id: TaskId
    partitions: frozenset[TopicPartition]
    committed_offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """A snapshot of a thread and its tasks."""

    name: str
    state: ThreadState
    active_tasks: Sequence[TaskMetadata]
    standby_tasks: Sequence[TaskMetadata]


class KafkaStreams:
    """A client. Any thread may call its methods."""

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any],
        *,
        uncaught_exception_handler: UncaughtExceptionHandler | None = None,
        state_listener: StateListener | None = None,
        restore_listener: RestoreListener | None = None,
    ) -> None:
        """Nothing runs before `start`. Raises ConfigError, TopologyError, LockError.

        A thread that ends with an error calls `uncaught_exception_handler`; without one the client shuts down.
        """
        self.config = StreamsConfig(config)
        self.topology = topology
        self.failure: Exception | None = None
        """The error that ended the client, in state ERROR."""
        self.failed_threads = 0
        """How many threads have ended with an error so far."""
        self.hosts: Hosts = {}
        """The location of each partition, by application.server, as of the last rebalance."""
        self._handler = uncaught_exception_handler or (lambda error: UncaughtResponse.SHUTDOWN_CLIENT)
        self._listener = state_listener
        self._state = State.CREATED
        self._changed = threading.Condition(threading.RLock())
        self._threads: list[StreamThread] = []
        self._replace: set[StreamThread] = set()
        self._paused = False
        self._closer: threading.Thread | None = None
        self._starting = threading.Lock()
        self._starter: threading.Thread | None = None
        """The thread that runs `start`; the thread that closes the client waits for it."""
        self._global: GlobalState | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._directory = self._open_directory()
        client_id = self.config["client.id"] or f"{self.config['application.id']}-{self._directory.process_id}"
        self._clients = Clients(self.config, client_id)
        self._restore_listener = restore_listener
        self._application: Application | None = None
        self._locations = Locations(
            topology, self.config["application.id"], self.config["application.server"], self._partitions_of
        )
        self._stores = LocalStores(lambda: self.stream_threads, lambda: self.global_state)

    # ---- lifecycle

    def start(self) -> None:
        """Fill global stores, then start the threads. Raises StreamsError, also when it was started before."""
        with self._starting:
            if self._state is not State.CREATED:
                raise StreamsError("The client is either already started or already stopped, cannot re-start")
            self._starter = threading.current_thread()
            try:
                self._set(State.REBALANCING)
                self._application = self._make_application()
                with self._changed:
                    if self._state in ALIVE:  # it may have been closed while global stores were filled
                        for index in range(1, self.config["num.stream.threads"] + 1):
                            self._start_thread(index)
            except BaseException as error:
                self.failure = error if isinstance(error, Exception) else None
                self._shut_down(State.PENDING_ERROR)
                raise
            finally:
                self._starter = None

    def close(self, timeout_s: float | None = None, leave_group: bool = False) -> bool:
        """Commit, close everything, and wait for it. Returns whether it was done in time.

        With `leave_group` other members take over the tasks at once, without waiting for session.timeout.ms.
        """
        self._shut_down(State.PENDING_SHUTDOWN, leave_group)
        closer = self._closer
        if closer is not None and threading.current_thread() not in (closer, self._starter, *self._own_threads()):
            closer.join(timeout_s)
        return self._state in ENDED

    def __enter__(self) -> KafkaStreams:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def state(self) -> State:
        """The state of the client."""
        return self._state

    def wait_until(self, state: State, timeout_s: float) -> None:
        """Wait for a state. Raises TimeoutError, or StreamsError with the cause when the client ends in another one."""
        with self._changed:
            self._changed.wait_for(lambda: self._state is state or self._state in ENDED, timeout_s)
            if self._state is state:
                return
            if self._state in ENDED:
                raise StreamsError(f"the client is {self._state.name}, not {state.name}") from self.failure
            raise TimeoutError(f"the client is {self._state.name} after {timeout_s:g} s, not {state.name}")

    # ---- threads

    def add_stream_thread(self) -> str | None:
        """Add a thread; returns its name, or None where the client does not run (KIP-663)."""
        with self._changed:
            if self._state not in ALIVE or self._application is None:
                return None
            return self._start_thread(self._free_index()).name

    def remove_stream_thread(self, timeout_s: float | None = None) -> str | None:
        """Remove a thread; its tasks go to other threads at once. Returns its name, or None where there is none.

        Raises TimeoutError when it takes longer than `timeout_s`.
        """
        with self._changed:
            if self._state not in ALIVE:
                return None
            alive = [thread for thread in self._threads if thread.state is not ThreadState.DEAD]
            if not alive:
                return None
            current = threading.current_thread().name
            thread = next((each for each in reversed(alive) if each.name != current), alive[-1])
        thread.stop(leave=True)
        if thread.name != current and not thread.join(timeout_s):
            raise TimeoutError(f"{thread.name} has not ended within {timeout_s:g} s")
        return thread.name

    def pause(self) -> None:
        """Process nothing until `resume`; membership and commits continue (KIP-834)."""
        with self._changed:
            self._paused = True
            for thread in self._threads:
                thread.paused.set()

    def resume(self) -> None:
        """Continue processing."""
        with self._changed:
            self._paused = False
            for thread in self._threads:
                thread.paused.clear()

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was called last."""
        return self._paused

    def metadata_for_local_threads(self) -> list[ThreadMetadata]:
        """The threads and their tasks."""
        with self._changed:
            threads = list(self._threads)
        found = []
        for thread in threads:
            tasks = list(thread.tasks.tasks.items()) if thread.tasks is not None else []
            active = [TaskMetadata(task_id, each.sources, dict(each.committed)) for task_id, each in tasks]
            standbys = list(thread.standbys.tasks.items()) if thread.standbys is not None else []
            passive = [TaskMetadata(task_id, frozenset(each.changelogs.values()), {}) for task_id, each in standbys]
            active.sort(key=operator.attrgetter("task_id"))
            passive.sort(key=operator.attrgetter("task_id"))
            found.append(ThreadMetadata(thread.name, thread.state, active, passive))
        return found

    @property
    def stream_threads(self) -> Sequence[StreamThread]:
        """The running threads, for queries and metrics."""
        with self._changed:
            return tuple(self._threads)

    @property
    def global_state(self) -> GlobalState | None:
        """The global stores; None where the topology has none, and before they are restored."""
        return self._global if self._application is not None else None

    # ---- queries

    @overload
    def store(
        self,
        name: str,
        kind: Literal["key-value", "timestamped-key-value"] = "key-value",
        *,
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyKeyValueStore: ...

    @overload
    def store(
        self,
        name: str,
        kind: Literal["window", "timestamped-window"],
        *,
        partition: int | None = None,
        stale: bool = False,
    ) -> ReadOnlyWindowStore: ...

    @overload
    def store(
        self, name: str, kind: Literal["session"], *, partition: int | None = None, stale: bool = False
    ) -> ReadOnlySessionStore: ...

    @overload
    def store(
        self, name: str, kind: Literal["versioned"], *, partition: int | None = None, stale: bool = False
    ) -> ReadOnlyVersionedStore: ...

    def store(self, name: str, kind: Kind = "key-value", *, partition: int | None = None, stale: bool = False) -> Any:
        """A view of this instance's part of a store; see `queries.py`. It reads the stores of its own tasks alone:
        `query_metadata_for_key` returns the instance that has a key.

        `partition` narrows it to one task's store; with `stale` it also reads standbys and tasks that are being
        restored. Raises UnknownStateStoreError, InvalidStateStoreError for another kind of store or a client that was
        not started, StreamsError for one that has ended. Reads raise InvalidStateStoreError while the stores are on
        other instances.
        """
        self._check_runs()
        return make_view(self.topology, name, kind, self._stores.finder(name, kind, partition, stale))

    def query_metadata_for_key(
        self, store: str, key: Any, serializer: Serde[Any] | Serializer, partitioner: Partitioner | None = None
    ) -> KeyQueryMetadata | None:
        """The instance that has a key, and its standbys; None where there is no such store (KIP-535).

        `partitioner` is the partitioner that writes the source topics of the store, where that is not the default.
        Instances are identified by their application.server. Raises StreamsError.
        """
        self._check_runs()
        serialize = serializer.serialize if isinstance(serializer, Serde) else serializer
        return self._locations.of_key(store, key, serialize, partitioner)

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """The instances that have a partition of a store. Raises StreamsError."""
        self._check_runs()
        return self._locations.of_store(store)

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """All instances that have an application.server, and their stores and partitions. Raises StreamsError."""
        self._check_runs()
        return self._locations.everywhere()

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """The lags of this instance's stores behind their changelogs, by store and partition. Raises StreamsError."""
        self._check_runs()
        assert self._application is not None
        admin, timeout_s = self._application.admin, self.config["request.timeout.ms"] / 1000
        states = [found for thread in self.stream_threads for found in thread.states()]
        return local_lags(states, lambda places: end_offsets(admin, places, timeout_s))

    def _check_runs(self) -> None:
        if self._state is State.CREATED:
            raise InvalidStateStoreError("the client was not started yet: call start() before")
        if self._state not in ALIVE:
            raise StreamsError(f"the client is not running: it is {self._state.name}")

    def _partitions_of(self, topic: str) -> int:
        assert self._application is not None
        return partitions_of(self._application.admin, topic, self.config["request.timeout.ms"] / 1000)

    # ---- metrics

    def metrics(self) -> Metrics:
        """The metrics, by group, name and tags; see `metrics.py`."""
        return client_metrics(self)

    @property
    def client_id(self) -> str:
        """The prefix of the names of threads and clients."""
        return self._clients.client_id

    # ---- state on disk

    def clean_up(self) -> None:
        """Remove the application's state on this machine. Raises StreamsError while the client runs, OSError."""
        if self._state not in (State.CREATED, *ENDED):
            raise StreamsError("Cannot clean up while running.")
        if self._state is State.CREATED:
            self._directory.clean()
            return
        directory = self._open_directory()
        try:
            directory.clean()
        finally:
            directory.close()

    def _open_directory(self) -> StateDirectory:
        """Topologies without stores on disk need no state.dir: any number of their instances can share a machine."""
        builders = [*self.topology.stores.values(), *self.topology.global_stores.values()]
        if any(getattr(builder, "persistent", True) for builder in builders):
            return StateDirectory(Path(self.config["state.dir"]), self.config["application.id"])
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="odradek-streams-")
        return StateDirectory(Path(self._temporary.name), self.config["application.id"])

    # ---- internals

    def _make_application(self) -> Application:
        config, clients = self.config, self._clients
        admin = clients.admin()
        leader = GroupLeader(self.topology, config, admin)
        if self.topology.global_stores:
            context = TaskContext(
                TaskId(GLOBAL_TASK, GLOBAL_TASK),
                _NoCollector(),
                now_ms,
                config,
                ThreadCache(0),
                handlers=config.handlers,
            )
            self._global = GlobalState(
                self.topology,
                context,
                clients.global_consumer(RESTORE_CONSUMER),
                self._directory,
                timeout_s=config["request.timeout.ms"] / 1000,
                give_up_s=config["task.timeout.ms"] / 1000,
                listener=self._restore_listener,
                on_failure=self._global_failed,
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
        )

    def _start_thread(self, index: int) -> StreamThread:
        assert self._application is not None
        thread = StreamThread(
            self._application,
            index,
            0,
            on_state=self._thread_changed,
            on_error=self._thread_failed,
            hosts_changed=self._learn_hosts,
        )
        if self._paused:
            thread.paused.set()
        self._threads.append(thread)
        self._share_cache()
        thread.start()
        return thread

    def _share_cache(self) -> None:
        """Divide the cache evenly among threads; a thread with a smaller share evicts at its next write."""
        for thread in self._threads:
            thread.cache.limit = self.config["statestore.cache.max.bytes"] // len(self._threads)

    def _free_index(self) -> int:
        used = {thread.index for thread in self._threads}
        return next(index for index in range(1, len(used) + 2) if index not in used)

    def _own_threads(self) -> list[threading.Thread]:
        return [thread.thread for thread in self._threads]

    def _learn_hosts(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self._locations.learn(hosts)

    def _set(self, state: State) -> bool:
        """Change the state, where the transition is valid, and notify listeners. The caller must not hold
        `_changed`.
        """
        before = self._change(state)
        if before is not None:
            self._tell(state, before)
        return before is not None

    def _change(self, state: State) -> State | None:
        """Change the state, where the transition is valid; returns the previous one."""
        with self._changed:
            before = self._state
            if state is before or state not in NEXT[before]:
                return None
            self._state = state
            self._changed.notify_all()
        return before

    def _tell(self, state: State, before: State) -> None:
        log.info("client state changed client=%s old=%s new=%s", self._clients.client_id, before.name, state.name)
        if self._listener is not None:
            try:
                self._listener(state, before)
            except Exception:
                log.exception("error in the state listener")

    def _thread_changed(self, thread: StreamThread) -> None:
        """A thread has changed its state."""
        if thread.state is ThreadState.DEAD:
            self._thread_ended(thread)
            return
        with self._changed:
            states = {each.state for each in self._threads}
            rebalancing = {ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED}
            running = states <= {ThreadState.RUNNING, ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD}
        if thread.state in rebalancing:
            self._set(State.REBALANCING)
        elif running and ThreadState.RUNNING in states:
            self._set(State.RUNNING)

    def _thread_ended(self, thread: StreamThread) -> None:
        with self._changed:
            if thread in self._threads:
                self._threads.remove(thread)
                self._share_cache()
            replace = thread in self._replace and self._state in ALIVE
            self._replace.discard(thread)
            if replace:
                self._start_thread(thread.index)
            else:
                self._changed.notify_all()

    def _thread_failed(self, thread: StreamThread, error: Exception) -> None:
        """Called by a thread that ends with an error; the handler decides what follows."""
        log.error("stream thread failed thread=%s", thread.name, exc_info=error)
        self.failed_threads += 1
        if isinstance(error, ShutdownRequestedError):
            response = UncaughtResponse.SHUTDOWN_CLIENT
        else:
            try:
                response = self._handler(error)
            except Exception as problem:
                log.error("shutting down the client after an error in the uncaught exception handler", exc_info=problem)
                response = UncaughtResponse.SHUTDOWN_CLIENT
        if self._state not in ALIVE:
            return
        if response is UncaughtResponse.REPLACE_THREAD:
            thread.leave = True  # its replacement need not wait for the session timeout of this member
            self._replace.add(thread)
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
        with self._changed:
            before = self._change(State.PENDING_SHUTDOWN if self._state is State.CREATED else state)
            if before is None:
                return
            self._closer = threading.Thread(
                target=self._close_all,
                args=(before, leave_group),
                name=f"{self._clients.client_id}-CloseThread",
                daemon=True,
            )
            self._closer.start()

    def _close_all(self, before: State, leave_group: bool) -> None:
        self._tell(self._state, before)
        if self._global is not None:
            self._global.stop()
        with self._starting, self._changed:
            threads = list(self._threads)
        for thread in threads:
            thread.stop(leave_group)
        for thread in threads:
            thread.join()
        try:
            if self._global is not None:
                self._global.close()
        except Exception as error:
            log.warning("error while closing the global stores error=%r", error)
        self._directory.close()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
        self._set(State.ERROR if self._state is State.PENDING_ERROR else State.NOT_RUNNING)


class _NoCollector:
    """Global stores have no changelog and no downstream nodes."""

    def send(self, topic: str, *record: Any) -> None:
        raise StreamsError(f"a processor of a global store cannot write (to {topic})")

    def partitions_of(self, topic: str) -> int:
        raise StreamsError(f"a processor of a global store cannot write (to {topic})")


__all__ = ["ENDED", "KafkaStreams", "State", "TaskMetadata", "ThreadMetadata"]
