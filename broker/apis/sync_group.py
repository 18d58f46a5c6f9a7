"""SyncGroup (key 14), versions 0 to 5: the leader sends the assignment, every member receives its part.

Version 3 adds the group instance id (KIP-345), 5 the protocol type and name, which are then required (KIP-559). The
coordinator answers when the assignment is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.group.deferred_response import DeferredResponse
from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.group.state.classic_requests import SyncRequest, SyncResult
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

FIRST_VERSION_WITH_PROTOCOL: Final = 5


class SyncGroup:
    """Handles SyncGroup."""

    KEY = 14
    VERSIONS = (0, 5)

    def __init__(self, groups: GroupMetadataManager, auth: AuthHelper) -> None:
        self._groups = groups
        self._auth = auth

    def handle(self, call: Call, request: m.SyncGroupRequest) -> m.SyncGroupResponse | None:
        if call.version >= FIRST_VERSION_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
            return m.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not self._auth.authorize(call, AclOperation.READ, ResourceType.GROUP, request.group_id):
            return m.SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        sync = SyncRequest(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {each.member_id: each.assignment for each in request.assignments},
        )
        answer = DeferredResponse(call, _response)
        self._groups.sync(request.group_id, sync, answer)
        response: m.SyncGroupResponse | None = answer.response()
        return response


def _response(_: Call, result: SyncResult) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
