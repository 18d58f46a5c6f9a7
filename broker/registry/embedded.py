"""Embedded metadata store: the tree and its journal in the broker's own process, the default for a single broker.

A write changes the tree at once and returns when the journal has it on disk. Reads see the tree as it is and return
when everything they may have seen is on disk, so no caller receives a write that a crash could take back. Writes that
arrive during a sync go to disk together in the next write and sync.

Responses and watches of all sessions wait in one queue with the write that they depend on, in the order in which they
arose. So a watch fires before a response that shows the change, and after the response to the call that set it.

The tree lives as long as the process. So do the sessions of a broker that embeds the store: sessions that a stopped
process left in the journal are ended at the next start. Sessions of other processes (`server`) outlive the process:
with `keep_sessions` they continue.

If the journal cannot be written, every later call raises ConnectionLossError, for the tree in memory is ahead of the
disk, and the listeners receive SUSPENDED. After a lack of room the same write is repeated until it succeeds; the
listeners then receive CONNECTED, and what the failed calls changed is there, as after a lost connection to ZooKeeper.
After any other error only a restart recovers.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from odradek.broker.registry.interface import (
    ANY_VERSION,
    ConnectionLossError,
    Create,
    Created,
    Delete,
    Event,
    Operation,
    OperationResult,
    SessionExpiredError,
    SessionState,
    Set,
    Stat,
    Watcher,
)
from odradek.broker.registry.journal import DEFAULT_SNAPSHOT_BYTES, Journal, JournalDisk, NoJournal
from odradek.broker.registry.snapshot_in_parts import SnapshotInParts
from odradek.broker.registry.tree import CommittedTransaction, JournalTransaction, Tree, Watches
from odradek.broker.registry.znodes import InParts

DEFAULT_SESSION_TIMEOUT_MS = 18_000
"""Kafka's zookeeper.session.timeout.ms."""

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_RETRY_S: Final = 0.2

T = TypeVar("T")
_log = logging.getLogger(__name__)

RequestTasks = Callable[[Callable[[], None]], Awaitable[None]]
"""Runs a call that blocks on the disk; returns when it has returned."""


async def _at_once(call: Callable[[], None]) -> None:
    call()


