"""Endpoints: `listeners`, `advertised.listeners` and the properties that map them (Kafka: EndPoint).

A listener is NAME://host:port. `listener.security.protocol.map` maps the name to a security protocol; a client that
connects to a listener receives the advertised addresses of that same listener (KIP-103). The rules are those of Kafka's
`EndPoint` and `CoreUtils.listenerListToEndPoints`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.broker.config.types import ConfigError, is_digits
from odradek.broker.registry.znodes import Endpoint

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HOST_CHARACTERS: Final = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-%._:")
_PORT_MAX: Final = 65535


def parse_protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: listener name (upper case) -> security protocol. Raises ConfigError."""
    protocols = {}
    for name, protocol in parse_pairs("listener.security.protocol.map", text).items():
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                f"Invalid security protocol {protocol} defined in listener.security.protocol.map. "
                f"Allowed: {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_pairs(property_name: str, text: str) -> dict[str, str]:
    """A list of key:value pairs, separated by commas; the last colon separates key and value. Raises ConfigError."""
    pairs = {}
    for item in filter(None, map(str.strip, text.split(","))):
        key, colon, value = item.rpartition(":")
        if not colon:
            raise ConfigError(f"Invalid value {text} for configuration {property_name}: {item} is no key:value pair")
        pairs[key.strip()] = value.strip()
    return pairs


def parse_listeners(property_name: str, text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """The listeners in `text`, in order; `protocols` comes from `parse_protocol_map`. Raises ConfigError."""
    endpoints = tuple(
        _parse_endpoint(property_name, item, protocols) for item in filter(None, map(str.strip, text.split(",")))
    )
    names = [endpoint.listener for endpoint in endpoints]
    if len(set(names)) < len(names):
        raise ConfigError(f"Each listener must have a different name, {property_name}: {text}")
    return endpoints


def address_of(property_name: str, host: str) -> str:
    """The numeric address of a host in a property. Raises ConfigError if it has none.

    For a host name it calls the system's resolver, and blocks: properties are read rarely.
    """
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"Invalid value {host} for configuration {property_name}: {error}") from error


def require_distinct_ports(endpoints: Iterable[Endpoint], text: str) -> None:
    """Refuse two listeners on one port, except one of IPv4 and one of IPv6 (KIP-797). Raises ConfigError."""
    by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint.host)
    for hosts in by_port.values():
        if len(hosts) > 1 and sorted(map(_address_family, hosts)) != [4, 6]:
            raise ConfigError(
                "Each listener must have a different port unless exactly one listener has an IPv4 address and the "
                f"other IPv6 address, listeners: {text}"
            )


def _parse_endpoint(property_name: str, text: str, protocols: Mapping[str, str]) -> Endpoint:
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    well_formed = name and separator and colon and is_digits(port) and len(port) <= 5 and int(port) <= _PORT_MAX
    if not well_formed or not _HOST_CHARACTERS.issuperset(host):
        raise ConfigError(
            f"Invalid value {text} for configuration {property_name}: Unable to parse {text} to a broker endpoint; "
            f"allowed: NAME://host:port with a port of 0 to {_PORT_MAX}, several with commas between them"
        )
    listener = name.upper()
    if listener not in protocols:
        raise ConfigError(
            f"Invalid value {text} for configuration {property_name}: No security protocol defined for listener "
            f"{listener}; add it to listener.security.protocol.map, which contains {', '.join(protocols)}"
        )
    return Endpoint(listener, host, int(port), protocols[listener])


def _address_family(host: str) -> int:
    """4 or 6 for a numeric address, 0 for a name or for every interface."""
    if ":" in host:
        return 6
    parts = host.split(".")
    return 4 if len(parts) == 4 and all(is_digits(part) and int(part) < 256 for part in parts) else 0
