"""Metadata store in Apache ZooKeeper, or in a server with its protocol: one kazoo client for each session.

Kazoo runs the connection in a thread of its own; `kazoo_handler` delivers its results to the loop in order. This module
adds the guarantees of `Registry` that kazoo alone does not give:
- One object is one session. Where kazoo would begin another after an expiry, this one ends (Kafka's ZooKeeperClient
  makes a new client, too), and its owner connects anew. It also ends when kazoo's thread dies of an unexpected error;
  nodes of the session then remain until it times out.
- A lost connection fails all pending calls: they raise ConnectionLossError, as do calls made while there is no
  connection. This module retries nothing: only the caller can find out what a write did.
- Watches outlive a connection: `zookeeper_watches.py` sets them again, before any other call, on the next connection.
- Paths are checked here, as ZooKeeper's Java client does, and are relative to the chroot.

A call costs a few system calls in kazoo's thread, and calls need not wait for each other: 2,000 nodes are read in less
than half a second. Beside a busy loop the thread waits for the interpreter. With Python's default switch interval of
5 ms a write was measured to take 20 ms and, in the worst case, to lose a session; so `connect` lowers the interval for
the process to 0.2 ms, and the same write takes 3 ms.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import kazoo.exceptions
from kazoo.client import KazooClient
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from odradek.broker.registry import interface
from odradek.broker.registry.interface import (
    ANY_VERSION,
    Acl,
    BadArgumentsError,
    Check,
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
    ensure_path,
)
from odradek.broker.registry.kazoo_handler import AsyncResult, LoopHandler
from odradek.broker.registry.tree import MAX_DATA_BYTES, ROOT, check_path
from odradek.broker.registry.znodes import default_acl
from odradek.broker.registry.zookeeper_watches import WatchManager

if TYPE_CHECKING:
    import ssl

_SWITCH_INTERVAL_S: Final = 0.0002
_REJECTED: Final = "rejected the authentication"
_FIRST_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 1.0
_CLOSE_GRACE_S: Final = 5.0
"""How long a connected session may take to close. After that it is left to time out."""
_OPERATION_BYTES: Final = 64
"""More than the size of the numbers and the access list around path and data in a request."""

_FINAL: Final = (SessionState.EXPIRED, SessionState.CLOSED)
_ERRORS: Final[dict[int, type[RegistryError]]] = {
    error.code: error
    for error in vars(interface).values()
    if isinstance(error, type) and issubclass(error, RegistryError) and error.code
}
# The results of the operations of a failed transaction that are not the reason.
_BYSTANDERS: Final = (kazoo.exceptions.RolledBackError, kazoo.exceptions.RuntimeInconsistency)

log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # kazoo logs every try to connect; the session's state is logged once

Send: TypeAlias = Callable[..., AsyncResult]
Seen: TypeAlias = Callable[[AsyncResult], None]


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """The user of a session, who authenticates by SASL DIGEST-MD5."""

    username: str
    password: str = field(repr=False)

    def sasl_options(self) -> dict[str, str]:
        """The options of kazoo."""
        return {"mechanism": "DIGEST-MD5", "username": self.username, "password": self.password}


async def connect(
    hosts: str,
    chroot: str = "",
    *,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    login: ZooKeeperLogin | None = None,
    set_acl: bool = False,
    tls: ssl.SSLContext | None = None,
) -> ZooKeeperRegistry:
    """Begin a session with the ensemble at `hosts` ("host:port,host:port"), all paths below `chroot`, over TLS with a
    context.

    The chroot is created where it is missing (KafkaZkClient's createChrootIfNecessary). The ensemble may grant another
    session timeout than the requested one. With `set_acl` (zookeeper.set.acl) new nodes are writable by the user of
    `login` only. Raises ConnectionLossError if none of the hosts answers within `connection_timeout_ms`, and
    BadArgumentsError.
    """
    chroot = chroot.rstrip("/")
    check_path(chroot or ROOT)
    if "/" in hosts:
        raise BadArgumentsError(detail=f"zookeeper.connect: the hosts in {hosts!r} must not contain a path")
    log.info("connecting to ZooKeeper", extra={"hosts": hosts, "timeout_ms": connection_timeout_ms})
    sys.setswitchinterval(min(_SWITCH_INTERVAL_S, sys.getswitchinterval()))
    handler = LoopHandler(session_timeout_ms / 1000 / (hosts.count(",") + 1), tls)
    retry = KazooRetry(max_tries=-1, delay=_FIRST_RETRY_S, max_delay=_LONGEST_RETRY_S, sleep_func=handler.sleep_func)
    try:
        client = KazooClient(
            hosts,
            timeout=session_timeout_ms / 1000,
            handler=handler,
            connection_retry=retry,
            logger=_kazoo_log,
            sasl_options=None if login is None else login.sasl_options(),
        )
    except ValueError as error:
        handler.close()
        raise BadArgumentsError(detail=f"zookeeper.connect: {hosts!r} is not host:port,host:port: {error}") from error
    registry = ZooKeeperRegistry(client, handler, set_acl=set_acl)
    try:
        await registry.begin(hosts, connection_timeout_ms)
        if login is not None:
            await registry.check_login(hosts)
        await registry.enter(chroot)
    except BaseException:
        await registry.close()
        raise
    return registry


class ZooKeeperRegistry:
    """One session with ZooKeeper; implements `Registry`. `connect` creates it."""

    __slots__ = (
        "_chroot",
        "_client",
        "_ending",
        "_handler",
        "_is_rejected",
        "_listeners",
        "_loop",
        "_session_id",
        "_set_acl",
        "_state",
        "_stopping",
        "_unanswered",
        "_watches",
    )

    def __init__(self, client: KazooClient, handler: LoopHandler, *, set_acl: bool = False) -> None:
        self._set_acl = set_acl
        self._is_rejected = False
        self._client = client
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._chroot = ""
        self._session_id = 0
        self._state = SessionState.SUSPENDED
        self._listeners: list[Callable[[SessionState], None]] = []
        self._watches = WatchManager(client, self._relative)
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._ending: asyncio.Task[None] | None = None
        self._stopping = threading.Lock()

    async def begin(self, hosts: str, timeout_ms: int) -> None:
        """Connect for the first time. Raises ConnectionLossError."""
        answered = self._loop.create_future()
        self.add_listener(lambda _: None if answered.done() else answered.set_result(None))
        self._client.add_listener(self._connection_changed)
        self._client.start_async()
        await asyncio.wait({answered}, timeout=timeout_ms / 1000)
        if self._is_rejected:  # the loop may be notified of the connection and of its end at once
            raise ConnectionLossError(detail=f"ZooKeeper at {hosts} {_REJECTED}")
        if self._state is not SessionState.CONNECTED:
            trouble = self._handler.last_trouble
            raise ConnectionLossError(
                detail=f"no ZooKeeper answered at {hosts} within {timeout_ms} ms" + (f" ({trouble})" if trouble else "")
            )
        self._listeners.clear()

    async def check_login(self, hosts: str) -> None:
        """Wait for the end of the authentication: kazoo is connected before it. Raises ConnectionLossError."""
        try:
            await self.exists(ROOT)
        except RegistryError as error:
            reason = _REJECTED if self._is_rejected else f"ended the session: {error}"
            raise ConnectionLossError(detail=f"ZooKeeper at {hosts} {reason}") from error

    async def enter(self, chroot: str) -> None:
        """Make `chroot` the root of all later paths; create it where it is missing."""
        if chroot:
            await ensure_path(self, chroot)
            self._chroot = chroot

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    # Calls

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes | None, Stat]:
        def seen(answer: AsyncResult) -> None:
            if answer.exception is None:
                self._watches.keep_data(self._full(path), watch, answer.value[1].mzxid)

        data, stat = await self._read(self._client.get_async, path, watch, seen)
        return data, Stat._make(stat)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        def seen(answer: AsyncResult) -> None:
            if answer.exception is None:
                self._watches.keep_data(self._full(path), watch, answer.value.mzxid if answer.value else 0)

        stat = await self._read(self._client.exists_async, path, watch, seen)
        return None if stat is None else Stat._make(stat)

    async def children(self, path: str, watch: Watcher | None = None) -> tuple[list[str], Stat]:
        def seen(answer: AsyncResult) -> None:
            if answer.exception is None:
                self._watches.keep_children(self._full(path), watch, answer.value[1].pzxid)

        read = functools.partial(self._client.get_children_async, include_data=True)
        names, stat = await self._read(read, path, watch, seen)
        return sorted(names), Stat._make(stat)

    async def create(
        self, path: str, data: bytes | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> Created:
        check_path(path + "1" if sequential else path)
        _check_size(path, [data])
        full = self._chroot + path if sequential else self._full(path)
        send = functools.partial(
            self._client.create_async,
            full,
            data,
            self._acl(path, None),
            ephemeral=ephemeral,
            sequence=sequential,
            include_data=True,
        )
        made, stat = await self._await_result(path, send)
        return Created(self._relative(made), Stat._make(stat))

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        check_path(path)
        _check_size(path, [data])
        return Stat._make(await self._await_result(path, self._client.set_async, self._full(path), data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        _check_deletable(path)
        await self._await_result(path, self._client.delete_async, self._full(path), version)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        transaction = self._client.transaction()
        for index, operation in enumerate(operations):
            try:
                # Not by kazoo's own methods, which take no null data and change the path of a bare number.
                transaction.operations.append(self._request(operation))
            except BadArgumentsError as error:
                raise BadArgumentsError(error.path, error.detail, index) from error
        _check_size("", [request.serialize() for request in transaction.operations])
        results = await self._await_result("", transaction.commit_async)
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, _BYSTANDERS):
                raise _translate(result, operations[index].path, index)
        return [
            self._relative(result)
            if isinstance(operation, Create)
            else Stat._make(result)
            if isinstance(operation, Set)
            else None
            for operation, result in zip(operations, results, strict=True)
        ]

    async def close(self) -> None:
        if self._state not in _FINAL:
            grace_s = _CLOSE_GRACE_S if self._state is SessionState.CONNECTED else 0
            self._state = SessionState.CLOSED
            self._watches.close()
            self._ending = self._loop.create_task(self._end(grace_s), name="zookeeper close")
        if self._ending is not None:
            await asyncio.shield(self._ending)

    def abandon(self) -> None:
        self._stop()  # kazoo ends the session at the server; the loop receives the loss when it runs again

    def _stop(self) -> None:
        with self._stopping:  # a second call returns after the first one
            self._client.stop()

    async def _read(self, send: Send, path: str, watch: Watcher | None, seen: Seen) -> Any:
        check_path(path)
        if watch is None:
            return await self._await_result(path, send, self._full(path))
        return await self._await_result(path, send, self._full(path), self._watches.received, seen=seen)

    async def _await_result(self, path: str, send: Send, *arguments: Any, seen: Seen | None = None) -> Any:
        """Send a request and wait for its response. `seen` is called as it arrives, before any later response."""
        if self._state in _FINAL:
            raise SessionExpiredError(path, f"session {self._session_id:#x} is {self._state.value}")
        if self._state is SessionState.SUSPENDED:
            raise ConnectionLossError(path, "there is no connection to ZooKeeper")
        answered: asyncio.Future[Any] = self._loop.create_future()
        self._unanswered[answered] = None

        def arrived(answer: AsyncResult) -> None:
            if answered not in self._unanswered:
                return  # failed already when the connection was lost
            del self._unanswered[answered]
            if seen is not None:
                seen(answer)
            if answered.done():
                return  # the caller has stopped waiting
            if answer.exception is None:
                answered.set_result(answer.value)
            else:
                answered.set_exception(_translate(answer.exception, path))

        send(*arguments).rawlink(arrived)
        return await answered

    def _request(self, operation: Operation) -> Any:
        match operation:
            case Create(path, data, ephemeral, sequential, acl):
                check_path(path + "1" if sequential else path)
                full = self._chroot + path if sequential else self._full(path)
                return wire.Create(full, data, self._acl(path, acl), ephemeral | sequential << 1)
            case Set(path, data, version):
                check_path(path)
                return wire.SetData(self._full(path), data, version)
            case Delete(path, version):
                _check_deletable(path)
                return wire.Delete(self._full(path), version)
            case Check(path, version):
                check_path(path)
                return wire.CheckVersion(self._full(path), version)

    def _acl(self, path: str, acl: tuple[Acl, ...] | None) -> list[ACL]:
        if acl is None and not self._set_acl:
            return OPEN_ACL_UNSAFE  # type: ignore[no-any-return]
        entries = default_acl(path) if acl is None else acl
        return [ACL(each.permissions, Id(each.scheme, each.name)) for each in entries]

    def _full(self, path: str) -> str:
        return (self._chroot or ROOT) if path == ROOT else self._chroot + path

    def _relative(self, full: str) -> str:
        return full[len(self._chroot) :] or ROOT

    # The session

    def _connection_changed(self, state: str) -> None:
        """Deliver a state of the connection to the loop; called in kazoo's thread."""
        if state == KazooState.LOST:
            self._is_rejected = self._client.client_state == KeeperState.AUTH_FAILED
            self._handler.retire()  # before kazoo can connect again, which it would do for a new session
        identity = self._client.client_id
        self._handler.deliver(functools.partial(self._change, state, identity[0] if identity else 0))

    def _change(self, state: str, session_id: int) -> None:
        if self._state in _FINAL:
            return
        if state == KazooState.CONNECTED:
            self._session_id = session_id
            self._state = SessionState.CONNECTED
            self._watches.rearm()
        elif state == KazooState.SUSPENDED:
            self._state = SessionState.SUSPENDED
            self._give_up_calls()
        else:
            self._state = SessionState.EXPIRED
            self._give_up_calls()
            self._watches.expire()
            self._ending = self._loop.create_task(self._end(0), name="zookeeper expiry")
        self._notify_listeners()

    def _give_up_calls(self) -> None:
        # Requests that kazoo has not sent yet go out first on the next connection, before any later call.
        unanswered, self._unanswered = self._unanswered, {}
        for answered in unanswered:
            if not answered.done():
                answered.set_exception(ConnectionLossError(detail="the connection to ZooKeeper was lost"))

    def _notify_listeners(self) -> None:
        for listener in list(self._listeners):
            self._loop.call_soon(listener, self._state)

    async def _end(self, grace_s: float) -> None:
        """Stop kazoo, which ends the session if it can within `grace_s`."""
        if not grace_s:
            self._handler.retire()
        stopped = self._loop.run_in_executor(None, self._stop)
        await asyncio.wait({stopped}, timeout=grace_s or None)
        self._handler.retire()
        await stopped
        self._client.close()
        self._handler.close()
        self._give_up_calls()
        if self._state is SessionState.CLOSED:
            self._notify_listeners()


def _check_size(path: str, parts: Sequence[bytes | bytearray | None]) -> None:
    size = len(path.encode(errors="replace")) + sum(_OPERATION_BYTES + len(part or b"") for part in parts)
    if size > MAX_DATA_BYTES:
        raise BadArgumentsError(path, f"a request of {size} bytes; at most {MAX_DATA_BYTES} are allowed")


def _check_deletable(path: str) -> None:
    check_path(path)
    if path == ROOT:
        raise BadArgumentsError(path, "the root cannot be deleted")


def _translate(error: Exception, path: str, index: int | None = None) -> RegistryError:
    if isinstance(error, kazoo.exceptions.KazooException):
        kind = _ERRORS.get(getattr(error, "code", 0), RegistryError)
        return kind(path, f"ZooKeeper returned {type(error).__name__}", index)
    return ConnectionLossError(path, f"the response cannot be decoded: {error!r}", index)
