"""ExpireDelegationToken (key 40), versions 0 to 2: change the expiry of a token, as its owner or renewer, or remove it
(KIP-48).

A client without authentication is refused, and so is one that has logged in with a token:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.security.delegation_token_manager import DelegationTokenManager
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.ExpireDelegationTokenResponse


class ExpireDelegationToken:
    """Handles ExpireDelegationToken."""

    KEY = 40
    VERSIONS = (0, 2)

    def __init__(self, tokens: DelegationTokenManager, request_tasks: RequestTasks) -> None:
        self._tokens = tokens
        self._request_tasks = request_tasks

    def handle(self, call: Call, request: m.ExpireDelegationTokenRequest) -> Response | None:
        if not call.session.allows_token_requests:
            return Response(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)
        expire = self._expire(call, bytes(request.hmac), request.expiry_time_period_ms)
        self._request_tasks.run(expire, call.connection.close)
        return None

    async def _expire(self, call: Call, hmac: bytes, period_ms: int) -> None:
        try:
            expiry_ms = await self._tokens.expire(call.session.principal, hmac, period_ms)
        except KafkaError as error:
            call.reply(Response(error_code=error.code, expiry_timestamp_ms=-1))
        else:
            call.reply(Response(expiry_timestamp_ms=expiry_ms))
