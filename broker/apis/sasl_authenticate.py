"""SaslAuthenticate (key 36), versions 0 to 2: one step of the SASL exchange.

The exchange is the authenticator's, before requests come here (`security/state/sasl_server_authenticator.py`). After
its end, and on a listener without SASL, there is none: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class SaslAuthenticate:
    """Handles SaslAuthenticate outside of an exchange."""

    KEY = 36
    VERSIONS = (0, 2)

    def handle(self, call: Call, request: m.SaslAuthenticateRequest) -> m.SaslAuthenticateResponse:
        return m.SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
