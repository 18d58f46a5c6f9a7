"""ACLs: list, create, delete (Kafka: Admin.describeAcls, createAcls, deleteAcls)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.admin.client import AdminClient, check, outcome
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError


def describe_acls(client: AdminClient, acl_filter: AclBindingFilter) -> list[AclBinding]:
    """The ACLs that the filter selects, in order. Raises KafkaError."""

    def attempt() -> list[AclBinding]:
        answer: m.DescribeAclsResponse = client.any_broker(m.DescribeAclsRequest(**_fields(acl_filter)))
        check(answer.error_code, answer.error_message)
        return sorted(
            AclBinding(
                ResourcePattern(
                    ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
                ),
                _entry(each),
            )
            for resource in answer.resources
            for each in resource.acls
        )

    return client.call(attempt)


def create_acls(client: AdminClient, bindings: Sequence[AclBinding]) -> dict[AclBinding, KafkaError | None]:
    """Create ACLs; one that exists already is no error."""

    def attempt(pending: list[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        creations = [
            m.CreateAclsRequest.AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission_type,
            )
            for pattern, entry in pending
        ]
        answer: m.CreateAclsResponse = client.controller(m.CreateAclsRequest(creations=creations))
        return {
            binding: outcome(None, each.error_code, each.error_message)
            for binding, each in zip(pending, answer.results, strict=True)
        }

    return client.each(bindings, attempt)


def delete_acls(client: AdminClient, filters: Sequence[AclBindingFilter]) -> list[AclBinding]:
    """Delete the ACLs that one of the filters selects, and return them. Raises KafkaError."""

    def attempt() -> list[AclBinding]:
        wanted = [m.DeleteAclsRequest.DeleteAclsFilter(**_fields(each)) for each in filters]
        answer: m.DeleteAclsResponse = client.controller(m.DeleteAclsRequest(filters=wanted))
        deleted = []
        for result in answer.filter_results:
            check(result.error_code, result.error_message)
            for each in result.matching_acls:
                check(each.error_code, each.error_message)
                pattern = ResourcePattern(
                    ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type)
                )
                deleted.append(AclBinding(pattern, _entry(each)))
        return sorted(deleted)

    return client.call(attempt)


def _fields(acl_filter: AclBindingFilter) -> dict[str, Any]:
    pattern, entry = acl_filter
    return {
        "resource_type_filter": pattern.resource_type,
        "resource_name_filter": pattern.name,
        "pattern_type_filter": pattern.pattern_type,
        "principal_filter": entry.principal,
        "host_filter": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission_type,
    }


def _entry(
    each: m.DescribeAclsResponse.AclDescription | m.DeleteAclsResponse.DeleteAclsMatchingAcl,
) -> AccessControlEntry:
    return AccessControlEntry(
        each.principal, each.host, AclOperation(each.operation), AclPermissionType(each.permission_type)
    )
