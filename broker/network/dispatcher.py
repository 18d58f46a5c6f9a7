"""Dispatcher: decodes a request, calls its handler and encodes the response (Kafka: SocketServer, KafkaApis).

One table maps API key and version to a handler. A handler translates: it gets the decoded request and returns the
response, or None when it answers later with `Call.reply`. Neither this module nor a handler creates a task or a future
for a request that can be answered at once.

Requests that cannot be decoded are handled as in Kafka: an ApiVersions request in an unsupported version is answered in
version 0 with UNSUPPORTED_VERSION, so that a newer client receives the supported versions; for any other unknown key or
version, and for a malformed request, the dispatcher closes the connection, since the client could not decode any
response. When a handler raises an unexpected exception, the dispatcher logs it with its request and closes the
connection; the broker continues.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from odradek.broker.metrics.broker_metrics import ApiMetrics, RequestMetrics
from odradek.broker.network.large_requests import SMALL_FRAME_BYTES, AtOnce, LargeRequestError, LargeRequests
from odradek.broker.network.long_messages import shorten_messages
from odradek.broker.runtime.turns import Run, in_turn, keep
from odradek.broker.runtime.usage import Usage, measured
from odradek.broker.security.session import ANONYMOUS_SESSION, OWN_SESSION, Session
from odradek.protocol import messages as m
from odradek.protocol.decoding import MeteredDecoder
from odradek.protocol.encoding import Each
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.frames import Calls, Reply, frame_handler, not_in_c, reply_function
from odradek.protocol.framing import read_request_header
from odradek.protocol.in_flight import Exchange
from odradek.protocol.net import Connection
from odradek.protocol.outbox import Part
from odradek.protocol.primitives import Bytes

log = logging.getLogger(__name__)

API_VERSIONS_KEY: Final = 18
FETCH_KEY: Final = 1
TOPICS_AT_ONCE: Final = 100
"""Topics of an automatic creation, for a client's Metadata request, that the controller validates at once."""
PARTITIONS_AT_ONCE: Final = 250
"""Partitions of a transaction that a request of this broker to itself verifies, or writes markers to, at once."""
FETCH_OF_CONSUMERS: Final = "FetchConsumer"
FETCH_OF_FOLLOWERS: Final = "FetchFollower"
"""Kafka's metrics have separate names for these two."""
LONG_RESPONSES: Final = frozenset({16, 35, 61, 66})
"""ListGroups, DescribeLogDirs, DescribeProducers and ListTransactions: their responses name everything that the broker
has, however small the request is, so they are always handled in turns with the loop.
"""
LONG_REQUESTS: Final = {0: 4 << 20}
"""Produce requests of more bytes are handled in turns, too, however few partitions they have: the checksums and writes
take a millisecond for each one or two MiB.
"""
CONTROLLED_SHUTDOWN_0: Final = (7, 0)
"""The only API and version whose request has no client id in its header."""
NO_CLIENT_ID: Final = 8
"""The position of the body of such a request."""
HEADER: Final = struct.Struct(">iih")
"""Key and version as one number, correlation id, length of the client id."""
SIZE_CORRELATION: Final = struct.Struct(">ii")


class Handler(Protocol):
    """One API. Translates requests for the components behind it; decides nothing."""

    KEY: int
    VERSIONS: tuple[int, int]

    def handle(self, call: Call, request: Any) -> Any:
        """Return the response; or None after storing `call` for a later `reply`, or without a response (acks=0)."""
        ...


class RequestQuotas(Protocol):
    """The quotas of clients."""

    is_active: bool
    """Whether any client has a quota; nothing is called otherwise."""

    def throttle(self, call: Call, response: Any) -> None:
        """Charge a request before its response is sent (None: it has none): set the throttle time of the response, and
        mute the connection.
        """
        ...


class NoQuotas:
    """In place of quotas where there are none."""

    is_active = False

    def throttle(self, call: Call, response: Any) -> None:
        """Do nothing."""


