"""Blocking connection to a broker, for commands and fixtures with a few requests.

It uses versions that Apache Kafka has from 2.4 on, so that a broker of a mixed cluster can answer, too.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from odradek.protocol import messages as m
from odradek.protocol.client.receiving import LARGEST_RESPONSE_BYTES, receive
from odradek.protocol.errors import ProtocolError
from odradek.protocol.framing import frame, request_header

if TYPE_CHECKING:
    import ssl

METADATA_VERSION: Final = 9
LIST_OFFSETS_VERSION: Final = 5
VERSIONS: Final = {
    m.MetadataRequest.API_KEY: METADATA_VERSION,
    m.ListOffsetsRequest.API_KEY: LIST_OFFSETS_VERSION,
}
DEFAULT_PORT: Final = 9092


class Wire:
    """A connection. Every call raises OSError (TimeoutError among them) when the broker does not answer."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float = 5.0,
        client_id: str = "odradek",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects, with `tls` encrypted. Raises OSError."""
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self.peer_certificate: bytes | None = None
        """The certificate of the broker as DER; None without TLS."""
        if tls is not None:
            try:
                self._socket = encrypted = tls.wrap_socket(self._socket, server_hostname=host)
            except BaseException:
                self._socket.close()
                raise
            self.peer_certificate = encrypted.getpeercert(binary_form=True)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The response to a request, in that version or the one of `VERSIONS`. Raises OSError, ProtocolError."""
        if version is None:
            version = VERSIONS[request.API_KEY]
        response = m.response_class(request.API_KEY)
        return response.decode(self.exchange(request, version), version, 5 if version >= response.FIRST_FLEXIBLE else 4)

    def exchange(self, request: Any, version: int) -> bytes:
        """The unparsed response to a request, with its header. Raises OSError, ProtocolError."""
        self._correlation_id += 1
        head = request_header(request.API_KEY, version, self._correlation_id, self._client_id)
        self._socket.sendall(frame(head, request.encode(version)))
        (size,) = struct.unpack(">i", self._read(4))
        if not 4 <= size <= LARGEST_RESPONSE_BYTES:
            raise ProtocolError("size", 0, f"{size} bytes are not a broker's response")
        return self._read(size)

    def metadata(self, topics: list[str] | None = None) -> m.MetadataResponse:
        """The broker's metadata of the cluster and of `topics` (None for all); the request creates no topic."""
        wanted = None if topics is None else [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer: m.MetadataResponse = self.ask(m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        return answer

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        return receive(self._socket, size, "the broker closed the connection")


def parse_address(text: str) -> tuple[str, int]:
    """host:port, [host]:port, or host with Kafka's usual port. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text.strip(), str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return host, int(port)
