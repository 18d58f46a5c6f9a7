"""Network of one client: its connections to the brokers, driven by the calls of one thread (Kafka: NetworkClient).

A channel is a connection to one node for one purpose, so that a request for metadata does not wait behind a fetch. A
channel is opened by a thread of its own, since a connection attempt and a login block; all else happens in `poll`. When
a connection fails, each request on it fails with the error, and the next attempt waits for the reconnect backoff.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.protocol.client.connection import Address, shown
from odradek.protocol.client.errors import ClientError, UnsupportedRequestError
from odradek.protocol.client.pipeline import PipelinedConnection
from odradek.protocol.client.security import ConnectionSecurity
from odradek.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

DATA: Final = "data"
REQUESTS: Final = "requests"
"""The purposes of channels."""
Channel = tuple[int, str]
"""A node and a purpose. Nodes below 0 are those of bootstrap.servers, whose ids are not known."""
OnResponse = Callable[[Any, Exception | None], None]
"""Receives a response, or the error without which there is none."""
FAILURES: Final = (OSError, ProtocolError, ClientError)


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Properties of connections; times in seconds."""

    bootstrap: Sequence[Address]
    client_id: str
    security: ConnectionSecurity
    request_timeout_s: float = 30.0
    setup_timeout_s: float = 30.0
    backoff_s: float = 0.1
    backoff_max_s: float = 1.0
    max_idle_s: float = 0.0
    """After which an idle connection is closed; 0 for never."""
    send_buffer: int = 0
    receive_buffer: int = 0
    """The buffers of sockets in bytes; 0 for those of the operating system."""


@dataclass(slots=True)
class _Link:
    """An open connection, and the callbacks of its requests in their order."""

    connection: PipelinedConnection
    callbacks: deque[tuple[OnResponse, float]] = field(default_factory=deque)
    writing: bool = False
    used_at: float = 0.0
    throttled_until_s: float = 0.0
    """Until when a quota of the broker allows no request."""


@dataclass(slots=True)
class _Backoff:
    until: float = 0.0
    delay_s: float = 0.0


