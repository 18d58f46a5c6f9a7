"""Server responses: applies each request of a ZooKeeper client to the embedded tree and encodes the response's body.

The rules beyond the tree's own are those of ZooKeeper's FinalRequestProcessor: the response to a failed transaction has
a code for each of its operations, a read sets its watch with the response (`exists` also where there is no node), and
watches that a client sets again (DataTree.setWatches) fire at once where their node has changed since.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.registry import client_wire as wire
from odradek.broker.registry.client_wire import OpCode
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import (
    ANY_VERSION,
    BadVersionError,
    Event,
    EventKind,
    NoNodeError,
    RegistryError,
)
from odradek.broker.registry.jute import JuteReader


class RequestProcessor:
    """Applies requests to the tree and encodes the responses; one object for all connections.

    The methods return the body of the response. They raise RegistryError, whose code the response has, and JuteError
    for a body that cannot be decoded.
    """

    __slots__ = ("_ensemble",)

    def __init__(self, ensemble: EmbeddedEnsemble) -> None:
        self._ensemble = ensemble

    def process(self, kind: int, session_id: int, source: JuteReader, watcher: Callable[[Event], None]) -> bytes:
        """`watcher` receives the watches that the request sets. Raises UnimplementedError for an unknown kind."""
        match kind:
            case (
                OpCode.CREATE
                | OpCode.CREATE_2
                | OpCode.SET_DATA
                | OpCode.DELETE
                | OpCode.CREATE_CONTAINER
                | OpCode.CREATE_TTL
            ):
                return self._write(kind, session_id, source)
            case OpCode.MULTI:
                return self._transaction(session_id, source)
            case OpCode.EXISTS | OpCode.GET_DATA | OpCode.GET_CHILDREN | OpCode.GET_CHILDREN_2:
                return self._read(kind, source.take_string(), session_id, watcher if source.take_bool() else None)
            case OpCode.GET_ACL | OpCode.SET_ACL:
                return self._access_list(kind, source)
            case OpCode.SYNC:
                return wire.encode_path(source.take_string())
            case _:
                raise wire.UnimplementedError("", f"a request of kind {kind}")

    def set_watches(
        self, kind: int, session_id: int, source: JuteReader, watcher: Callable[[Event], None]
    ) -> list[Event]:
        """Set the watches that a client brings along; returns those that fired while it was disconnected."""
        tree, watches = self._ensemble.tree_and_watches()
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

    def _write(self, kind: int, session_id: int, source: JuteReader) -> bytes:
        operation = wire.decode_write(kind, source)
        committed = self._ensemble.commit(lambda tree, now_ms: tree.submit(session_id, [operation], now_ms))
        (body,) = wire.encode_each([kind], committed.transaction, committed.results)
        return body

    def _transaction(self, session_id: int, source: JuteReader) -> bytes:
        kinds, operations, refused = wire.decode_multi(source)
        try:
            if refused is not None:
                raise refused
            committed = self._ensemble.commit(
                lambda tree, now_ms: tree.submit(session_id, operations, now_ms, multi=True)
            )
        except RegistryError as error:
            if error.index is None:
                raise
            return wire.encode_failure(len(kinds), error.index, error.code)
        return wire.encode_results(kinds, committed.transaction, committed.results)

    def _read(self, kind: int, path: str, session_id: int, watcher: Callable[[Event], None] | None) -> bytes:
        tree, watches = self._ensemble.tree_and_watches()
        if kind == OpCode.EXISTS:
            stat = tree.exists(path)
            if watcher is not None:
                watches.watch_data(path, session_id, watcher)
            if stat is None:
                raise NoNodeError(path)
            return wire.encode_stat(stat)
        if kind == OpCode.GET_DATA:
            data, stat = tree.get(path)
            if watcher is not None:
                watches.watch_data(path, session_id, watcher)
            return wire.encode_data(data, stat)
        names, stat = tree.children(path)
        if watcher is not None:
            watches.watch_children(path, session_id, watcher)
        return wire.encode_children(names) + (wire.encode_stat(stat) if kind == OpCode.GET_CHILDREN_2 else b"")

    def _access_list(self, kind: int, source: JuteReader) -> bytes:
        # Every node is open to all, so the open access list is accepted, and nothing is written or counted.
        tree, _ = self._ensemble.tree_and_watches()
        path = source.take_string()
        if kind == OpCode.GET_ACL:
            _, stat = tree.get(path)
            return wire.encode_open_acl() + wire.encode_stat(stat)
        wire.check_acl(path, wire.take_acl(source))
        version = source.take_int()
        _, stat = tree.get(path)
        if version not in (ANY_VERSION, stat.aversion):
            raise BadVersionError(path, f"expected access list version {version}, found {stat.aversion}")
        return wire.encode_stat(stat)
