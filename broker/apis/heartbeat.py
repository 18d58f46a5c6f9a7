"""Heartbeat (key 12), versions 0 to 4: a member renews its session; the error code announces a rebalance.

Version 3 adds the group instance id (KIP-345).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class Heartbeat:
    """Handles Heartbeat."""

    KEY = 12
    VERSIONS = (0, 4)

    def __init__(self, groups: GroupMetadataManager, auth: AuthHelper) -> None:
        self._groups = groups
        self._auth = auth

    def handle(self, call: Call, request: m.HeartbeatRequest) -> m.HeartbeatResponse:
        if not self._auth.authorize(call, AclOperation.READ, ResourceType.GROUP, request.group_id):
            return m.HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return m.HeartbeatResponse(
            error_code=self._groups.heartbeat(
                request.group_id, request.member_id, request.group_instance_id, request.generation_id
            )
        )
