"""RenewDelegationToken (key 39), versions 0 to 2: renew the expiry of a token (KIP-48).

A client without authentication is refused: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class RenewDelegationToken:
    """Handles RenewDelegationToken, which is refused for every client."""

    KEY = 39
    VERSIONS = (0, 2)

    def handle(self, call: Call, request: m.RenewDelegationTokenRequest) -> m.RenewDelegationTokenResponse:
        return m.RenewDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
        )
