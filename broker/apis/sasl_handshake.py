"""SaslHandshake (key 17), versions 0 and 1: select the SASL mechanism.

The handshake is the authenticator's, before requests come here (`security/state/sasl_server_authenticator.py`). After
its end, and on a listener without SASL, there is none: ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class SaslHandshake:
    """Handles SaslHandshake outside of an exchange."""

    KEY = 17
    VERSIONS = (0, 1)

    def handle(self, call: Call, request: m.SaslHandshakeRequest) -> m.SaslHandshakeResponse:
        return m.SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
