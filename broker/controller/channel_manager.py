"""Controller channel manager: sends control requests in order, one at a time to each broker (Kafka:
ControllerChannelManager).

A channel sends a control request until the broker has responded or is gone. A request that is lost with its connection
is sent again: brokers detect by its epochs that it is stale, so no broker applies it twice. The controller's own broker
receives its control requests by a call in place of a connection (`InterBrokerClient`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from odradek.broker.network.inter_broker_client import InterBrokerClient, Local, OnAnswer, OnPeerLost
from odradek.broker.network.inter_broker_connection import VERSIONS, Network, PeerLostError
from odradek.broker.runtime.timers import Timer
from odradek.broker.runtime.turns import Run, at_once
from odradek.broker.runtime.turns import each as items_of

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
AT_ONCE: Final = 1000
"""Partitions of a request that is encoded without an interruption: two milliseconds."""
OnResponse = Callable[[Any], None]


class ControlEndpoint(NamedTuple):
    """The address for control requests of a broker, and the broker's incarnation."""

    host: str
    port: int
    broker_epoch: int


class Channels(Protocol):
    """The interface of the channel manager that the controller uses."""

    def update(self, live: dict[int, ControlEndpoint]) -> None:
        """Set the live brokers."""
        ...

    def send(self, broker_id: int, message: Any, on_response: Callable[[Any], None]) -> None:
        """Send a control request to a broker."""
        ...


class ControllerChannelManager:
    """The controller's queues of control requests, one for each live broker."""

    def __init__(
        self,
        broker_id: int,
        network: Network,
        local: Local,
        timeout_ms: int = 30_000,
        run_in_turns: Run = at_once,
    ) -> None:
        """`local` handles requests to this broker itself; a request without a response in time is sent again.

        `run_in_turns` encodes large requests to other brokers in turns with the event loop.
        """
        self._broker_id = broker_id
        self._run_in_turns = run_in_turns
        self._timeout_ms = timeout_ms
        self._network = network
        self._client = InterBrokerClient(broker_id, self._address_of, network, local, "controller")
        self._queues: dict[int, _BrokerQueue] = {}

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        queue = self._queues.get(broker_id)
        return (queue.broker.host, queue.broker.port) if queue is not None else None

    def update(self, live: Mapping[int, ControlEndpoint]) -> None:
        """Set the live brokers, and drop what is queued for other brokers or for earlier incarnations."""
        for broker_id, queue in list(self._queues.items()):
            if live.get(broker_id) != queue.broker:
                queue.close()
                del self._queues[broker_id]
                self._client.disconnect(broker_id)
        for broker_id, broker in live.items():
            if broker_id not in self._queues:
                encode = None if broker_id == self._broker_id else self._run_in_turns
                self._queues[broker_id] = _BrokerQueue(
                    partial(self._client.send_request, broker_id), broker, self._network, self._timeout_ms, encode
                )

    def send(self, broker_id: int, message: Any, on_response: OnResponse) -> None:
        """Send a control request; it is dropped when the broker is not live."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.send(message, on_response)

    def close(self) -> None:
        """Drop all queued requests and close all connections."""
        self.update({})
        self._client.close()


class EncodedRequest:
    """A request whose body is encoded already, for an inter-broker client."""

    def __init__(self, message: Any) -> None:
        """Encodes the message in the version that brokers send to each other; in a turn, with interruptions."""
        self.API_KEY = message.API_KEY
        self._version = VERSIONS[message.API_KEY]
        self._body = b"".join(message.SLICED_ENCODERS[self._version](message, bytearray(), items_of))

    def encode(self, version: int) -> bytes:
        """The body."""
        assert version == self._version, "a request between brokers has one version"
        return self._body


def _partitions_of(message: Any) -> int:
    """How many partitions a control request has."""
    topics = getattr(message, "topic_states", ())
    return sum(len(each.partition_states) for each in topics)


class _BrokerQueue:
    """The control requests for one broker in one incarnation (Kafka: RequestSendThread)."""

    def __init__(
        self,
        send_request: Callable[[Any, OnAnswer, OnPeerLost, int], None],
        broker: ControlEndpoint,
        network: Network,
        timeout_ms: int,
        encode_in_turns: Run | None,
    ) -> None:
        """`send_request` sends a request to the broker. Without `encode_in_turns` it gets every request as it is."""
        self.broker = broker
        self._send_request = send_request
        self._network = network
        self._timeout_ms = timeout_ms
        self._encode_in_turns = encode_in_turns
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
        message, _ = self._control_requests[0]
        if self._encode_in_turns is not None and _partitions_of(message) > AT_ONCE:
            self._encode_in_turns(partial(self._encode_and_send, message))
        else:
            self._send_request(message, self._answered, self._lost, self._timeout_ms)

    def _encode_and_send(self, message: Any) -> None:
        """Encode a large request, with interruptions, and send it."""
        encoded = EncodedRequest(message)
        if not self._closed:
            self._send_request(encoded, self._answered, self._lost, self._timeout_ms)

    def _answered(self, response: Any) -> None:
        self._under_way = False
        _, on_response = self._control_requests.popleft()
        on_response(response)
        self._next()

    def _lost(self, error: PeerLostError) -> None:
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
