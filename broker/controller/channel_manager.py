"""Controller channel manager: sends control requests in order, one at a time to each broker (Kafka:
ControllerChannelManager).

A channel sends a control request until the broker has responded or is gone. A request that is lost with its connection
is sent again: brokers detect by its epochs that it is stale, so no broker applies it twice. The controller's own broker
receives its control requests by a call in place of a connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from odradek.broker.network.controller_channel import Local
from odradek.broker.network.inter_broker_connection import VERSIONS, Network, Peer, PeerLostError
from odradek.broker.runtime.timers import Timer

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
OnResponse = Callable[[Any], None]


class LiveBroker(NamedTuple):
    """The address for control requests of a broker, and the broker's incarnation."""

    host: str
    port: int
    broker_epoch: int


class Channels(Protocol):
    """The interface of the channel manager that the controller uses."""

    def update(self, live: dict[int, LiveBroker]) -> None:
        """Set the live brokers."""
        ...

    def send(self, broker_id: int, message: Any, on_response: Callable[[Any], None]) -> None:
        """Send a control request to a broker."""
        ...


class ControllerChannelManager:
    """The controller's connections to all live brokers."""

    def __init__(self, broker_id: int, network: Network, local: Local, timeout_ms: int = 30_000) -> None:
        """`local` handles requests to this broker itself; a request without a response in time is sent again."""
        self._timeout_ms = timeout_ms
        self._broker_id = broker_id
        self._network = network
        self._local = local
        self._channels: dict[int, _BrokerChannel] = {}

    def update(self, live: Mapping[int, LiveBroker]) -> None:
        """Set the live brokers, and drop what is queued for other brokers or for earlier incarnations."""
        for broker_id, channel in list(self._channels.items()):
            if live.get(broker_id) != channel.broker:
                channel.close()
                del self._channels[broker_id]
        for broker_id, broker in live.items():
            if broker_id not in self._channels:
                local = self._local if broker_id == self._broker_id else None
                name = f"broker {broker_id}"
                client_id = f"broker-{self._broker_id}-controller"
                peer = Peer(self._network, name, broker.host, broker.port, client_id)
                self._channels[broker_id] = _BrokerChannel(
                    peer, client_id, broker, local, self._network, self._timeout_ms
                )

    def send(self, broker_id: int, message: Any, on_response: OnResponse) -> None:
        """Send a control request; it is dropped when the broker is not live."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.send(message, on_response)

    def close(self) -> None:
        """Drop all queued requests and close all channels."""
        self.update({})


class _BrokerChannel:
    """The control requests for one broker in one incarnation."""

    def __init__(
        self, peer: Peer, client_id: str, broker: LiveBroker, local: Local | None, network: Network, timeout_ms: int
    ) -> None:
        self.broker = broker
        self._network = network
        self._client_id = client_id
        self._local = local
        self._timeout_ms = timeout_ms
        self._peer = peer
        self._control_requests: deque[tuple[Any, OnResponse]] = deque()
        self._under_way = False
        self._timer: Timer | None = None
        self._closed = False

    def send(self, message: Any, on_response: OnResponse) -> None:
        self._control_requests.append((message, on_response))
        self._next()

    def _next(self) -> None:
        if self._under_way or self._closed or not self._control_requests:
            return
        self._under_way = True
        if self._local is None:
            self._peer.ask(self._control_requests[0][0], self._answered, self._lost, self._timeout_ms)
        else:
            asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        if self._local is not None and not self._closed:
            message = self._control_requests[0][0]
            self._local(message, VERSIONS[message.API_KEY], self._client_id, self._answered, self._unanswered)

    def _unanswered(self) -> None:
        self._lost(PeerLostError("the local broker closed the request without a response"))

    def _answered(self, response: Any) -> None:
        if self._closed:
            return
        self._under_way = False
        _, on_response = self._control_requests.popleft()
        on_response(response)
        self._next()

    def _lost(self, error: PeerLostError) -> None:
        if self._closed:
            return
        log.info(
            "retrying control request host=%s port=%d broker_epoch=%d error=%s",
            self.broker.host,
            self.broker.port,
            self.broker.broker_epoch,
            error,
        )
        deadline_ms = self._network.clock.monotonic_ms() + RETRY_MS
        self._timer = self._network.timers.at(deadline_ms, self._again)

    def _again(self) -> None:
        self._timer = None
        self._under_way = False
        self._next()

    def close(self) -> None:
        self._closed = True
        self._control_requests.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._peer.close()
