"""From the controller to the brokers: orders in order, one at a time to each, until the broker has answered or is gone.

An order that is lost with its connection is given again: brokers recognise what is old by its epochs, so nothing
happens twice. The controller's own broker gets its orders by a call in place of a connection. Kafka's class is
ControllerChannelManager.
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
    """Where a broker takes orders, and in which incarnation."""

    host: str
    port: int
    broker_epoch: int


class Channels(Protocol):
    """The way of orders to brokers, as the controller sees it."""

    def update(self, live: dict[int, LiveBroker]) -> None:
        """These brokers live."""
        ...

    def send(self, broker_id: int, message: Any, on_response: Callable[[Any], None]) -> None:
        """Give an order."""
        ...


class ControlChannels:
    """The controller's connections to all live brokers."""

    def __init__(self, broker_id: int, network: Network, local: Local, timeout_ms: int = 30_000) -> None:
        """`local` is how this broker gives itself orders; an order that is not answered in time is given again."""
        self._timeout_ms = timeout_ms
        self._broker_id = broker_id
        self._network = network
        self._local = local
        self._channels: dict[int, _BrokerChannel] = {}

    def update(self, live: Mapping[int, LiveBroker]) -> None:
        """These brokers live: what waits for others, or for earlier incarnations, is dropped."""
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
        """Give an order; it is dropped when the broker does not live."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.send(message, on_response)

    def close(self) -> None:
        """Give no more orders."""
        self.update({})


class _BrokerChannel:
    """The orders for one broker in one incarnation."""

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
        self._lost(PeerLostError("this broker did not answer itself"))

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
        log.info("an order is given again: %s", error)
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
