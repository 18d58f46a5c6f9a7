"""Authorizer: decides whether a principal may perform an operation on a resource (Kafka: AclAuthorizer).

A DENY that matches wins over every ALLOW. READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies
DESCRIBE_CONFIGS, but only when they are allowed: a DENY of READ does not deny DESCRIBE. Super users pass without a look
at the ACLs. `allow.everyone.if.no.acl.found` applies to resources that no ACL of any principal matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.broker.security.state.acl_cache import AclCache
from odradek.broker.security.state.acls import (
    WILDCARD_RESOURCE,
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.broker.security.state.hosts import host_matches
from odradek.broker.security.state.principals import WILDCARD, KafkaPrincipal

IMPLYING: Final[dict[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
}
"""The operations that allow another operation."""
NOTHING_DECIDED: Final[Mapping[str, bool]] = MappingProxyType({})
MOST_DECISIONS: Final = 65_536
"""Cached decisions of all principals; at the limit the cache starts anew."""

Decisions = dict[str, bool]
_Client = tuple[KafkaPrincipal, str, AclOperation, ResourceType]


class AclAuthorizer:
    """The decisions over one ACL cache, each computed once until an ACL changes.

    `host` is the client's address in Java's form (`hosts.host_address`).
    """

    def __init__(
        self, super_users: frozenset[KafkaPrincipal] = frozenset(), allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self.cache = AclCache()
        self._super_users = super_users
        self._allow_everyone = allow_everyone_if_no_acl_found
        self._decisions: dict[_Client, Decisions] = {}
        self._cached = 0

    def update(self, pattern: ResourcePattern, entries: tuple[AccessControlEntry, ...]) -> None:
        """Replace the entries of a pattern.

        The decisions of all principals end: with allow.everyone.if.no.acl.found an ACL of one principal changes the
        decisions of the others.
        """
        self.cache.update(pattern, entries)
        self._forget()

    def _forget(self) -> None:
        self._decisions.clear()
        self._cached = 0

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the principal may perform the operation on the resource of this literal name."""
        decisions = self._decisions.get((principal, host, operation, resource_type))
        decision = None if decisions is None else decisions.get(name)
        if decision is None:
            decision = principal in self._super_users or self._decide(principal, host, operation, resource_type, name)
            if self._cached >= MOST_DECISIONS:
                self._forget()
            self._decisions.setdefault((principal, host, operation, resource_type), {})[name] = decision
            self._cached += 1
        return decision

    def decided(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> Mapping[str, bool]:
        """The cached decisions of `authorize` by name; valid until an ACL changes, so only within one request."""
        return self._decisions.get((principal, host, operation, resource_type), NOTHING_DECIDED)

    def _decide(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        patterns = self.cache.patterns_of(resource_type, name)
        if not patterns:
            return self._allow_everyone
        allowing = (AclOperation.ALL, *IMPLYING.get(operation, (operation,)))
        allowed = False
        for pattern in patterns:
            for entry in self.cache.entries_of(pattern, _texts(principal)):
                if not host_matches(entry.host, host):
                    continue
                if entry.permission_type == AclPermissionType.ALLOW:
                    allowed = allowed or entry.operation in allowing
                elif entry.operation in (operation, AclOperation.ALL):
                    return False
        return allowed

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there is any resource of the type on which the principal may perform the operation (KIP-679).

        Implied operations do not count here, as in Kafka.
        """
        if principal in self._super_users:
            return True

        def names_of(permission_type: AclPermissionType, pattern_type: PatternType) -> list[set[str]]:
            return self.cache.names_of(resource_type, pattern_type, permission_type, _texts(principal), host, operation)

        denied = names_of(AclPermissionType.DENY, PatternType.LITERAL)
        if any(WILDCARD_RESOURCE in names for names in denied):
            return False
        if self._allow_everyone:
            return True
        denied_prefixes = names_of(AclPermissionType.DENY, PatternType.PREFIXED)
        for names in names_of(AclPermissionType.ALLOW, PatternType.PREFIXED):
            if any(not _has_prefix(name, denied_prefixes) for name in names):
                return True
        for names in names_of(AclPermissionType.ALLOW, PatternType.LITERAL):
            for name in names:
                if name == WILDCARD_RESOURCE:
                    return True
                if not any(name in others for others in denied) and not _has_prefix(name, denied_prefixes):
                    return True
        return False


def _texts(principal: KafkaPrincipal) -> tuple[str, ...]:
    """The principals of the entries that apply to a principal."""
    return (str(principal),) if principal == WILDCARD else (str(principal), str(WILDCARD))


def _has_prefix(name: str, prefixes: list[set[str]]) -> bool:
    """Whether one of the prefixes, sets of names, is a prefix of the name."""
    return any(name[:length] in names for names in prefixes for length in range(len(name) + 1))
