"""DescribeAcls (key 29), versions 0 to 3: the access rules that match a filter.

A broker without an authorizer has no access rules: SECURITY_DISABLED. A request with the number of "unknown" ends
the connection, as with Kafka, which cannot read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.config.state.acl_codes import NO_AUTHORIZER, is_unknown
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class DescribeAcls:
    """Access rules, of which there are none."""

    KEY = 29
    VERSIONS = (0, 3)

    def handle(self, call: Call, request: m.DescribeAclsRequest) -> m.DescribeAclsResponse | None:
        if is_unknown(
            request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type
        ):
            call.connection.refuse("invalid request", "a part of the access rule is unknown")
            return None
        return m.DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
