"""Connection of one thread to the coordinator of a consumer group.

librdkafka reads and writes the records of an application; requests that it has no call for (joining a group with a
custom assignment, committing as that member) go over this connection, in the messages of `odradek.protocol`. TLS and
SASL are those of the other clients of the application (`authentication`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

from odradek.protocol import messages as m
from odradek.protocol.client.connection import Address, BrokerConnection, code_of
from odradek.protocol.client.security import PLAINTEXT, ConnectionSecurity
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.streams.errors import StreamsError
from odradek.streams.group.authentication import streams_errors

GROUP: Final = 0
"""The key type in FindCoordinator."""
ONE_KEY: Final = 3
"""The highest version of FindCoordinator with a single key; every broker supports it."""
METADATA_BY_NAME: Final = 9


def parse_bootstrap(servers: str | Iterable[str]) -> list[Address]:
    """The addresses in `bootstrap.servers`: host:port, comma-separated, or a list of them. Raises StreamsError."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    found = []
    for text in (text.strip() for text in texts):
        if not text:
            continue
        host, _, port = text.rpartition("://")[2].rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise StreamsError(f"bootstrap.servers: {text!r} is not host:port")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not found:
        raise StreamsError("bootstrap.servers contains no broker")
    return found


class MemberConnection(BrokerConnection):
    """A connection whose errors are those of the streams runtime."""

    def __init__(self, address: Address, client_id: str, security: ConnectionSecurity = PLAINTEXT) -> None:
        """Raises OSError, ProtocolError, AuthenticationFailedError."""
        with streams_errors():
            super().__init__(address, client_id, security)

    def ask(self, request: Any, timeout_s: float, highest: int | None = None) -> Any:
        """As `BrokerConnection.ask`; raises AuthenticationFailedError and VersionsApartError in place of its errors."""
        with streams_errors():
            return super().ask(request, timeout_s, highest)


class CoordinatorLink:
    """The link to the coordinator of a group, found again after it has moved. For one thread; retries nothing.

    Brokers from earlier responses are candidates for FindCoordinator, too, so that an application outlives the brokers
    of its bootstrap list.
    """

    def __init__(
        self,
        bootstrap: list[Address],
        group_id: str,
        client_id: str,
        request_timeout_s: float,
        security: ConnectionSecurity = PLAINTEXT,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._learned: list[Address] = []
        self._group_id = group_id
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._security = security
        self._connection: MemberConnection | None = None
        self._ended = threading.Event()

    def ask(self, request: Any, timeout_s: float | None = None, highest: int | None = None) -> Any:
        """The coordinator's response. `timeout_s` replaces the request timeout.

        Raises OSError when no broker answers, KafkaError when no broker returns the coordinator, and what
        `MemberConnection.ask` raises. After an error the next call finds the coordinator again.
        """
        connection = self._connection or self._connect()
        try:
            return connection.ask(request, timeout_s or self._request_timeout_s, highest)
        except (OSError, ProtocolError):
            self.forget()
            raise

    def forget(self) -> None:
        """Drop the connection: the coordinator has moved or is unavailable."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """Fail the blocking call and all later ones with an OSError. Any thread may call it."""
        self._ended.set()
        connection = self._connection
        if connection is not None:
            connection.interrupt()

    @property
    def ended(self) -> bool:
        """Whether `interrupt` was called."""
        return self._ended.is_set()

    def _connect(self) -> MemberConnection:
        self._connection = MemberConnection(self._find(), self._client_id, self._security)
        if self._ended.is_set():  # interrupted while it was opened: `interrupt` has not closed it
            self.forget()
            raise ConnectionAbortedError("the member is closed")
        return self._connection

    def _find(self) -> Address:
        """The address of the coordinator, from the first broker that answers."""
        failure: Exception | None = None
        for address in self._candidates():
            if self._ended.is_set():
                raise ConnectionAbortedError("the member is closed")
            try:
                return self._ask_for_coordinator(address)
            except (OSError, ProtocolError, KafkaError) as error:
                failure = error
        raise failure or OSError("there is no broker address")

    def _candidates(self) -> Iterator[Address]:
        seen: set[Address] = set()
        for address in (*self._learned, *self._bootstrap):
            if address not in seen:
                seen.add(address)
                yield address

    def _ask_for_coordinator(self, address: Address) -> Address:
        connection = MemberConnection(address, self._client_id, self._security)
        try:
            brokers: m.MetadataResponse = connection.ask(
                m.MetadataRequest(topics=[]), self._request_timeout_s, METADATA_BY_NAME
            )
            self._learned = sorted((broker.host, broker.port) for broker in brokers.brokers)
            request = m.FindCoordinatorRequest(key=self._group_id, key_type=GROUP)
            answer: m.FindCoordinatorResponse = connection.ask(request, self._request_timeout_s, ONE_KEY)
        finally:
            connection.close()
        if answer.error_code:
            raise KafkaError(code_of(answer.error_code), answer.error_message or "")
        return answer.host, answer.port
