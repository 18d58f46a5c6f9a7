"""Properties of these clients: those of librdkafka that they apply, with the same names and defaults.

A property that is not among them is an error, as it is for librdkafka.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from odradek.protocol.client.errors import SecurityConfigError
from odradek.protocol.client.security import APPLIED, ConnectionSecurity
from odradek.protocol.compression import Codec
from odradek.streams.clients.consumer import ConsumerSettings
from odradek.streams.clients.fetch_state import BEGINNING, END
from odradek.streams.clients.fetcher import FetchLimits
from odradek.streams.clients.network import NetworkSettings
from odradek.streams.clients.producer import ProducerSettings
from odradek.streams.clients.sender import SenderSettings
from odradek.streams.errors import StreamsError
from odradek.streams.group.connection import parse_bootstrap

_COMMON: Final[Mapping[str, Any]] = {
    "bootstrap.servers": None,
    "client.id": "odradek",
    "connections.max.idle.ms": 0,
    "metadata.max.age.ms": 900_000,
    "metadata.recovery.strategy": "rebootstrap",
    "reconnect.backoff.max.ms": 1_000,
    "reconnect.backoff.ms": 100,
    "retry.backoff.ms": 100,
    "socket.connection.setup.timeout.ms": 30_000,
    "socket.receive.buffer.bytes": 0,
    "socket.send.buffer.bytes": 0,
    "socket.timeout.ms": 60_000,
    "topic.metadata.refresh.interval.ms": 300_000,
}
_CONSUMER: Final[Mapping[str, Any]] = {
    **_COMMON,
    "auto.offset.reset": "largest",
    "client.rack": "",
    "enable.partition.eof": False,
    "fetch.error.backoff.ms": 100,
    "fetch.max.bytes": 8 << 20,
    "fetch.message.max.bytes": 1 << 20,
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,
    "isolation.level": "read_committed",
    "queued.max.messages.kbytes": 65_536,
}
_PRODUCER: Final[Mapping[str, Any]] = {
    **_COMMON,
    "acks": "all",
    "batch.size": 1_000_000,
    "compression.level": -1,
    "compression.type": "none",
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.max.bytes": 1_000_000,
    "message.timeout.ms": 300_000,
    "partitioner": "murmur2_random",
    "queue.buffering.max.kbytes": 1_048_576,
    "queue.buffering.max.messages": 100_000,
    "request.timeout.ms": 30_000,
    "topic.metadata.propagation.max.ms": 30_000,
    "transaction.timeout.ms": 60_000,
    "transactional.id": None,
}
_IGNORED: Final = frozenset(
    {
        "enable.auto.commit",
        "enable.auto.offset.store",
        "error_cb",
        "fetch.queue.backoff.ms",
        "group.id",
        "logger",
        "delivery.report.only.error",
        "on_delivery",
    }
)
"""Properties that the runtime sets for librdkafka and that mean nothing here."""
_ALIASES: Final[Mapping[str, str]] = {
    "compression.codec": "compression.type",
    "delivery.timeout.ms": "message.timeout.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "metadata.broker.list": "bootstrap.servers",
}
_RESETS: Final[Mapping[str, int | None]] = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), END),
    "error": None,
}
_REQUEST_BYTES: Final = 4 << 20
"""The batches of one request, about."""
_ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
_TRUTH: Final = {"true": True, "false": False, "1": True, "0": False}


class PropertyError(ValueError):
    """A property is unknown, or its value is not allowed."""


class Properties:
    """The properties of one client, with defaults."""

    def __init__(self, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """`known` are the names with their defaults. Raises PropertyError."""
        self._values = dict(known)
        self.security = {}
        for name, value in given.items():
            name = _ALIASES.get(name, name)
            if name in APPLIED:
                self.security[name] = value
            elif name in known:
                self._values[name] = value
            elif name not in _IGNORED:
                raise PropertyError(f"No such configuration property: {name!r} (client.implementation=odradek)")

    def text(self, name: str) -> str:
        """A text."""
        return str(self._values[name])

    def optional(self, name: str) -> str | None:
        """A text, or None."""
        return None if self._values[name] is None else self.text(name)

    def number(self, name: str, least: int = 0) -> int:
        """A whole number of at least `least`. Raises PropertyError."""
        try:
            number = int(self._values[name])
        except (TypeError, ValueError):
            number = least - 1
        if number < least:
            raise PropertyError(f"{name}={self._values[name]!r} is not a number of at least {least}")
        return number

    def seconds(self, name: str) -> float:
        """A number of ms in seconds. Raises PropertyError."""
        return self.number(name) / 1000

    def truth(self, name: str) -> bool:
        """True or false. Raises PropertyError."""
        return bool(self.one_of(name, _TRUTH))

    def one_of(self, name: str, allowed: Mapping[str, Any]) -> Any:
        """What a word stands for. Raises PropertyError."""
        word = str(self._values[name]).lower()
        if word not in allowed:
            raise PropertyError(f"{name}={self._values[name]!r}; allowed: {', '.join(allowed)}")
        return allowed[word]

    def network(self) -> NetworkSettings:
        """Properties of connections. Raises PropertyError."""
        try:
            bootstrap = parse_bootstrap(self._values["bootstrap.servers"])
            security = ConnectionSecurity.of(self.security)
        except (StreamsError, SecurityConfigError) as error:
            raise PropertyError(str(error)) from error
        return NetworkSettings(
            bootstrap,
            self.text("client.id"),
            security,
            request_timeout_s=self.seconds("socket.timeout.ms"),
            setup_timeout_s=self.seconds("socket.connection.setup.timeout.ms"),
            backoff_s=self.seconds("reconnect.backoff.ms"),
            backoff_max_s=self.seconds("reconnect.backoff.max.ms"),
            max_idle_s=self.seconds("connections.max.idle.ms"),
            send_buffer=self.number("socket.send.buffer.bytes"),
            receive_buffer=self.number("socket.receive.buffer.bytes"),
        )


def consumer_settings(given: Mapping[str, Any]) -> ConsumerSettings:
    """The settings of a consumer from its properties. Raises PropertyError."""
    properties = Properties(given, _CONSUMER)
    partition_bytes = properties.number("fetch.message.max.bytes", 1)
    return ConsumerSettings(
        properties.network(),
        FetchLimits(
            wait_ms=properties.number("fetch.wait.max.ms"),
            min_bytes=properties.number("fetch.min.bytes", 1),
            response_bytes=max(partition_bytes, properties.number("fetch.max.bytes")),
            partition_bytes=partition_bytes,
            queued_bytes=properties.number("queued.max.messages.kbytes", 1) << 10,
            isolation=properties.one_of("isolation.level", _ISOLATION),
            rack=properties.text("client.rack"),
            backoff_s=properties.seconds("fetch.error.backoff.ms"),
        ),
        metadata_age_s=properties.seconds("topic.metadata.refresh.interval.ms"),
        partition_eof=properties.truth("enable.partition.eof"),
        reset=properties.one_of("auto.offset.reset", _RESETS),
    )


def producer_settings(given: Mapping[str, Any]) -> ProducerSettings:
    """The settings of a producer from its properties. Raises PropertyError."""
    properties = Properties(given, _PRODUCER)
    properties.one_of("acks", {"all": -1, "-1": -1})
    properties.one_of("enable.idempotence", {"true": True})
    properties.one_of("partitioner", {"murmur2_random": None})
    transactional_id = properties.optional("transactional.id")
    transaction_timeout_ms = properties.number("transaction.timeout.ms", 1)
    delivery_timeout_s = properties.seconds("message.timeout.ms")
    if transactional_id is not None:
        delivery_timeout_s = min(delivery_timeout_s or math.inf, transaction_timeout_ms / 1000)
    level = properties.number("compression.level", -1)
    return ProducerSettings(
        properties.network(),
        SenderSettings(
            request_bytes=max(_REQUEST_BYTES, properties.number("batch.size", 1)),
            timeout_ms=properties.number("request.timeout.ms", 1),
            delivery_timeout_s=delivery_timeout_s or math.inf,
            backoff_s=properties.seconds("retry.backoff.ms"),
            codec=properties.one_of("compression.type", {each.name.lower(): int(each) for each in Codec}),
            level=None if level < 0 else level,
        ),
        metadata_age_s=properties.seconds("topic.metadata.refresh.interval.ms"),
        missing_topic_s=properties.seconds("topic.metadata.propagation.max.ms"),
        linger_s=properties.seconds("linger.ms"),
        batch_bytes=min(properties.number("batch.size", 1), properties.number("message.max.bytes", 1)),
        record_bytes=properties.number("message.max.bytes", 1),
        most_bytes=properties.number("queue.buffering.max.kbytes", 1) << 10,
        most_records=properties.number("queue.buffering.max.messages", 1),
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
    )
