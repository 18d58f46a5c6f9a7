"""DeleteTopics (key 20), versions 0 to 6: remove topics, by name or from version 6 on also by id.

A broker with delete.topic.enable=false refuses (TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.background import Background
from odradek.broker.cluster_view import ClusterView
from odradek.broker.controller import Controller
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call

Result = m.DeleteTopicsResponse.DeletableTopicResult
STATES_FROM = 6
NO_TOPIC_ID = bytes(16)


class DeleteTopics:
    """The end of topics."""

    KEY = 20
    VERSIONS = (0, 6)

    def __init__(
        self, view: ClusterView, controller: Controller, enabled: Callable[[], bool], background: Background
    ) -> None:
        self._background = background
        self._view = view
        self._controller = controller
        self._enabled = enabled

    def handle(self, call: Call, request: m.DeleteTopicsRequest) -> m.DeleteTopicsResponse | None:
        if call.version >= STATES_FROM:
            wanted = [(state.name, state.topic_id) for state in request.topics]
        else:
            wanted = [(name, NO_TOPIC_ID) for name in request.topic_names]
        if not self._enabled():
            code = ErrorCode.INVALID_REQUEST if call.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
            return m.DeleteTopicsResponse(
                responses=[Result(name=name, topic_id=topic_id, error_code=code) for name, topic_id in wanted]
            )
        self._background.run(self._delete(call, wanted), call.connection.close)
        return None

    async def _delete(self, call: Call, wanted: list[tuple[str | None, bytes]]) -> None:
        results = []
        for name, topic_id in wanted:
            result = Result(name=name, topic_id=topic_id)
            results.append(result)
            if name is not None and topic_id != NO_TOPIC_ID:
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = "name a topic by its name or by its id, not by both"
                continue
            if name is None:
                name = result.name = self._view.name_of(topic_id)
                if name is None:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                    continue
            else:
                result.topic_id = self._view.id_of(name)
            try:
                result.error_code = await self._controller.delete_topic(name)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
        call.reply(m.DeleteTopicsResponse(responses=results))
