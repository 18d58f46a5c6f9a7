"""IncrementalAlterConfigs (key 44), versions 0 and 1: change single properties of topics and brokers (KIP-339).

Any broker changes a topic; each broker changes its own properties. A resource that the request contains twice is not
changed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from odradek.broker.config.admin_manager import TOPIC, AlterConfigOp, ConfigWriter
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import SlicedList, keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Response = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


class IncrementalAlterConfigs:
    """Handles IncrementalAlterConfigs."""

    KEY = 44
    VERSIONS = (0, 1)

    def __init__(self, writer: ConfigWriter, request_tasks: RequestTasks, auth: AuthHelper) -> None:
        self._writer = writer
        self._request_tasks = request_tasks
        self._auth = auth

    def handle(self, call: Call, request: m.IncrementalAlterConfigsRequest) -> None:
        self._request_tasks.run(self._alter_all(call, request), call.connection.close)

    async def _alter_all(self, call: Call, request: m.IncrementalAlterConfigsRequest) -> None:
        counts = keep(Counter((each.resource_type, each.resource_name) for each in request.resources))
        answer = m.IncrementalAlterConfigsResponse()
        for resource in request.resources:
            kind, name = resource.resource_type, resource.resource_name
            response = Response(resource_type=kind, resource_name=name, error_message=None)
            try:
                if counts[kind, name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                changes = SlicedList(
                    AlterConfigOp(each.name, each.config_operation, each.value) for each in resource.configs
                )
                await self._writer.alter(
                    kind,
                    name,
                    changes,
                    validate_only=request.validate_only,
                    is_allowed=self._is_allowed(call, kind, name),
                )
            except KafkaError as error:
                response.error_code, response.error_message = error.code, error.message or None
            answer.responses.append(response)
        call.reply(answer)

    def _is_allowed(self, call: Call, kind: int, name: str) -> bool:
        if kind == TOPIC:
            return self._auth.authorize(call, AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, name)
        return self._auth.authorize_cluster(call, AclOperation.ALTER_CONFIGS)
