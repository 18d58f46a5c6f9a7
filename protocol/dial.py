"""Client connections: a broker sends requests to another broker.

`connect` opens a TCP connection, with TLS if it gets a context, and splits the received bytes into frames. The frame
handler gets a view into the receive buffer, valid during the call only, so that a follower writes fetched batches to
its log without a copy. The buffer grows to the received frame, up to the limit that the caller sets; a peer that
announces more, or a negative length, loses its connection. A frame of more than OWN_BUFFER_BYTES has memory of the
system for itself, which the handler may keep: its pages are there when bytes arrive, and not before.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import ssl

ANONYMOUS: Final = MAP_PRIVATE | MAP_ANONYMOUS
SIZE: Final = struct.Struct(">i")
BUFFER_BYTES: Final = 256 * 1024
READ_AT_LEAST: Final = 64 * 1024
OWN_BUFFER_BYTES: Final = 16 << 20
"""More than `replica.fetch.response.max.bytes` by default, so that only a batch that is larger takes such a frame."""
OnFrame = Callable[[memoryview], None]
OnLost = Callable[[], None]


class Channel(Protocol):
    """An open connection to a peer."""

    def write(self, data: bytes) -> None:
        """Send whole frames, their sizes included. Bytes written after the end of the connection are dropped."""
        ...

    def close(self) -> None:
        """End the connection. `on_lost` is not called for it."""
        ...


class Connect(Protocol):
    """Opens connections for a broker. Simulations have their own implementation."""

    async def __call__(
        self,
        host: str,
        port: int,
        *,
        on_frame: OnFrame,
        on_lost: OnLost,
        frame_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> Channel:
        """Raises OSError when no process listens at that address, and where TLS fails."""
        ...


async def connect(
    host: str,
    port: int,
    *,
    on_frame: OnFrame,
    on_lost: OnLost,
    frame_bytes: int,
    receive_buffer_bytes: int | None = None,
    tls: ssl.SSLContext | None = None,
) -> Channel:
    """Open a connection over TCP; frames of more than `frame_bytes` end it.

    Raises OSError, also where TLS fails, and for a host or a port that cannot exist. The system chooses the size of its
    receive buffer, unless it is given. `tls` checks the certificate for `host`.
    """
    loop = asyncio.get_running_loop()
    try:
        transport, channel = await loop.create_connection(
            lambda: TcpChannel(on_frame, on_lost, frame_bytes),
            host,
            port,
            ssl=tls,
            server_hostname=host if tls is not None else None,
        )
    except OSError:  # a certificate that is not trusted is a ValueError, too
        raise
    except (ValueError, OverflowError) as error:  # another broker may advertise any text and any number
        raise OSError(f"invalid address {host!r}:{port}: {error}") from error
    sock = transport.get_extra_info("socket")
    if receive_buffer_bytes is not None and sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    return channel


class TcpChannel(asyncio.BufferedProtocol):
    """Frames over one TCP connection."""

    def __init__(self, on_frame: OnFrame, on_lost: OnLost, frame_bytes: int) -> None:
        """As `connect`."""
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._frame_bytes = frame_bytes
        self._buffer: bytearray | mmap = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._begin = 0  # of the first frame that the handler has not got yet
        self._end = 0  # of the received bytes
        self._transport: asyncio.Transport | None = None

    # ---- called by the owner

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # ---- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport = None
            self._on_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        if len(self._buffer) - self._end < READ_AT_LEAST:
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        while self._transport is not None:
            arrived = self._end - self._begin
            if arrived < SIZE.size:
                break
            (size,) = SIZE.unpack_from(self._buffer, self._begin)
            if not 0 <= size <= self._frame_bytes:
                self._fail()
                return
            if arrived < SIZE.size + size:
                break
            body = self._begin + SIZE.size
            self._begin = body + size
            self._on_frame(self._view[body : self._begin])
            if len(self._buffer) > OWN_BUFFER_BYTES:
                self._replace_buffer(bytearray(max(BUFFER_BYTES, self._end - self._begin)))
        if self._begin == self._end:
            self._begin = self._end = 0

    def _fail(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
            self._on_lost()

    def _make_room(self) -> None:
        """Move the incomplete frame to the front, into a larger buffer if it needs one."""
        begun = self._end - self._begin
        needed = begun + READ_AT_LEAST
        if begun >= SIZE.size:
            needed = max(needed, SIZE.size + SIZE.unpack_from(self._buffer, self._begin)[0] + READ_AT_LEAST)
        if needed > len(self._buffer):
            # A size beyond the limit has closed the connection before, so this is bounded by it.
            is_large = needed > OWN_BUFFER_BYTES
            self._replace_buffer(mmap(-1, needed, flags=ANONYMOUS) if is_large else bytearray(needed))
        else:
            self._view[:begun] = bytes(self._view[self._begin : self._end])
            self._begin, self._end = 0, begun

    def _replace_buffer(self, buffer: bytearray | mmap) -> None:
        """Go on with another buffer, which has room for the bytes that no frame has had yet."""
        left = self._view[self._begin : self._end]
        buffer[: len(left)] = left
        self._buffer, self._view = buffer, memoryview(buffer)
        self._begin, self._end = 0, len(left)
