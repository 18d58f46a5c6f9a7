"""LeaveGroup (key 13), versions 0 to 5: members leave, or an administrator removes them.

Version 3 takes several members, each by its id, its group instance id or both (KIP-345); 5 adds a reason (KIP-800).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

FIRST_VERSION_WITH_MANY: Final = 3


class LeaveGroup:
    """Handles LeaveGroup."""

    KEY = 13
    VERSIONS = (0, 5)

    def __init__(self, groups: GroupMetadataManager, auth: AuthHelper) -> None:
        self._groups = groups
        self._auth = auth

    def handle(self, call: Call, request: m.LeaveGroupRequest) -> m.LeaveGroupResponse:
        if not self._auth.authorize(call, AclOperation.READ, ResourceType.GROUP, request.group_id):
            return m.LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if call.version < FIRST_VERSION_WITH_MANY:
            error, codes = self._groups.leave(request.group_id, [(request.member_id, None)])
            return m.LeaveGroupResponse(error_code=error or codes[0])
        leavers = [(member.member_id, member.group_instance_id) for member in request.members]
        error, codes = self._groups.leave(request.group_id, leavers)
        return m.LeaveGroupResponse(
            error_code=error,
            members=[
                m.LeaveGroupResponse.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
                for (member_id, instance_id), code in items_of(zip(leavers, codes, strict=False))
            ],
        )
