"""Conversions of keys and values between a connector and Kafka (Kafka Connect: Converter)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.streams.serdes import JSON, Serde

Convert = Callable[[Any, str], Any]
"""Converts a key or a value of the topic that is given by name."""


def serializer(serde: Serde[Any] | None, is_key: bool) -> Convert:
    """To bytes: by the serde, where there is one; else text as UTF-8, and what is neither text nor bytes as JSON."""

    def convert(value: Any, topic: str) -> bytes | None:
        if value is None or (serde is None and isinstance(value, bytes)):
            return value
        if serde is not None:
            return serde.for_topic(topic, is_key).serialize(value)
        return value.encode() if isinstance(value, str) else JSON.serialize(value)

    return convert


def deserializer(serde: Serde[Any] | None, is_key: bool) -> Convert:
    """From bytes: by the serde; without one they stay bytes."""

    def convert(data: bytes | None, topic: str) -> Any:
        return data if data is None or serde is None else serde.for_topic(topic, is_key).deserialize(data)

    return convert
