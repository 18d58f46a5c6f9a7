"""The client of `odradek produce` and `consume`: confluent-kafka (librdkafka), imported when one of them runs."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from odradek.commands.session import fail
from odradek.records.consumed import ConsumedRecord

if TYPE_CHECKING:
    import confluent_kafka


def imported_client() -> ModuleType:
    """The package. Raises CommandFailure where it is not installed."""
    try:
        import confluent_kafka
    except ImportError:
        fail("records need the package confluent-kafka: the extra `records`")
    return confluent_kafka


def record_of(message: confluent_kafka.Message) -> ConsumedRecord:
    """A record from librdkafka's message."""
    kind, timestamp = message.timestamp()
    headers: Any = message.headers()
    return ConsumedRecord(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp if kind else -1,
        _bytes(message.key()),
        _bytes(message.value()),
        tuple([(name, _bytes(value)) for name, value in headers]) if headers else (),
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
