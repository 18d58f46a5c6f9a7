"""ACLs: resource patterns, bindings, filters and their validation (Kafka: org.apache.kafka.common.acl, AclApis).

Codes are those of the protocol. A binding has no ANY and no MATCH; a filter may have both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.broker.security.state.hosts import HostError, parse_block
from odradek.broker.security.state.principals import PrincipalError, parse_principal

WILDCARD_RESOURCE: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
UNKNOWN: Final = 0
"""The code of every enumeration for a value that this version does not define."""


class AclCode(IntEnum):
    """A code of the protocol. A code that this version does not define is UNKNOWN (Kafka: `fromCode`)."""

    @classmethod
    def _missing_(cls, value: object) -> AclCode:
        return cls(UNKNOWN)

    __hash__ = int.__hash__
    """Equal numbers have equal hashes. That of Enum is a function in Python, and decisions have codes in their keys."""


class ResourceType(AclCode):
    """What an ACL protects."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(AclCode):
    """How the name of a pattern is compared with the name of a resource."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(AclCode):
    """What a client wants to do with a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermissionType(AclCode):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that an ACL is for."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType


class AccessControlEntry(NamedTuple):
    """One permission of a resource pattern."""

    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType


class AclBinding(NamedTuple):
    """An entry with its resource pattern."""

    pattern: ResourcePattern
    entry: AccessControlEntry


class AclError(ValueError):
    """A binding that CreateAcls rejects with INVALID_REQUEST."""


class ResourcePatternFilter(NamedTuple):
    """Selects resource patterns. None as name selects all names."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType

    def matches(self, pattern: ResourcePattern) -> bool:
        """Whether the filter selects a pattern; with MATCH every pattern that applies to a resource of this name."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type == PatternType.LITERAL:
            return pattern.name in (self.name, WILDCARD_RESOURCE)
        return self.name.startswith(pattern.name)


class AccessControlEntryFilter(NamedTuple):
    """Selects entries. None as principal or host selects all of them; both are compared as texts."""

    principal: str | None
    host: str | None
    operation: AclOperation
    permission_type: AclPermissionType

    def matches(self, entry: AccessControlEntry) -> bool:
        """Whether the filter selects an entry; ALL selects only entries for ALL, ANY selects every entry."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission_type in (AclPermissionType.ANY, entry.permission_type)
        )


class AclBindingFilter(NamedTuple):
    """Selects bindings, for DescribeAcls and DeleteAcls."""

    pattern: ResourcePatternFilter
    entry: AccessControlEntryFilter

    def matches(self, binding: AclBinding) -> bool:
        """Whether the filter selects a binding."""
        return self.pattern.matches(binding.pattern) and self.entry.matches(binding.entry)


def is_of_filter(binding: AclBinding) -> bool:
    """Whether a binding has a part that only a filter may have; Kafka's classes cannot represent it as a binding."""
    (resource_type, _, pattern_type), (_, _, operation, permission_type) = binding
    return (
        resource_type == ResourceType.ANY
        or pattern_type in (PatternType.ANY, PatternType.MATCH)
        or operation == AclOperation.ANY
        or permission_type == AclPermissionType.ANY
    )


def validate_binding(binding: AclBinding) -> None:
    """Reject a binding that Kafka does not store. Raises AclError.

    Kafka: AclApis.handleCreateAcls, then AclAuthorizer.validateAclBinding. A name with a slash cannot be a znode.
    """
    (resource_type, name, pattern_type), (principal, host, operation, permission_type) = binding
    if resource_type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise AclError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise AclError("Invalid empty resource name")
    if UNKNOWN in (resource_type, pattern_type, operation, permission_type):
        raise AclError("ACL binding contains unknown elements")
    if resource_type == ResourceType.ANY or pattern_type in (PatternType.ANY, PatternType.MATCH):
        raise AclError("ACL binding contains a resource pattern of a filter")
    if operation == AclOperation.ANY or permission_type == AclPermissionType.ANY:
        raise AclError("ACL binding contains an entry of a filter")
    if "/" in name:
        raise AclError(f"ACL binding contains invalid resource name: {name}")
    try:
        parse_principal(principal)
        parse_block(host)
    except (PrincipalError, HostError) as error:
        raise AclError(str(error)) from error


class AclDeletion(NamedTuple):
    """The outcome of DeleteAcls: the entries that each changed pattern keeps, and what each filter deleted.

    A pattern that keeps no entries has an empty tuple: its znode is deleted.
    """

    remaining: dict[ResourcePattern, tuple[AccessControlEntry, ...]]
    deleted: list[list[AclBinding]]


def delete_matching(
    acls: Mapping[ResourcePattern, Iterable[AccessControlEntry]], filters: Sequence[AclBindingFilter]
) -> AclDeletion:
    """Delete the bindings that one of the filters selects; each belongs to the first filter that does.

    All other entries of a pattern remain (CVE-2024-27309).
    """
    result = AclDeletion({}, [[] for _ in filters])
    for pattern, entries in acls.items():
        candidates = [(number, each.entry) for number, each in enumerate(filters) if each.pattern.matches(pattern)]
        remaining, changed = [], False
        for entry in entries if candidates else ():
            number = next((number for number, each in candidates if each.matches(entry)), None)
            if number is None:
                remaining.append(entry)
            else:
                result.deleted[number].append(AclBinding(pattern, entry))
                changed = True
        if changed:
            result.remaining[pattern] = tuple(remaining)
    return result
