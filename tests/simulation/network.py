"""The network of a simulation: connections with TCP's guarantees, over links that delay, break and clog.

Bytes of a connection arrive in order, once, or not at all. A cut link holds the bytes that are sent into it; when it
heals, each connection over it either continues (the bytes were retransmitted) or is lost. A process that dies takes its
connections with it, and the process at the other end is notified, unless the link is cut. A process that closes a
connection receives no more of it, but bytes that it has sent may still arrive: a request that its sender has given up,
seconds late.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from odradek.protocol.dial import Channel, OnFrame, OnLost
from tests.simulation.loop import OWNER, Owner, SimulatedLoop

CONNECT_TIMEOUT_S = 0.5
LINGER_S = 0.2
SIZE_BYTES = 4


class Network:
    """All hosts and links."""

    def __init__(self, loop: SimulatedLoop, random: Random, latency_s: float) -> None:
        """A message takes up to `latency_s`."""
        self.loop = loop
        self.random = random
        self.latency_s = latency_s
        self.cuts: dict[tuple[str, str], None] = {}
        """Directions, by the names of processes, in which nothing gets through."""
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.connections: list[Connection] = []
        self.lost = 0

    def delay(self) -> float:
        return self.random.random() * self.latency_s

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Let nothing through any more."""
        self.cuts[source, target] = None
        if both:
            self.cuts[target, source] = None

    def heal(self) -> None:
        """Every link works; connections over a broken one continue or are lost."""
        broken, self.cuts = self.cuts, {}
        for connection in list(self.connections):
            if any((one.owner.name, one.peer.owner.name) in broken for one in connection.ends):
                if self.random.random() < 0.5:
                    self.lost += 1
                    connection.end(None)
                else:
                    for one in connection.ends:
                        one.flush()

    def died(self, owner: Owner) -> None:
        """A process is gone, and its sockets with it."""
        self.listeners = {key: each for key, each in self.listeners.items() if each.owner is not owner}
        for connection in list(self.connections):
            for one in connection.ends:
                if one.owner is owner:
                    connection.end(one)

    def listen(self, owner: Owner) -> Callable[..., SimulatedListener]:
        """The replacement of `protocol.net.Listener` in this process."""

        def make(name: str, on_frame: Any, **_: Any) -> SimulatedListener:
            return SimulatedListener(self, owner, name, on_frame)

        return make

    def connect(self, owner: Owner) -> Callable[..., Any]:
        """The replacement of `protocol.dial.connect` in this process."""

        async def connect(
            host: str, port: int, *, on_frame: OnFrame, on_lost: OnLost, frame_bytes: int, tls: Any = None
        ) -> Channel:
            done = self.loop.create_future()

            def arrive() -> None:
                if done.done():
                    return
                listener = self.listeners.get((host, port))
                if listener is not None and (
                    self.is_cut(owner.name, listener.owner.name) or self.is_cut(listener.owner.name, owner.name)
                ):
                    self.loop.call_later(
                        CONNECT_TIMEOUT_S, lambda: done.done() or done.set_exception(OSError("timed out"))
                    )
                elif listener is None or not listener.serving:
                    done.set_exception(ConnectionRefusedError("no process listens there"))
                else:
                    done.set_result(Connection(self, owner, listener, on_frame, on_lost).client)

            self.loop.call_later(self.delay(), arrive)
            channel: Channel = await done
            return channel

        return connect


class SimulatedListener:
    """A listening address, with the surface of `protocol.net.Listener` that a broker uses."""

    held_bytes = 0

    def __init__(self, network: Network, owner: Owner, name: str, on_frame: Any) -> None:
        self.network, self.owner, self.name, self.on_frame = network, owner, name, on_frame
        self.serving = False
        self._address: tuple[str, int] | None = None
        self.context = contextvars.copy_context()

    async def bind(self, host: str | None, port: int, *, backlog: int = 0) -> int:
        address = (host or "", port)
        if address in self.network.listeners:
            raise OSError(98, "the address is in use")
        self._address = address
        self.network.listeners[address] = self
        return port

    async def serve(self) -> None:
        self.serving = True

    def stop_accepting(self) -> None:
        self.serving = False

    def resume_accepting(self) -> None:
        """No caller waits here."""

    def close(self) -> None:
        self.serving = False
        if self._address is not None and self.network.listeners.get(self._address) is self:
            del self.network.listeners[self._address]
        for connection in list(self.network.connections):
            if connection.server.owner is self.owner and connection.server.listener is self:
                connection.server.close()