NO_QUOTAS: Final = NoQuotas()


class Call(Exchange):
    """One request in flight: its client, its version, and the method that answers it."""

    __slots__ = (
        "client_id",
        "correlation_id",
        "from_follower",
        "local_ns",
        "no_reply",
        "route",
        "started_ns",
        "usage",
        "version",
    )

    def __init__(
        self, connection: Connection, route: Route, correlation_id: int, client_id: str | None, started_ns: int
    ) -> None:
        self.connection = connection
        self.answer = None
        self.operation = None
        self.from_follower = False
        self.started_ns = started_ns
        self.local_ns = 0
        self.route = route
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.version = route.version
        self.no_reply = False
        self.usage: Usage | None = None  # where no client has a quota

    @property
    def api_key(self) -> int:
        """The API key of the request."""
        return self.route.api_key

    @property
    def client_host(self) -> str:
        """The client's address as Kafka prints it: `/127.0.0.1`."""
        return "/" + self.connection.address

    @property
    def session(self) -> Session:
        """The authenticated identity of the client; without authentication, the anonymous user."""
        return self.connection.session or ANONYMOUS_SESSION

    @property
    def principal(self) -> str:
        """The principal of the session, as Kafka prints it: `User:alice`."""
        return self.session.name

    @property
    def api_name(self) -> str:
        """The name of the API, as Kafka's ApiKeys has it in its messages: `Produce`."""
        return self.route.name

    @property
    def listener(self) -> str:
        """The name of the listener through which the request came."""
        return self.connection.listener_name

    @property
    def closed(self) -> bool:
        """Whether the connection is closed, so that the client cannot receive an answer."""
        return self.connection.closed

    def reply(self, response: Any) -> None:
        """Answer a request whose handler returned None."""
        if not self.connection.closed and not self.route.reply(self, response):
            self._reply_in_python(response)

    def _reply_in_python(self, response: Any) -> None:
        """The specification of the function in C, and its fallback."""
        connection, quotas = self.connection, self.route.quotas
        try:
            if quotas.is_active:
                quotas.throttle(self, response)
            parts = self.route.encode(self.correlation_id, response)
        except Exception:
            log.exception("cannot encode response api=%s version=%d", self.route.name, self.route.version)
            connection.close()
            return
        connection.answer(self, parts)
        self.route.count(self, response, self.route.now_ns() - self.started_ns)

    def complete(self) -> None:
        """Complete a request whose handler returned None, and that has no response. It sends no bytes, but it limits
        the requests that wait.
        """
        if self.route.quotas.is_active:
            self.route.quotas.throttle(self, None)
        self.connection.answer(self, ())


class LargeCall(Call):
    """A large request, whose response is encoded in turns with the loop."""

    __slots__ = ("_large",)

    def __init__(
        self,
        connection: Connection,
        route: Route,
        correlation_id: int,
        client_id: str | None,
        started_ns: int,
        large: LargeRequests,
    ) -> None:
        super().__init__(connection, route, correlation_id, client_id, started_ns)
        self._large = large

    def reply(self, response: Any) -> None:
        """Answer a request whose handler returned None."""
        self._large.reply(self, response)


class LocalCall:
    """A request of the controller to its own broker, or back: without encoding and without a socket."""

    __slots__ = ("_on_answer", "_on_lost", "client_id", "closed", "run_in_turns", "version")

    client_host = "/local"
    usage = None
    session = OWN_SESSION
    principal = OWN_SESSION.name
    listener = ""

    def __init__(
        self, version: int, client_id: str, on_answer: Callable[[Any], None], on_lost: Callable[[], None]
    ) -> None:
        """`on_answer` is called with the response, `on_lost` if there will be none."""
        self.version = version
        self.client_id = client_id
        self.closed = False
        self.run_in_turns: Run | None = None
        """For a large request, whose response is large, too."""
        self._on_answer = on_answer
        self._on_lost = on_lost

    @property
    def connection(self) -> LocalCall:
        """The object to close.

        A stored reference would be a cycle and keep the caller alive until a garbage collection.
        """
        return self

    def reply(self, response: Any) -> None:
        """Pass the response to the caller."""
        if self.closed:
            return
        self.closed = True
        if self.run_in_turns is None or in_turn():
            self._on_answer(keep(response))
        else:
            self.run_in_turns(lambda: self._on_answer(keep(response)))

    def close(self) -> None:
        """Notify the caller that there will be no response."""
        if not self.closed:
            self.closed = True
            self._on_lost()


