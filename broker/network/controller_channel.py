"""Broker-to-controller channel: sends requests to the active controller (Kafka: NodeToControllerChannelManager).

The metadata cache has the controller's id; the inter-broker client of this purpose has the connection. The channel does
not retry. (Kafka's class was called BrokerToControllerChannelManager in earlier releases.)
"""

from __future__ import annotations

from typing import Any, Protocol

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.network.inter_broker_client import InterBrokerClient, OnAnswer, OnPeerLost


class SendToController(Protocol):
    """Sends a request to the controller; exactly one of both callbacks is called, later."""

    def __call__(self, request: Any, on_answer: OnAnswer, on_lost: OnPeerLost) -> None: ...


class BrokerIdentity(Protocol):
    """Id and epoch of this broker, which requests to the controller contain."""

    @property
    def broker_id(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...


class ControllerChannel:
    """Sends requests to the active controller."""

    def __init__(self, client: InterBrokerClient, metadata_cache: MetadataCache, timeout_ms: int = 30_000) -> None:
        """`client` has no other purpose."""
        self._client = client
        self._metadata_cache = metadata_cache
        self._timeout_ms = timeout_ms
        self._controller_id = metadata_cache.controller_id

    def send_request(self, request: Any, on_answer: OnAnswer, on_lost: OnPeerLost) -> None:
        """Send a request to the controller; exactly one of both callbacks is called, later, and none after `close`."""
        controller_id = self._metadata_cache.controller_id
        if controller_id != self._controller_id:
            self._client.abandon(self._controller_id, "the controller has moved")
            self._controller_id = controller_id
        self._client.send_request(controller_id, request, on_answer, on_lost, self._timeout_ms)

    def close(self) -> None:
        """Send no more requests."""
        self._client.close()