class End:
    """One end of a connection: bytes that it sends arrive at its peer, in order."""

    peer: End

    def __init__(self, connection: Connection, owner: Owner) -> None:
        self.connection, self.owner = connection, owner
        self.context = contextvars.copy_context()
        self._held: deque[bytes] = deque()
        self._arrives_s = 0.0
        self.closed = False

    def transmit(self, data: bytes) -> None:
        if not self.closed:
            self._send(data)

    def _send(self, data: bytes) -> None:
        if self.connection.over:
            return
        if self.connection.network.is_cut(self.owner.name, self.peer.owner.name) or self._held:
            self._held.append(data)
            return
        network = self.connection.network
        self._arrives_s = max(self._arrives_s + 1e-9, network.loop.time() + network.delay())
        network.loop.call_at(self._arrives_s, self.peer.arrive, data, context=self.peer.context)

    def flush(self) -> None:
        """The link works again: held bytes are retransmitted."""
        held, self._held = self._held, deque()
        for data in held:
            self._send(data)

    @property
    def is_drained(self) -> bool:
        """Whether nothing that was sent is still on its way."""
        return not self._held and self._arrives_s <= self.connection.network.loop.time()

    def arrive(self, data: bytes) -> None:
        if self.closed or self.connection.over:
            return
        if self.connection.network.is_cut(self.peer.owner.name, self.owner.name):
            self.peer._held.append(data)  # it was on its way when the link broke
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        """The other end is gone."""
        raise NotImplementedError

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.connection.end(self)


class Client(End):
    """The end of the process that opened the connection: a `protocol.dial.Channel`."""

    on_frame: OnFrame
    on_lost: OnLost

    def write(self, data: bytes) -> None:
        self.transmit(bytes(data))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.connection.drain(self)

    def take(self, data: bytes) -> None:
        view = memoryview(bytearray(data))
        position = 0
        while position + SIZE_BYTES <= len(view) and not self.closed:
            size = int.from_bytes(view[position : position + SIZE_BYTES], "big")
            self.on_frame(view[position + SIZE_BYTES : position + SIZE_BYTES + size])
            position += SIZE_BYTES + size

    def lost(self) -> None:
        if not self.closed:
            self.closed = True
            self.on_lost()


class Server(End):
    """The broker's end, with the surface of `protocol.net.Connection` that dispatch and handlers use."""

    listener: SimulatedListener
    address = "127.0.0.1"
    session = None

    def __init__(self, connection: Connection, owner: Owner) -> None:
        super().__init__(connection, owner)
        self._owed: deque[Any] = deque()

    @property
    def listener_name(self) -> str:
        return self.listener.name

    def take(self, data: bytes) -> None:
        view = memoryview(bytearray(data))
        position = 0
        while position + SIZE_BYTES <= len(view) and not self.closed:
            size = int.from_bytes(view[position : position + SIZE_BYTES], "big")
            self.listener.on_frame(self, view[position + SIZE_BYTES : position + SIZE_BYTES + size])
            position += SIZE_BYTES + size

    def lost(self) -> None:
        self.closed = True

    def refuse(self, kind: str, text: str) -> None:
        raise AssertionError(f"a broker refused a request of a simulated peer: {kind}: {text}")

    def expect(self, exchange: Any) -> None:
        self._owed.append(exchange)

    def answer(self, exchange: Any, parts: Sequence[Any]) -> None:
        if self.closed:
            return
        exchange.answer = parts
        while self._owed and self._owed[0].answer is not None:
            self.transmit(_joined(self._owed.popleft().answer))

    def send(self, exchange: Any, parts: Sequence[Any]) -> None:
        if self._owed:
            exchange.answer = parts
            self._owed.append(exchange)
        else:
            self.transmit(_joined(parts))


def _joined(parts: Sequence[Any]) -> bytes:
    return b"".join(part.read() if hasattr(part, "fileno") else bytes(part) for part in parts)


class Connection:
    """Both ends."""

    def __init__(
        self, network: Network, owner: Owner, listener: SimulatedListener, on_frame: OnFrame, on_lost: OnLost
    ) -> None:
        self.network = network
        self.over = False
        self.client = Client(self, owner)
        self.client.on_frame, self.client.on_lost = on_frame, on_lost
        self.client.context = contextvars.copy_context()
        self.client.context.run(OWNER.set, owner)
        self.server = Server(self, listener.owner)
        self.server.listener, self.server.context = listener, listener.context
        self.client.peer, self.server.peer = self.server, self.client
        network.connections.append(self)

    @property
    def ends(self) -> tuple[Client, Server]:
        return self.client, self.server

    def drain(self, gone: End) -> None:
        """One end has closed; the other is notified after it has received everything that was sent before."""
        if gone.is_drained or not gone.owner.alive:
            self.end(gone)
        else:
            self.network.loop.call_later(LINGER_S, self.drain, gone)

    def end(self, gone: End | None) -> None:
        """One end is gone, or with None the connection itself; the other ends are notified a little later."""
        if self.over:
            return
        self.over = True
        self.network.connections.remove(self)
        for one in self.ends:
            if one is not gone and one.owner.alive:
                self.network.loop.call_later(self.network.delay(), one.lost, context=one.context)
