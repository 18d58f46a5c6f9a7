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

from odradek.broker.metrics.broker_metrics import ApiMetrics
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.framing import read_request_header
from odradek.protocol.net import Connection, Exchange
from odradek.protocol.outbox import Part

log = logging.getLogger(__name__)

API_VERSIONS_KEY: Final = 18
FETCH_KEY: Final = 1
FETCH_OF_CONSUMERS: Final = "FetchConsumer"
FETCH_OF_FOLLOWERS: Final = "FetchFollower"
"""Kafka's metrics know these two apart."""
CONTROLLED_SHUTDOWN_0: Final = (7, 0)
"""The only API and version whose request has no client id in its header."""
NO_CLIENT_ID: Final = 8
"""Where the body of such a request begins."""
HEADER: Final = struct.Struct(">iih")
"""Key and version as one number, correlation id, length of the client id."""
SIZE_CORRELATION: Final = struct.Struct(">ii")


class Handler(Protocol):
    """One API. Translates requests for the shells behind it; decides nothing."""

    KEY: int
    VERSIONS: tuple[int, int]

    def handle(self, call: Call, request: Any) -> Any:
        """Return the response; or None after keeping `call` for a later `reply`, or where none is owed (acks=0)."""
        ...


class Call(Exchange):
    """One request in flight: who asks, in which version, and the way back."""

    __slots__ = (
        "_route",
        "client_id",
        "correlation_id",
        "from_follower",
        "local_ns",
        "no_reply",
        "started_ns",
        "version",
    )

    def __init__(
        self, connection: Connection, route: Route, correlation_id: int, client_id: str | None, started_ns: int
    ) -> None:
        self.connection = connection
        self.answer = None
        self.from_follower = False
        self.started_ns = started_ns
        self.local_ns = 0
        self._route = route
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.version = route.version
        self.no_reply = False

    @property
    def api_key(self) -> int:
        """The API that is called."""
        return self._route.api_key

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
        self._route.count(self, response, self._route.now_ns() - self.started_ns)


class LocalCall:
    """A request of this broker to itself, as the controller and its own broker exchange them: no bytes, no socket."""

    __slots__ = ("_on_answer", "_on_lost", "client_id", "closed", "version")

    client_host = "/local"
    principal = "User:ANONYMOUS"
    listener = ""

    def __init__(
        self, version: int, client_id: str, on_answer: Callable[[Any], None], on_lost: Callable[[], None]
    ) -> None:
        """`on_answer` hears the answer, `on_lost` that there will be none."""
        self.version = version
        self.client_id = client_id
        self.closed = False
        self._on_answer = on_answer
        self._on_lost = on_lost

    @property
    def connection(self) -> LocalCall:
        """What can be closed. Kept, it would be a cycle, and whoever asked would live until the collector runs."""
        return self

    def reply(self, response: Any) -> None:
        """The answer."""
        if not self.closed:
            self.closed = True
            self._on_answer(response)

    def close(self) -> None:
        """There will be no answer."""
        if not self.closed:
            self.closed = True
            self._on_lost()


class Route:
    """One API in one version: how to decode, who handles, how to encode."""

    __slots__ = (
        "_encode",
        "_head",
        "_metrics",
        "_of_followers",
        "_report_errors",
        "api_key",
        "decode",
        "flexible",
        "handle",
        "name",
        "now_ns",
        "version",
    )

    def __init__(self, handler: Handler, version: int, metrics: ApiMetrics) -> None:
        request, response = m.request_class(handler.KEY), m.response_class(handler.KEY)
        self.api_key = handler.KEY
        self.version = version
        self.name = request.__name__.removesuffix("Request")
        self.decode = request.DECODERS[version]
        if (handler.KEY, version) == CONTROLLED_SHUTDOWN_0:
            decode = self.decode
            self.decode = lambda frame, body: decode(frame, NO_CLIENT_ID)
        self.handle = handler.handle
        self.flexible = version >= request.FIRST_FLEXIBLE
        self.now_ns = metrics.now_ns
        self._metrics = metrics.of(FETCH_OF_CONSUMERS if handler.KEY == FETCH_KEY else self.name)
        self._of_followers = metrics.of(FETCH_OF_FOLLOWERS) if handler.KEY == FETCH_KEY else self._metrics
        self._report_errors = response.errors_reporter()
        self._encode = response.ENCODERS[version]
        # The response to ApiVersions keeps the oldest header, for it is read before the versions are known (KIP-511).
        tags = version >= response.FIRST_FLEXIBLE and handler.KEY != API_VERSIONS_KEY
        self._head = bytes(SIZE_CORRELATION.size + tags)

    def encode(self, correlation_id: int, response: Any) -> list[Part]:
        """The response as it goes out: its size, its header and its body. Raises ValueError."""
        head = bytearray(self._head)
        parts: list[Part] = self._encode(response, head)
        size = len(head)
        if len(parts) > 1:
            size = sum(map(len, parts))
        SIZE_CORRELATION.pack_into(head, 0, size - 4, correlation_id)
        return parts

    def count(self, call: Call, response: Any, total_ns: int) -> None:
        """A request has its answer, or is done where none is owed (None)."""
        metrics = self._of_followers if call.from_follower else self._metrics
        metrics.answered(self.version, total_ns, call.local_ns or total_ns)
        if response is not None:
            self._report_errors(response, metrics.failed)