class Route:
    """One API in one version: its decoder, its handler and its encoder."""

    __slots__ = (
        "_encode",
        "_encode_sliced",
        "_head",
        "_metrics",
        "_of_followers",
        "_report_errors",
        "_report_errors_sliced",
        "api_key",
        "decode",
        "decode_metered",
        "flexible",
        "handle",
        "name",
        "now_ns",
        "quotas",
        "reply",
        "version",
    )

    def __init__(
        self,
        handler: Handler,
        version: int,
        metrics: ApiMetrics,
        quotas: RequestQuotas = NO_QUOTAS,
        reply: Reply = not_in_c,
    ) -> None:
        request, response = m.request_class(handler.KEY), m.response_class(handler.KEY)
        self.api_key = handler.KEY
        self.version = version
        self.name = request.__name__.removesuffix("Request")
        self.decode = request.DECODERS[version]
        if (handler.KEY, version) == CONTROLLED_SHUTDOWN_0:
            decode = self.decode
            self.decode = lambda frame, body: decode(frame, NO_CLIENT_ID)
        self.decode_metered = request.METERED_DECODERS[version]
        if handler.KEY in LONG_RESPONSES:
            self.decode, self.decode_metered = _not_at_once, _only_in_turns(self.decode_metered, 0)
        elif handler.KEY in LONG_REQUESTS:
            self.decode_metered = _only_in_turns(self.decode_metered, LONG_REQUESTS[handler.KEY])
        self.handle = handler.handle
        self.flexible = version >= request.FIRST_FLEXIBLE
        self.now_ns = metrics.now_ns
        self.quotas = quotas
        self.reply = reply
        self._metrics = metrics.of(FETCH_OF_CONSUMERS if handler.KEY == FETCH_KEY else self.name)
        self._of_followers = metrics.of(FETCH_OF_FOLLOWERS) if handler.KEY == FETCH_KEY else self._metrics
        self._report_errors = response.errors_reporter()
        self._report_errors_sliced = response.sliced_errors_reporter
        self._encode = response.ENCODERS[version]
        self._encode_sliced = response.SLICED_ENCODERS
        # The response to ApiVersions has the oldest header, because clients read it before they have the versions
        # (KIP-511).
        tags = version >= response.FIRST_FLEXIBLE and handler.KEY != API_VERSIONS_KEY
        self._head = bytes(SIZE_CORRELATION.size + tags)

    def encode(self, correlation_id: int, response: Any) -> list[Part]:
        """The encoded response: its size, its header and its body. Raises ValueError."""
        head = bytearray(self._head)
        try:
            parts = self._encode(response, head)
        except ValueError:
            if not shorten_messages(response):
                raise
            head = bytearray(self._head)
            parts = self._encode(response, head)
        return self._framed(head, correlation_id, parts)

    def encode_sliced(self, correlation_id: int, response: Any, each: Each) -> list[Part]:
        """The same for a large response, with interruptions. Raises ValueError."""
        head, encode = bytearray(self._head), self._encode_sliced[self.version]
        try:
            parts = encode(response, head, each)
        except ValueError:
            if not shorten_messages(response, each):
                raise
            head = bytearray(self._head)
            parts = encode(response, head, each)
        return self._framed(head, correlation_id, parts)

    def _framed(self, head: bytearray, correlation_id: int, parts: list[Part]) -> list[Part]:
        size = len(head)
        if len(parts) > 1:
            size = sum(map(len, parts))
        SIZE_CORRELATION.pack_into(head, 0, size - 4, correlation_id)
        return parts

    def count(self, call: Call, response: Any, total_ns: int) -> None:
        """Update the metrics for a request that is answered, or complete without a response (None)."""
        metrics = self._of_followers if call.from_follower else self._metrics
        metrics.answered(self.version, total_ns, call.local_ns or total_ns)
        if response is not None:
            self._report_errors(response, metrics.failed)

    def count_sliced(self, call: Call, response: Any, total_ns: int, each: Each) -> None:
        """The same for a large response, with interruptions."""
        metrics = self._of_followers if call.from_follower else self._metrics
        metrics.answered(self.version, total_ns, call.local_ns or total_ns)
        self._report_errors_sliced()(response, metrics.failed, each)