class ClientNetwork:
    """The connections of one client. Only one thread at a time calls its methods."""

    def __init__(self, settings: NetworkSettings) -> None:
        """No connection is opened before a request needs it."""
        self.settings = settings
        self.login_failure: str | None = None
        """Why the last login or TLS handshake failed; None after one that succeeded."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called when a connection or an attempt has failed: the leaders may have moved."""
        self._bootstrap = {-1 - index: address for index, address in enumerate(settings.bootstrap)}
        self._nodes: dict[int, Address] = {}
        self._links: dict[Channel, _Link] = {}
        self._dialing: dict[Channel, Address] = {}
        self._dialed: queue.SimpleQueue[tuple[Channel, PipelinedConnection | Exception]] = queue.SimpleQueue()
        self._backoffs: dict[int, _Backoff] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._closed = False

    # ---- nodes

    def set_nodes(self, nodes: Mapping[int, Address]) -> None:
        """The brokers of the cluster. A connection to one with another address is closed."""
        for channel, link in list(self._links.items()):
            node = channel[0]
            if node >= 0 and nodes.get(node, link.connection.address) != link.connection.address:
                self._fail(channel, ConnectionResetError(f"broker {node} has another address now"))
        self._nodes = dict(nodes)

    def add_node(self, node: int, address: Address) -> None:
        """A broker that a coordinator lookup returned."""
        if self._nodes.get(node) != address:
            self.set_nodes({**self._nodes, node: address})

    def knows(self, node: int) -> bool:
        """Whether the address of a node is known."""
        return node in self._nodes

    def any_node(self) -> int:
        """A node for a request that every broker answers: one with a connection, else any that may be tried."""
        for node, purpose in self._links:
            if purpose == REQUESTS:
                return node
        now = time.monotonic()
        for nodes in (self._nodes, self._bootstrap):
            free = [node for node in nodes if not self._waits(node, now)]
            if free:
                return random.choice(free)
        return random.choice([*self._nodes, *self._bootstrap])

    def open_any(self) -> None:
        """Open a connection for requests to any broker."""
        self.ready((self.any_node(), REQUESTS))

    # ---- requests

    def ready(self, channel: Channel) -> bool:
        """Whether the channel takes a request now: it is open, and not throttled. Opens it where it is not."""
        link = self._links.get(channel)
        if link is None:
            self._dial(channel)
            return False
        if link.throttled_until_s and time.monotonic() < link.throttled_until_s:
            return False
        if link.connection.must_renew:
            if link.callbacks:
                return False
            try:
                link.connection.renew()
            except FAILURES as error:
                self._failed_login(error)
                self._fail(channel, error)
                return False
        return True

    def send(
        self,
        channel: Channel,
        request: Any,
        on_response: OnResponse,
        *,
        highest: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Send a request on a channel that is `ready`; `poll` calls `on_response`. Raises UnsupportedRequestError."""
        link = self._links[channel]
        link.connection.queue(request, highest)
        now = time.monotonic()
        link.used_at = now
        link.callbacks.append((on_response, now + (timeout_s or self.settings.request_timeout_s)))
        try:
            link.connection.flush()
        except OSError as error:
            self._fail(channel, error)
        else:
            self._await_room(channel, link)

    def supports(self, channel: Channel, api_key: int, version: int) -> bool:
        """Whether the broker of an open channel supports a version of an API."""
        least, most = self._links[channel].connection.versions().get(api_key, (0, -1))
        return least <= version <= most

    def in_flight(self, channel: Channel) -> int:
        """How many requests of a channel have no response."""
        link = self._links.get(channel)
        return 0 if link is None else len(link.callbacks)

    def poll(self, timeout_s: float) -> None:
        """Send and receive; waits up to `timeout_s` for the first event."""
        for key, _ in self._selector.select(timeout_s if self._dialed.empty() else 0):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                continue
            link = self._links.get(key.data)
            if link is not None:
                self._transfer(key.data, link)
        while not self._dialed.empty():
            self._take(*self._dialed.get())
        self._expire(time.monotonic())

    def drop(self, channel: Channel, error: Exception) -> None:
        """Close a channel whose response cannot be used; its requests fail."""
        if channel in self._links:
            self._fail(channel, error)

    def close(self) -> None:
        """Close all connections; callbacks of requests without a response are not called."""
        self._closed = True
        for link in self._links.values():
            link.connection.close()
        self._links.clear()
        self._selector.close()
        self._woken.close()
        self._wake.close()
        self._close_dialed()

    # ---- connections

    def _waits(self, node: int, now: float) -> bool:
        backoff = self._backoffs.get(node)
        return backoff is not None and now < backoff.until

    def _dial(self, channel: Channel) -> None:
        node = channel[0]
        address = self._nodes.get(node) if node >= 0 else self._bootstrap.get(node)
        if address is None or channel in self._dialing or self._waits(node, time.monotonic()):
            return
        self._dialing[channel] = address
        settings = self.settings

        def dial() -> None:
            result: PipelinedConnection | Exception
            try:
                result = PipelinedConnection(address, settings.client_id, settings.security, settings.setup_timeout_s)
                result.unblock(settings.send_buffer, settings.receive_buffer)
            except Exception as error:
                result = error
            self._dialed.put((channel, result))
            if self._closed:
                self._close_dialed()
            with contextlib.suppress(OSError):  # the network is closed
                self._wake.send(b"\0")

        threading.Thread(target=dial, name=f"{settings.client_id}-connect", daemon=True).start()

    def _close_dialed(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                _, result = self._dialed.get_nowait()
                if isinstance(result, PipelinedConnection):
                    result.close()

    def _take(self, channel: Channel, result: PipelinedConnection | Exception) -> None:
        """A connection attempt has ended."""
        address = self._dialing.pop(channel)
        node = channel[0]
        if isinstance(result, Exception):
            self._failed_login(result)
            self._back_off(node)
            log.debug("cannot connect broker=%s error=%s", shown(address), result)
            return
        known = self._nodes.get(node) if node >= 0 else self._bootstrap.get(node)
        if known != address:
            result.close()
            return
        self.login_failure = None
        self._backoffs.pop(node, None)
        self._links[channel] = _Link(result, used_at=time.monotonic())
        self._selector.register(result.fileno(), selectors.EVENT_READ, channel)

    def _failed_login(self, error: Exception) -> None:
        if isinstance(error, ClientError) and not isinstance(error, UnsupportedRequestError):
            self.login_failure = str(error)
            log.error("login failed error=%s", error)

    def _back_off(self, node: int) -> None:
        settings, backoff = self.settings, self._backoffs.setdefault(node, _Backoff())
        backoff.delay_s = min(max(settings.backoff_s, 2 * backoff.delay_s), settings.backoff_max_s)
        backoff.until = time.monotonic() + backoff.delay_s * random.uniform(0.8, 1.2)
        self.on_failure()

    def _transfer(self, channel: Channel, link: _Link) -> None:
        try:
            for response in link.connection.transfer():
                link.used_at = time.monotonic()
                throttle_ms = getattr(response, "throttle_time_ms", 0)
                if throttle_ms > 0:  # the broker has sent the response at once (KIP-219)
                    link.throttled_until_s = link.used_at + throttle_ms / 1000
                on_response, _ = link.callbacks.popleft()
                on_response(response, None)
        except FAILURES as error:
            if self._links.get(channel) is link:
                self._fail(channel, error)
            return
        if self._links.get(channel) is link:
            self._await_room(channel, link)

    def _await_room(self, channel: Channel, link: _Link) -> None:
        """Have the selector report room for the rest of a request, as long as there is one."""
        if link.connection.wants_to_write is not link.writing:
            link.writing = not link.writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.writing else 0)
            self._selector.modify(link.connection.fileno(), events, channel)

    def _fail(self, channel: Channel, error: Exception) -> None:
        """Close a channel; its requests fail."""
        link = self._links.pop(channel)
        self._selector.unregister(link.connection.fileno())
        link.connection.close()
        self._back_off(channel[0])
        log.debug("connection lost broker=%s purpose=%s error=%s", shown(link.connection.address), channel[1], error)
        for on_response, _ in link.callbacks:
            on_response(None, error)

    def _expire(self, now: float) -> None:
        """Close connections whose oldest request has no response in time, and idle ones."""
        idle_s = self.settings.max_idle_s
        for channel, link in list(self._links.items()):
            if link.callbacks:
                if now > link.callbacks[0][1]:
                    self._fail(channel, TimeoutError(f"{shown(link.connection.address)} does not answer"))
            elif idle_s and now - link.used_at > idle_s:
                self._fail(channel, ConnectionResetError("idle for connections.max.idle.ms"))
                self._backoffs.pop(channel[0], None)
