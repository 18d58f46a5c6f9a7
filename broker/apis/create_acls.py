"""CreateAcls (key 30), versions 0 to 3: create access control lists (Kafka: AclApis).

The client needs ALTER on the cluster. Each ACL succeeds or fails by itself. Without an authorizer there are no ACLs:
SECURITY_DISABLED. If a request contains the code of "unknown", the broker closes the connection, like Kafka, which
cannot parse it; a request with the code of "any" fails as a whole, like in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.config.state.acl_codes import NO_AUTHORIZER, is_unknown
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.security.acl_store import AclStore
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
    is_of_filter,
)
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Result = m.CreateAclsResponse.AclCreationResult


class CreateAcls:
    """Handles CreateAcls."""

    KEY = 30
    VERSIONS = (0, 3)

    def __init__(self, auth: AuthHelper, acls: AclStore | None, request_tasks: RequestTasks) -> None:
        self._auth = auth
        self._acls = acls
        self._request_tasks = request_tasks

    def handle(self, call: Call, request: m.CreateAclsRequest) -> m.CreateAclsResponse | None:
        creations = request.creations
        if any(
            is_unknown(each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
            for each in creations
        ):
            call.connection.refuse("invalid request", "a part of the ACL is unknown")
            return None
        bindings = [_binding(each) for each in creations]
        try:
            self._auth.require_cluster(call, AclOperation.ALTER)
            if self._acls is None:
                raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
            if any(map(is_of_filter, bindings)):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "")  # no message, like Kafka
        except KafkaError as error:
            return _response([error] * len(creations))
        self._request_tasks.run(self._create(call, self._acls, bindings), call.connection.close)
        return None

    async def _create(self, call: Call, acls: AclStore, bindings: list[AclBinding]) -> None:
        call.reply(_response(await acls.create(bindings)))


def _response(errors: list[KafkaError | None] | list[KafkaError]) -> m.CreateAclsResponse:
    return m.CreateAclsResponse(
        results=[
            Result() if error is None else Result(error_code=error.code, error_message=error.message or None)
            for error in errors
        ]
    )


def _binding(creation: m.CreateAclsRequest.AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
        ),
        AccessControlEntry(
            creation.principal,
            creation.host,
            AclOperation(creation.operation),
            AclPermissionType(creation.permission_type),
        ),
    )
