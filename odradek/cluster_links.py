"""Links between the brokers of a test cluster, and from each broker to the registry, for simulated network partitions.

Each broker advertises the address of a relay to its peers in place of its own, and has a relay to the registry;
clients never use one. The first request of a connection between brokers identifies its sender: brokers, Apache Kafka's
too, use client ids that contain their number (broker-2-fetcher-0, or 2).

A cut is silence, as in a network that drops packets: connections stay open, sent bytes are buffered and arrive after
`heal`, and so does the close of a side. A new connection seems to succeed and gets no response. With a one-way cut,
packets from a to b are lost and those from b to a arrive.

Relays between brokers with TLS end it and begin it anew, with a broker's certificate: they have to read the first
request. All relays run in one thread with an event loop. A `cut` is effective when it returns.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

HOST: Final = "127.0.0.1"
REGISTRY: Final = "registry"
DEADLINE_S: Final = 10.0
MOST_HEAD_BYTES: Final = 4096
_CALLER: Final = re.compile(r"(?:broker-)?([0-9]+)(?:-.*)?")
_HEAD: Final = struct.Struct(">ihhih")

Done = TypeVar("Done")
Node: TypeAlias = int | str
"""A broker's number, or REGISTRY."""


class LinkTls(NamedTuple):
    """The contexts of a relay between brokers with TLS: towards the caller, and towards the called broker."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Links:
    """Relays between nodes, and the cuts between them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links of a test cluster", daemon=True)
        self._thread.start()
        self._relays: dict[Node, _Relay] = {}
        self._servers: list[asyncio.Server] = []
        self._cut: set[tuple[Node, Node]] = set()
        self._pipes: set[_Pipe] = set()

    def to_broker(self, broker_id: int, port: int, tls: LinkTls | None = None) -> int:
        """Create the relay to the peers' listener of a broker, which is at `port`; returns the relay's port."""
        return self._call(self._listen(_Relay(None, broker_id, port, tls)))

    def to_registry(self, broker_id: int) -> int:
        """Create the relay from a broker to the registry; returns its port. `registry_is_at` sets its target."""
        return self._call(self._listen(_Relay(broker_id, REGISTRY, None)))

    def registry_is_at(self, port: int) -> None:
        """Set the registry's port; earlier connections are forwarded now."""
        self._call(self._find_registry(port))

    def cut(self, a: Node, b: Node, *, one_way: bool = False) -> None:
        """Let nothing pass from `a` to `b`, nor back unless `one_way`."""
        self._call(self._change({(a, b)} if one_way else {(a, b), (b, a)}))

    def heal(self) -> None:
        """Let everything pass again, buffered bytes first."""
        self._call(self._change(None))

    def close(self) -> None:
        """End all connections and the thread."""
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(DEADLINE_S)
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Done]) -> Done:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    # ---- in the thread of the loop

    async def _listen(self, relay: _Relay) -> int:
        def accept() -> _End:
            pipe = _Pipe(relay, self._is_cut, self._pipes.discard)
            self._pipes.add(pipe)
            return pipe.near

        server = await self._loop.create_server(accept, HOST, 0, ssl=relay.tls.server if relay.tls else None)
        self._servers.append(server)
        if relay.callee == REGISTRY:
            assert relay.caller is not None
            self._relays[relay.caller] = relay
        return int(server.sockets[0].getsockname()[1])

    async def _find_registry(self, port: int) -> None:
        for relay in self._relays.values():
            relay.port = port
        for pipe in list(self._pipes):
            pipe.advance()

    async def _change(self, more: set[tuple[Node, Node]] | None) -> None:
        self._cut = set() if more is None else self._cut | more
        for pipe in list(self._pipes):
            pipe.advance()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for pipe in list(self._pipes):
            pipe.abort()

    def _is_cut(self, a: Node, b: Node) -> bool:
        return (a, b) in self._cut


