"""Pipelined connection: many requests in flight without a thread (Kafka: NetworkClient, KafkaChannel, of one node).

A connection is opened, authenticated and authenticated again as `BrokerConnection` does it, which blocks. After that
its socket does not block: `queue` adds a request, and `transfer` sends and receives what the socket allows at this
moment. The records of a request are sent from the objects that contain them; a response is received into a buffer of
its own, and its decoder leaves records as a view into that buffer.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.client.connection import BrokerConnection, InFlight, shown
from odradek.protocol.client.receiving import LARGEST_RESPONSE_BYTES
from odradek.protocol.errors import ProtocolError
from odradek.protocol.framing import request_header, response_header_version

_SIZE: Final = struct.Struct(">i")
_PARTS: Final = 512
"""Parts of one system call; the kernel allows 1,024."""


class PipelinedConnection(BrokerConnection):
    """An open connection whose socket does not block."""

    _out: deque[memoryview]
    _head: bytearray
    _body: memoryview | None
    _filled: int

    def unblock(self, send_buffer: int = 0, receive_buffer: int = 0) -> None:
        """Use the connection by `queue` and `transfer` from now on. A buffer of 0 bytes is that of the operating
        system.
        """
        for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
            if size:
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)
        self._socket.setblocking(False)
        self._out, self._head, self._body, self._filled = deque(), bytearray(4), None, 0
        self._plain = type(self._socket) is socket.socket  # an SSLSocket has no sendmsg
        self._blocking: tuple[type[OSError], ...] = (BlockingIOError,)
        if not self._plain:
            import ssl

            self._blocking = (ssl.SSLWantReadError, ssl.SSLWantWriteError)

    def fileno(self) -> int:
        """The file descriptor of the socket."""
        return self._socket.fileno()

    @property
    def wants_to_write(self) -> bool:
        """Whether bytes of requests are left to send."""
        return bool(self._out)

    @property
    def in_flight(self) -> int:
        """How many requests have no response."""
        return len(self._in_flight)

    @property
    def must_renew(self) -> bool:
        """Whether the session ends soon: send nothing, and call `renew` once no request is in flight (KIP-368)."""
        return self._renewal_s is not None and time.monotonic() >= self._renewal_s

    def renew(self) -> None:
        """Authenticate again, which blocks for some round trips. Raises OSError, LoginFailedError."""
        self._socket.setblocking(True)
        try:
            self._authenticate()
        finally:
            self._socket.setblocking(False)

    def queue(self, request: Any, highest: int | None = None) -> None:
        """Add a request in the version that `ask` would use; `transfer` sends it. Raises UnsupportedRequestError."""
        version = self.version_of(request, highest)
        self._correlation_id += 1
        head = request_header(request.API_KEY, version, self._correlation_id, self._client_id)
        parts = request.encode_parts(version, head)
        self._out.append(memoryview(_SIZE.pack(sum(map(len, parts)))))
        self._out.extend(memoryview(part) for part in parts)
        self._in_flight.append(InFlight(self._correlation_id, request.API_KEY, version))

    def transfer(self) -> Iterator[Any]:
        """Send and receive; the iterator returns the responses, in the order of the requests. Raises OSError and
        ProtocolError, after which the connection is unusable.
        """
        self.flush()
        while (data := self._receive_frame()) is not None:
            yield self._decode(data)

    def flush(self) -> None:
        """Send as much as the socket takes. Raises OSError as `transfer` does."""
        out = self._out
        try:
            while out:
                if self._plain:
                    sent = self._socket.sendmsg([out[index] for index in range(min(len(out), _PARTS))])
                else:
                    sent = self._socket.send(out[0])
                while out and sent >= out[0].nbytes:
                    sent -= out.popleft().nbytes
                if sent:
                    out[0] = out[0][sent:]
        except self._blocking:
            pass

    # ---- internals

    def _receive_frame(self) -> memoryview | None:
        """A response without its length; None where it is not completely there."""
        try:
            if self._body is None:
                if not self._fill(memoryview(self._head)):
                    return None
                (size,) = _SIZE.unpack(self._head)
                if not 4 <= size <= LARGEST_RESPONSE_BYTES:
                    raise ProtocolError("size", 0, f"{shown(self.address)} does not answer in Kafka's protocol")
                self._body, self._filled = memoryview(bytearray(size)), 0
            if not self._fill(self._body):
                return None
        except self._blocking:
            return None
        data, self._body, self._filled = self._body, None, 0
        return data

    def _fill(self, target: memoryview) -> bool:
        """Receive into the rest of `target`. Returns whether it is full."""
        while self._filled < len(target):
            count = self._socket.recv_into(target[self._filled :])
            if not count:
                raise ConnectionResetError(f"{shown(self.address)} closed the connection")
            self._filled += count
        return True

    def _decode(self, data: memoryview) -> Any:
        if not self._in_flight:
            raise ProtocolError("correlation_id", 0, "a response without a request")
        expected = self._in_flight.popleft()
        (correlation_id,) = _SIZE.unpack_from(data)
        if correlation_id != expected.correlation_id:
            raise ProtocolError("correlation_id", 0, f"{correlation_id} answers {expected.correlation_id}")
        key, version = expected.api_key, expected.version
        return m.response_class(key).decode(data, version, 5 if response_header_version(key, version) else 4)
