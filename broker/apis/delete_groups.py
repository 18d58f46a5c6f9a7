"""DeleteGroups (key 42), versions 0 to 2: delete groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class DeleteGroups:
    """Handles DeleteGroups."""

    KEY = 42
    VERSIONS = (0, 2)

    def __init__(self, groups: GroupMetadataManager, auth: AuthHelper) -> None:
        self._groups = groups
        self._auth = auth

    def handle(self, call: Call, request: m.DeleteGroupsRequest) -> m.DeleteGroupsResponse:
        return m.DeleteGroupsResponse(
            results=[
                m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=self._delete(call, group_id))
                for group_id in items_of(dict.fromkeys(request.groups_names))
            ]
        )

    def _delete(self, call: Call, group_id: str) -> ErrorCode:
        if not self._auth.authorize(call, AclOperation.DELETE, ResourceType.GROUP, group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return self._groups.delete_group(group_id)
