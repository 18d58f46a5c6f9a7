"""DeleteTopics (key 20), versions 0 to 6: delete topics, by name or from version 6 on also by id.

A broker with delete.topic.enable=false refuses (TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST). A request
with a topic by both name and id is refused as a whole; a topic that the request contains twice is deleted once and
answered twice. An entry with neither gets TOPIC_AUTHORIZATION_FAILED, as from Kafka, where no client is authorized to
delete the topic without a name.

The controller answers when this broker's metadata no longer contain the topics; a topic that they still contain after
`timeout_ms` gets REQUEST_TIMED_OUT, and so does every one if the timeout is 0 (Kafka: DelayedDeleteTopics). The
deletion continues. Versions from 5 on get THROTTLING_QUOTA_EXCEEDED for topics over the quota of their client
(KIP-599).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.controller.auto_topic_creation import TopicsKnown
from odradek.broker.controller.controller import Controller
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.quota.controller_mutation_quota import ControllerMutationQuota
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep, later
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Result = m.DeleteTopicsResponse.DeletableTopicResult
STATES_FROM = 6
STRICT_QUOTA_SINCE = 5
DISABLED_FROM = 3
"""The first version with an error code for a broker on which topic deletion is disabled."""
NO_TOPIC_ID = bytes(16)


class DeleteTopics:
    """Handles DeleteTopics."""

    KEY = 20
    VERSIONS = (0, 6)

    def __init__(
        self,
        metadata_cache: MetadataCache,
        controller: Controller,
        enabled: Callable[[], bool],
        known: TopicsKnown,
        request_tasks: RequestTasks,
        auth: AuthHelper,
        quotas: QuotaManagers,
    ) -> None:
        self._auth = auth
        self._quotas = quotas
        self._request_tasks = request_tasks
        self._metadata_cache = metadata_cache
        self._controller = controller
        self._enabled = enabled
        self._known = known

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
                    for name, topic_id in items_of(wanted)
                ]
            )
        self._request_tasks.run(self._delete(call, wanted, request.timeout_ms), call.connection.close)
        return None

    def _refusal(self, version: int, wanted: list[tuple[str | None, bytes]]) -> ErrorCode | None:
        """Why the whole request is refused; None if it is not."""
        if not self._controller.is_active:
            return ErrorCode.NOT_CONTROLLER
        if not self._enabled():
            return ErrorCode.INVALID_REQUEST if version < DISABLED_FROM else ErrorCode.TOPIC_DELETION_DISABLED
        if any(name is not None and topic_id != NO_TOPIC_ID for name, topic_id in items_of(wanted)):
            return ErrorCode.INVALID_REQUEST  # an entry has a name or an id, never both
        return None

    async def _delete(self, call: Call, wanted: list[tuple[str | None, bytes]], timeout_ms: int) -> None:
        results = self._resolve_all(call, wanted)
        names = keep(dict.fromkeys(result.name for result in items_of(results) if not result.error_code))
        quota = self._quotas.mutations(call, STRICT_QUOTA_SINCE)
        codes = keep(await self._delete_all([name for name in items_of(names) if name is not None], quota))
        going = [name for name, code in items_of(codes.items()) if code is ErrorCode.NONE]

        def answer() -> None:
            for name in items_of(going):
                if timeout_ms <= 0 or name in self._metadata_cache.topics:
                    codes[name] = ErrorCode.REQUEST_TIMED_OUT
            for result in items_of(results):
                if not result.error_code and result.name is not None:
                    result.error_code = codes[result.name]
            self._quotas.throttle_mutations(call, quota)
            call.reply(m.DeleteTopicsResponse(responses=results))

        if not going or timeout_ms <= 0:
            answer()
        else:  # so that clients no longer find the topic after the response
            left, topics = list(reversed(going)), self._metadata_cache.topics
            self._known.wait_for_each(left, lambda name: name not in topics, timeout_ms, later(answer))

    def _resolve_all(
        self, call: Call, wanted: list[tuple[str | None, bytes]]
    ) -> list[m.DeleteTopicsResponse.DeletableTopicResult]:
        """The entries with their topics' names, or with errors.

        The response has no name of a topic that the client may not describe, unless the request has it.
        """
        results = [self._resolve(name, topic_id) for name, topic_id in items_of(wanted)]
        named = [result.name for result in items_of(results) if result.name is not None]
        auth, topic = self._auth, ResourceType.TOPIC
        described = auth.filter_by_authorized(call, AclOperation.DESCRIBE, topic, named)
        allowed = auth.filter_by_authorized(call, AclOperation.DELETE, topic, named)
        for result in items_of(results):
            if result.name is not None and result.name not in allowed:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if result.name is not None and result.topic_id != NO_TOPIC_ID and result.name not in described:
                result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                result.name = None
        return results

    def _resolve(self, name: str | None, topic_id: bytes) -> m.DeleteTopicsResponse.DeletableTopicResult:
        """An entry with its topic's name, or with an error from this broker's metadata."""
        result = Result(name=name, topic_id=topic_id, error_message=None)
        if topic_id != NO_TOPIC_ID:
            result.name = self._metadata_cache.name_of(topic_id)
            if result.name is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        elif name is None:
            result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name not in self._metadata_cache.topics:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return result

    async def _delete_all(self, names: list[str], quota: ControllerMutationQuota) -> dict[str, ErrorCode]:
        if not names:
            return {}
        try:
            return await self._controller.delete_topics(names, quota.record)
        except KafkaError as error:
            return dict.fromkeys(names, error.code)
