"""DescribeAcls (key 29), versions 0 to 3: the access control lists that match a filter.

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


class DescribeAcls:
    """Handles DescribeAcls, without an authorizer."""

    KEY = 29
    VERSIONS = (0, 3)

    def handle(self, call: Call, request: m.DescribeAclsRequest) -> m.DescribeAclsResponse | None:
        if is_unknown(
            request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
        ):
            call.connection.refuse("invalid request", "a part of the access rule is unknown")
            return None
        return m.DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
