"""Errors of connectors: which the runner retries, which end a session, and which end the connector (Kafka:
ConnectException and its subclasses).
"""

from __future__ import annotations

from odradek.streams.errors import StreamsError


class ConnectError(StreamsError):
    """An error that ends the connector (ConnectException); the message contains where it occurred."""


class RetriableError(ConnectError):
    """An error that may pass: the other system is away or slow (RetriableException).

    A connector raises it from `poll`, `put` or `flush`; the runner calls the method again after a pause, for
    errors.retry.timeout at most.
    """


class FencedError(ConnectError):
    """Another process has taken over: it has written records of the same partitions. The runner begins a new session,
    at the offsets that are stored then.
    """


class StoppedError(ConnectError):
    """The runner was stopped while it waited for the next attempt."""
