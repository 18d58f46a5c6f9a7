"""What `odradek console` was started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from odradek.console.record_schemas import RecordSchemas
from odradek.console.sampler import INTERVAL_S
from odradek.metrics_source import MetricsSource

PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKENS: Final = "OAUTHBEARER"
MECHANISMS: Final = (*PASSWORD_MECHANISMS, TOKENS)
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """`properties` are those of a Kafka client, by Java's or librdkafka's names."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    hosts: frozenset[str] = frozenset()
    """Names beside localhost and `host` by which browsers reach the console."""
    allow_changes: bool = False
    data_dirs: tuple[Path, ...] = ()
    metrics: tuple[MetricsSource, ...] = ()
    interval_s: float = INTERVAL_S
    schemas: RecordSchemas | None = None
    """What decodes keys and values, for all users."""
    streams: tuple[str, ...] = ()
    """Addresses of stream applications."""

    @property
    def requires_login(self) -> bool:
        """Whether the cluster authenticates its users with SASL: each user of the console then logs in to it."""
        return self.properties.get("security.protocol", "").upper().startswith("SASL")

    @property
    def mechanism(self) -> str:
        """The SASL mechanism of logins."""
        return self.properties.get("sasl.mechanism", self.properties.get("sasl.mechanisms", "")).upper()

    @property
    def has_token_endpoint(self) -> bool:
        """Whether users with client credentials can get tokens."""
        return self.mechanism == TOKENS and bool(self.properties.get(_ENDPOINT))
