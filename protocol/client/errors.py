"""Errors of a client's connections that are neither of the network (OSError) nor of the bytes (ProtocolError)."""

from __future__ import annotations


class ClientError(Exception):
    """A connection that repeating the attempt does not make usable."""


class SecurityConfigError(ClientError):
    """Properties from which no secured connection can be made (Kafka: ConfigException)."""


class LoginFailedError(ClientError):
    """The broker rejects the login, or its certificate is not trusted (Kafka: AuthenticationException)."""


class UnsupportedRequestError(ClientError):
    """The broker and this client support no common version of a request (Kafka: UnsupportedVersionException)."""
