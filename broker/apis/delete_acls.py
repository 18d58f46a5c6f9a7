"""DeleteAcls (key 31), versions 0 to 3: delete the access control lists that match filters (Kafka: AclApis).

The client needs ALTER on the cluster. The response has the deleted ACLs, each with the first filter that selects it.
Without an authorizer there are no ACLs: SECURITY_DISABLED. If a request contains the code of "unknown", the broker
closes the connection, like Kafka, which cannot parse it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.config.state.acl_codes import NO_AUTHORIZER, is_unknown
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.security.acl_store import AclStore
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import (
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePatternFilter,
    ResourceType,
)
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Result = m.DeleteAclsResponse.DeleteAclsFilterResult
MatchingAcl = m.DeleteAclsResponse.DeleteAclsMatchingAcl


class DeleteAcls:
    """Handles DeleteAcls."""

    KEY = 31
    VERSIONS = (0, 3)

    def __init__(self, auth: AuthHelper, acls: AclStore | None, request_tasks: RequestTasks) -> None:
        self._auth = auth
        self._acls = acls
        self._request_tasks = request_tasks

    def handle(self, call: Call, request: m.DeleteAclsRequest) -> m.DeleteAclsResponse | None:
        if any(
            is_unknown(each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
            for each in request.filters
        ):
            call.connection.refuse("invalid request", "a part of the filter is unknown")
            return None
        try:
            self._auth.require_cluster(call, AclOperation.ALTER)
            if self._acls is None:
                raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        except KafkaError as error:
            refused = [Result(error_code=error.code, error_message=error.message) for _ in request.filters]
            return m.DeleteAclsResponse(filter_results=refused)
        filters = [_filter(each) for each in request.filters]
        self._request_tasks.run(self._delete(call, self._acls, filters), call.connection.close)
        return None

    async def _delete(self, call: Call, acls: AclStore, filters: list[AclBindingFilter]) -> None:
        call.reply(
            m.DeleteAclsResponse(
                filter_results=[
                    Result(error_message=None, matching_acls=[_matching(*each) for each in deleted])
                    for deleted in await acls.delete(filters)
                ]
            )
        )


def _filter(each: m.DeleteAclsRequest.DeleteAclsFilter) -> AclBindingFilter:
    return AclBindingFilter(
        ResourcePatternFilter(
            ResourceType(each.resource_type_filter), each.resource_name_filter, PatternType(each.pattern_type_filter)
        ),
        AccessControlEntryFilter(
            each.principal_filter,
            each.host_filter,
            AclOperation(each.operation),
            AclPermissionType(each.permission_type),
        ),
    )


def _matching(binding: AclBinding, error: KafkaError | None) -> m.DeleteAclsResponse.DeleteAclsMatchingAcl:
    pattern, entry = binding
    return MatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message or None,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
