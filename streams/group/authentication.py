"""Security of the connections of group membership: the properties of the application's other clients.

`odradek.protocol.client` applies them; here its errors become those of the streams runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from odradek.protocol.client.errors import LoginFailedError, SecurityConfigError, UnsupportedRequestError
from odradek.protocol.client.security import ConnectionSecurity
from odradek.streams.errors import StreamsError


class AuthenticationFailedError(StreamsError):
    """The broker rejects the login, or its certificate is not trusted; repeating the attempt changes nothing."""


class VersionsApartError(StreamsError):
    """The broker and this runtime support no common version of a request."""


def security_of(properties: Mapping[str, Any]) -> ConnectionSecurity:
    """From the properties of librdkafka; others are ignored. Raises StreamsError."""
    try:
        return ConnectionSecurity.of(properties)
    except SecurityConfigError as error:
        raise StreamsError(str(error)) from error


@contextmanager
def streams_errors() -> Iterator[None]:
    """Raise the errors of a connection as errors of the streams runtime: those that end a stream thread."""
    try:
        yield
    except LoginFailedError as error:
        raise AuthenticationFailedError(str(error)) from error
    except UnsupportedRequestError as error:
        raise VersionsApartError(str(error)) from error
