"""AlterClientQuotas (key 49), versions 0 and 1: set or remove quotas (KIP-546, KIP-612).

Entries are applied one after the other and independently; of several entries for one entity the answer has the last.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.config.state.client_quotas import ENTITY_TYPES, IP
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.AlterClientQuotasResponse
Outcome = tuple[ErrorCode, str | None]


class AlterClientQuotas:
    """Handles AlterClientQuotas."""

    KEY = 49
    VERSIONS = (0, 1)

    def __init__(self, configs: ClientConfigs, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._configs = configs
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(self, call: Call, request: m.AlterClientQuotasRequest) -> m.AlterClientQuotasResponse | None:
        try:
            self._auth.require_cluster(call, AclOperation.ALTER_CONFIGS)
        except KafkaError as error:
            return Response(
                entries=[
                    Response.EntryData(
                        error_code=error.code,
                        error_message=error.message,
                        entity=[
                            Response.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                            for part in entry.entity
                        ],
                    )
                    for entry in request.entries
                ]
            )
        self._request_tasks.run(self._alter_all(call, request), call.connection.close)
        return None

    async def _alter_all(self, call: Call, request: m.AlterClientQuotasRequest) -> None:
        outcomes: dict[tuple[tuple[str, str | None], ...], Outcome] = {}
        for entry in request.entries:
            given = keep({part.entity_type: part.entity_name for part in entry.entity})
            order: list[str] = [kind for kind in ENTITY_TYPES if kind in given]
            order += [kind for kind in items_of(given) if kind not in ENTITY_TYPES]
            entity = keep({kind: given[kind] for kind in items_of(order)})
            outcomes[keep(tuple(items_of(entity.items())))] = await self._alter(entity, entry, request.validate_only)
        call.reply(
            Response(
                entries=[
                    Response.EntryData(
                        error_code=code,
                        error_message=message,
                        entity=[
                            Response.EntityData(entity_type=kind, entity_name=name) for kind, name in items_of(entity)
                        ],
                    )
                    for entity, (code, message) in items_of(outcomes.items())
                ]
            )
        )

    async def _alter(
        self, entity: dict[str, str | None], entry: m.AlterClientQuotasRequest.EntryData, validate_only: bool
    ) -> Outcome:
        changes = {each.key: None if each.remove else each.value for each in entry.ops}
        try:
            address = entity.get(IP)
            if len(entity) == 1 and address:
                await _check_address(address)
            await self._configs.alter_quotas(entity, changes, validate_only=validate_only)
        except KafkaError as error:
            return error.code, error.message
        return ErrorCode.NONE, None


async def _check_address(address: str) -> None:
    """Raises KafkaError with INVALID_REQUEST for a text that is neither an address nor a host name."""
    try:
        await asyncio.get_running_loop().getaddrinfo(address, None)
    except (OSError, UnicodeError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{address!r} is no address: {error}") from error
