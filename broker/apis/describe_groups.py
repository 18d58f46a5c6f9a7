"""DescribeGroups (key 15), versions 0 to 6: the state and the members of groups.

Version 3 adds authorized operations (KIP-430), 4 the group instance id (KIP-345), 6 GROUP_ID_NOT_FOUND where older
versions return a Dead group (KIP-1043). Only a Stable group has metadata and assignments of members in the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.group.state.classic_group import ClassicGroup
from odradek.broker.group.state.classic_members import Member
from odradek.broker.group.state.classic_requests import ClassicGroupState
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import in_turn, keep, list_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

FIRST_VERSION_WITH_NOT_FOUND: Final = 6
NOT_ASKED: Final = -(2**31)
MEMBERS_AT_ONCE: Final = 250
"""Groups with more members in all are described in turns with the loop, however small the request is."""
Described = m.DescribeGroupsResponse.DescribedGroup


class DescribeGroups:
    """Handles DescribeGroups."""

    KEY = 15
    VERSIONS = (0, 6)

    def __init__(
        self, groups: GroupMetadataManager, auth: AuthHelper, handle_in_turns: Callable[[Call, Any], None]
    ) -> None:
        """`handle_in_turns` calls `handle` in turns with the loop."""
        self._groups = groups
        self._auth = auth
        self._handle_in_turns = handle_in_turns

    def handle(self, call: Call, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse | None:
        if not in_turn() and self._groups.members_of(request.groups) > MEMBERS_AT_ONCE:
            self._handle_in_turns(call, request)
            return None
        # A group that the request repeats is described once; its descriptions are one object.
        found: dict[str, Described] = keep({})
        for group_id in request.groups:
            if group_id not in found:
                found[group_id] = self._describe(call, group_id)
        described = keep([found[group_id] for group_id in request.groups])
        refused = [group for group in items_of(described) if group.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED]
        if refused:  # they come first
            described = refused + [
                group for group in items_of(described) if group.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED
            ]
        if request.include_authorized_operations:
            for group in items_of(found.values()):
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = self._auth.authorized_operations(
                        call, ResourceType.GROUP, group.group_id
                    )
        return m.DescribeGroupsResponse(groups=described)

    def _describe(self, call: Call, group_id: str) -> Described:
        if not self._auth.authorize(call, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            return Described(
                group_id=group_id,
                error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
                authorized_operations=NOT_ASKED,
            )
        error, group = self._groups.describe(group_id)
        if error:
            return Described(group_id=group_id, error_code=error, authorized_operations=NOT_ASKED)
        if group is not None:
            return _described(group_id, group)
        dead = Described(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
        if call.version >= FIRST_VERSION_WITH_NOT_FOUND:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            dead.error_message = f"Group {group_id} not found."
        return dead


def _described(group_id: str, group: ClassicGroup) -> Described:
    protocol = group.protocol_name if group.state is ClassicGroupState.STABLE else None
    return Described(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=list_of(_member(member, protocol) for member in items_of(tuple(group.group_members))),
    )


def _member(member: Member, protocol: str | None) -> m.DescribeGroupsResponse.DescribedGroupMember:
    return m.DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.terms.instance_id,
        client_id=member.terms.client_id,
        client_host=member.terms.client_host,
        member_metadata=member.metadata(protocol) if protocol is not None else b"",
        member_assignment=member.assignment if protocol is not None else b"",
    )
