"""DescribeClientQuotas (key 48), versions 0 and 1: the quotas of users, client ids and addresses (KIP-546, KIP-612).

A component of the filter matches a name, the default, or any name. An unknown match type gets UNKNOWN_SERVER_ERROR
without a message, like in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.config.state.client_quotas import CLIENT_ID, IP, USER, ClientQuotaFilterComponent, check_filter
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
Response = m.DescribeClientQuotasResponse


class DescribeClientQuotas:
    """Handles DescribeClientQuotas."""

    KEY = 48
    VERSIONS = (0, 1)

    def __init__(self, configs: ClientConfigs, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._configs = configs
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(self, call: Call, request: m.DescribeClientQuotasRequest) -> m.DescribeClientQuotasResponse | None:
        if not self._auth.authorize_cluster(call, AclOperation.DESCRIBE_CONFIGS):
            return Response(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None)
        components = request.components
        if not all(
            each.match_type in (DEFAULT, ANY) or (each.match_type == EXACT and each.match is not None)
            for each in components
        ):
            return Response(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=None, entries=None)
        try:
            check_filter(each.entity_type for each in components)
        except KafkaError as error:
            return Response(error_code=error.code, error_message=error.message, entries=None)
        wanted = {
            each.entity_type: ClientQuotaFilterComponent(
                each.match if each.match_type == EXACT else None, each.match_type == ANY
            )
            for each in components
        }
        self._request_tasks.run(self._describe(call, wanted, request.strict), call.connection.close)
        return None

    async def _describe(self, call: Call, wanted: dict[str, ClientQuotaFilterComponent], strict: bool) -> None:
        entries = []
        for entity, values in await self._configs.list_quotas(wanted, strict=strict):
            entries.append(
                Response.EntryData(
                    entity=[
                        Response.EntityData(entity_type=kind, entity_name=entity[kind])
                        for kind in (USER, CLIENT_ID, IP)
                        if kind in entity
                    ],
                    values=[Response.ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
        call.reply(Response(entries=entries))
