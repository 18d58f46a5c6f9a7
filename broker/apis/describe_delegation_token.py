"""DescribeDelegationToken (key 41), versions 0 to 3: the tokens of owners (KIP-48).

A client without authentication is refused: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class DescribeDelegationToken:
    """Handles DescribeDelegationToken, which is refused for every client."""

    KEY = 41
    VERSIONS = (0, 3)

    def handle(self, call: Call, request: m.DescribeDelegationTokenRequest) -> m.DescribeDelegationTokenResponse:
        return m.DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
