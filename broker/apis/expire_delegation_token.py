"""ExpireDelegationToken (key 40), versions 0 to 2: change the expiry of a token, or expire it now (KIP-48).

A client without authentication is refused: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class ExpireDelegationToken:
    """Handles ExpireDelegationToken, which is refused for every client."""

    KEY = 40
    VERSIONS = (0, 2)

    def handle(self, call: Call, request: m.ExpireDelegationTokenRequest) -> m.ExpireDelegationTokenResponse:
        return m.ExpireDelegationTokenResponse(
            error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
        )
