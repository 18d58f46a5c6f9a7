"""The file of `--command-config`: the properties with which a command connects to brokers (Kafka: CommandConfig of the
tools).

    security.protocol=SSL
    ssl.truststore.location=/etc/kafka/ca.pem
    ssl.truststore.type=PEM

The names are those of Kafka's clients, so one file serves Kafka's tools and these commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ssl

PROTOCOLS: Final = ("PLAINTEXT", "SSL")


class CommandConfigError(ValueError):
    """A file from which no connection can be made."""


def tls_of(path: Path | None) -> ssl.SSLContext | None:
    """The TLS context of a file's properties; None without a file, and for PLAINTEXT. Raises CommandConfigError."""
    if path is None:
        return None
    from odradek.broker.config.properties import parse_properties  # imported late: few commands get a file

    try:
        properties = parse_properties(path.read_bytes())
    except OSError as error:
        raise CommandConfigError(f"--command-config {path}: {error.strerror}") from error
    protocol = properties.get("security.protocol", PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise CommandConfigError(
            f"--command-config {path}: security.protocol={protocol}; allowed: {', '.join(PROTOCOLS)}"
        )
    return _context(path, properties) if protocol == "SSL" else None


def _context(path: Path, properties: dict[str, str]) -> ssl.SSLContext:
    from odradek.broker.config.definitions import BROKER_PROPERTIES
    from odradek.broker.config.types import ConfigError, read_value
    from odradek.broker.security.tls import TlsError, client_context
    from odradek.broker.security.tls_settings import tls_settings

    def value(name: str) -> Any:
        row, text = BROKER_PROPERTIES[name], properties.get(name)
        return row.default if text is None else read_value(row, text)

    try:
        return client_context(tls_settings(value))
    except (TlsError, ConfigError) as error:
        raise CommandConfigError(f"--command-config {path}: {error}") from error
