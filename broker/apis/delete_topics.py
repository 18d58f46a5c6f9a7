"""DeleteTopics (key 20), versions 0 to 6: remove topics, by name or from version 6 on also by id.

A broker with delete.topic.enable=false refuses (TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST). A request
that gives a topic by both is refused as a whole; what is named twice is deleted once and answered twice. An entry with
neither gets TOPIC_AUTHORIZATION_FAILED, as from Kafka, where nobody may delete the topic without a name.
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
DISABLED_FROM = 3
"""The first version that has a code of its own for a broker that deletes nothing."""
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
        refused = self._refusal(call.version, wanted)
        if refused is not None:
            return m.DeleteTopicsResponse(
                responses=[
                    Result(name=name, topic_id=topic_id, error_code=refused, error_message=None)
                    for name, topic_id in wanted
                ]
            )
        self._background.run(self._delete(call, wanted, request.timeout_ms), call.connection.close)
        return None

    def _refusal(self, version: int, wanted: list[tuple[str | None, bytes]]) -> ErrorCode | None:
        """Why none of these can be deleted."""
        if not self._controller.is_active:
            return ErrorCode.NOT_CONTROLLER
        if not self._enabled():
            return ErrorCode.INVALID_REQUEST if version < DISABLED_FROM else ErrorCode.TOPIC_DELETION_DISABLED
        if any(name is not None and topic_id != NO_TOPIC_ID for name, topic_id in wanted):
            return ErrorCode.INVALID_REQUEST  # a topic is given by its name or by its id, never by both
        return None

    async def _delete(self, call: Call, wanted: list[tuple[str | None, bytes]], timeout_ms: int) -> None:
        codes: dict[str, ErrorCode] = {}
        results = []
        for name, topic_id in wanted:
            result = Result(name=name, topic_id=topic_id, error_message=None)
            results.append(result)
            if topic_id != NO_TOPIC_ID:
                name = result.name = self._view.name_of(topic_id) or self._named(results, topic_id)
                if name is None:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                    continue
            elif name is None:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                continue
            if name not in codes:
                codes[name] = await self._delete_one(name, timeout_ms)
            result.error_code = codes[name]
        call.reply(m.DeleteTopicsResponse(responses=results))

    async def _delete_one(self, name: str, timeout_ms: int) -> ErrorCode:
        try:
            code = await self._controller.delete_topic(name)
        except KafkaError as error:
            return error.code
        return ErrorCode.REQUEST_TIMED_OUT if code is ErrorCode.NONE and timeout_ms <= 0 else code

    @staticmethod
    def _named(results: list[m.DeleteTopicsResponse.DeletableTopicResult], topic_id: bytes) -> str | None:
        """The name that an entry before this one had for the same id; the topic may be gone by now."""
        return next((each.name for each in results if each.topic_id == topic_id and each.name is not None), None)
