"""ACLs and users of SASL/SCRAM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.admin import acls, users
from odradek.admin.client import AdminClient
from odradek.admin.users import NewCredential, ScramUser
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from odradek.console.paging import Listing, ListPage, page_of
from odradek.protocol.errors import KafkaError

EVERY_ACL: Final = AclBindingFilter(
    ResourcePatternFilter(ResourceType.ANY, None, PatternType.ANY),
    AccessControlEntryFilter(None, None, AclOperation.ANY, AclPermissionType.ANY),
)
RESOURCES: Final = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
OPERATIONS: Final = tuple(each.name for each in AclOperation if each > AclOperation.ANY)
ITERATIONS: Final = 4096
_OF_FILTERS: Final = ("ANY", "MATCH", "UNKNOWN")
SORTS: Final[Mapping[str, Callable[[AclBinding], str]]] = {
    "principal": lambda row: row.entry.principal,
    "resource": lambda row: f"{row.pattern.resource_type.name} {row.pattern.name}",
    "operation": lambda row: row.entry.operation.name,
    "permission": lambda row: row.entry.permission_type.name,
}


def acl_text(binding: AclBinding) -> str:
    """All parts of an ACL in one line, for a search."""
    pattern, entry = binding
    return (
        f"{entry.principal} {entry.permission_type.name} {entry.operation.name} "
        f"{pattern.resource_type.name} {pattern.name} {pattern.pattern_type.name} {entry.host}"
    )


def acls_page(client: AdminClient, listing: Listing) -> ListPage[AclBinding]:
    """A page of the ACLs. Raises KafkaError, SECURITY_DISABLED where the brokers have no authorizer."""
    return page_of(acls.describe_acls(client, EVERY_ACL), listing, acl_text, SORTS)


def scram_users(client: AdminClient) -> list[ScramUser]:
    """The users with SCRAM credentials, by name. Raises KafkaError."""
    found = users.describe_users(client)
    return sorted((each for each in found.values() if not isinstance(each, KafkaError)), key=lambda each: each.name)


def acl_of(fields: Mapping[str, str]) -> AclBinding:
    """The ACL of a form. Raises KeyError for a name that does not exist, and for those of filters, as ANY: to remove
    one ACL must not remove several.
    """
    names = [fields[name] for name in ("resource_type", "pattern_type", "operation", "permission")]
    wildcard = next((each for each in names if each in _OF_FILTERS), None)
    if wildcard is not None:
        raise KeyError(wildcard)
    pattern = ResourcePattern(
        ResourceType[fields["resource_type"]], fields["resource_name"], PatternType[fields["pattern_type"]]
    )
    entry = AccessControlEntry(
        fields["principal"],
        fields["host"] or "*",
        AclOperation[fields["operation"]],
        AclPermissionType[fields["permission"]],
    )
    return AclBinding(pattern, entry)


def add_acl(client: AdminClient, binding: AclBinding) -> None:
    """Raises KafkaError."""
    result = acls.create_acls(client, [binding])[binding]
    if isinstance(result, KafkaError):
        raise result


def remove_acl(client: AdminClient, binding: AclBinding) -> None:
    """Raises KeyError where it does not exist, and KafkaError."""
    exact = AclBindingFilter(ResourcePatternFilter(*binding.pattern), AccessControlEntryFilter(*binding.entry))
    if not acls.delete_acls(client, [exact]):
        raise KeyError(f"ACL {acl_text(binding)}")


def set_password(client: AdminClient, user: str, mechanism: str, password: str) -> None:
    """Create a user, or replace the password. Raises KafkaError."""
    users.set_credentials(client, user, [NewCredential(mechanism, password, ITERATIONS)])


def remove_user(client: AdminClient, user: str) -> None:
    """Delete every credential of a user. Raises KafkaError."""
    found = users.describe_users(client, [user])[user]
    if isinstance(found, KafkaError):
        raise found
    users.delete_credentials(client, user, list(found.iterations))
