"""CreateAcls (key 30), versions 0 to 3: create access control lists.

A broker without an authorizer has no ACLs: SECURITY_DISABLED. If a request contains the code of "unknown", the broker
closes the connection, like Kafka, which cannot parse it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.config.state.acl_codes import NO_AUTHORIZER, is_unknown
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class CreateAcls:
    """Handles CreateAcls, without an authorizer."""

    KEY = 30
    VERSIONS = (0, 3)

    def handle(self, call: Call, request: m.CreateAclsRequest) -> m.CreateAclsResponse | None:
        if any(
            is_unknown(rule.resource_type, rule.resource_pattern_type, rule.operation, rule.permission_type)
            for rule in request.creations
        ):
            call.connection.refuse("invalid request", "a part of the access rule is unknown")
            return None
        result = m.CreateAclsResponse.AclCreationResult
        return m.CreateAclsResponse(
            results=[
                result(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in request.creations
            ]
        )