async def _in_iterations(work: InParts[T]) -> T:
    """Run each part of a work in an iteration of the event loop of its own; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


class _Batch:
    """The transactions of one write to disk, and the notifications, in their order, that follow it."""

    __slots__ = ("durable", "notified", "transactions")

    def __init__(self) -> None:
        self.transactions: list[JournalTransaction] = []
        self.notified: list[Callable[[], None]] = []
        self.durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class EmbeddedEnsemble:
    """The tree, its journal and its sessions; to its clients what a ZooKeeper ensemble is."""

    __slots__ = (
        "_background",
        "_batch",
        "_closing",
        "_committed_zxid",
        "_failure",
        "_flusher",
        "_folder",
        "_journal",
        "_last_session_id",
        "_listeners",
        "_now_ms",
        "_snapshot",
        "_suspended",
        "_tree",
        "_watches",
        "_writing",
    )

    def __init__(
        self,
        disk: JournalDisk | None,
        folder: str,
        *,
        now_ms: Callable[[], int],
        background: RequestTasks = asyncio.to_thread,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
        keep_sessions: bool = False,
    ) -> None:
        """Load the tree from `folder`, which is created where it is missing. `now_ms` is the wall clock. Sessions of
        the journal are ended, or continue with `keep_sessions`. Without a disk the tree is in memory (`in_memory`).

        Blocks on the disk for as long as the journal is large, a few milliseconds for one broker's.
        Raises JournalInUseError, DamagedJournalError, OSError.
        """
        self._now_ms = now_ms
        self._folder = folder
        self._background = background
        self._journal = NoJournal() if disk is None else Journal(disk, folder, snapshot_bytes=snapshot_bytes)
        self._tree = self._load(keep_sessions=keep_sessions)
        self._committed_zxid = self._tree.zxid
        self._watches: Watches[Watcher] = Watches()
        self._listeners: dict[int, Callable[[SessionState], None]] = {}
        self._last_session_id = 0
        self._batch: _Batch | None = None
        self._writing: _Batch | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._snapshot: SnapshotInParts | None = None
        """The snapshot that is being taken."""
        self._failure: str | None = None
        self._suspended: str | None = None
        self._closing = asyncio.Event()

    @classmethod
    def in_memory(cls, *, now_ms: Callable[[], int]) -> EmbeddedEnsemble:
        """An empty tree without a disk: for tests and for clusters that are thrown away."""
        return cls(None, "", now_ms=now_ms, background=_at_once)

    def _load(self, *, keep_sessions: bool) -> Tree:
        try:
            tree = self._journal.load()
            now_ms = self._now_ms()
            orphans = [] if keep_sessions else list(tree.sessions)
            if orphans:
                self._journal.write([tree.close_session(orphan, now_ms).transaction for orphan in orphans])
        except BaseException:
            self._journal.close()
            raise
        return tree

    async def connect(self, timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> EmbeddedRegistry:
        """Begin a session. It ends by `close` or `expire`; nothing in this process times it out."""
        session_id = self.open_session(timeout_ms)
        registry = EmbeddedRegistry(self, session_id)
        self.attach(session_id, registry.change_state)
        await self.settle()
        return registry

    async def expire(self, session_id: int) -> None:
        """End a session as if its owner had sent nothing for too long. A session that has ended is left alone."""
        if session_id in self._listeners:
            self.end_session(session_id, SessionState.EXPIRED)
            await self.settle()

    async def close(self) -> None:
        """Wait for the disk and close the files. Sessions that are still open stay in the journal.

        Writes that wait for room on the disk are given up; none of them was acknowledged.
        """
        self._closing.set()
        with contextlib.suppress(ConnectionLossError):
            await self.settle()
        if self._flusher is not None:
            await self._flusher
        self._failure = self._failure or "the metadata store is closed"
        self._journal.close()

    # Used by sessions and by the server of sessions

    def orphans(self) -> dict[int, int]:
        """The ids and timeouts, in milliseconds, of the open sessions that have no listener."""
        return {key: timeout_ms for key, timeout_ms in self._tree.sessions.items() if key not in self._listeners}

    @property
    def committed_zxid(self) -> int:
        """The zxid of the last accepted write. Unlike the zxids of failed writes, it survives a restart."""
        return self._committed_zxid

    def open_session(self, timeout_ms: int) -> int:
        """Begin a session without a timer; returns its id. Raises ConnectionLossError."""
        session_id = self._new_session_id()
        self.commit(lambda tree, now_ms: tree.open_session(session_id, timeout_ms, now_ms))
        return session_id

    def attach(self, session_id: int, listener: Callable[[SessionState], None]) -> None:
        """Notify `listener` of state changes of an open session: its end, or SUSPENDED when the journal fails."""
        self._listeners[session_id] = listener

    def detach(self, session_id: int) -> None:
        """Remove the listener of a session, which continues without its watches."""
        self._listeners.pop(session_id, None)
        self._watches.forget(session_id)

    def forget_watches(self, session_id: int) -> None:
        """Drop the watches of a session that continues without them."""
        self._watches.forget(session_id)

    def commit(self, write: Callable[[Tree, int], CommittedTransaction]) -> CommittedTransaction:
        """Change the tree. Raises what `write` raises, and ConnectionLossError; `settle` waits until it is durable."""
        self.check()
        committed = write(self._tree, self._now_ms())
        batch = self._open_batch()
        batch.transactions.append(committed.transaction)
        if self._snapshot is not None:
            self._snapshot.changed(committed.transaction)
        for session_id, watcher, event in self._watches.fire(committed.events):
            batch.notified.append(functools.partial(self._notify, session_id, watcher, event))
        self._committed_zxid = committed.transaction.zxid
        return committed

    def tree_and_watches(self) -> tuple[Tree, Watches[Watcher]]:
        """The tree to read and the watches to set; `settle` before returning. Raises ConnectionLossError."""
        self.check()
        return self._tree, self._watches

    def check(self) -> None:
        """Raise ConnectionLossError once the journal has failed or is closed, and while it has no room."""
        reason = self._failure or self._suspended
        if reason is not None:
            raise ConnectionLossError(detail=reason)

    async def settle(self) -> None:
        """Return when everything the tree shows now is durable. Raises ConnectionLossError if it never will be."""
        batch = self._batch or self._writing
        if batch is not None:
            await asyncio.shield(batch.durable)

    def when_settled(self, notify: Callable[[], None]) -> None:
        """Call `notify` when everything the tree shows now is durable, possibly at once: after all earlier
        notifications and before all later ones. It is never called if the journal fails.
        """
        batch = self._batch or self._writing
        if batch is not None:
            batch.notified.append(notify)
        else:
            notify()

    def end_session(self, session_id: int, state: SessionState) -> None:
        """Close a session in the tree; its listener receives `state` when that is durable."""
        self.commit(lambda tree, now_ms: tree.close_session(session_id, now_ms))
        self._watches.forget(session_id)
        listener = self._listeners.pop(session_id)
        self.when_settled(functools.partial(listener, state))

    # Writing to disk

    def _open_batch(self) -> _Batch:
        if self._batch is None:
            self._batch = _Batch()
            if self._flusher is None:
                self._flusher = asyncio.get_running_loop().create_task(self._flush(), name="registry journal")
        return self._batch

    async def _flush(self) -> None:
        try:
            while (batch := self._batch) is not None:
                self._batch, self._writing = None, batch
                await self._write(batch)
                self._notify_batch(batch)
                self._writing = None
                if self._journal.is_snapshot_due():
                    await self._write_snapshot()
        except OSError as error:
            self._fail(f"the journal of the metadata store in {self._folder} cannot be written: {error}")
        except BaseException:
            self._fail("the metadata store was stopped during a write")
            raise
        finally:
            self._flusher = None

    async def _write(self, batch: _Batch) -> None:
        """Write a batch, again and again while the disk has no room. Raises OSError."""
        while True:
            try:
                await self._background(functools.partial(self._journal.write, batch.transactions))
                break
            except OSError as error:
                if error.errno not in _NO_ROOM or self._closing.is_set():
                    raise
                self._suspend(f"the journal of the metadata store in {self._folder} has no room: {error}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _RETRY_S)
        if self._suspended is not None:
            self._suspended = None
            _log.warning("metadata store has room again")
            self._change_states(SessionState.CONNECTED)

    async def _write_snapshot(self) -> None:
        """Write a snapshot; without room the log grows until there is some. Raises OSError."""
        self._snapshot = SnapshotInParts(self._tree)
        parts = self._snapshot.take()
        try:
            content, zxid = await _in_iterations(parts)
        finally:
            self._snapshot = None
        try:
            await self._background(lambda: self._journal.snapshot(content.encode(), zxid))
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _log.warning("cannot write a snapshot of the metadata store error=%s", error)

    def _suspend(self, reason: str) -> None:
        """Reject all calls until the journal has room; those that wait fail, and their outcome is open."""
        if self._suspended is None:
            self._suspended = reason
            _log.error("metadata store suspended error=%s", reason)
            self._fail_batches(reason)
            self._change_states(SessionState.SUSPENDED)

    def _fail_batches(self, reason: str) -> None:
        for batch in (self._writing, self._batch):
            if batch is not None and not batch.durable.done():
                batch.durable.set_exception(ConnectionLossError(detail=reason))
                batch.durable.exception()  # a batch without a waiter is no reason for a warning

    def _change_states(self, state: SessionState) -> None:
        for listener in list(self._listeners.values()):
            listener(state)

    def _notify_batch(self, batch: _Batch) -> None:
        # At once, so that no call that arrives meanwhile returns first; a listener may add notifications. Callers that
        # wait for `durable` continue after them.
        for notify in batch.notified:
            try:
                notify()
            except Exception as error:
                context = {"message": "a listener of the metadata store failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
        if not batch.durable.done():
            batch.durable.set_result(None)

    def _notify(self, session_id: int, watcher: Watcher, event: Event) -> None:
        if session_id in self._listeners:
            watcher(event)

    def _fail(self, failure: str) -> None:
        self._failure = failure
        self._fail_batches(failure)
        self._writing = self._batch = None
        if self._suspended is None:
            self._change_states(SessionState.SUSPENDED)

    def _new_session_id(self) -> int:
        # ZooKeeper's scheme: the server's number in the high byte, then the time, then a count.
        by_time = (1 << 56) | ((self._now_ms() << 24 & 0xFFFFFFFFFFFFFFFF) >> 8)
        session_id = max(self._last_session_id + 1, by_time)
        while session_id in self._tree.sessions:
            session_id += 1
        self._last_session_id = session_id
        return session_id


class EmbeddedRegistry:
    """One session with an embedded tree; implements `Registry`."""

    __slots__ = ("_ensemble", "_listeners", "_session_id", "_state")

    def __init__(self, ensemble: EmbeddedEnsemble, session_id: int) -> None:
        self._ensemble = ensemble
        self._session_id = session_id
        self._state = SessionState.CONNECTED
        self._listeners: list[Callable[[SessionState], None]] = []

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def change_state(self, state: SessionState) -> None:
        """Set the state of the session and notify its listeners."""
        self._state = state
        for listener in self._listeners:
            listener(state)

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        tree, watches = self._tree_and_watches()
        found = tree.get(path)
        if watch is not None:
            watches.watch_data(path, self._session_id, watch)
        await self._ensemble.settle()
        return found

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        tree, watches = self._tree_and_watches()
        found = tree.exists(path)
        if watch is not None:
            watches.watch_data(path, self._session_id, watch)
        await self._ensemble.settle()
        return found

    async def children(self, path: str, watch: Watcher | None = None) -> tuple[list[str], Stat]:
        tree, watches = self._tree_and_watches()
        found = tree.children(path)
        if watch is not None:
            watches.watch_children(path, self._session_id, watch)
        await self._ensemble.settle()
        return found

    async def create(
        self, path: str, data: bytes | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        operation = Create(path, data, ephemeral, sequential)
        self._check_open()
        made: list[Created] = []

        def write(tree: Tree, now_ms: int) -> CommittedTransaction:
            created, committed = tree.create(self._session_id, operation, now_ms)
            made.append(created)
            return committed

        self._ensemble.commit(write)
        await self._ensemble.settle()
        return made[0]

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        (stat,) = await self._submit([Set(path, data, version)], multi=False)
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._submit([Delete(path, version)], multi=False)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        return await self._submit(operations, multi=True)

    def abandon(self) -> None:
        """No other broker can use the tree, so there is nothing to hand over."""

    async def close(self) -> None:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            return
        self._state = SessionState.CLOSED
        with contextlib.suppress(ConnectionLossError):  # the next start ends the session
            self._ensemble.end_session(self._session_id, SessionState.CLOSED)
            await self._ensemble.settle()

    async def _submit(self, operations: Sequence[Operation], *, multi: bool) -> list[OperationResult]:
        self._check_open()
        committed = self._ensemble.commit(
            lambda tree, now_ms: tree.submit(self._session_id, operations, now_ms, multi=multi)
        )
        await self._ensemble.settle()
        return committed.results

    def _tree_and_watches(self) -> tuple[Tree, Watches[Watcher]]:
        self._check_open()
        return self._ensemble.tree_and_watches()

    def _check_open(self) -> None:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpiredError(detail=f"session {self._session_id:#x} is {self._state.value}")
