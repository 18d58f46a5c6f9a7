"""ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates.

Version 4 filters by state (KIP-518), 5 by type (KIP-848); both case-insensitively. A client that may describe the
cluster gets all groups, another one those that it may describe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class ListGroups:
    """Handles ListGroups."""

    KEY = 16
    VERSIONS = (0, 5)

    def __init__(self, groups: GroupMetadataManager, auth: AuthHelper) -> None:
        self._groups = groups
        self._auth = auth

    def handle(self, call: Call, request: m.ListGroupsRequest) -> m.ListGroupsResponse:
        error, found = self._groups.list_groups(request.states_filter)
        types = [each.lower() for each in request.types_filter]
        all_of_them = self._auth.authorize_cluster(call, AclOperation.DESCRIBE, log_if_denied=False)
        return m.ListGroupsResponse(
            error_code=error,
            groups=[
                m.ListGroupsResponse.ListedGroup(
                    group_id=group_id, protocol_type=protocol_type, group_state=state, group_type=group_type
                )
                for group_id, protocol_type, state, group_type in items_of(found)
                if (not types or group_type in types) and (all_of_them or self._may_describe(call, group_id))
            ],
        )

    def _may_describe(self, call: Call, group_id: str) -> bool:
        return self._auth.authorize(call, AclOperation.DESCRIBE, ResourceType.GROUP, group_id, log_if_denied=False)
