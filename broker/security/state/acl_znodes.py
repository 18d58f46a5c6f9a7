"""ACL znodes: bindings as Kafka 3.9 stores them in ZooKeeper (Kafka: ZkAclStore, AclEntry, ZkAclChangeStore).

    /kafka-acl/TYPE/NAME, /kafka-acl-extended/prefixed/TYPE/NAME      the entries of a pattern, "Topic" and "Read"
    /kafka-acl-changes/acl_changes_N, /kafka-acl-extended-changes/…   a pattern whose entries changed, "TOPIC"

`registry.znodes` has the JSON; this module has the words in it. Kafka reads a node that is no JSON as a node without
entries. Here it is an error: without its entries a DENY would not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.broker.registry import znodes
from odradek.broker.registry.znodes import ZnodeError
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.broker.security.state.principals import PrincipalError, parse_principal


def _words(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


_TYPE_NAMES: Final[Mapping[ResourceType, str]] = {each: _words(each.name) for each in ResourceType}
_OPERATION_NAMES: Final[Mapping[AclOperation, str]] = {each: _words(each.name) for each in AclOperation}
_PERMISSION_NAMES: Final[Mapping[AclPermissionType, str]] = {each: _words(each.name) for each in AclPermissionType}
# Kafka compares the words without regard to case; a word that it does not define is UNKNOWN and matches nothing.
_OPERATIONS: Final = {name.lower(): each for each, name in _OPERATION_NAMES.items()}
_PERMISSIONS: Final = {name.lower(): each for each, name in _PERMISSION_NAMES.items()}
_TYPES: Final = {name.lower(): each for each, name in _TYPE_NAMES.items()}


def type_name(resource_type: ResourceType) -> str:
    """The word for a type in the paths of ACLs, as "TransactionalId"."""
    return _TYPE_NAMES[resource_type]


def operation_name(operation: AclOperation) -> str:
    """The word for an operation, as "ClusterAction" (Kafka: SecurityUtils.operationName)."""
    return _OPERATION_NAMES[operation]


def parse_type_name(name: str) -> ResourceType:
    """The type of such a word; UNKNOWN for other words, whose nodes a broker ignores."""
    return _TYPES.get(name.lower(), ResourceType.UNKNOWN)


def acl_path(pattern: ResourcePattern) -> str:
    """The node with the entries of a pattern."""
    return znodes.acl_path(type_name(pattern.resource_type), pattern.name, pattern.pattern_type.name)


def encode_entries(entries: Iterable[AccessControlEntry]) -> bytes:
    """The data of a pattern's node."""
    return znodes.encode_acls(
        znodes.AclEntry(
            each.principal, _PERMISSION_NAMES[each.permission_type], each.host, _OPERATION_NAMES[each.operation]
        )
        for each in entries
    )


def decode_entries(data: bytes | None) -> tuple[AccessControlEntry, ...]:
    """The entries of a pattern's node, each once. Raises ZnodeError."""
    entries = []
    for each in znodes.decode_acls(data):
        try:
            principal = str(parse_principal(each.principal))
        except PrincipalError as error:
            raise ZnodeError(f"access rules: {error}") from error
        operation = _OPERATIONS.get(each.operation.lower(), AclOperation.UNKNOWN)
        permission = _PERMISSIONS.get(each.permission_type.lower(), AclPermissionType.UNKNOWN)
        entries.append(AccessControlEntry(principal, each.host, operation, permission))
    return tuple(dict.fromkeys(entries))


def change_prefix(pattern: ResourcePattern) -> str:
    """The path of the sequential node that notifies brokers of a change, without its number."""
    if pattern.pattern_type == PatternType.LITERAL:
        return znodes.ACL_CHANGE_PREFIX
    return znodes.EXTENDED_ACL_CHANGE_PREFIX


def encode_change(pattern: ResourcePattern) -> bytes:
    """The data of that node."""
    return znodes.AclChange(pattern.resource_type.name, pattern.name, pattern.pattern_type.name).encode()


def decode_literal_change(data: bytes | None) -> ResourcePattern:
    """The pattern of a node of /kafka-acl-changes. Raises ZnodeError."""
    return _changed(znodes.AclChange.decode_literal(data))


def decode_extended_change(data: bytes | None) -> ResourcePattern:
    """The pattern of a node of /kafka-acl-extended-changes. Raises ZnodeError for a pattern of a filter."""
    return _changed(znodes.AclChange.decode_extended(data))


def _changed(change: znodes.AclChange) -> ResourcePattern:
    resource_type = ResourceType.__members__.get(change.resource_type.upper(), ResourceType.UNKNOWN)
    pattern_type = PatternType.__members__.get(change.pattern_type, PatternType.UNKNOWN)
    if resource_type == ResourceType.ANY or pattern_type in (PatternType.ANY, PatternType.MATCH):
        raise ZnodeError(f"access rule change: {change.resource_type} {change.pattern_type} is no resource pattern")
    return ResourcePattern(resource_type, change.name, pattern_type)
