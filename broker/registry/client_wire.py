"""ZooKeeper's client protocol as bytes, encoded in jute: the server's side.

A frame is an int32 length and a packet. The first packet of a connection is a ConnectRequest, all others begin with a
RequestHeader (xid, kind); a response begins with a ReplyHeader (xid, zxid, error) and has a body only where the error
is 0. Watches are responses with xid -1 without a request. The layouts are those of zookeeper.jute in ZooKeeper 3.8; for
the encoding of a failed transaction, see MultiResponse.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.broker.registry.interface import (
    Acl,
    BadArgumentsError,
    Check,
    Create,
    Delete,
    Event,
    Operation,
    RegistryError,
    Set,
    Stat,
)
from odradek.broker.registry.jute import JuteError, JuteReader, JuteWriter
from odradek.broker.registry.transactions import put_acl, take_acl
from odradek.broker.registry.tree import CheckStep, CreateStep, DeleteStep, JournalTransaction, SetAcl, SetStep

MAX_PACKET_BYTES: Final = 0xFFFFF
"""ZooKeeper's jute.maxbuffer."""
LENGTH: Final = struct.Struct(">i")
PASSWORD_BYTES: Final = 16

_CONNECT: Final = struct.Struct(">iqiq")  # protocol version, last zxid seen, timeout in ms, session id
_CONNECTED: Final = struct.Struct(">iiq")  # protocol version, timeout in ms, session id
_REPLY: Final = struct.Struct(">iiqi")  # length, xid, zxid, error
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_MULTI_HEADER: Final = struct.Struct(">ibi")  # kind, done, error

_NOTIFICATION_XID: Final = -1
_STATE_CONNECTED: Final = 3
_EPHEMERAL, _SEQUENTIAL = 1, 2


