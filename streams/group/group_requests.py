"""Group requests: the requests of a member to its coordinator (Kafka: AbstractCoordinator)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from odradek.protocol import messages as m
from odradek.protocol.client.connection import code_of
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.streams.group.committed_offsets import CommittingMember
from odradek.streams.group.connection import CoordinatorLink
from odradek.streams.group.group_protocol import PROTOCOL_NAME, PROTOCOL_TYPE, MembershipConfig

log = logging.getLogger(__name__)


def join_group_request(config: MembershipConfig, identity: CommittingMember, metadata: bytes) -> m.JoinGroupRequest:
    """Joins the next generation with this subscription."""
    return m.JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=identity.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=metadata)],
    )


def sync_group_request(
    config: MembershipConfig, identity: CommittingMember, assignments: Mapping[str, bytes]
) -> m.SyncGroupRequest:
    """Requests the member's part of the assignment; the leader sends the assignment of each member with it."""
    return m.SyncGroupRequest(
        group_id=config.group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=PROTOCOL_NAME,
        assignments=[
            m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )


def heartbeat_request(config: MembershipConfig, identity: CommittingMember) -> m.HeartbeatRequest:
    """Keeps the session of a member."""
    return m.HeartbeatRequest(
        group_id=config.group_id,
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=config.group_instance_id,
    )


def leave_group(link: CoordinatorLink, config: MembershipConfig, identity: CommittingMember, reason: str) -> None:
    """Send LeaveGroup. Errors go to the log."""
    request = m.LeaveGroupRequest(
        group_id=config.group_id,
        members=[
            m.LeaveGroupRequest.MemberIdentity(
                member_id=identity.member_id, group_instance_id=config.group_instance_id, reason=reason
            )
        ],
    )
    try:
        try:
            answer: m.LeaveGroupResponse = link.ask(request)
        except ConnectionError:  # the broker was restarted since the last use of this link
            answer = link.ask(request)
        codes = {code_of(answer.error_code), *(code_of(member.error_code) for member in answer.members)}
        outcome = ", ".join(sorted(code.name for code in codes - {ErrorCode.NONE}))
    except (OSError, ProtocolError, KafkaError) as error:
        outcome = str(error)
    if outcome:
        log.warning("error while leaving the group group=%s error=%s", config.group_id, outcome)
