"""Transactions and snapshots of the tree as bytes, in the formats of ZooKeeper 3.8's data directory.

A record of the log is an Adler-32, a length, the transaction and the letter B; a snapshot is sessions, access lists
and nodes between a header and a seal (ZooKeeper: FileTxnLog, FileSnap, SerializeUtils). So the folder of an embedded
metadata store is a ZooKeeper data directory, on which Apache ZooKeeper can be started when one broker is too small.

Content of ZooKeeper that this tree does not support (containers, nodes that time out, reconfiguration) is rejected with
JuteError, never dropped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from odradek.broker.registry.interface import OPEN_ACL, Acl, RegistryError
from odradek.broker.registry.jute import JuteError, JuteReader, JuteWriter
from odradek.broker.registry.tree import (
    CheckStep,
    CloseSessionStep,
    CreateStep,
    DeleteStep,
    JournalTransaction,
    Node,
    OpenSessionStep,
    SetAclStep,
    SetStep,
    Step,
    Tree,
)

LOG_HEADER: Final = struct.pack(">4siq", b"ZKLG", 2, 0)
SNAPSHOT_HEADER: Final = struct.pack(">4siq", b"ZKSN", 2, -1)

_FRAME: Final = struct.Struct(">qi")
_HEADER: Final = struct.Struct(">qiqqi")
_STAT: Final = struct.Struct(">qqqqiiiqq")
_RECORD_END: Final = b"B"
_MAX_RECORD_BYTES: Final = 64 * 1024 * 1024

_CREATE, _DELETE, _SET, _SET_ACL, _CHECK, _MULTI, _CREATE2 = 1, 2, 5, 7, 13, 14, 15
_OPEN_SESSION, _CLOSE_SESSION, _ERROR = -10, -11, -1

_OPEN_ACL_ID: Final = -1


class JournalRecord(NamedTuple):
    """One record of a log. `transaction` is None for the record of a failed write. `end` is the position behind it.

    `batch_position` counts the records of one write to the file; see `frame`.
    """

    transaction: JournalTransaction | None
    batch_position: int
    end: int


def frame(transaction: JournalTransaction, batch_position: int) -> bytes:
    """The record of a transaction.

    ZooKeeper stores a client's request number (cxid) in the header and never reads it back. This field has the position
    of the record among the records of one write to disk. Only the last write can be torn, so a good record that was
    first of its write proves that everything before it was once on disk.
    """
    out = JuteWriter()
    kind, body = _encode_body(transaction)
    out.put_struct(_HEADER, transaction.session_id, batch_position, transaction.zxid, transaction.time_ms, kind)
    payload = out.to_bytes() + body
    return _FRAME.pack(zlib.adler32(payload), len(payload)) + payload + _RECORD_END


def read_record(buffer: memoryview, position: int) -> JournalRecord | None:
    """The record at a position, or None where there is none: the end, zeros, or bytes that are torn or damaged.

    Raises JuteError for a whole record that cannot be decoded.
    """
    body = position + _FRAME.size
    if body > len(buffer):
        return None
    checksum, size = _FRAME.unpack_from(buffer, position)
    end = body + size + 1
    if not _HEADER.size <= size <= _MAX_RECORD_BYTES or end > len(buffer) or buffer[end - 1] != _RECORD_END[0]:
        return None
    payload = buffer[body : end - 1]
    if zlib.adler32(payload) != checksum:
        return None
    transaction, batch_position = _decode(payload)
    return JournalRecord(transaction, batch_position, end)


def _encode_body(transaction: JournalTransaction) -> tuple[int, bytes]:
    if not transaction.multi:
        (step,) = transaction.steps
        return _encode_step(step)
    out = JuteWriter()
    out.put_int(len(transaction.steps))
    for step in transaction.steps:
        kind, body = _encode_step(step)
        out.put_int(kind)
        out.put_buffer(body)
    return _MULTI, out.to_bytes()


def _encode_step(step: Step) -> tuple[int, bytes]:
    out = JuteWriter()
    match step:
        case CreateStep(path, data, ephemeral, parent_creations, acl):
            kind = _CREATE
            out.put_string(path)
            out.put_buffer(data)
            put_acl(out, acl)
            out.put_bool(ephemeral)
            out.put_int(parent_creations)
        case SetStep(path, data, version):
            kind = _SET
            out.put_string(path)
            out.put_buffer(data)
            out.put_int(version)
        case SetAclStep(path, acl, version):
            kind = _SET_ACL
            out.put_string(path)
            put_acl(out, acl)
            out.put_int(version)
        case DeleteStep(path):
            kind = _DELETE
            out.put_string(path)
        case CheckStep(path, version):
            kind = _CHECK
            out.put_string(path)
            out.put_int(version)
        case OpenSessionStep(timeout_ms):
            kind = _OPEN_SESSION
            out.put_int(timeout_ms)
        case CloseSessionStep(paths):
            kind = _CLOSE_SESSION
            out.put_int(len(paths))
            for path in paths:
                out.put_string(path)
    return kind, out.to_bytes()


def _decode(payload: memoryview) -> tuple[JournalTransaction | None, int]:
    source = JuteReader(payload)
    session_id, batch_position, zxid, time_ms, kind = source.take_struct(_HEADER)
    if kind == _ERROR:
        return None, batch_position
    steps = _decode_multi(source) if kind == _MULTI else [_decode_step(kind, source)]
    if steps is None:
        return None, batch_position
    return JournalTransaction(session_id, zxid, time_ms, tuple(steps), kind == _MULTI), batch_position


def _decode_multi(source: JuteReader) -> list[Step] | None:
    # ZooKeeper logs a failed transaction as one whose operations are all errors.
    steps: list[Step] = []
    failed = False
    for _ in range(source.take_count(8)):
        kind = source.take_int()
        body = source.take_buffer()
        if kind == _ERROR:
            failed = True
        elif not failed:
            steps.append(_decode_step(kind, JuteReader(body or b"")))
    return None if failed else steps


def _decode_step(kind: int, source: JuteReader) -> Step:
    if kind in (_CREATE, _CREATE2):
        path, data = source.take_string(), source.take_buffer()
        acl = take_acl(source)
        return CreateStep(path, data, source.take_bool(), source.take_int(), acl)
    if kind == _SET:
        return SetStep(source.take_string(), source.take_buffer(), source.take_int())
    if kind == _SET_ACL:
        return SetAclStep(source.take_string(), take_acl(source), source.take_int())
    if kind == _DELETE:
        return DeleteStep(source.take_string())
    if kind == _CHECK:
        return CheckStep(source.take_string(), source.take_int())
    if kind == _OPEN_SESSION:
        return OpenSessionStep(source.take_int())
    if kind == _CLOSE_SESSION:
        return CloseSessionStep(tuple(source.take_string() for _ in range(source.take_count(4))))
    raise JuteError(f"a transaction of kind {kind}, which the embedded metadata store does not support")


def put_acl(out: JuteWriter, acl: tuple[Acl, ...]) -> None:
    """Append an access list."""
    out.put_int(len(acl))
    for permissions, scheme, name in acl:
        out.put_int(permissions)
        out.put_string(scheme)
        out.put_string(name)


def take_acl(source: JuteReader) -> tuple[Acl, ...]:
    """Take an access list. Raises JuteError."""
    acl = tuple(Acl(source.take_int(), source.take_text(), source.take_text()) for _ in range(source.take_count(12)))
    return OPEN_ACL if acl == OPEN_ACL else acl  # most nodes have it, and share one object


class TreeSnapshot(NamedTuple):
    """The content of a tree at one moment. It takes a fraction of the time of its encoding, which a thread can do."""

    sessions: dict[int, int]
    nodes: list[tuple[Any, ...]]
    """Of each node its path, data, access list, and the fields of its stat."""
    is_in_order: bool = True
    """Whether parents are before their children, as in the file."""

    def encode(self) -> bytes:
        """The bytes of a snapshot file."""
        nodes = self.nodes if self.is_in_order else sorted(self.nodes, key=lambda row: len(row[0]))
        out = JuteWriter()
        out.put_int(len(self.sessions))
        for session_id, timeout_ms in self.sessions.items():
            out.put_long(session_id)
            out.put_int(timeout_ms)
        numbers = self._number_acls()  # the open one has a number, too, and is not listed
        out.put_int(len(numbers) - 1)
        for acl, number in numbers.items():
            if number != _OPEN_ACL_ID:
                out.put_long(number)
                put_acl(out, acl)
        for path, data, acl, *stat in nodes:
            out.put_string("" if path == "/" else path)
            out.put_buffer(data)
            out.put_long(numbers[acl])
            out.put_struct(_STAT, *stat)
        out.put_string("/")
        content = SNAPSHOT_HEADER + out.to_bytes()
        seal = JuteWriter()
        seal.put_long(zlib.adler32(content))
        seal.put_string("/")
        return content + seal.to_bytes()

    def _number_acls(self) -> dict[tuple[Acl, ...], int]:
        numbers: dict[tuple[Acl, ...], int] = {OPEN_ACL: _OPEN_ACL_ID}
        for _, _, acl, *_ in self.nodes:
            numbers.setdefault(acl, len(numbers))
        return numbers


def node_row(path: str, node: Node) -> tuple[Any, ...]:
    """A node as a snapshot has it."""
    return (
        path,
        node.data,
        node.acl,
        node.czxid,
        node.mzxid,
        node.ctime_ms,
        node.mtime_ms,
        node.version,
        node.creations,
        node.aversion,
        node.ephemeral_owner,
        node.pzxid,
    )


def take_snapshot(tree: Tree) -> TreeSnapshot:
    """The whole tree as it is now."""
    return TreeSnapshot(tree.sessions, [node_row(path, node) for path, node in tree.nodes()])


def encode_snapshot(tree: Tree) -> bytes:
    """The bytes of a snapshot file of the whole tree."""
    return take_snapshot(tree).encode()


def decode_snapshot(buffer: bytes, zxid: int) -> Tree:
    """The tree that a snapshot taken at `zxid` holds. Raises JuteError if it is not whole."""
    source = JuteReader(buffer)
    magic = bytes(source.take(len(SNAPSHOT_HEADER)))[:8]
    if magic != SNAPSHOT_HEADER[:8]:
        raise JuteError(f"not a snapshot: it begins with {magic.hex()}")
    sessions = {source.take_long(): source.take_int() for _ in range(source.take_count(12))}
    access_lists = {source.take_long(): take_acl(source) for _ in range(source.take_count(12))}
    access_lists[_OPEN_ACL_ID] = OPEN_ACL
    nodes = list(_decode_nodes(source, access_lists))
    checksum = zlib.adler32(buffer[: source.position])
    if source.take_long() != checksum or source.take_string() != "/":
        raise JuteError("the seal of the snapshot does not match its content")
    try:
        return Tree.restore(zxid, sessions, nodes)
    except RegistryError as error:
        raise JuteError(f"the snapshot has a node without a valid parent: {error}") from error


def _decode_nodes(source: JuteReader, access_lists: dict[int, tuple[Acl, ...]]) -> Iterator[tuple[str, Node]]:
    while (path := source.take_string()) != "/":
        path = path or "/"
        data, acl_id = source.take_buffer(), source.take_long()
        acl = access_lists.get(acl_id)
        if acl is None:
            raise JuteError(f"{path} has access list {acl_id}, which the snapshot does not contain")
        czxid, mzxid, ctime_ms, mtime_ms, version, creations, aversion, owner, pzxid = source.take_struct(_STAT)
        yield (
            path,
            Node(
                data,
                czxid,
                mzxid,
                pzxid,
                ctime_ms,
                mtime_ms,
                version,
                creations,
                owner,
                acl=acl,
                aversion=aversion,
            ),
        )
