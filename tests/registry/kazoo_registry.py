"""A session with a real ZooKeeper behind the registry's interface, for the tests: kazoo, its calls made in threads.

It exists so that the contract suite and the differential test can ask ZooKeeper itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import kazoo.exceptions
from kazoo.client import KazooClient
from kazoo.protocol.states import Callback, EventType, KazooState, WatchedEvent

from odradek.broker.registry import interface
from odradek.broker.registry.interface import (
    ANY_VERSION,
    Check,
    Create,
    Created,
    Delete,
    Event,
    EventKind,
    Operation,
    OperationResult,
    RegistryError,
    SessionExpiredError,
    SessionState,
    Set,
    Stat,
    Watcher,
)

_KINDS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHANGED: EventKind.DATA_CHANGED,
    EventType.CHILD: EventKind.CHILDREN_CHANGED,
}
_ERRORS: dict[int, type[RegistryError]] = {
    error.code: error
    for error in vars(interface).values()
    if isinstance(error, type) and issubclass(error, RegistryError) and error.code
}
# What kazoo reports for the operations of a transaction other than the one that failed.
_BYSTANDERS = (kazoo.exceptions.RolledBackError, kazoo.exceptions.RuntimeInconsistency)


class KazooEnsemble:
    """A real ZooKeeper, as the contract suite sees an implementation."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        self._sessions: dict[int, KazooRegistry] = {}

    async def connect(self, timeout_ms: int = 10_000) -> KazooRegistry:
        """Begin a session."""
        registry = KazooRegistry(KazooClient(self._connect, timeout=timeout_ms / 1000))
        await registry.start()
        self._sessions[registry.session_id] = registry
        return registry

    async def expire(self, session_id: int) -> None:
        """End a session behind its owner's back: a second connection takes it over and closes it."""
        registry = self._sessions[session_id]
        expired = asyncio.Event()
        registry.add_listener(lambda state: expired.set() if state is SessionState.EXPIRED else None)
        double = KazooClient(self._connect, client_id=registry.client_id)
        await asyncio.to_thread(double.start)
        await asyncio.to_thread(double.stop)
        double.close()
        await expired.wait()

    async def close(self) -> None:
        """End all sessions."""
        for registry in self._sessions.values():
            await registry.close()


class KazooRegistry:
    """One session; implements `Registry`."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._state = SessionState.CONNECTED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._loop = asyncio.get_running_loop()
        self._watches: dict[tuple[str, str, Watcher], Callable[[WatchedEvent], None]] = {}
        self._session_id = 0

    async def start(self) -> None:
        """Connect."""
        await asyncio.to_thread(self._client.start)
        self._client.add_listener(self._heard)
        self._session_id = self._client.client_id[0]

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def client_id(self) -> tuple[int, bytes]:
        """Session id and password."""
        identity: tuple[int, bytes] = self._client.client_id
        return identity

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        data, stat = await self._call(self._client.get, path, self._watch(path, "data", watch))
        return data, _stat(stat)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        stat = await self._call(self._client.exists, path, self._watch(path, "data", watch))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watcher | None = None) -> tuple[list[str], Stat]:
        watcher = self._watch(path, "children", watch)
        names, stat = await self._call(self._client.get_children, path, watcher, include_data=True)
        return sorted(names), _stat(stat)

    async def create(
        self, path: str, data: bytes | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        made, stat = await self._call(
            self._client.create, path, data, ephemeral=ephemeral, sequence=sequential, include_data=True
        )
        return Created(made, _stat(stat))

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        return _stat(await self._call(self._client.set, path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(self._client.delete, path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral, sequential):
                    transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        results = await self._call(transaction.commit)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, _BYSTANDERS):
                _raise(result, index)
        return [
            result if isinstance(result, str) else _stat(result) if isinstance(operation, Set) else None
            for operation, result in zip(operations, results, strict=True)
        ]

    async def close(self) -> None:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            return
        self._change(SessionState.CLOSED)
        await asyncio.to_thread(self._client.stop)
        self._client.close()

    async def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpiredError(detail=self._state.value)
        try:
            return await asyncio.to_thread(self._answer, function, arguments, options)
        except kazoo.exceptions.KazooException as error:
            _raise(error, None)

    def _answer(self, function: Callable[..., Any], arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        try:
            return function(*arguments, **options)
        finally:
            # Kazoo runs watches in a thread of their own. Those that came before the answer must be heard before it:
            # a callback queued behind them says when they have run.
            passed = threading.Event()
            self._client.handler.dispatch_callback(Callback("barrier", passed.set, ()))
            assert passed.wait(10)

    def _watch(self, path: str, table: str, watcher: Watcher | None) -> Callable[[WatchedEvent], None] | None:
        if watcher is None:
            return None
        known = self._watches.get((path, table, watcher))
        if known is None:

            def known(event: WatchedEvent) -> None:
                if event.type in _KINDS:
                    self._loop.call_soon_threadsafe(watcher, Event(_KINDS[event.type], event.path))

            # Kazoo keeps a set of callables: the same watcher must be the same callable.
            self._watches[path, table, watcher] = known
        return known

    def _heard(self, state: str) -> None:
        states = {KazooState.CONNECTED: SessionState.CONNECTED, KazooState.SUSPENDED: SessionState.SUSPENDED}
        self._loop.call_soon_threadsafe(self._change, states.get(state, SessionState.EXPIRED))
        if state == KazooState.LOST:
            # Kazoo would begin a new session by itself; one object is one session here.
            self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        if self._state is SessionState.EXPIRED:
            self._loop.run_in_executor(None, self._client.stop)

    def _change(self, state: SessionState) -> None:
        if self._state not in (SessionState.EXPIRED, SessionState.CLOSED, state):
            self._state = state
            for listener in self._listeners:
                listener(state)


def _stat(stat: Any) -> Stat:
    return Stat(*stat)


def _raise(error: Exception, index: int | None) -> NoReturn:
    code = getattr(error, "code", 0)
    raise _ERRORS.get(code, RegistryError)(detail=repr(error), index=index) from error
