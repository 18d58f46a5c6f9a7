"""RenewDelegationToken (key 39), versions 0 to 2: a later expiry for a token (KIP-48).

Who has not authenticated may not: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class RenewDelegationToken:
    """Tokens that nobody has."""

    KEY = 39
    VERSIONS = (0, 2)

    def handle(self, call: Call, request: m.RenewDelegationTokenRequest) -> m.RenewDelegationTokenResponse:
        return m.RenewDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
        )
