"""Sessions of the members of a classic group: timers, waiting requests, and ids that no member uses yet (KIP-394).

A heartbeat does not set a timer: it moves the member's deadline, and a timer that fires early is set again for the
remaining time.
"""

from __future__ import annotations

from odradek.broker.group.state.classic_members import Member
from odradek.broker.group.state.classic_requests import JoinResult, SyncResult
from odradek.broker.runtime.state.effects import Effects, Now


class ClassicSessions:
    """The effects of a group, and the timers and answers of its members."""

    __slots__ = ("effects", "pending")

    def __init__(self) -> None:
        self.effects = Effects()
        self.pending: dict[str, None] = {}
        """Member ids that the coordinator gave and no member has used yet."""

    def expect(self, member_id: str, deadline_ms: int) -> None:
        """Wait for the join of a member with a new id."""
        self.pending[member_id] = None
        self.effects.arm(("pending", member_id), deadline_ms)

    def expect_no_more(self, member_id: str) -> None:
        """The member has joined, or its id is no longer valid."""
        if member_id in self.pending:
            del self.pending[member_id]
            self.effects.disarm(("pending", member_id))

    def touch(self, member: Member, now: Now, timeout_ms: int) -> None:
        """Renew the session of a member."""
        member.deadline_ms = now.monotonic_ms + timeout_ms
        name = ("member", member.member_id)
        armed = self.effects.armed.get(name)
        if armed is None or armed > member.deadline_ms:
            self.effects.arm(name, member.deadline_ms)

    def renew(self, member: Member, now: Now) -> None:
        """Renew the session of a member for its session timeout."""
        self.touch(member, now, member.terms.session_timeout_ms)

    def end(self, member_id: str) -> None:
        """End the session of a member that is removed or gets another id."""
        self.effects.disarm(("member", member_id))

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """Answer the waiting join of a member, if there is one."""
        if member.join_token is not None:
            self.effects.reply(member.join_token, result)
            member.join_token = None

    def answer_sync(self, member: Member, result: SyncResult) -> None:
        """Answer the waiting sync of a member, if there is one."""
        if member.sync_token is not None:
            self.effects.reply(member.sync_token, result)
            member.sync_token = None
