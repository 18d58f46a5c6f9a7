"""From a frame to a handler and back: key and version, order, limits.

One table says which API in which version goes to which handler. A handler translates: it gets the decoded request
and returns the response, or None when the answer comes later through `Call.reply`. Nothing here or in a handler
creates a task or a future for a request that can be answered at once.

What cannot be understood is treated as Kafka treats it: an ApiVersions request in a version from the future is
answered in version 0 with UNSUPPORTED_VERSION, so that a newer client learns what is spoken here; any other unknown
key or version, and a request whose bytes do not decode, ends the connection, since no answer could be framed that
the client would understand. A handler that fails unexpectedly is logged with its request and ends the connection;
the broker goes on.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.framing import read_request_header
from odradek.protocol.net import Connection, Exchange, Part

log = logging.getLogger(__name__)

API_VERSIONS_KEY: Final = 18
KEY_VERSION_CORRELATION: Final = struct.Struct(">ii")
CLIENT_ID_LENGTH: Final = struct.Struct(">h")
SIZE_CORRELATION: Final = struct.Struct(">ii")
SIZE_CORRELATION_TAGS: Final = struct.Struct(">iib")


class Handler(Protocol):
    """One API. Translates requests for the shells behind it; decides nothing."""

    KEY: int
    VERSIONS: tuple[int, int]

    def handle(self, call: Call, request: Any) -> Any:
        """Return the response; or None after keeping `call` for a later `reply`, or where none is owed (acks=0)."""
        ...


class Call(Exchange):
    """One request in flight: who asks, in which version, and the way back."""

    __slots__ = ("_route", "client_id", "correlation_id", "no_reply")

    def __init__(self, connection: Connection, route: Route, correlation_id: int, client_id: str | None) -> None:
        self.connection = connection
        self.answer = None
        self._route = route
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.no_reply = False

    @property
    def api_key(self) -> int:
        """The API that is called."""
        return self._route.api_key

    @property
    def version(self) -> int:
        """The version of the request and of its response."""
        return self._route.version

    @property
    def client_host(self) -> str:
        """The client's address as Kafka prints it: `/127.0.0.1`."""
        return "/" + self.connection.address

    @property
    def principal(self) -> str:
        """Who the client has shown to be. Until authentication arrives, nobody in particular."""
        return "User:ANONYMOUS"

    @property
    def listener(self) -> str:
        """The name of the listener through which the request came."""
        return self.connection.listener_name

    @property
    def closed(self) -> bool:
        """Whether the client has gone, so that no answer can reach it."""
        return self.connection.closed

    def reply(self, response: Any) -> None:
        """Answer a request whose handler returned None."""
        connection = self.connection
        if connection.closed:
            return
        try:
            parts = self._route.encode(self.correlation_id, response)
        except Exception:
            log.exception("the answer to %s v%d cannot be encoded", self._route.name, self._route.version)
            connection.close()
            return
        connection.answer(self, parts)


class Route:
    """One API in one version: how to decode, who handles, how to encode."""

    __slots__ = ("_flexible_answer", "_has_records", "api_key", "decode", "flexible", "handle", "name", "version")

    def __init__(self, handler: Handler, version: int) -> None:
        request, response = m.request_class(handler.KEY), m.response_class(handler.KEY)
        self.api_key = handler.KEY
        self.version = version
        self.name = request.__name__.removesuffix("Request")
        self.decode: Callable[[memoryview, int, int], Any] = request.decode
        self.handle = handler.handle
        self.flexible = version >= request.FIRST_FLEXIBLE
        # The response to ApiVersions keeps the oldest header, for it is read before the versions are known (KIP-511).
        self._flexible_answer = version >= response.FIRST_FLEXIBLE and handler.KEY != API_VERSIONS_KEY
        self._has_records = handler.KEY == m.FetchRequest.API_KEY

    def encode(self, correlation_id: int, response: Any) -> list[Part]:
        """The response as it goes out: its size, its header and its body."""
        if self._has_records:
            parts: list[Part] = response.encode_parts(self.version)
            size = 4 + self._flexible_answer
            for part in parts:
                size += len(part)
            parts.insert(0, self._head(size, correlation_id))
            return parts
        body: bytes = response.encode(self.version)
        return [self._head(4 + self._flexible_answer + len(body), correlation_id) + body]

    def _head(self, size: int, correlation_id: int) -> bytes:
        if self._flexible_answer:
            return SIZE_CORRELATION_TAGS.pack(size, correlation_id, 0)
        return SIZE_CORRELATION.pack(size, correlation_id)