def _is_large(request: Any) -> bool:
    """Whether a request of this broker to itself has so many items that it is handled in turns."""
    match request.API_KEY:
        case m.CreateTopicsRequest.API_KEY:
            return len(request.topics) > TOPICS_AT_ONCE
        case m.AddPartitionsToTxnRequest.API_KEY:
            topics = [topic.partitions for entry in request.transactions for topic in entry.topics]
        case m.WriteTxnMarkersRequest.API_KEY:
            topics = [topic.partition_indexes for marker in request.markers for topic in marker.topics]
        case m.LeaderAndIsrRequest.API_KEY | m.UpdateMetadataRequest.API_KEY | m.StopReplicaRequest.API_KEY:
            topics = [topic.partition_states for topic in request.topic_states]
        case _:
            return False
    return sum(map(len, topics)) > PARTITIONS_AT_ONCE


def _not_at_once(frame: Bytes, body: int) -> tuple[Any, int]:
    """In place of the decoder of a small request whose response may be large."""
    raise LargeRequestError


def _only_in_turns(decode: MeteredDecoder, at_once: int) -> MeteredDecoder:
    """The decoder of requests of which those of more than `at_once` bytes are large."""

    def decode_in_turn(frame: Bytes, body: int, meter: Any) -> tuple[Any, int]:
        if len(frame) > at_once and isinstance(meter, AtOnce):
            raise LargeRequestError
        return decode(frame, body, meter)

    return decode_in_turn


