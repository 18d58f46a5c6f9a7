"""ConsumerGroupHeartbeat (key 68), versions 0 and 1: a member joins, stays or leaves (KIP-848).

Version 1 adds subscriptions by regular expression, and members that generate their own ids (KIP-1082). A member has to
be authorized to describe the topics of its subscription; an expression matches only such topics (Kafka since 4.0).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.group.deferred_response import DeferredResponse
from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.group.state.consumer_group_requests import HeartbeatRequest, HeartbeatResult, all_topics
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

FIRST_VERSION_WITH_OWN_IDS: Final = 1
Response = m.ConsumerGroupHeartbeatResponse


class ConsumerGroupHeartbeat:
    """Handles ConsumerGroupHeartbeat."""

    KEY = 68
    VERSIONS = (0, 1)

    def __init__(self, groups: GroupMetadataManager, auth: AuthHelper, *, is_offered: bool) -> None:
        """`is_offered`: whether `group.coordinator.rebalance.protocols` contains the consumer protocol."""
        self._groups = groups
        self._auth = auth
        self._is_offered = is_offered

    def handle(self, call: Call, request: m.ConsumerGroupHeartbeatRequest) -> Response | None:
        if not self._is_offered:
            return Response(error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not self._auth.authorize(call, AclOperation.READ, ResourceType.GROUP, request.group_id):
            return Response(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        names = request.subscribed_topic_names
        if names and not self._may_describe_all(call, names):
            return Response(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        owned = None
        if request.topic_partitions is not None:
            owned = {each.topic_id: frozenset(each.partitions) for each in request.topic_partitions if each.partitions}
        heartbeat = HeartbeatRequest(
            member_id=request.member_id,
            epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            names=tuple(names) if names is not None else None,
            expression=request.subscribed_topic_regex,
            assignor=request.server_assignor,
            owned=owned,
            client_id=call.client_id or "",
            client_host=call.client_host,
            must_name_itself=call.version >= FIRST_VERSION_WITH_OWN_IDS,
            describable=partial(self._describable, call) if self._auth.is_enabled else all_topics,
        )
        answer = DeferredResponse(call, _response)
        self._groups.consumer_heartbeat(request.group_id, heartbeat, answer)
        response: Response | None = answer.response()
        return response

    def _describable(self, call: Call, names: tuple[str, ...]) -> tuple[str, ...]:
        topics = self._auth.filter_by_authorized(
            call, AclOperation.DESCRIBE, ResourceType.TOPIC, names, log_if_denied=False
        )
        return tuple(name for name in names if name in topics)

    def _may_describe_all(self, call: Call, names: list[str]) -> bool:
        subscribed = set(names)
        described = self._auth.filter_by_authorized(call, AclOperation.DESCRIBE, ResourceType.TOPIC, subscribed)
        return len(described) == len(subscribed)


def _response(_: Call, result: HeartbeatResult) -> Response:
    assignment = None
    if result.assignment is not None:
        assignment = Response.Assignment(
            topic_partitions=[
                Response.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(result.assignment.items())
            ]
        )
    return Response(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.interval_ms,
        assignment=assignment,
    )
