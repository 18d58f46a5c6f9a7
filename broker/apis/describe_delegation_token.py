"""DescribeDelegationToken (key 41), versions 0 to 3: the tokens of owners with their secrets (KIP-48, KIP-373).

Owners, requesters and renewers see their tokens. Of another token a client needs DESCRIBE on the token, or
DESCRIBE_TOKENS on the USER resource of its owner. A client without authentication is refused, and so is one that has
logged in with a token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.delegation_token_manager import DelegationTokenManager
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.security.state.delegation_tokens import DelegationToken, TokenInformation
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

REQUESTER_FROM = 3
Response = m.DescribeDelegationTokenResponse


class DescribeDelegationToken:
    """Handles DescribeDelegationToken."""

    KEY = 41
    VERSIONS = (0, 3)

    def __init__(self, tokens: DelegationTokenManager, auth: AuthHelper) -> None:
        self._tokens = tokens
        self._auth = auth

    def handle(self, call: Call, request: m.DescribeDelegationTokenRequest) -> Response:
        if not call.session.allows_token_requests:
            return Response(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if not self._tokens.is_enabled:
            return Response(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        owners = None
        if request.owners is not None:
            owners = [KafkaPrincipal(each.principal_type, each.principal_name) for each in request.owners]
        tokens = [token for token in self._tokens.cache.tokens if _is_requested(token.information, owners)]
        return Response(
            tokens=[_described(token, call.version) for token in tokens if self._is_authorized(call, token.information)]
        )

    def _is_authorized(self, call: Call, token: TokenInformation) -> bool:
        return (
            token.owner_or_renewer(call.session.principal)
            or self._auth.authorize(call, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or self._auth.authorize(call, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
        )


def _is_requested(token: TokenInformation, owners: list[KafkaPrincipal] | None) -> bool:
    return owners is None or any(map(token.owner_or_renewer, owners))


def _described(token: DelegationToken, version: int) -> Response.DescribedDelegationToken:
    information = token.information
    described = Response.DescribedDelegationToken(
        principal_type=information.owner.principal_type,
        principal_name=information.owner.name,
        issue_timestamp=information.issue_timestamp_ms,
        expiry_timestamp=information.expiry_timestamp_ms,
        max_timestamp=information.max_timestamp_ms,
        token_id=information.token_id,
        hmac=token.hmac,
        renewers=[
            Response.DescribedDelegationTokenRenewer(principal_type=each.principal_type, principal_name=each.name)
            for each in information.renewers
        ],
    )
    if version >= REQUESTER_FROM:
        described.token_requester_principal_type = information.token_requester.principal_type
        described.token_requester_principal_name = information.token_requester.name
    return described
