"""Hosts of ACLs: client addresses in Java's form, and CIDR blocks (KIP-1276).

Kafka compares the host of an ACL with `InetAddress.getHostAddress`, which writes an IPv6 address in full: `::1` is
`0:0:0:0:0:0:0:1`, and an ACL for the host `::1` matches no client.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

WILDCARD_HOST: Final = "*"


class HostError(ValueError):
    """A host of an ACL is no valid CIDR block."""


def host_address(address: str) -> str:
    """An address as Java's `InetAddress.getHostAddress` writes it. Raises ValueError if it is none."""
    parsed = ip_address(address)
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = ":".join(f"{int(group, 16):x}" for group in parsed.exploded.partition("%")[0].split(":"))
    return f"{groups}%{parsed.scope_id}" if parsed.scope_id else groups


def parse_block(host: str) -> IPv4Network | IPv6Network | None:
    """The CIDR block that a host of an ACL denotes; None for other hosts, which match by equality.

    Bits behind the prefix are ignored: `10.1.2.3/8` is `10.0.0.0/8`. Raises HostError for a slash without a valid
    address before it or a valid prefix length behind it; a netmask as length is not allowed.
    """
    address, slash, length = host.partition("/")
    if not slash:
        return None
    if not (length.isascii() and length.isdecimal()):
        raise HostError(f"Invalid CIDR host {host}: the prefix length is not a number")
    try:
        return ip_network((address, int(length)), strict=False)
    except ValueError as error:
        raise HostError(f"Invalid CIDR host {host}: {error}") from error


def host_matches(pattern: str, host: str) -> bool:
    """Whether the host of an ACL covers a client's address (in Java's form)."""
    if pattern in (WILDCARD_HOST, host):
        return True
    return "/" in pattern and _is_in_block(pattern, host)


def _is_in_block(pattern: str, host: str) -> bool:
    block, address = _block(pattern), _address(host)
    return block is not None and address is not None and address.version == block.version and address in block


@lru_cache(maxsize=4096)
def _block(pattern: str) -> IPv4Network | IPv6Network | None:
    """The block; None where it is invalid: an ACL that an older broker stored matches nothing then."""
    try:
        return parse_block(pattern)
    except HostError:
        return None


@lru_cache(maxsize=4096)
def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
