"""Inter-broker client: sends requests to brokers by id, with one connection to each (Kafka: InterBrokerSendThread).

Coordinators send requests to the leaders of partitions (markers that end a transaction), and leaders send requests to
coordinators (verification that a partition is in a transaction). A request to this broker is a function call. When a
broker's address changes, or the broker leaves the cluster, the client closes its connection, and the callers of pending
requests are notified. The client does not retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.network.controller_channel import Local
from odradek.broker.network.inter_broker_connection import VERSIONS, Network, Peer, PeerLostError

OnAnswer = Callable[[Any], None]
OnPeerLost = Callable[[PeerLostError], None]


class InterBrokerClient:
    """Sends requests to brokers by id."""

    def __init__(
        self, broker_id: int, metadata_cache: MetadataCache, listener: str, network: Network, local: Local, purpose: str
    ) -> None:
        """`listener` is the inter-broker listener; the client id ends in `purpose`, for the logs."""
        self._broker_id = broker_id
        self._metadata_cache = metadata_cache
        self._listener = listener
        self._network = network
        self._local = local
        self._client_id = f"broker-{broker_id}-{purpose}"
        self._peers: dict[int, Peer] = {}
        self._closed = False
        metadata_cache.watch(self._drop_the_gone)

    def ask(
        self, broker_id: int, request: Any, on_answer: OnAnswer, on_lost: OnPeerLost, timeout_ms: int = 30_000
    ) -> None:
        """Send a request; exactly one of both is called, never before this returns, and neither after `close`.

        The records in the response are views that are valid during `on_answer` only.
        """
        if broker_id == self._broker_id:
            # Not at once: the caller may not be ready for the response yet.
            asyncio.get_running_loop().call_soon(self._ask_self, request, on_answer, on_lost)
            return
        peer = self._peer_of(broker_id)
        if peer is None:
            lost = PeerLostError(f"broker {broker_id} is not in the metadata")
            asyncio.get_running_loop().call_soon(self._tell, on_lost, lost)
        else:
            peer.ask(request, on_answer, on_lost, timeout_ms)

    def _ask_self(self, request: Any, on_answer: OnAnswer, on_lost: OnPeerLost) -> None:
        if not self._closed:
            lost = PeerLostError("this broker did not answer its own request")
            self._local(request, VERSIONS[request.API_KEY], self._client_id, on_answer, lambda: on_lost(lost))

    def _tell(self, on_lost: OnPeerLost, lost: PeerLostError) -> None:
        if not self._closed:
            on_lost(lost)

    def _peer_of(self, broker_id: int) -> Peer | None:
        broker = self._metadata_cache.brokers.get(broker_id)
        endpoint = broker.endpoint(self._listener) if broker is not None else None
        peer = self._peers.get(broker_id)
        if peer is not None and (endpoint is None or (peer.host, peer.port) != (endpoint.host, endpoint.port)):
            del self._peers[broker_id]
            peer.abandon(f"broker {broker_id} has moved")
            peer = None
        if peer is None and endpoint is not None:
            name = f"broker {broker_id}"
            peer = self._peers[broker_id] = Peer(self._network, name, endpoint.host, endpoint.port, self._client_id)
        return peer

    def _drop_the_gone(self) -> None:
        for broker_id in list(self._peers):
            if broker_id not in self._metadata_cache.brokers:
                self._peers.pop(broker_id).abandon(f"broker {broker_id} has left the cluster")

    def close(self) -> None:
        """Send no more requests; no callback is called any more."""
        self._closed = True
        self._metadata_cache.unwatch(self._drop_the_gone)
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
