"""Inter-broker client: sends requests to brokers by id, for one purpose, with one connection to each broker (Kafka:
NetworkClient with ManualMetadataUpdater).

Each purpose has a client of its own, as in Kafka, so that requests of one purpose never queue behind those of another:
markers that end a transaction, verification that a partition is in a transaction, requests to the controller, and the
controller's control requests. A request to this broker itself is a function call. When a broker's address changes, or
the broker leaves the cluster, the client closes its connection, and the callers of pending requests are notified. The
client does not retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, Self

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.network.inter_broker_connection import VERSIONS, Network, Peer, PeerLostError

OnAnswer = Callable[[Any], None]
OnPeerLost = Callable[[PeerLostError], None]
AddressOf = Callable[[int], tuple[str, int] | None]
"""Host and port of a broker; None while the broker is not in the cluster."""


class Local(Protocol):
    """Answers a request of this broker to itself (Dispatcher.local)."""

    def __call__(
        self, request: Any, version: int, client_id: str, on_answer: Callable[[Any], None], on_lost: Callable[[], None]
    ) -> None: ...


class InterBrokerClient:
    """Sends requests to brokers by id."""

    def __init__(self, broker_id: int, address_of: AddressOf, network: Network, local: Local, purpose: str) -> None:
        """`local` answers requests to `broker_id`, this broker; the client id ends in `purpose`, for the logs."""
        self._broker_id = broker_id
        self._address_of = address_of
        self._network = network
        self._local = local
        self._client_id = f"broker-{broker_id}-{purpose}"
        self._own_peer = LocalPeer(local, self._client_id)
        self._peers: dict[int, Peer] = {}
        self._closed = False

    @classmethod
    def of_metadata(
        cls, metadata_cache: MetadataCache, listener: str, broker_id: int, network: Network, local: Local, purpose: str
    ) -> Self:
        """A client that takes addresses from the metadata cache; `listener` is the inter-broker listener."""

        def address_of(broker_id: int) -> tuple[str, int] | None:
            broker = metadata_cache.brokers.get(broker_id)
            endpoint = broker.endpoint(listener) if broker is not None else None
            return (endpoint.host, endpoint.port) if endpoint is not None else None

        client = cls(broker_id, address_of, network, local, purpose)
        metadata_cache.watch(client.abandon_moved)  # as long as the cache lives, which has no effect after `close`
        return client

    def send_request(
        self, broker_id: int, request: Any, on_answer: OnAnswer, on_lost: OnPeerLost, timeout_ms: int = 30_000
    ) -> None:
        """Send a request; exactly one of both is called, never before this returns, and neither after `close`.

        The records in the response are views that are valid during `on_answer` only.
        """
        if broker_id == self._broker_id:
            self._own_peer.send_request(request, on_answer, on_lost)
            return
        peer = self._peer_of(broker_id)
        if peer is None:
            lost = PeerLostError(f"broker {broker_id} is not in the metadata")
            asyncio.get_running_loop().call_soon(self._notify, on_lost, lost)
        else:
            peer.send_request(request, on_answer, on_lost, timeout_ms)

    def _notify(self, on_lost: OnPeerLost, lost: PeerLostError) -> None:
        if not self._closed:
            on_lost(lost)

    def _peer_of(self, broker_id: int) -> Peer | None:
        address = self._address_of(broker_id)
        peer = self._peers.get(broker_id)
        if peer is not None and (peer.host, peer.port) != address:
            self.abandon(broker_id, f"broker {broker_id} has moved")
            peer = None
        if peer is None and address is not None and not self._closed:
            peer = self._peers[broker_id] = Peer(self._network, f"broker {broker_id}", *address, self._client_id)
        return peer

    def abandon_moved(self) -> None:
        """Abandon the brokers that have another address, or left the cluster."""
        for broker_id in list(self._peers):
            address, peer = self._address_of(broker_id), self._peers.get(broker_id)
            if peer is not None and (peer.host, peer.port) != address:
                self.abandon(broker_id, f"broker {broker_id} has {'left the cluster' if address is None else 'moved'}")

    def abandon(self, broker_id: int, why: str) -> None:
        """Close the connection to another broker, and notify the callers of its pending requests."""
        peer = self._peers.pop(broker_id, None)
        if peer is not None:
            peer.abandon(why)

    def disconnect(self, broker_id: int) -> None:
        """Drop all pending requests to a broker: none of their callbacks is called any more."""
        if broker_id == self._broker_id:
            self._own_peer.close()
            self._own_peer = LocalPeer(self._local, self._client_id)
        elif broker_id in self._peers:
            self._peers.pop(broker_id).close()

    def close(self) -> None:
        """Send no more requests; no callback is called any more."""
        self._closed = True
        self._own_peer.close()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()


class LocalPeer:
    """This broker as the receiver of its own requests: each is a function call in a later iteration of the loop."""

    def __init__(self, local: Local, client_id: str) -> None:
        self._local = local
        self._client_id = client_id
        self._closed = False

    def send_request(self, request: Any, on_answer: OnAnswer, on_lost: OnPeerLost) -> None:
        """Call `local` soon; not at once, because the caller may not be ready for the response yet."""
        asyncio.get_running_loop().call_soon(self._call, request, on_answer, on_lost)

    def _call(self, request: Any, on_answer: OnAnswer, on_lost: OnPeerLost) -> None:
        if self._closed:
            return

        def answered(response: Any) -> None:
            if not self._closed:
                on_answer(response)

        def unanswered() -> None:
            if not self._closed:
                on_lost(PeerLostError("this broker did not answer its own request"))

        self._local(request, VERSIONS[request.API_KEY], self._client_id, answered, unanswered)

    def close(self) -> None:
        """Drop all pending requests."""
        self._closed = True
