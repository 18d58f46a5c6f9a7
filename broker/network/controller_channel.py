"""Broker-to-controller channel: sends requests to the active controller (Kafka: NodeToControllerChannelManager).

The metadata cache contains the controller's id. A request to the controller of this broker is a function call; a
request to another broker uses a connection of its own. The channel does not retry. (Kafka's class
was called BrokerToControllerChannelManager in earlier releases.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.network.inter_broker_connection import VERSIONS, Network, Peer, PeerLostError


class Ask(Protocol):
    """Sends a request to the controller; exactly one of both callbacks is called, later."""

    def __call__(
        self, request: Any, on_answer: Callable[[Any], None], on_lost: Callable[[PeerLostError], None]
    ) -> None: ...


class Local(Protocol):
    """Answers a request of this broker to itself (Dispatcher.local)."""

    def __call__(
        self, request: Any, version: int, client_id: str, on_answer: Callable[[Any], None], on_lost: Callable[[], None]
    ) -> None: ...


class ControllerChannel:
    """Sends requests to the active controller."""

    def __init__(
        self,
        broker_id: int,
        metadata_cache: MetadataCache,
        listener: str,
        network: Network,
        local: Local,
        timeout_ms: int = 30_000,
    ) -> None:
        """`listener` is the name of the inter-broker listener."""
        self._timeout_ms = timeout_ms
        self._broker_id = broker_id
        self._metadata_cache = metadata_cache
        self._listener = listener
        self._network = network
        self._local = local
        self._peer: Peer | None = None
        self._closed = False

    def ask(self, request: Any, on_answer: Callable[[Any], None], on_lost: Callable[[PeerLostError], None]) -> None:
        """Send a request to the controller; exactly one of both callbacks is called, later."""
        controller = self._metadata_cache.controller_id
        if controller == self._broker_id:
            # Not at once: the caller may not be ready for the response yet.
            asyncio.get_running_loop().call_soon(self._ask_self, request, on_answer, on_lost)
            return
        peer = self._peer_of(controller)
        if peer is None:
            asyncio.get_running_loop().call_soon(on_lost, PeerLostError("there is no controller at the moment"))
        else:
            peer.ask(request, on_answer, on_lost, self._timeout_ms)

    def _ask_self(
        self, request: Any, on_answer: Callable[[Any], None], on_lost: Callable[[PeerLostError], None]
    ) -> None:
        if not self._closed:
            lost = PeerLostError("the controller of this broker gave no answer")
            self._local(request, VERSIONS[request.API_KEY], self._client_id, on_answer, lambda: on_lost(lost))

    @property
    def _client_id(self) -> str:
        return f"broker-{self._broker_id}-to-controller"

    def _peer_of(self, controller: int) -> Peer | None:
        broker = self._metadata_cache.brokers.get(controller)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        if endpoint is None:
            return None
        if self._peer is not None and (self._peer.host, self._peer.port) != (endpoint.host, endpoint.port):
            # Requests to the old controller fail with its connection or at their timeout.
            self._peer.abandon("the controller has moved")
            self._peer = None
        if self._peer is None:
            name = f"controller {controller}"
            self._peer = Peer(self._network, name, endpoint.host, endpoint.port, self._client_id)
        return self._peer

    def close(self) -> None:
        """Send no more requests."""
        self._closed = True
        if self._peer is not None:
            self._peer.close()