class Dispatcher:
    """Frames in, answers out."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        """Raises ValueError when two handlers claim one key."""
        self._handlers: dict[int, Handler] = {}
        for handler in handlers:
            if handler.KEY in self._handlers:
                raise ValueError(f"API key {handler.KEY} has two handlers")
            self._handlers[handler.KEY] = handler
        self._routes: dict[int, Route] = {}

    def versions(self) -> list[tuple[int, int, int]]:
        """What ApiVersions says: (key, lowest, highest version) of every API, by key."""
        return [(key, *self._handlers[key].VERSIONS) for key in sorted(self._handlers)]

    def frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request. `frame` begins at the request header; it is valid only during this call."""
        try:
            key_version, correlation_id = KEY_VERSION_CORRELATION.unpack_from(frame)
            route = self._routes.get(key_version)
            if route is None:
                route = self._find(key_version)
                if route is None:
                    self._refuse(connection, key_version, correlation_id)
                    return
            client_id, body = _client_id(frame, route.flexible)
            request = route.decode(frame, route.version, body)
        except (ProtocolError, struct.error, IndexError, UnicodeDecodeError) as error:
            connection.refuse("invalid request", f"the request cannot be decoded: {error}")
            return
        call = Call(connection, route, correlation_id, client_id)
        try:
            response = route.handle(call, request)
            if response is not None:
                connection.send(call, route.encode(correlation_id, response))
            elif call.answer is not None:  # answered before the handler returned
                connection.send(call, call.answer)
            elif not call.no_reply:
                connection.expect(call)
        except Exception:
            log.exception("%s v%d of client %r failed", route.name, route.version, client_id)
            connection.close()

    def _find(self, key_version: int) -> Route | None:
        key, version = key_version >> 16, key_version & 0xFFFF
        handler = self._handlers.get(key)
        if handler is None or not handler.VERSIONS[0] <= version <= handler.VERSIONS[1]:
            return None
        route = self._routes[key_version] = Route(handler, version)
        return route

    def _refuse(self, connection: Connection, key_version: int, correlation_id: int) -> None:
        key, version = key_version >> 16, key_version & 0xFFFF
        handler = self._handlers.get(API_VERSIONS_KEY)
        if key == API_VERSIONS_KEY and handler is not None:
            low, high = handler.VERSIONS
            known = m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            response = m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
            route = Route(handler, 0)
            connection.send(Call(connection, route, correlation_id, None), route.encode(correlation_id, response))
            return
        connection.refuse("unsupported request", f"API key {key} in version {version} is not served here")


def _client_id(frame: memoryview, flexible: bool) -> tuple[str | None, int]:
    """The client id of a request header (versions 1 and 2), and where the body begins."""
    (length,) = CLIENT_ID_LENGTH.unpack_from(frame, 8)
    end = 10
    client_id: str | None = None
    if length >= 0:
        end += length
        if end > len(frame):
            raise ProtocolError("RequestHeader.client_id", 8, f"{length} bytes announced, {len(frame) - 10} are there")
        client_id = str(frame[10:end], "utf-8")
    if flexible:
        if frame[end] == 0:
            return client_id, end + 1
        header = read_request_header(frame)
        return header.client_id, header.body
    return client_id, end
