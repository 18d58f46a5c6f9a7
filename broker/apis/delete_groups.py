"""DeleteGroups (key 42), versions 0 to 2: delete groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import in_turn
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


OFFSETS_AT_ONCE: Final = 1000
"""Groups with more offsets in all are deleted in turns with the loop, however small the request is."""


class DeleteGroups:
    """Handles DeleteGroups."""

    KEY = 42
    VERSIONS = (0, 2)

    def __init__(
        self, groups: GroupMetadataManager, auth: AuthHelper, handle_in_turns: Callable[[Call, Any], None]
    ) -> None:
        """`handle_in_turns` calls `handle` in turns with the loop."""
        self._groups = groups
        self._auth = auth
        self._handle_in_turns = handle_in_turns

    def handle(self, call: Call, request: m.DeleteGroupsRequest) -> m.DeleteGroupsResponse | None:
        if not in_turn() and self._groups.offsets_of(request.groups_names) > OFFSETS_AT_ONCE:
            self._handle_in_turns(call, request)
            return None
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
