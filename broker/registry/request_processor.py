"""Server responses: applies each request of a ZooKeeper client to the embedded tree and encodes the response's body.

The rules beyond the tree's own are those of ZooKeeper's FinalRequestProcessor: the response to a failed transaction has
a code for each of its operations, a read sets its watch with the response (`exists` also where there is no node), and
watches that a client sets again (DataTree.setWatches) fire at once where their node has changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.broker.registry import client_wire as wire
from odradek.broker.registry.acls import Identities, Permission, check_permission, hide_digests
from odradek.broker.registry.client_wire import OpCode
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import (
    Event,
    EventKind,
    NoAuthError,
    NoNodeError,
    RegistryError,
    Stat,
)
from odradek.broker.registry.jute import JuteReader
from odradek.broker.registry.tree import CommittedTransaction, Tree


class Requester(NamedTuple):
    """The client of a request: its session, its identities, and the receiver of the watches that it sets."""

    session_id: int
    identities: Identities
    watcher: Callable[[Event], None]


class RequestProcessor:
    """Applies requests to the tree and encodes the responses; one object for all connections.

    The methods return the body of the response. They raise RegistryError, whose code the response has, and JuteError
    for a body that cannot be decoded.
    """

    __slots__ = ("_ensemble",)

    def __init__(self, ensemble: EmbeddedEnsemble) -> None:
        self._ensemble = ensemble

    def process(self, kind: int, requester: Requester, source: JuteReader) -> bytes:
        """Raises UnimplementedError for an unknown kind."""
        match kind:
            case (
                OpCode.CREATE
                | OpCode.CREATE_2
                | OpCode.SET_DATA
                | OpCode.DELETE
                | OpCode.CREATE_CONTAINER
                | OpCode.CREATE_TTL
            ):
                return self._write(kind, requester, source)
            case OpCode.MULTI:
                return self._transaction(requester, source)
            case OpCode.EXISTS | OpCode.GET_DATA | OpCode.GET_CHILDREN | OpCode.GET_CHILDREN_2:
                return self._read(kind, source.take_string(), requester, is_watch=source.take_bool())
            case OpCode.GET_ACL:
                return self._get_acl(source.take_string(), requester.identities)
            case OpCode.SET_ACL:
                return self._set_acl(requester, source)
            case OpCode.SYNC:
                return wire.encode_path(source.take_string())
            case _:
                raise wire.UnimplementedError("", f"a request of kind {kind}")

    def set_watches(self, kind: int, requester: Requester, source: JuteReader) -> list[Event]:
        """Set the watches that a client brings along; returns those that fired while it was disconnected."""
        tree, watches = self._ensemble.tree_and_watches()
        session_id, _, watcher = requester
        brought = wire.decode_set_watches(source, kind)
        missed: list[Event] = []
        for path in brought.data:
            stat = tree.exists(path)
            if stat is None:
                missed.append(Event(EventKind.DELETED, path))
            elif stat.mzxid > brought.zxid:
                missed.append(Event(EventKind.DATA_CHANGED, path))
            else:
                watches.watch_data(path, session_id, watcher)
        for path in brought.exists:
            if tree.exists(path) is not None:
                missed.append(Event(EventKind.CREATED, path))
            else:
                watches.watch_data(path, session_id, watcher)
        for path in brought.children:
            stat = tree.exists(path)
            if stat is None:
                missed.append(Event(EventKind.DELETED, path))
            elif stat.pzxid > brought.zxid:
                missed.append(Event(EventKind.CHILDREN_CHANGED, path))
            else:
                watches.watch_children(path, session_id, watcher)
        return missed

    def _write(self, kind: int, requester: Requester, source: JuteReader) -> bytes:
        operation = wire.decode_write(kind, source)
        committed = self._ensemble.commit(
            lambda tree, now_ms: tree.submit(requester.session_id, [operation], now_ms, identities=requester.identities)
        )
        (body,) = wire.encode_each([kind], committed.transaction, committed.results)
        return body

    def _transaction(self, requester: Requester, source: JuteReader) -> bytes:
        kinds, operations, refused = wire.decode_multi(source)
        try:
            if refused is not None:
                raise refused
            committed = self._ensemble.commit(
                lambda tree, now_ms: tree.submit(
                    requester.session_id, operations, now_ms, multi=True, identities=requester.identities
                )
            )
        except RegistryError as error:
            if error.index is None:
                raise
            return wire.encode_failure(len(kinds), error.index, error.code)
        return wire.encode_results(kinds, committed.transaction, committed.results)

    def _read(self, kind: int, path: str, requester: Requester, *, is_watch: bool) -> bytes:
        tree, watches = self._ensemble.tree_and_watches()
        session_id, identities, watcher = requester
        if kind == OpCode.EXISTS:
            stat = tree.exists(path)
            if is_watch:
                watches.watch_data(path, session_id, watcher)
            if stat is None:
                raise NoNodeError(path)
            return wire.encode_stat(stat)
        check_permission(path, tree.acl(path), Permission.READ, identities)
        if kind == OpCode.GET_DATA:
            data, stat = tree.get(path)
            if is_watch:
                watches.watch_data(path, session_id, watcher)
            return wire.encode_data(data, stat)
        names, stat = tree.children(path)
        if is_watch:
            watches.watch_children(path, session_id, watcher)
        return wire.encode_children(names) + (wire.encode_stat(stat) if kind == OpCode.GET_CHILDREN_2 else b"")

    def _get_acl(self, path: str, identities: Identities) -> bytes:
        tree, _ = self._ensemble.tree_and_watches()
        acl, (_, stat) = tree.acl(path), tree.get(path)
        check_permission(path, acl, Permission.READ | Permission.ADMIN, identities)
        try:
            check_permission(path, acl, Permission.ADMIN, identities)
        except NoAuthError:
            acl = hide_digests(acl)
        return wire.encode_acl(acl) + wire.encode_stat(stat)

    def _set_acl(self, requester: Requester, source: JuteReader) -> bytes:
        operation = wire.decode_set_acl(source)

        def write(tree: Tree, now_ms: int) -> CommittedTransaction:
            return tree.submit(requester.session_id, [operation], now_ms, identities=requester.identities)

        (stat,) = self._ensemble.commit(write).results
        assert isinstance(stat, Stat)
        return wire.encode_stat(stat)