class _Relay:
    """A relay's source and target: a caller of None is identified by its first request, a port of None is unknown."""

    def __init__(self, caller: Node | None, callee: Node, port: int | None, tls: LinkTls | None = None) -> None:
        self.tls = tls
        self.caller = caller
        self.callee = callee
        self.port = port


class _Pipe:
    """One connection through a relay: the near end was accepted, the far one goes to the target."""

    def __init__(self, relay: _Relay, is_cut: Callable[[Node, Node], bool], on_end: Callable[[_Pipe], None]) -> None:
        self._relay = relay
        self._is_cut = is_cut
        self._on_end = on_end
        self._caller: Node | None = relay.caller
        self._known = relay.caller is not None
        self._dialing: asyncio.Task[None] | None = None
        self.near = _End(self.advance)
        self.far = _End(self.advance)

    def advance(self) -> None:
        """Forward bytes unless cut; called after bytes arrived or left, a side ended, or a cut or heal."""
        self._find_caller()
        caller, callee = self._caller, self._relay.callee
        cut_out = caller is not None and self._is_cut(caller, callee)
        cut_back = caller is not None and self._is_cut(callee, caller)
        if self._known and self._dialing is None and self._relay.port is not None and not cut_out:
            self._dialing = asyncio.get_running_loop().create_task(self._dial(self._relay.port))
        self.near.pour_into(self.far, cut=cut_out)
        self.far.pour_into(self.near, cut=cut_back)
        if self.near.gone and self.far.gone:
            self._on_end(self)

    def _find_caller(self) -> None:
        """Parse the first request, once enough of it has arrived."""
        if self._known:
            return
        head = bytes(self.near.kept[: _HEAD.size])
        if len(head) == _HEAD.size:
            size = _HEAD.unpack(head)[4]
            if 0 < size <= MOST_HEAD_BYTES and len(self.near.kept) < _HEAD.size + size:
                return
            name = bytes(self.near.kept[_HEAD.size : _HEAD.size + max(0, size)]).decode("utf-8", "replace")
            found = _CALLER.fullmatch(name)
            self._caller = int(found[1]) if found else None
            self._known = True
        elif self.near.ended:
            self._known = True

    async def _dial(self, port: int) -> None:
        try:
            tls = self._relay.tls.client if self._relay.tls else None
            await asyncio.get_running_loop().create_connection(lambda: self.far, HOST, port, ssl=tls)
        except OSError:
            self.abort()

    def abort(self) -> None:
        """End both sides at once."""
        for end in (self.near, self.far):
            end.abort()
        if self._dialing is not None:
            self._dialing.cancel()
        self._on_end(self)


class _End(asyncio.Protocol):
    """One side of a pipe: the received bytes that have not been forwarded yet."""

    MOST_KEPT_BYTES: Final = 1 << 20

    def __init__(self, advance: Callable[[], None]) -> None:
        self._advance = advance
        self._transport: asyncio.Transport | None = None
        self._writable = True
        self.kept = bytearray()
        self.ended = False
        """No more bytes arrive: the node at this side has closed, or was never reached."""
        self.gone = False

    def pour_into(self, other: _End, *, cut: bool) -> None:
        """Forward buffered bytes, and the close; nothing while `cut`, nor before the other side is connected."""
        if other.gone:
            self.kept.clear()
        if not cut and other._transport is not None:
            if self.kept and other._writable:
                other._transport.write(bytes(self.kept))
                self.kept.clear()
            if self.ended and not self.kept:
                other._transport.close()
        if self._transport is not None and not self.ended:
            if len(self.kept) < self.MOST_KEPT_BYTES:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def abort(self) -> None:
        self.gone = self.ended = True
        if self._transport is not None:
            self._transport.abort()

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.gone:
            transport.abort()
        self._advance()

    def data_received(self, data: bytes) -> None:
        self.kept += data
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = self.gone = True
        self._advance()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._advance()
