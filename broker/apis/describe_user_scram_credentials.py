"""DescribeUserScramCredentials (key 50), version 0: the SCRAM mechanisms of users, never their secrets (KIP-554).

If the request has no users, the response has all users with credentials.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.DescribeUserScramCredentialsResponse
Result = Response.DescribeUserScramCredentialsResult


class DescribeUserScramCredentials:
    """Handles DescribeUserScramCredentials."""

    KEY = 50
    VERSIONS = (0, 0)

    def __init__(self, configs: ClientConfigs, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._configs = configs
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(
        self, call: Call, request: m.DescribeUserScramCredentialsRequest
    ) -> m.DescribeUserScramCredentialsResponse | None:
        if not self._auth.authorize_cluster(call, AclOperation.DESCRIBE):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            unnamed = [Result(error_code=code, error_message=None) for _ in request.users or ()]  # like Kafka's
            return Response(error_code=code, error_message=None, results=unnamed)
        self._request_tasks.run(self._describe(call, request), call.connection.close)
        return None

    async def _describe(self, call: Call, request: m.DescribeUserScramCredentialsRequest) -> None:
        names = keep(Counter(each.name for each in request.users or ()))
        if names:
            users = keep([name for name, count in items_of(names.items()) if count == 1])
            found = await self._configs.credentials(users)
        else:
            found = await self._configs.all_credentials()
            names = Counter(found.keys())
        results = []
        for name, count in items_of(names.items()):
            result = Result(user=name)
            results.append(result)
            if count > 1:
                result.error_code = ErrorCode.DUPLICATE_RESOURCE
                result.error_message = f"user {name!r} is named {count} times in the request"
                continue
            infos = found[name]
            if not infos:
                result.error_code = ErrorCode.RESOURCE_NOT_FOUND
                result.error_message = f"user {name!r} has no SCRAM credentials"
            result.credential_infos = [
                Response.CredentialInfo(mechanism=mechanism, iterations=iterations) for mechanism, iterations in infos
            ]
        call.reply(Response(results=results))
