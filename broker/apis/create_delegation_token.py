"""CreateDelegationToken (key 38), versions 0 to 3: create a token that authenticates as its owner (KIP-48).

A client without authentication gets none: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. Version 3 adds an owner (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

REQUESTER_FROM = 3


class CreateDelegationToken:
    """Handles CreateDelegationToken, which is refused for every client."""

    KEY = 38
    VERSIONS = (0, 3)

    def handle(self, call: Call, request: m.CreateDelegationTokenRequest) -> m.CreateDelegationTokenResponse:
        requester_type, _, requester_name = call.principal.partition(":")
        owner_type, owner_name = request.owner_principal_type, request.owner_principal_name
        if not owner_type:
            owner_type, owner_name = requester_type, requester_name
        response = m.CreateDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            principal_type=owner_type,
            principal_name=owner_name or "",
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
        )
        if call.version >= REQUESTER_FROM:
            response.token_requester_principal_type = requester_type
            response.token_requester_principal_name = requester_name
        return response