class Dispatcher:
    """Frames in, answers out."""

    def __init__(self, handlers: Iterable[Handler], metrics: ApiMetrics) -> None:
        """Raises ValueError when two handlers claim one key."""
        self._metrics = metrics
        self._now_ns = metrics.now_ns
        self._handlers: dict[int, Handler] = {}
        self._routes: dict[int, Route] = {}
        self.serve(handlers)

    def serve(self, handlers: Iterable[Handler]) -> None:
        """Add handlers; what comes before its handler is refused. Raises ValueError when two claim one key."""
        for handler in handlers:
            if handler.KEY in self._handlers:
                raise ValueError(f"API key {handler.KEY} has two handlers")
            self._handlers[handler.KEY] = handler

    def versions(self) -> list[tuple[int, int, int]]:
        """What ApiVersions says: (key, lowest, highest version) of every API, by key."""
        return [(key, *self._handlers[key].VERSIONS) for key in sorted(self._handlers)]

    def local(
        self, request: Any, version: int, client_id: str, on_answer: Callable[[Any], None], on_lost: Callable[[], None]
    ) -> None:
        """Handle a request of this broker to itself; exactly one of both is called, perhaps before this returns.

        `on_lost` stands for a connection that ends without an answer.
        """
        call = LocalCall(version, client_id, on_answer, on_lost)
        try:
            response = self._handlers[request.API_KEY].handle(call, request)  # type: ignore[arg-type]
        except Exception:
            log.exception("%s of this broker to itself failed", type(request).__name__)
            call.close()
        else:
            if response is not None:
                call.reply(response)

    def frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request. `frame` begins at the request header; it is valid only during this call."""
        route = None
        started_ns = self._now_ns()
        try:
            key_version, correlation_id, length = HEADER.unpack_from(frame)
            route = self._routes.get(key_version)
            if route is None:
                route = self._find(key_version)
                if route is None:
                    self._refuse(connection, key_version, correlation_id)
                    return
            body = 10 + length
            if length >= 0 and not (route.flexible and frame[body]) and body <= len(frame):
                client_id: str | None = str(frame[10:body], "utf-8", "replace")
                body += route.flexible
            else:  # no client id, or tagged fields: rare
                header = read_request_header(frame)
                client_id, body = header.client_id, header.body
            request, _ = route.decode(frame, body)
        except (ProtocolError, struct.error, IndexError) as error:
            what = "a request" if route is None else f"a request {route.name} v{route.version}"
            connection.refuse("invalid request", f"{what} of {len(frame)} bytes cannot be decoded: {error}")
            return
        call = Call(connection, route, correlation_id, client_id, started_ns)
        try:
            response = route.handle(call, request)
            if response is not None:
                connection.send(call, route.encode(correlation_id, response))
                route.count(call, response, self._now_ns() - started_ns)
            elif call.answer is not None:  # answered before the handler returned
                connection.send(call, call.answer)
            elif call.no_reply:
                route.count(call, None, self._now_ns() - started_ns)
            else:
                connection.expect(call)
                call.local_ns = self._now_ns() - started_ns
        except Exception:
            log.exception("%s v%d of client %r failed", route.name, route.version, client_id)
            connection.close()

    def _find(self, key_version: int) -> Route | None:
        key, version = key_version >> 16, key_version & 0xFFFF
        handler = self._handlers.get(key)
        if handler is None or not handler.VERSIONS[0] <= version <= handler.VERSIONS[1]:
            return None
        route = self._routes[key_version] = Route(handler, version, self._metrics)
        return route

    def _refuse(self, connection: Connection, key_version: int, correlation_id: int) -> None:
        key, version = key_version >> 16, key_version & 0xFFFF
        handler = self._handlers.get(API_VERSIONS_KEY)
        if key == API_VERSIONS_KEY and handler is not None:
            low, high = handler.VERSIONS
            known = m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            response = m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
            route = Route(handler, 0, self._metrics)
            call = Call(connection, route, correlation_id, None, self._now_ns())
            connection.send(call, route.encode(correlation_id, response))
            return
        asked = self._handlers.get(key)
        served = "not at all" if asked is None else "only in {} to {}".format(*asked.VERSIONS)
        text = f"API key {key} is not served in version {version}, {served}: ApiVersions tells a client which are"
        connection.refuse("unsupported request", text)
