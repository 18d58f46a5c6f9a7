"""AlterUserScramCredentials (key 51), version 0: set or delete SCRAM credentials (KIP-554).

Only the controller serves it. The changes of each user succeed or fail as a whole, independently of other users.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.controller.controller import Controller
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import SlicedList, keep
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.sasl.scram_credentials import (
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
    problems,
)

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.AlterUserScramCredentialsResponse
Result = Response.AlterUserScramCredentialsResult
Change = TypeVar("Change", UserScramCredentialDeletion, UserScramCredentialUpsertion)


class AlterUserScramCredentials:
    """Handles AlterUserScramCredentials."""

    KEY = 51
    VERSIONS = (0, 0)

    def __init__(
        self, configs: ClientConfigs, controller: Controller, request_tasks: RequestTasks, auth: AuthHelper
    ) -> None:
        self._auth = auth
        self._configs = configs
        self._controller = controller
        self._request_tasks = request_tasks

    def handle(self, call: Call, request: m.AlterUserScramCredentialsRequest) -> None:
        self._request_tasks.run(self._alter(call, request), call.connection.close)

    async def _alter(self, call: Call, request: m.AlterUserScramCredentialsRequest) -> None:
        deletions = SlicedList(UserScramCredentialDeletion(each.name, each.mechanism) for each in request.deletions)
        upsertions = SlicedList(
            UserScramCredentialUpsertion(
                each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password)
            )
            for each in request.upsertions
        )
        users = dict.fromkeys(each.user for each in chain(deletions, upsertions))
        if not self._controller.is_active:
            refused = keep(dict.fromkeys(items_of(users), KafkaError(ErrorCode.NOT_CONTROLLER)))
        elif not self._auth.authorize_cluster(call, AclOperation.ALTER):
            refused = keep(dict.fromkeys(items_of(users), KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
        else:
            refused = keep(problems(deletions, upsertions, keep))
        deletions_of, upsertions_of = _by_user(deletions), _by_user(upsertions)
        results = []
        for user in items_of(users):
            error = refused.get(user)
            if error is None:
                try:
                    await self._configs.alter_credentials(user, deletions_of.get(user, ()), upsertions_of.get(user, ()))
                except KafkaError as failure:
                    error = failure
            result = Result(user=user)
            if error is not None:
                result.error_code, result.error_message = error.code, error.message or None
            results.append(result)
        call.reply(Response(results=results))


def _by_user(requests: Iterable[Change]) -> Mapping[str, Sequence[Change]]:
    found: defaultdict[str, list[Change]] = defaultdict(list)
    for request in requests:
        found[request.user].append(request)
    return keep(found)