class Dispatcher:
    """Receives request frames and sends responses."""

    def __init__(self, handlers: Iterable[Handler], metrics: ApiMetrics, quotas: RequestQuotas = NO_QUOTAS) -> None:
        """Raises ValueError for two handlers with one key."""
        self._metrics = metrics
        self._quotas = quotas
        self._now_ns = metrics.now_ns
        self._handlers: dict[int, Handler] = {}
        self._routes: dict[int, Route] = {}
        self.large = LargeRequests(metrics.now_ns)
        """The requests that are handled in turns with the loop."""
        calls = Calls(self._now_ns, self.frame_in_python, self._unanswered, self._failed)
        self.frame = frame_handler(self._routes, Route, Call, RequestMetrics, largest=SMALL_FRAME_BYTES, calls=calls)
        """Handles one request. It begins at the request header, and the view is valid only during the call."""
        self._reply = reply_function(self.frame)
        self.serve(handlers)

    def serve(self, handlers: Iterable[Handler]) -> None:
        """Add handlers; earlier requests for their keys are refused.

        Raises ValueError for two handlers with one key.
        """
        for handler in handlers:
            if handler.KEY in self._handlers:
                raise ValueError(f"API key {handler.KEY} has two handlers")
            self._handlers[handler.KEY] = handler

    def versions(self) -> list[tuple[int, int, int]]:
        """The content of ApiVersions: (key, lowest, highest version) of every API, by key."""
        return [(key, *self._handlers[key].VERSIONS) for key in sorted(self._handlers)]

    def local(
        self, request: Any, version: int, client_id: str, on_answer: Callable[[Any], None], on_lost: Callable[[], None]
    ) -> None:
        """Handle a request of this broker to itself; exactly one of both is called, perhaps before this returns.

        `on_lost` corresponds to a connection that is closed without a response.
        """
        call = LocalCall(version, client_id, on_answer, on_lost)
        if _is_large(request):
            call.run_in_turns = self.large.run
            self.large.run(lambda: self._handle_local(call, keep(request)))
        else:
            self._handle_local(call, request)

    def _handle_local(self, call: LocalCall, request: Any) -> None:
        try:
            response = self._handlers[request.API_KEY].handle(call, request)  # type: ignore[arg-type]
        except Exception:
            log.exception("request of this broker to itself failed api=%s", type(request).__name__)
            call.close()
        else:
            if response is not None:
                call.reply(response)

    def frame_in_python(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request; `frame` calls this for all that are not usual."""
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
            if len(frame) <= SMALL_FRAME_BYTES:
                request, _ = route.decode(frame, body)
            else:
                request, _ = route.decode_metered(frame, body, self.large.meter(started_ns))
        except LargeRequestError:
            assert route is not None
            self.large.take(
                LargeCall(connection, route, correlation_id, client_id, started_ns, self.large), frame, body
            )
            return
        except (ProtocolError, struct.error, IndexError) as error:
            what = "a request" if route is None else f"a request {route.name} v{route.version}"
            connection.refuse("invalid request", f"{what} of {len(frame)} bytes cannot be decoded: {error}")
            return
        call = Call(connection, route, correlation_id, client_id, started_ns)
        quotas = self._quotas
        try:
            response = self._measured(call, request, len(frame)) if quotas.is_active else route.handle(call, request)
            if response is not None:
                parts = route.encode(correlation_id, response)
                if quotas.is_active:  # after the encoding, which is a part of the time that the request takes
                    quotas.throttle(call, response)
                    if call.usage is not None and call.usage.throttle_ms > 0:
                        parts = route.encode(correlation_id, response)
                connection.send(call, parts)
                route.count(call, response, self._now_ns() - started_ns)
            else:
                self._unanswered(call)
        except Exception as error:
            self._failed(call, error)

    def _unanswered(self, call: Call) -> None:
        """The handler has returned no response: it has sent one, there will be none, or it follows later."""
        connection = call.connection
        if call.answer is not None:  # answered before the handler returned
            connection.send(call, call.answer)
        elif call.no_reply:
            if self._quotas.is_active:
                self._quotas.throttle(call, None)
            call.route.count(call, None, self._now_ns() - call.started_ns)
        else:
            connection.expect(call)
            call.local_ns = self._now_ns() - call.started_ns
            if call.usage is not None:
                call.usage.end_step()

    def _failed(self, call: Call, error: Exception) -> None:
        route = call.route
        log.error(
            "request failed api=%s version=%d client_id=%r", route.name, route.version, call.client_id, exc_info=error
        )
        call.connection.close()

    def _measured(self, call: Call, request: Any, size: int) -> Any:
        """Handle a request of a client that may have a quota."""
        call.usage = Usage(self._now_ns, call.started_ns, size)
        return measured(call.usage, call.route.handle, call, request)

    def _find(self, key_version: int) -> Route | None:
        key, version = key_version >> 16, key_version & 0xFFFF
        handler = self._handlers.get(key)
        if handler is None or not handler.VERSIONS[0] <= version <= handler.VERSIONS[1]:
            return None
        route = self._routes[key_version] = Route(handler, version, self._metrics, self._quotas, self._reply)
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
        text = f"API key {key} is not served in version {version}, {served}: ApiVersions returns the supported versions"
        connection.refuse("unsupported request", text)
