"""Frames and headers of requests and responses (Kafka: RequestHeader, ResponseHeader, ApiKeys).

A frame is a length (int32) and as many bytes. A request begins with header version 2 where its body is flexible and
version 1 before that; only ControlledShutdown v0 has version 0, without a client id. The client id is a plain string
even in header version 2, so that any broker can read the header of an ApiVersions request of a later version. Responses
have header version 1 where their body is flexible, except those of ApiVersions, which stay at 0 for the same reason
(KIP-482, KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from odradek.protocol import messages
from odradek.protocol.errors import ProtocolError
from odradek.protocol.primitives import Bytes, MalformedError, read_uvarint

CONTROLLED_SHUTDOWN: Final = 7
API_VERSIONS: Final = 18

_START: Final = struct.Struct(">hhih")  # API key, API version, correlation id, length of the client id
_SIZE: Final = struct.Struct(">i")
_CORRELATION: Final = struct.Struct(">i")
_CORRELATION_AND_NO_TAGS: Final = struct.Struct(">ib")
_HTTP: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "})
"""The first bytes of an HTTP request; the last entry is that of HTTP/2."""
_TLS_HANDSHAKE: Final = b"\x16\x03"
"""A TLS record of type handshake, major version 3."""


class RequestHeader(NamedTuple):
    """The header of a request; `body` is the position of the body in the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_request_header(frame: Bytes) -> RequestHeader:
    """Read the header at the start of a frame (without its length). Raises ProtocolError.

    A client id of any negative length is none, and bytes of it that are not UTF-8 are replaced, as in Kafka. The API
    key and version may be unknown: an unknown API is read as one that is not flexible.
    """
    try:
        api_key, version, correlation_id, length = _START.unpack_from(frame)
    except struct.error:
        return _read_header_0(frame)
    if api_key == CONTROLLED_SHUTDOWN and version == 0:
        return _read_header_0(frame)
    pos = 10
    client_id = None
    if length >= 0:
        end = pos + length
        if end > len(frame):
            raise ProtocolError("RequestHeader.client_id", 8, f"{length} bytes announced, {len(frame) - pos} left")
        client_id = str(frame[pos:end], "utf-8", "replace")
        pos = end
    if version >= first_flexible(api_key):
        pos = _skip_tags(frame, pos)
    return RequestHeader(api_key, version, correlation_id, client_id, pos)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request, for clients. Raises ValueError."""
    header_version = request_header_version(api_key, version)
    header = messages.RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return header.encode(header_version)


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of the response to a request of that API and version."""
    if response_header_version(api_key, version) == 0:
        return _CORRELATION.pack(correlation_id)
    return _CORRELATION_AND_NO_TAGS.pack(correlation_id, 0)


def request_header_version(api_key: int, version: int) -> int:
    """The version of the header of a request."""
    if api_key == CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if version >= first_flexible(api_key) else 1


def response_header_version(api_key: int, version: int) -> int:
    """The version of the header of a response."""
    return 1 if version >= first_flexible(api_key) and api_key != API_VERSIONS else 0


@lru_cache(maxsize=256)  # bounded: clients choose the key
def first_flexible(api_key: int) -> int:
    """The first flexible version of an API; above every version where it has none or is unknown."""
    api = messages.APIS.get(api_key)
    return api.first_flexible if api else messages.NEVER


def frame(*parts: Bytes) -> bytes:
    """The parts as one frame, with their length before them."""
    body = b"".join(parts)
    return _SIZE.pack(len(body)) + body


def what_it_looks_like(size: int, *, tls: bool) -> str | None:
    """The protocol of a peer whose first four bytes make `size`, an impossible length; None if that is unclear.

    `tls` is whether the listener itself expects TLS, so that the bytes are decrypted ones.
    """
    start = _SIZE.pack(size)
    if start in _HTTP:
        return f"this looks like HTTP ({start.decode().strip()}...), and the listener expects Kafka's protocol"
    if start[:2] == _TLS_HANDSHAKE and not tls:
        return (
            "this looks like a TLS handshake, and the listener is a PLAINTEXT one: see security.protocol of the client"
        )
    return None


class Frames:
    """Splits a stream of bytes, in pieces of any size, into frames. For clients and tests.

    `limit` is the size of the largest frame, in bytes.
    """

    def __init__(self, limit: int = 100 * 1024 * 1024) -> None:
        self._limit = limit
        self._waiting = bytearray()

    @property
    def waiting(self) -> int:
        """The number of bytes that are not a whole frame yet."""
        return len(self._waiting)

    def feed(self, data: Bytes) -> Iterator[bytes]:
        """Add received bytes; the iterator returns each frame that is whole, without its length.

        It raises ProtocolError for a length that is negative or over the limit; nothing can be read after it.
        """
        self._waiting += data
        return self._split()

    def _split(self) -> Iterator[bytes]:
        start = 0
        try:
            while len(self._waiting) - start >= 4:
                (size,) = _SIZE.unpack_from(self._waiting, start)
                if not 0 <= size <= self._limit:
                    raise ProtocolError("frame", 0, f"a length of {size} bytes; 0 to {self._limit} are allowed")
                end = start + 4 + size
                if end > len(self._waiting):
                    break
                yield bytes(memoryview(self._waiting)[start + 4 : end])
                start = end
        finally:
            del self._waiting[:start]


def _read_header_0(frame: Bytes) -> RequestHeader:
    """Read the header that has no client id; also raises for a frame that is too short for any header."""
    header, pos = messages.RequestHeader.decode_prefix(frame, 0)
    if (header.request_api_key, header.request_api_version) != (CONTROLLED_SHUTDOWN, 0):
        raise ProtocolError("RequestHeader.client_id", pos, f"the bytes end here: {len(frame) - pos} left")
    return RequestHeader(header.request_api_key, 0, header.correlation_id, None, pos)


def _skip_tags(frame: Bytes, pos: int) -> int:
    """The position after the tagged fields of a header, of which Kafka has defined none."""
    try:
        count = frame[pos]
        if count == 0:
            return pos + 1
        count, pos = read_uvarint(frame, pos)
        for _ in range(count):
            _, pos = read_uvarint(frame, pos)
            length, pos = read_uvarint(frame, pos)
            pos += length
        if pos <= len(frame):
            return pos
        reason = f"the last tagged field ends {pos - len(frame)} bytes beyond the frame"
    except (IndexError, MalformedError) as error:
        reason = str(error)
    raise ProtocolError("RequestHeader.tags", min(pos, len(frame)), reason)
