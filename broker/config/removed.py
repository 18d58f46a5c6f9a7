"""Address configs that Kafka removed in 3.0: `host.name`, `port`, `advertised.host.name`, `advertised.port`.

Kafka 3.9 ignores them and listens on port 9092 of all interfaces instead. Odradek refuses to start with a config that
was effective for the address in Kafka 2.8, and the error contains its replacement: the broker must not silently use
another address than the file contains. Where the replacement is set as well, it is effective, in Kafka 2.8 too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LISTEN: Final = ("host.name", "port")
ADVERTISE: Final = ("advertised.host.name", "advertised.port")
REPLACED_BY: Final = {
    **dict.fromkeys(LISTEN, "listeners"),
    **dict.fromkeys(ADVERTISE, "advertised.listeners"),
}
DEFAULT_PORT: Final = "9092"


def refusal(static: Mapping[str, str]) -> str:
    """Why a broker must not start with the configs of its file and command line; empty if it may."""
    decisive = [name for name, replacement in REPLACED_BY.items() if name in static and replacement not in static]
    if not decisive:
        return ""
    address = f"{_host(static, 'host.name')}:{static.get('port', '').strip() or DEFAULT_PORT}"
    instead = []
    if any(name in LISTEN for name in decisive):
        instead.append(f"listeners=PLAINTEXT://{address}")
    if any(name in ADVERTISE for name in decisive):
        host = _host(static, "advertised.host.name") or _host(static, "host.name") or "HOST"
        port = static.get("advertised.port", "").strip() or address.rpartition(":")[2]
        instead.append(f"advertised.listeners=PLAINTEXT://{host}:{port}")
    given = ", ".join(f"{name}={static[name]}" for name in decisive)
    return (
        f"{given}: removed in Kafka 3.0, which ignores {'it' if len(decisive) == 1 else 'them'}; "
        f"set {' and '.join(instead)} instead"
    )


def _host(static: Mapping[str, str], name: str) -> str:
    host = static.get(name, "").strip()
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
