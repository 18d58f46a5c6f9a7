"""CreateDelegationToken (key 38), versions 0 to 3: create a token that authenticates as its owner (KIP-48).

A client without authentication gets none, nor does one that has logged in with a token:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. Version 3 adds an owner other than the requester, for which the requester needs
CREATE_TOKENS on the owner's USER resource (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.delegation_token_manager import DelegationTokenManager
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.broker.security.state.principals import USER_TYPE, KafkaPrincipal
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

REQUESTER_FROM = 3
Response = m.CreateDelegationTokenResponse


class CreateDelegationToken:
    """Handles CreateDelegationToken."""

    KEY = 38
    VERSIONS = (0, 3)

    def __init__(self, tokens: DelegationTokenManager, auth: AuthHelper, request_tasks: RequestTasks) -> None:
        self._tokens = tokens
        self._auth = auth
        self._request_tasks = request_tasks

    def handle(self, call: Call, request: m.CreateDelegationTokenRequest) -> Response | None:
        requester = call.session.principal
        owner = _owner(request, requester)
        renewers = keep([KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers])
        error = self._refusal(call, owner, renewers)
        if error is not None:
            return _refused(call, error, owner)
        self._request_tasks.run(self._create(call, owner, renewers, request.max_lifetime_ms), call.connection.close)
        return None

    def _refusal(self, call: Call, owner: KafkaPrincipal, renewers: list[KafkaPrincipal]) -> ErrorCode | None:
        if not call.session.allows_token_requests:
            return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        if owner != call.session.principal and not self._auth.authorize(
            call, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
        ):
            return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        if any(renewer.principal_type != USER_TYPE for renewer in items_of(renewers)):
            return ErrorCode.INVALID_PRINCIPAL_TYPE
        return None

    async def _create(
        self, call: Call, owner: KafkaPrincipal, renewers: list[KafkaPrincipal], lifetime_ms: int
    ) -> None:
        try:
            token = await self._tokens.create(owner, call.session.principal, renewers, lifetime_ms)
        except KafkaError as error:
            call.reply(_refused(call, error.code, owner))
            return
        information = token.information
        response = _response(call, owner)
        response.issue_timestamp_ms = information.issue_timestamp_ms
        response.expiry_timestamp_ms = information.expiry_timestamp_ms
        response.max_timestamp_ms = information.max_timestamp_ms
        response.token_id, response.hmac = information.token_id, token.hmac
        call.reply(response)


def _owner(request: m.CreateDelegationTokenRequest, requester: KafkaPrincipal) -> KafkaPrincipal:
    if not request.owner_principal_name:
        return requester
    return KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)


def _refused(call: Call, error: ErrorCode, owner: KafkaPrincipal) -> Response:
    response = _response(call, owner)
    response.error_code = error
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1
    return response


def _response(call: Call, owner: KafkaPrincipal) -> Response:
    response = Response(principal_type=owner.principal_type, principal_name=owner.name)
    if call.version >= REQUESTER_FROM:
        requester = call.session.principal
        response.token_requester_principal_type = requester.principal_type
        response.token_requester_principal_name = requester.name
    return response
