"""Static members of a classic group that return under a new member id (KIP-345, KIP-814)."""

from __future__ import annotations

from functools import partial
from typing import Any

from odradek.broker.group.state.classic_group import ClassicGroup
from odradek.broker.group.state.classic_members import Member
from odradek.broker.group.state.classic_rebalance import ClassicRebalance
from odradek.broker.group.state.classic_requests import (
    UNKNOWN_MEMBER_ID,
    ClassicGroupState,
    JoinRequest,
    JoinResult,
    ReturnStored,
    SyncResult,
    Terms,
)
from odradek.broker.group.state.classic_sessions import ClassicSessions
from odradek.broker.runtime.state.effects import Now
from odradek.protocol.errors import ErrorCode


class StaticMembers:
    """Replaces the ids of static members that return, and restores them where the log refuses that."""

    def __init__(self, group: ClassicGroup, sessions: ClassicSessions, rebalance: ClassicRebalance) -> None:
        self._group = group
        self._sessions = sessions
        self._rebalance = rebalance

    def replace(self, token: Any, member: Member, member_id: str, request: JoinRequest, now: Now) -> None:
        """A static member joins without its member id: it gets a new one, and its former process is fenced."""
        old_id, old_terms, old_leader = member.member_id, member.terms, self._group.group_members.leader or ""
        self._sessions.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._sessions.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._rename(member, member_id, now)
        self._rebalance.rejoin(token, member, request.terms)
        if self._group.state is ClassicGroupState.COMPLETING:
            # The leader may send an assignment for the old id at this moment.
            self._rebalance.prepare(now)
        elif self._group.state is ClassicGroupState.STABLE:
            names = [name for name, _ in request.terms.protocols]
            if (
                names != [name for name, _ in old_terms.protocols]
                and self._group.group_members.select_protocol() != self._group.protocol_name
            ):
                self._rebalance.maybe_prepare(now)
                return
            returned = ReturnStored(
                self._group.generation, member, member_id, old_id, old_leader, request.may_skip_assignment
            )
            self._rebalance.store_return(returned, partial(self._restore, returned, old_terms))

    def _restore(self, token: ReturnStored, old_terms: Terms) -> None:
        """Undo the new id and protocols of a member, unless a rebalance has begun or the member has left."""
        if not self._is_overtaken(token) and token.member.member_id == token.new_id:
            self._group.group_members.update(token.member, old_terms)
            self._rebalance.renamed(token.new_id, token.old_id)
            self._group.group_members.rename(token.member, token.old_id)

    def _is_overtaken(self, token: ReturnStored) -> bool:
        """Whether a rebalance answers the join when it ends, or the member has left."""
        if self._group.state is not ClassicGroupState.STABLE or self._group.generation != token.generation:
            return True
        return self._group.group_members.get(token.member.member_id) is not token.member

    def stored(self, token: ReturnStored, error: ErrorCode, refused: bool, now: Now) -> None:
        """Handle the outcome of the append that stored the new id."""
        member = token.member
        if self._is_overtaken(token):
            return
        if refused:
            self._sessions.end(token.new_id)
            self._sessions.renew(member, now)
        elif member.member_id != token.new_id:
            return  # the member has rejoined since
        if member.join_token is None:
            return  # the join was answered when the append timed out, or when the member rejoined
        if error:
            result = self._group.join_result(member)._replace(
                error=error, member_id=UNKNOWN_MEMBER_ID, leader=token.old_leader, members=()
            )
        elif token.may_skip_assignment:
            result = self._group.join_result(member)._replace(
                skip_assignment=self._group.group_members.leader == member.member_id
            )
        else:
            # An older client that receives its own id as the leader's would compute an assignment again, and a stable
            # group would not distribute it; so it receives the leader's old id.
            result = self._group.join_result(member)._replace(leader=token.old_leader, members=())
        self._sessions.answer_join(member, result)
        self._sessions.renew(member, now)

    def _rename(self, member: Member, member_id: str, now: Now) -> None:
        self._sessions.end(member.member_id)
        self._rebalance.renamed(member.member_id, member_id)
        self._group.group_members.rename(member, member_id)
        self._sessions.renew(member, now)
