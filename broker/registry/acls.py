"""Access lists of znodes: expands and checks them (ZooKeeper: PrepRequestProcessor.fixupACL, ZooKeeperServer.checkACL).

A client has one identity by its address and one more by each authentication. Schemes: `world` is every client, `ip` an
address or a network, `digest` a user and the hash of its password, `sasl` a user that authenticated by SASL, and `auth`
the identities of the client that sends the list. A list of another scheme (`x509`) is stored if ZooKeeper wrote it, and
matches no client.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from enum import IntFlag
from typing import Final, NamedTuple, TypeAlias

from odradek.broker.registry.interface import OPEN_ACL, Acl, InvalidAclError, NoAuthError

WORLD: Final = "world"
ANYONE: Final = "anyone"
IP: Final = "ip"
DIGEST: Final = "digest"
SASL: Final = "sasl"
AUTH: Final = "auth"


class Permission(IntFlag):
    """The bits of `Acl.permissions` (ZooDefs.Perms)."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16


class ClientIdentity(NamedTuple):
    """One identity of a client."""

    scheme: str
    name: str


Identities: TypeAlias = tuple[ClientIdentity, ...]


def digest_name(credentials: str) -> str:
    """The name in an access list of scheme `digest` for USER:PASSWORD (DigestAuthenticationProvider.generateDigest)."""
    hashed = hashlib.sha1(credentials.encode(errors="replace"), usedforsecurity=False).digest()
    return f"{credentials.partition(':')[0]}:{base64.b64encode(hashed).decode()}"


def expand_acl(path: str, asked: Sequence[Acl], identities: Identities | None) -> tuple[Acl, ...]:
    """The access list to store: without duplicates, with the identities of the client in place of `auth`.

    Raises InvalidAclError if it is empty, has an unknown scheme, or has `auth` of a client that has not authenticated.
    """
    expanded: list[Acl] = []
    for entry in dict.fromkeys(asked):
        if entry.scheme == AUTH:
            creators = [each for each in identities or () if each.scheme != IP]
            if not creators:
                raise InvalidAclError(path, "the access list is for the creator, which has not authenticated")
            expanded += [Acl(entry.permissions, *each) for each in creators]
        elif _is_valid(entry):
            expanded.append(entry)
        else:
            raise InvalidAclError(path, f"the access list has the entry {entry.scheme}, which is invalid")
    if not expanded:
        raise InvalidAclError(path, "the access list is empty")
    return tuple(expanded)


def check_permission(
    path: str, acl: tuple[Acl, ...], permission: Permission | int, identities: Identities | None
) -> None:
    """Raise NoAuthError unless one of the identities has one of the permissions. None has all of them."""
    if identities is not None and acl is not OPEN_ACL and not _is_permitted(acl, permission, identities):
        raise NoAuthError(path, "its access list does not permit this")


def hide_digests(acl: Iterable[Acl]) -> tuple[Acl, ...]:
    """The list as a client without the permission ADMIN receives it: with no hashes of passwords."""
    return tuple(
        entry._replace(name=f"{entry.name.partition(':')[0]}:x") if entry.scheme == DIGEST else entry for entry in acl
    )


def _is_permitted(acl: tuple[Acl, ...], permission: int, identities: Identities) -> bool:
    for permissions, scheme, name in acl:
        if not permissions & permission:
            continue
        if scheme == WORLD and name == ANYONE:
            return True
        if any(each.scheme == scheme and _matches(each, name) for each in identities):
            return True
    return not acl


def _matches(identity: ClientIdentity, name: str) -> bool:
    if identity.scheme != IP:
        return identity.name == name
    try:
        return ipaddress.ip_address(identity.name) in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return False


def _is_valid(entry: Acl) -> bool:
    match entry.scheme:
        case "world":
            return entry.name == ANYONE
        case "digest":
            return entry.name.rstrip(":").count(":") == 1  # Java's split drops empty parts at the end
        case "sasl":
            return True
        case "ip":
            try:
                ipaddress.ip_network(entry.name, strict=False)
            except ValueError:
                return False
            return True
        case _:
            return False
