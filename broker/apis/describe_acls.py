"""DescribeAcls (key 29), versions 0 to 3: the access control lists that match a filter (Kafka: AclApis).

The client needs DESCRIBE on the cluster. Without an authorizer there are no ACLs: SECURITY_DISABLED. If a request
contains the code of "unknown", the broker closes the connection, like Kafka, which cannot parse it. Version 0 has
literal patterns only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.config.state.acl_codes import NO_AUTHORIZER, is_unknown
from odradek.broker.security.acl_store import AclStore
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import (
    AccessControlEntryFilter,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.DescribeAclsResponse


class DescribeAcls:
    """Handles DescribeAcls."""

    KEY = 29
    VERSIONS = (0, 3)

    def __init__(self, auth: AuthHelper, acls: AclStore | None) -> None:
        self._auth = auth
        self._acls = acls

    def handle(self, call: Call, request: m.DescribeAclsRequest) -> m.DescribeAclsResponse | None:
        if is_unknown(
            request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
        ):
            call.connection.refuse("invalid request", "a part of the filter is unknown")
            return None
        try:
            self._auth.require_cluster(call, AclOperation.DESCRIBE)
            if self._acls is None:
                raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        except KafkaError as error:
            return Response(error_code=error.code, error_message=error.message)
        resources: dict[ResourcePattern, m.DescribeAclsResponse.DescribeAclsResource] = {}
        for pattern, entry in self._acls.select(_filter(request)):
            resource = resources.get(pattern)
            if resource is None:
                resource = resources[pattern] = Response.DescribeAclsResource(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                )
            resource.acls.append(
                Response.AclDescription(
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission_type,
                )
            )
        return Response(resources=list(resources.values()))


def _filter(request: m.DescribeAclsRequest) -> AclBindingFilter:
    return AclBindingFilter(
        ResourcePatternFilter(
            ResourceType(request.resource_type_filter),
            request.resource_name_filter,
            PatternType(request.pattern_type_filter),
        ),
        AccessControlEntryFilter(
            request.principal_filter,
            request.host_filter,
            AclOperation(request.operation),
            AclPermissionType(request.permission_type),
        ),
    )
