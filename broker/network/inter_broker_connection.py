"""Connections to other brokers: ordered requests with a timeout each (Kafka: NetworkClient).

A `Peer` is one connection to one broker for one purpose (fetches, control requests, requests to the controller). It
connects when it is first used, and again after a loss. It never retries a request: it notifies the caller of the loss,
and the caller decides. Responses are passed on as views into the receive buffer, so a follower can write records to its
log without a copy.

The versions are those that Apache Kafka 3.9 uses between brokers (inter.broker.protocol.version=3.9), which Kafka
brokers and Odradek brokers both support.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol import messages as m
from odradek.protocol.dial import Channel, Connect
from odradek.protocol.errors import ProtocolError
from odradek.protocol.framing import frame, request_header

log = logging.getLogger(__name__)

VERSIONS: Final = {
    m.FetchRequest.API_KEY: 17,
    m.ListOffsetsRequest.API_KEY: 9,
    m.LeaderAndIsrRequest.API_KEY: 7,
    m.StopReplicaRequest.API_KEY: 4,
    m.UpdateMetadataRequest.API_KEY: 8,
    m.ControlledShutdownRequest.API_KEY: 3,
    m.AlterPartitionRequest.API_KEY: 3,
    m.AllocateProducerIdsRequest.API_KEY: 0,
    m.CreateTopicsRequest.API_KEY: 7,
    m.AddPartitionsToTxnRequest.API_KEY: 5,
    m.WriteTxnMarkersRequest.API_KEY: 1,
}
CORRELATION_MASK: Final = 0x7FFF_FFFF
MOST_DOUBLINGS: Final = 16


class PeerLostError(ConnectionError):
    """The peer did not answer: the request may or may not have been processed."""


class _Waiting(NamedTuple):
    """A request in flight."""

    correlation_id: int
    decode: Callable[[memoryview, int], tuple[Any, int]]
    flexible: bool
    on_answer: Callable[[Any], None]
    on_lost: Callable[[PeerLostError], None]
    timer: Timer


class Network(NamedTuple):
    """The dependencies and limits of a peer."""

    connect: Connect
    clock: Clock
    timers: Timers
    frame_bytes: int = 100 * 1024 * 1024
    """The size limit of a response."""
    setup_timeout_ms: int = 10_000
    """Timeout of the first connection attempt (socket.connection.setup.timeout.ms); it doubles with each failure."""
    setup_timeout_max_ms: int = 30_000
    """The upper limit of that timeout (socket.connection.setup.timeout.max.ms)."""


class Peer:
    """One connection to a broker, opened when it is first used."""

    def __init__(self, network: Network, name: str, host: str, port: int, client_id: str) -> None:
        """`name` identifies the peer in messages."""
        self._network = network
        self._name = name
        self.host = host
        self.port = port
        self._client_id = client_id
        self._channel: Channel | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._failed_to_open = 0
        self._unsent: list[bytes] = []
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._closed = False

    def send_request(
        self,
        request: Any,
        on_answer: Callable[[Any], None],
        on_lost: Callable[[PeerLostError], None],
        timeout_ms: int = 30_000,
    ) -> None:
        """Send a request; exactly one of both is called, never before this returns, unless the peer is closed.

        The records in the response are views that are valid during `on_answer` only.
        """
        key = request.API_KEY
        version = VERSIONS[key]
        self._correlation_id = number = self._correlation_id + 1 & CORRELATION_MASK
        data = frame(request_header(key, version, number, self._client_id), request.encode(version))
        response = m.response_class(key)
        deadline_ms = self._network.clock.monotonic_ms() + timeout_ms
        timer = self._network.timers.at(
            deadline_ms, lambda: self._fail(f"{self._name} did not answer within {timeout_ms} ms")
        )
        flexible = version >= response.FIRST_FLEXIBLE
        self._waiting.append(_Waiting(number, response.DECODERS[version], flexible, on_answer, on_lost, timer))
        if self._channel is not None:
            self._channel.write(data)
        else:
            self._unsent.append(data)
            if self._dialing is None:
                self._dialing = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        network = self._network
        doublings = min(self._failed_to_open, MOST_DOUBLINGS)
        timeout_ms = min(network.setup_timeout_ms << doublings, network.setup_timeout_max_ms)
        self._failed_to_open += 1
        late = network.timers.at(
            network.clock.monotonic_ms() + timeout_ms,
            lambda: self._fail(f"{self._name} did not accept a connection within {timeout_ms} ms"),
        )
        try:
            channel = await network.connect(
                self.host,
                self.port,
                on_frame=self._on_frame,
                on_lost=lambda: self._fail(f"{self._name} closed the connection"),
                frame_bytes=network.frame_bytes,
            )
        except OSError as error:
            self._dialing = None
            self._fail(f"{self._name} cannot be reached at {self.host}:{self.port}: {error}")
            return
        finally:
            late.cancel()
        self._dialing = None
        self._failed_to_open = 0
        if self._closed or not self._unsent:
            channel.close()  # no request waits for it any more
            return
        self._channel = channel
        unsent, self._unsent = self._unsent, []
        for data in unsent:
            channel.write(data)

    def _on_frame(self, data: memoryview) -> None:
        if not self._waiting:
            self._fail(f"{self._name} sent an answer without a request")
            return
        waiting = self._waiting[0]
        try:
            number = int.from_bytes(data[:4], "big")
            if number != waiting.correlation_id:
                raise ProtocolError("ResponseHeader.correlation_id", 0, f"{number}, not {waiting.correlation_id}")
            answer, _ = waiting.decode(data, 5 if waiting.flexible else 4)
        except (ProtocolError, IndexError) as error:
            self._fail(f"{self._name} sent an answer that cannot be read: {error}")
            return
        self._waiting.popleft()
        waiting.timer.cancel()
        waiting.on_answer(answer)

    def _fail(self, why: str) -> None:
        """Close the connection and notify the callers of all pending requests."""
        if self._dialing is not None:
            self._dialing.cancel()
            self._dialing = None
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        waiting, self._waiting = self._waiting, deque()
        self._unsent = []
        for each in waiting:
            each.timer.cancel()
        for each in waiting:
            each.on_lost(PeerLostError(why))

    def abandon(self, why: str) -> None:
        """Close the connection for good and notify the callers of all pending requests."""
        self._closed = True
        self._fail(why)

    def close(self) -> None:
        """Close the connection; no callback is called any more."""
        self._closed = True
        for each in self._waiting:
            each.timer.cancel()
        self._waiting.clear()
        self._fail("closed")
