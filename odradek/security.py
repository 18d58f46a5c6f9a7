"""Security of a broker or cluster under test, as Python data: protocols, users and ACLs.

    Security("tls+scram", users={"alice": "secret"}, acls=[allow("alice", read="orders", group="billing")])

The pytest plugin takes it as `security=`; the text alone is enough where the default users do ("alice" and "bob", with
every right). `cluster_security` makes properties, certificates and client configurations of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Final, TypeAlias

from odradek.broker.security.state.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

MECHANISMS: Final[Mapping[str, tuple[str, ...]]] = {
    "plain": ("PLAIN",),
    "scram": ("SCRAM-SHA-512", "SCRAM-SHA-256"),
    "oauth": ("OAUTHBEARER",),
}
"""The words that stand for SASL, and their mechanisms; a client takes the first."""
TLS: Final = "tls"
MTLS: Final = "mtls"
DEFAULT_USERS: Final = ("alice", "bob")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""A name of a file, an option of JAAS and the common name of a certificate."""

Names: TypeAlias = str | Sequence[str]


def allow(
    user: str,
    *,
    read: Names = (),
    write: Names = (),
    create: Names = (),
    delete: Names = (),
    describe: Names = (),
    topic: Names = (),
    group: Names = (),
    transactional_id: Names = (),
    cluster: bool = False,
) -> tuple[AclBinding, ...]:
    """ACLs that allow `user` ("*" for all) to use these resources.

    `read`, `write`, `create`, `delete` and `describe` are topics; `topic` are topics for every operation. `group` are
    groups to read and commit with, `transactional_id` transactions, `cluster` every operation on the cluster. A name
    that ends in * is a prefix.
    """
    topics = {
        AclOperation.READ: read,
        AclOperation.WRITE: write,
        AclOperation.CREATE: create,
        AclOperation.DELETE: delete,
        AclOperation.DESCRIBE: describe,
        AclOperation.ALL: topic,
    }
    return _rules(AclPermissionType.ALLOW, user, topics, group, transactional_id, cluster=cluster)


def deny(
    user: str,
    *,
    read: Names = (),
    write: Names = (),
    create: Names = (),
    delete: Names = (),
    describe: Names = (),
    topic: Names = (),
    group: Names = (),
    transactional_id: Names = (),
    cluster: bool = False,
) -> tuple[AclBinding, ...]:
    """ACLs that deny it, with the arguments of `allow`. They override every `allow`."""
    topics = {
        AclOperation.READ: read,
        AclOperation.WRITE: write,
        AclOperation.CREATE: create,
        AclOperation.DELETE: delete,
        AclOperation.DESCRIBE: describe,
        AclOperation.ALL: topic,
    }
    return _rules(AclPermissionType.DENY, user, topics, group, transactional_id, cluster=cluster)


def everything(user: str, permission: AclPermissionType) -> tuple[AclBinding, ...]:
    """ACLs for every operation on every resource."""
    return _rules(permission, user, {AclOperation.ALL: "*"}, "*", "*", cluster=True)


def _rules(
    permission: AclPermissionType,
    user: str,
    topics: Mapping[AclOperation, Names],
    group: Names,
    transactional_id: Names,
    *,
    cluster: bool,
) -> tuple[AclBinding, ...]:
    wanted = [(ResourceType.TOPIC, operation, name) for operation, names in topics.items() for name in _each(names)]
    wanted += [(ResourceType.GROUP, AclOperation.ALL, name) for name in _each(group)]
    wanted += [(ResourceType.TRANSACTIONAL_ID, AclOperation.ALL, name) for name in _each(transactional_id)]
    wanted += [(ResourceType.CLUSTER, AclOperation.ALL, CLUSTER_NAME)] if cluster else []
    if not wanted:
        raise ValueError(f"the rule for {user} names no resource: add read=, write=, topic=, group= or another")
    rules = []
    for resource_type, operation, name in wanted:
        is_prefix = name.endswith("*") and name != "*"
        pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
        resource = ResourcePattern(resource_type, name[:-1] if is_prefix else name, pattern)
        rules.append(AclBinding(resource, AccessControlEntry(f"User:{user}", "*", operation, permission)))
    return tuple(rules)


def _each(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


@dataclass(frozen=True, slots=True)
class Security:
    """What protects a broker or cluster.

    `kind` joins words with "+": "tls" or "mtls" (client certificates), and any of "plain", "scram" and "oauth".
    `users` are names with passwords, or names alone, which get random passwords; a user of "mtls" has a certificate,
    one of "oauth" gets tokens. Without `acls` every user may do everything; with them, only what they allow.
    """

    kind: str
    users: Mapping[str, str] | Iterable[str] = DEFAULT_USERS
    acls: Sequence[Sequence[AclBinding]] | None = None
    passwords: Mapping[str, str] = field(init=False, repr=False)
    """The passwords by user."""

    def __post_init__(self) -> None:
        unknown = [word for word in self._words if word not in {TLS, MTLS, *MECHANISMS}]
        if unknown or len(set(self._words)) != len(self._words):
            allowed = ", ".join((TLS, MTLS, *MECHANISMS))
            raise ValueError(f"security {self.kind!r}: allowed are {allowed}, each once, joined by +")
        given = self.users
        passwords = dict(given) if isinstance(given, Mapping) else {name: token_urlsafe(18) for name in given}
        for name in passwords:
            if not _USER.fullmatch(name):
                raise ValueError(f"user {name!r}: allowed are letters, digits, '.', '_' and '-'")
        object.__setattr__(self, "users", tuple(passwords))
        object.__setattr__(self, "passwords", passwords)

    @property
    def _words(self) -> list[str]:
        return self.kind.split("+")

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return TLS in self._words or self.requires_certificate

    @property
    def requires_certificate(self) -> bool:
        """Whether a client needs a certificate."""
        return MTLS in self._words

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The enabled SASL mechanisms; the first is the default of a client."""
        return tuple(name for word in self._words for name in MECHANISMS.get(word, ()))

    @property
    def protocol(self) -> str:
        """Kafka's security protocol of the clients' listener."""
        return ("SASL_" if self.mechanisms else "") + ("SSL" if self.has_tls else "PLAINTEXT")

    @property
    def rules(self) -> tuple[AclBinding, ...]:
        """The ACLs that the cluster starts with."""
        if self.acls is None:
            return everything("*", AclPermissionType.ALLOW)
        return tuple(rule for group in self.acls for rule in group)
