"""The registry of a simulation: ZooKeeper's tree, with the faults of the way to it.

Requests and answers of a session keep their order, watches among them. A session whose process cannot reach the
registry, or does not run, for its timeout expires; the process is notified when it reaches the registry again. A
connection that is lost takes the requests under way with it: some were carried out, some were not, and the process
cannot detect which.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from odradek.broker.registry.interface import (
    ANY_VERSION,
    ConnectionLossError,
    Create,
    Created,
    Delete,
    Operation,
    OperationResult,
    RegistryError,
    SessionExpiredError,
    SessionState,
    Set,
    Stat,
    Watcher,
)
from odradek.broker.registry.tree import CommittedTransaction, Tree, Watches
from tests.simulation.loop import OWNER, Owner, SimulatedLoop
from tests.simulation.network import Network

NAME = "registry"
SWEEP_S = 0.1


class SimulatedEnsemble:
    """The tree and its sessions."""

    def __init__(self, loop: SimulatedLoop, network: Network, random: Random) -> None:
        self.loop, self.network, self.random = loop, network, random
        self.tree = Tree()
        self.watches: Watches[Watcher] = Watches()
        self.sessions: dict[int, SimulatedSession] = {}
        self.on_write: Callable[[int, Sequence[Operation], CommittedTransaction | None], None] = lambda *_: None
        self.expired = 0
        self._last_id = 0
        loop.call_later(SWEEP_S, self._sweep)

    def now_ms(self) -> int:
        return round(self.loop.time() * 1000)

    def connect(self, owner: Owner, timeout_ms: int) -> Callable[[], Any]:
        """The replacement of `zookeeper.connect` in this process."""

        async def connect() -> SimulatedSession:
            await self._way()
            if self.unreachable(owner):
                raise ConnectionLossError("", "the registry cannot be reached")
            self._last_id += 1
            session = SimulatedSession(self, owner, self._last_id, timeout_ms)
            self.fire(self.tree.open_session(session.session_id, timeout_ms, self.now_ms()))
            self.sessions[session.session_id] = session
            return session

        return connect

    async def _way(self) -> None:
        done = self.loop.create_future()
        self.loop.call_later(self.network.delay(), lambda: done.done() or done.set_result(None))
        await done

    def unreachable(self, owner: Owner) -> bool:
        return self.network.is_cut(owner.name, NAME) or self.network.is_cut(NAME, owner.name)

    def _sweep(self) -> None:
        for session in list(self.sessions.values()):
            session.sweep()
        self.loop.call_later(SWEEP_S, self._sweep)

    def expire(self, session: SimulatedSession) -> None:
        """The session is over; its ephemeral nodes go."""
        if self.sessions.pop(session.session_id, None) is not None:
            self.watches.forget(session.session_id)
            self.fire(self.tree.close_session(session.session_id, self.now_ms()))

    def fire(self, committed: CommittedTransaction) -> None:
        for session_id, watcher, event in self.watches.fire(committed.events):
            session = self.sessions.get(session_id)
            if session is not None:
                session.tell(lambda watcher=watcher, event=event: watcher(event))


class SimulatedSession:
    """One session: a `Registry`."""

    def __init__(self, ensemble: SimulatedEnsemble, owner: Owner, session_id: int, timeout_ms: int) -> None:
        self.session_id = session_id
        self.owner = owner
        self.state = SessionState.CONNECTED
        self._ensemble, self._timeout_s = ensemble, timeout_ms / 1000
        self._received_s = ensemble.loop.time()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, owner)
        self._there_s = self._back_s = 0.0
        self._waiting: dict[Any, None] = {}
        self._untold: list[Callable[[], None]] = []

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    # ---- the connection

    def sweep(self) -> None:
        """A tick of the registry's clock."""
        loop, ensemble = self._ensemble.loop, self._ensemble
        unreachable = ensemble.unreachable(self.owner)
        if self.owner.alive and not self.owner.paused and not unreachable:
            self._received_s = loop.time()
            if self.state is SessionState.SUSPENDED:
                self._turn(SessionState.CONNECTED)
            untold, self._untold = self._untold, []
            for tell in untold:
                self.tell(tell)
        elif loop.time() - self._received_s > self._timeout_s:
            ensemble.expired += 1
            ensemble.expire(self)
            self.learn()
        elif unreachable and self.state is SessionState.CONNECTED:
            self._turn(SessionState.SUSPENDED)
            self._break()

    def learn(self) -> None:
        """The session has expired: its process is notified when it reaches the registry."""
        if not self.owner.alive or self.state in (SessionState.EXPIRED, SessionState.CLOSED):
            return
        if self._ensemble.unreachable(self.owner):
            self._ensemble.loop.call_later(SWEEP_S, self.learn)
            return
        self._turn(SessionState.EXPIRED)
        self._break()

    def _turn(self, state: SessionState) -> None:
        def turn() -> None:
            if self.state in (SessionState.EXPIRED, SessionState.CLOSED):
                return
            self.state = state
            for listener in list(self._listeners):
                listener(state)
            if state is SessionState.EXPIRED:
                self._break()  # requests made since: a paused process is notified late

        self._ensemble.loop.call_soon(turn, context=self._context)

    def _break(self) -> None:
        """Requests and responses under way are lost."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            self._ensemble.loop.call_soon(_lose, future, context=self._context)

    def tell(self, call: Callable[[], None]) -> None:
        """Something on the way from the registry to the process, in order."""
        loop = self._ensemble.loop
        if self._ensemble.unreachable(self.owner):
            self._untold.append(call)
            return
        self._back_s = max(self._back_s + 1e-9, loop.time() + self._ensemble.network.delay())
        loop.call_at(self._back_s, self._hear, call, context=self._context)

    def _hear(self, call: Callable[[], None]) -> None:
        if self.state not in (SessionState.EXPIRED, SessionState.CLOSED):
            call()

    async def _call(self, work: Callable[[], Any]) -> Any:
        if self.state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpiredError
        if self.state is SessionState.SUSPENDED:
            raise ConnectionLossError("", "the registry cannot be reached")
        loop = self._ensemble.loop
        future = loop.create_future()
        self._waiting[future] = None
        self._there_s = max(self._there_s + 1e-9, loop.time() + self._ensemble.network.delay())
        loop.call_at(self._there_s, self._serve, work, future, context=contextvars.Context())
        return await future

    def _serve(self, work: Callable[[], Any], future: Any) -> None:
        """The request has arrived, or got lost on its way."""
        if self._ensemble.unreachable(self.owner):
            self._ensemble.loop.call_soon(_lose, future, context=self._context)
            return
        if future.done():
            return
        if self.session_id not in self._ensemble.sessions:
            self.tell(lambda: self._settle(future, None, SessionExpiredError()))
            return
        try:
            result = work()
        except RegistryError as error:
            self.tell(lambda error=error: self._settle(future, None, error))
        else:
            self.tell(lambda: self._settle(future, result, None))

    def _settle(self, future: Any, result: Any, error: Exception | None) -> None:
        if self._waiting.pop(future, self) is self or future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    # ---- the calls

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        def work() -> Any:
            found = self._ensemble.tree.get(path)
            if watch is not None:
                self._ensemble.watches.watch_data(path, self.session_id, watch)
            return found

        result: tuple[bytes | None, Stat] = await self._call(work)
        return result

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        def work() -> Any:
            if watch is not None:
                self._ensemble.watches.watch_data(path, self.session_id, watch)
            return self._ensemble.tree.exists(path)

        result: Stat | None = await self._call(work)
        return result

    async def children(self, path: str, watch: Watcher | None = None) -> tuple[list[str], Stat]:
        def work() -> Any:
            found = self._ensemble.tree.children(path)
            if watch is not None:
                self._ensemble.watches.watch_children(path, self.session_id, watch)
            return found

        result: tuple[list[str], Stat] = await self._call(work)
        return result

    def _write(self, operations: Sequence[Operation], *, multi: bool = False) -> list[OperationResult]:
        ensemble = self._ensemble
        try:
            committed = ensemble.tree.submit(self.session_id, operations, ensemble.now_ms(), multi=multi)
        except RegistryError:
            ensemble.on_write(self.session_id, operations, None)
            raise
        ensemble.on_write(self.session_id, operations, committed)
        ensemble.fire(committed)
        return committed.results

    async def create(
        self, path: str, data: bytes | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        def work() -> Any:
            (made,) = self._write([Create(path, data, ephemeral, sequential)])
            stat = self._ensemble.tree.exists(str(made))
            return Created(str(made), stat)  # type: ignore[arg-type]

        result: Created = await self._call(work)
        return result

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        result: Stat = await self._call(lambda: self._write([Set(path, data, version)])[0])
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call(lambda: self._write([Delete(path, version)])[0])

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        result: list[OperationResult] = await self._call(lambda: self._write(list(operations), multi=True))
        return result

    def abandon(self) -> None:
        """No other broker can use the tree, so there is nothing to hand over."""

    async def close(self) -> None:
        if self.state not in (SessionState.EXPIRED, SessionState.CLOSED):
            self.state = SessionState.CLOSED
            if not self._ensemble.unreachable(self.owner):
                self._ensemble.expire(self)
            self._break()


def _lose(future: Any) -> None:
    if not future.done():
        future.set_exception(ConnectionLossError("", "the connection was lost"))
