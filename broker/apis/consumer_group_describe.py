"""ConsumerGroupDescribe (key 69), versions 0 and 1: describe groups of the consumer protocol (KIP-848).

Version 1 adds the protocol of each member (KIP-1099). A group of another protocol gets GROUP_ID_NOT_FOUND. A group with
an assigned topic that the client may not describe gets TOPIC_AUTHORIZATION_FAILED (Kafka since 4.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.consumer_group_members import ConsumerMember
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.runtime.turns import SlicedList, in_turn
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from odradek.broker.network.dispatcher import Call

NOT_ASKED: Final = -(2**31)
MEMBERS_AT_ONCE: Final = 100
"""Groups with more members in all are described in turns with the loop, however small the request is."""
NOT_DESCRIBED: Final = "The group has described topic(s) that the client is not authorized to describe."
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
Response = m.ConsumerGroupDescribeResponse


class ConsumerGroupDescribe:
    """Handles ConsumerGroupDescribe."""

    KEY = 69
    VERSIONS = (0, 1)

    def __init__(
        self,
        groups: GroupMetadataManager,
        metadata_cache: MetadataCache,
        auth: AuthHelper,
        handle_in_turns: Callable[[Call, Any], None],
        *,
        is_offered: bool,
    ) -> None:
        """`handle_in_turns` calls `handle` in turns with the loop.

        `is_offered`: whether `group.coordinator.rebalance.protocols` contains the consumer protocol.
        """
        self._handle_in_turns = handle_in_turns
        self._groups = groups
        self._metadata_cache = metadata_cache
        self._auth = auth
        self._is_offered = is_offered

    def handle(self, call: Call, request: m.ConsumerGroupDescribeRequest) -> Response | None:
        if not in_turn() and self._groups.members_of(request.group_ids) > MEMBERS_AT_ONCE:
            self._handle_in_turns(call, request)
            return None
        if not self._is_offered:
            refused = [
                Response.DescribedGroup(
                    group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION, authorized_operations=NOT_ASKED
                )
                for group_id in request.group_ids
            ]
            return Response(groups=refused)
        described = [self._authorized(call, group_id) for group_id in request.group_ids]
        if self._auth.is_enabled:
            refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
            described = [
                *(group for group in items_of(described) if group.error_code == refusal),
                *(group for group in items_of(described) if group.error_code != refusal),
            ]
        if request.include_authorized_operations:
            for group in items_of(described):
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = self._auth.authorized_operations(
                        call, ResourceType.GROUP, group.group_id
                    )
        return Response(groups=described)

    def _authorized(self, call: Call, group_id: str) -> Response.DescribedGroup:
        """A group, if the client may describe the group and the topics that it has assigned; otherwise the error."""
        refused = Response.DescribedGroup(group_id=group_id, authorized_operations=NOT_ASKED)
        if not self._auth.authorize(call, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            refused.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return refused
        group = self._describe(group_id)
        if self._auth.is_enabled:
            topics = _assigned_topics(group)
            described = self._auth.filter_by_authorized(call, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)
            if len(described) < len(topics):
                refused.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.error_message = NOT_DESCRIBED
                return refused
        return group

    def _describe(self, group_id: str) -> Response.DescribedGroup:
        error, group = self._groups.describe_consumers(group_id)
        described = Response.DescribedGroup(group_id=group_id, authorized_operations=NOT_ASKED)
        if group is None:
            described.error_code = error or ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = None if error else f"Group {group_id} is not a consumer group."
            return described
        described.group_state = group.state.value
        described.group_epoch = group.group_members.epoch
        described.assignment_epoch = group.group_members.target_epoch
        described.assignor_name = group.steps.target.assignor
        members = tuple(group.group_members.members.values())
        described.members = SlicedList(self._member(group, member) for member in items_of(members))
        return described

    def _member(self, group: ConsumerMembership, member: ConsumerMember) -> Response.Member:
        return Response.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.names),
            subscribed_topic_regex=member.expression or None,
            assignment=self._assignment(_owned(member)),
            target_assignment=self._assignment(group.group_members.targets.get(member.member_id, {})),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )

    def _assignment(self, assignment: Mapping[bytes, Collection[int]]) -> Response.Assignment:
        """Partitions with the names of their topics; deleted topics are omitted."""
        named = [
            (self._metadata_cache.name_of(topic_id), topic_id, indexes)
            for topic_id, indexes in sorted(assignment.items())
        ]
        return Response.Assignment(
            topic_partitions=[
                Response.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
                for name, topic_id, indexes in named
                if name is not None
            ]
        )


def _assigned_topics(group: Response.DescribedGroup) -> set[str]:
    """The names of the topics that are in the assignment or the target assignment of a member."""
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _owned(member: ConsumerMember) -> dict[bytes, list[int]]:
    """The partitions that a member owns, including those that it has to revoke."""
    owned: dict[bytes, list[int]] = {}
    for part in (member.assigned, member.revoking):
        for topic_id, partitions in part.items():
            owned.setdefault(topic_id, []).extend(partitions)
    return owned
