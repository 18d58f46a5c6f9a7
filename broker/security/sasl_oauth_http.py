"""Requests to a token issuer, from threads (Kafka: HttpAccessTokenRetriever, the HTTP client of jose4j).

Responses are bounded in size and in time. A redirect is a failure: it would lead to an address that is not on the list
of allowed ones.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

LARGEST_RESPONSE_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 14
_OK: Final = 200


class IssuerError(Exception):
    """The issuer cannot be reached or has rejected the request. Messages contain no part of request or response."""


class Timeouts(NamedTuple):
    """In seconds: sasl.login.connect.timeout.ms, sasl.login.read.timeout.ms."""

    connect_s: float = 10.0
    read_s: float = 10.0


def read_url(
    url: str, timeouts: Timeouts, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    """The document at a file:, http: or https: URL; with a body, the response to a POST. Raises IssuerError."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file" and body is None:
            return _read_file(Path(unquote(parts.path)))
        return _read_http(url, timeouts, body, dict(headers or {}))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise IssuerError(f"{parts.scheme}://{parts.hostname or ''}{parts.path}: {type(error).__name__}") from error


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(LARGEST_RESPONSE_BYTES + 1)
    if len(data) > LARGEST_RESPONSE_BYTES:
        raise IssuerError(f"{path} has more than {LARGEST_RESPONSE_BYTES} bytes")
    return data


def _read_http(url: str, timeouts: Timeouts, body: bytes | None, headers: dict[str, str]) -> bytes:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None:
        raise IssuerError("the URL has to begin with https://, http:// or file://")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeouts.connect_s)
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    try:
        connection.connect()
        if connection.sock is not None:
            connection.sock.settimeout(timeouts.read_s)
        deadline_s = time.monotonic() + timeouts.read_s
        connection.request("GET" if body is None else "POST", target, body, headers)
        response = connection.getresponse()
        if response.status != _OK:
            raise IssuerError(f"{parts.scheme}://{parts.hostname}{parts.path}: HTTP status {response.status}")
        data = bytearray()
        while chunk := response.read1(_CHUNK_BYTES):
            data += chunk
            if len(data) > LARGEST_RESPONSE_BYTES:
                raise IssuerError(f"{parts.scheme}://{parts.hostname}{parts.path}: the response is too large")
            if time.monotonic() > deadline_s:
                raise TimeoutError
        return bytes(data)
    finally:
        connection.close()