class OpCode(IntEnum):
    """The kind of a request (ZooDefs.OpCode)."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    CREATE_2 = 15
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    SET_WATCHES_2 = 105
    CLOSE_SESSION = -11
    ERROR = -1


class InconsistencyError(RegistryError):
    """Within a failed transaction: an operation after the one that failed, which was not tried."""

    code = -2


class MarshallingError(RegistryError):
    """The body of the request cannot be decoded."""

    code = -5


class UnimplementedError(RegistryError):
    """The server does not support the kind of request, or the kind of node."""

    code = -6


class AuthFailedError(RegistryError):
    """The client authenticates with a scheme that the server does not have, or with a wrong password."""

    code = -115


class AuthenticationRequiredError(RegistryError):
    """The server closes the session: the client has not authenticated (SESSIONCLOSEDREQUIRESASLAUTH)."""

    code = -124


class ConnectRequest(NamedTuple):
    """The first packet of a client: id 0 for a new session, or the id and password of the session that it resumes.

    Clients from before ZooKeeper 3.4 do not support read-only servers, and their response has no such field.
    """

    timeout_ms: int
    session_id: int
    password: bytes
    knows_read_only: bool


class MultiRequest(NamedTuple):
    """A transaction: the kinds of all its operations, the operations that can be tried, and the error of the first
    operation that cannot.
    """

    kinds: list[int]
    operations: list[Operation]
    refused: RegistryError | None


class SetWatches(NamedTuple):
    """The watches that a client sets again on a new connection, and the last zxid that it saw on the previous one."""

    zxid: int
    data: list[str]
    exists: list[str]
    children: list[str]


def decode_connect(packet: bytes | memoryview) -> ConnectRequest:
    """Raises JuteError."""
    source = JuteReader(packet)
    _, _, timeout_ms, session_id = source.take_struct(_CONNECT)
    password = source.take_buffer() or b""
    return ConnectRequest(timeout_ms, session_id, password, source.remaining() > 0)


def encode_connected(granted: ConnectRequest) -> bytes:
    """The frame of the response to a ConnectRequest; a timeout of 0 means that the session has ended."""
    out = JuteWriter()
    out.put_struct(_CONNECTED, 0, granted.timeout_ms, granted.session_id)
    out.put_buffer(granted.password)
    if granted.knows_read_only:
        out.put_bool(False)
    packet = out.to_bytes()
    return LENGTH.pack(len(packet)) + packet


def encode_reply(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    """The frame of a response."""
    return _REPLY.pack(_REPLY.size - LENGTH.size + len(body), xid, zxid, error) + body


def encode_event(event: Event) -> bytes:
    """The frame of a watch that fired."""
    out = JuteWriter()
    out.put_int(event.kind)
    out.put_int(_STATE_CONNECTED)
    out.put_string(event.path)
    return encode_reply(_NOTIFICATION_XID, -1, 0, out.to_bytes())


# Requests. All decoders raise JuteError where the body is malformed.


def decode_write(kind: int, source: JuteReader) -> Operation:
    """One change, alone or within a transaction. Raises UnimplementedError and BadArgumentsError."""
    match kind:
        case OpCode.CREATE | OpCode.CREATE_2:
            path, data = source.take_string(), source.take_buffer()
            acl, flags = take_acl(source), source.take_int()
            ephemeral, sequential = _node_kind(path, flags)
            return Create(path, data, ephemeral, sequential, acl)
        case OpCode.SET_DATA:
            return Set(source.take_string(), source.take_buffer(), source.take_int())
        case OpCode.DELETE:
            return Delete(source.take_string(), source.take_int())
        case OpCode.CHECK:
            return Check(source.take_string(), source.take_int())
        case OpCode.CREATE_CONTAINER | OpCode.CREATE_TTL:
            path, _, _, _ = source.take_string(), source.take_buffer(), take_acl(source), source.take_int()
            if kind == OpCode.CREATE_TTL:
                source.take_long()
            raise UnimplementedError(path, "containers and nodes that time out are not supported")
        case _:
            raise JuteError(f"an operation of kind {kind}")


def decode_multi(source: JuteReader) -> MultiRequest:
    """All operations of a transaction."""
    kinds: list[int] = []
    operations: list[Operation] = []
    refused: RegistryError | None = None
    while True:
        kind, done, _ = source.take_struct(_MULTI_HEADER)
        if done:
            return MultiRequest(kinds, operations, refused)
        try:
            operations.append(decode_write(kind, source))
        except RegistryError as error:
            if refused is None:
                error.index = len(kinds)
                refused = error
        kinds.append(kind)


def decode_set_watches(source: JuteReader, kind: int) -> SetWatches:
    """Raises UnimplementedError for watches that stay after they fired."""
    zxid = source.take_long()
    data, exists, children = _take_strings(source), _take_strings(source), _take_strings(source)
    if kind == OpCode.SET_WATCHES_2 and (_take_strings(source) or _take_strings(source)):
        raise UnimplementedError("", "persistent watches are not supported")
    return SetWatches(zxid, data, exists, children)


def decode_set_acl(source: JuteReader) -> SetAcl:
    """A new access list for a node."""
    return SetAcl(source.take_string(), take_acl(source), source.take_int())


def decode_auth(source: JuteReader) -> tuple[str, bytes]:
    """The scheme and the credentials of an AuthPacket."""
    source.take_int()
    return source.take_string(), source.take_buffer() or b""


def _node_kind(path: str, flags: int) -> tuple[bool, bool]:
    if not 0 <= flags <= 6:
        raise BadArgumentsError(path, f"flags {flags}; allowed are 0 to 6")
    if flags > (_EPHEMERAL | _SEQUENTIAL):
        raise UnimplementedError(path, "containers and nodes that time out are not supported")
    return bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL)


def _take_strings(source: JuteReader) -> list[str]:
    return [source.take_string() for _ in range(source.take_count(4))]


# Bodies of responses


def encode_path(path: str) -> bytes:
    """CreateResponse, SyncResponse."""
    out = JuteWriter()
    out.put_string(path)
    return out.to_bytes()


def encode_stat(stat: Stat) -> bytes:
    """ExistsResponse, SetDataResponse, SetACLResponse."""
    return _STAT.pack(*stat)


def encode_data(data: bytes | None, stat: Stat) -> bytes:
    """GetDataResponse."""
    out = JuteWriter()
    out.put_buffer(data)
    return out.to_bytes() + encode_stat(stat)


def encode_children(names: Sequence[str]) -> bytes:
    """GetChildrenResponse; with a stat behind it GetChildren2Response."""
    out = JuteWriter()
    out.put_int(len(names))
    for name in names:
        out.put_string(name)
    return out.to_bytes()


def encode_acl(acl: tuple[Acl, ...]) -> bytes:
    """An access list; with a stat behind it GetACLResponse."""
    out = JuteWriter()
    put_acl(out, acl)
    return out.to_bytes()


def encode_token(token: bytes | None) -> bytes:
    """SetSASLResponse."""
    out = JuteWriter()
    out.put_buffer(token)
    return out.to_bytes()


def encode_results(kinds: Sequence[int], transaction: JournalTransaction, results: Sequence[object]) -> bytes:
    """MultiResponse of a transaction that was accepted."""
    out = bytearray()
    for kind, result in zip(kinds, encode_each(kinds, transaction, results), strict=True):
        out += _MULTI_HEADER.pack(kind, False, 0) + result
    return bytes(out + _MULTI_END)


def encode_failure(count: int, index: int, error: int) -> bytes:
    """MultiResponse of a transaction of `count` operations that failed at `index`."""
    out = bytearray()
    for position in range(count):
        code = 0 if position < index else error if position == index else InconsistencyError.code
        out += _MULTI_HEADER.pack(OpCode.ERROR, False, code) + LENGTH.pack(code)
    return bytes(out + _MULTI_END)


def encode_each(kinds: Sequence[int], transaction: JournalTransaction, results: Sequence[object]) -> list[bytes]:
    """The bodies of the responses to the operations of a write, one by one."""
    return [_encode_result(kind, transaction, index, results[index]) for index, kind in enumerate(kinds)]


def _encode_result(kind: int, transaction: JournalTransaction, index: int, result: object) -> bytes:
    match transaction.steps[index]:
        case CreateStep(path) as step:
            return encode_path(path) + (encode_stat(_first_stat(step, transaction)) if kind == OpCode.CREATE_2 else b"")
        case SetStep():
            assert isinstance(result, Stat)
            return encode_stat(result)
        case DeleteStep() | CheckStep():
            return b""
        case step:
            raise AssertionError(f"{step} answers no request")


def _first_stat(step: CreateStep, transaction: JournalTransaction) -> Stat:
    zxid, time_ms = transaction.zxid, transaction.time_ms
    owner = transaction.session_id if step.ephemeral else 0
    return Stat(zxid, zxid, time_ms, time_ms, 0, 0, 0, owner, len(step.data or b""), 0, zxid)


_MULTI_END: Final = _MULTI_HEADER.pack(OpCode.ERROR, True, -1)
