"""ConsumerGroupDescribe (key 69), versions 0 and 1: describe groups of the consumer protocol (KIP-848).

Version 1 adds the protocol of each member (KIP-1099). A group of another protocol gets GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.consumer_group_members import ConsumerMember
from odradek.broker.metadata.cache import MetadataCache
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from odradek.broker.network.dispatcher import Call

NOT_ASKED: Final = -(2**31)
READ, DELETE, DESCRIBE = 3, 6, 8  # the numbers of Kafka's AclOperation
ALL_OPERATIONS: Final = 1 << READ | 1 << DELETE | 1 << DESCRIBE
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
Response = m.ConsumerGroupDescribeResponse


class ConsumerGroupDescribe:
    """Handles ConsumerGroupDescribe."""

    KEY = 69
    VERSIONS = (0, 1)

    def __init__(self, groups: GroupMetadataManager, metadata_cache: MetadataCache, *, is_offered: bool) -> None:
        """`is_offered`: whether `group.coordinator.rebalance.protocols` contains the consumer protocol."""
        self._groups = groups
        self._metadata_cache = metadata_cache
        self._is_offered = is_offered

    def handle(self, call: Call, request: m.ConsumerGroupDescribeRequest) -> Response:
        if not self._is_offered:
            refused = [
                Response.DescribedGroup(
                    group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION, authorized_operations=NOT_ASKED
                )
                for group_id in request.group_ids
            ]
            return Response(groups=refused)
        described = [self._describe(group_id) for group_id in request.group_ids]
        if request.include_authorized_operations:
            for group in described:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = ALL_OPERATIONS
        return Response(groups=described)

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
        described.assignor_name = group.steps.assignor
        described.members = [self._member(group, member) for member in group.group_members.members.values()]
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


def _owned(member: ConsumerMember) -> dict[bytes, list[int]]:
    """The partitions that a member owns, including those that it has to revoke."""
    owned: dict[bytes, list[int]] = {}
    for part in (member.assigned, member.revoking):
        for topic_id, partitions in part.items():
            owned.setdefault(topic_id, []).extend(partitions)
    return owned
