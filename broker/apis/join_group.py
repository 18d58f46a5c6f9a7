"""JoinGroup (key 11), versions 0 to 9: a member joins the next generation of its group.

Version 1 adds the rebalance timeout (KIP-62), 4 a second join of new members with the id of the first response
(KIP-394), 5 the group instance id (KIP-345), 7 the protocol type in the response (KIP-559), 8 the reason, and 9 lets a
returning static leader skip the assignment (KIP-814). The coordinator answers when all members have joined.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.group.deferred_response import DeferredResponse
from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.group.state.classic_requests import JoinRequest, JoinResult, Terms
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import list_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

FIRST_VERSION_THAT_REQUIRES_IDS: Final = 4
FIRST_VERSION_WITHOUT_PROTOCOL: Final = 7
FIRST_VERSION_TO_SKIP_ASSIGNMENT: Final = 9
MEMBERS_AT_ONCE: Final = 250
"""Members in a response that is made at once, about a millisecond. Only the leader's response has members."""


class JoinGroup:
    """Handles JoinGroup."""

    KEY = 11
    VERSIONS = (0, 9)

    def __init__(
        self,
        groups: GroupMetadataManager,
        auth: AuthHelper,
        reply_in_turns: Callable[[Call, Callable[[], m.JoinGroupResponse]], None],
    ) -> None:
        """`reply_in_turns` makes a response in turns with the loop, and sends it."""
        self._groups = groups
        self._auth = auth
        self._reply_in_turns = reply_in_turns

    def handle(self, call: Call, request: m.JoinGroupRequest) -> m.JoinGroupResponse | None:
        if not self._auth.authorize(call, AclOperation.READ, ResourceType.GROUP, request.group_id):
            return _response(call, JoinResult(ErrorCode.GROUP_AUTHORIZATION_FAILED, ""))
        if len(request.protocols) > self._groups.most_protocols:
            return _response(call, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
        session_timeout_ms = request.session_timeout_ms
        terms = Terms(
            request.group_instance_id,
            call.client_id or "",
            call.client_host,
            session_timeout_ms,
            request.rebalance_timeout_ms if call.version else session_timeout_ms,
            tuple([(protocol.name, protocol.metadata) for protocol in request.protocols]),
        )
        join = JoinRequest(
            request.member_id,
            request.protocol_type,
            terms,
            id_required=call.version >= FIRST_VERSION_THAT_REQUIRES_IDS and request.group_instance_id is None,
            may_skip_assignment=call.version >= FIRST_VERSION_TO_SKIP_ASSIGNMENT,
        )
        answer = DeferredResponse(call, _response, self._reply_long)
        self._groups.join(request.group_id, join, answer)
        response: m.JoinGroupResponse | None = answer.response()
        return response

    def _reply_long(self, call: Call, result: JoinResult) -> bool:
        """Make and send the response of the leader of a large group in turns with the loop."""
        if len(result.members) <= MEMBERS_AT_ONCE:
            return False
        self._reply_in_turns(call, partial(_response, call, result))
        return True


def _response(call: Call, result: JoinResult) -> m.JoinGroupResponse:
    protocol_name = result.protocol_name
    if protocol_name is None and call.version < FIRST_VERSION_WITHOUT_PROTOCOL:
        protocol_name = ""
    return m.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=list_of(
            m.JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in items_of(result.members)
        ),
    )
