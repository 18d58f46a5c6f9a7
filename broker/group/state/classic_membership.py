"""Requests of the members of one group in the classic protocol (Kafka: GroupMetadataManager, GroupCoordinator).

The rules are those of Apache Kafka 3.9's GroupCoordinator and GroupMetadata: the classic group protocol with static
membership (KIP-345), member ids given before joining (KIP-394), a bounded initial delay (KIP-134), a bound on size
(KIP-389), a deadline for syncs, and the shortcut for a returning static leader (KIP-814).

| state               | join                                | sync                 | heartbeat   | commit              |
|---------------------|-------------------------------------|----------------------|-------------|---------------------|
| Empty               | starts the initial delay            | UNKNOWN_MEMBER       | the same    | simple consumers    |
| PreparingRebalance  | waits for the others                | REBALANCE            | REBALANCE   | the old generation  |
| CompletingRebalance | changed: rebalance; else answered   | waits for the leader | accepted    | REBALANCE           |
| Stable              | changed or the leader's: rebalance; else answered | the assignment | accepted | members       |
| Dead                | COORDINATOR_NOT_AVAILABLE           | the same             | the same    | the same            |

| from                | event                                                         | to                  |
|---------------------|---------------------------------------------------------------|---------------------|
| Empty               | a member joins                                                | PreparingRebalance  |
| PreparingRebalance  | all have joined; or the join deadline, and some have          | CompletingRebalance |
| PreparingRebalance  | no member is left                                             | Empty               |
| CompletingRebalance | the leader's assignment is durable                            | Stable              |
| CompletingRebalance | a join that changes something; a member leaves, expires, does not sync | PreparingRebalance |
| Stable              | a join that changes something; a member leaves, expires, does not sync | PreparingRebalance |
| Empty               | the last offset is removed, or the group is deleted           | Dead                |
| any                 | this broker no longer coordinates the group                   | Dead                |

Timers, by name: ("join",) ends PreparingRebalance, ("sync",) removes members that did not sync, ("member", id) ends a
session, ("answer",), ("store",) and ("sessions",) continue the answers of a rebalance, the encoding of its record and
the beginning of sessions, ("pending", id) removes a member id that the coordinator gave and no member used. A heartbeat
does not set a timer: it moves the member's deadline, and a timer that fires early is set again for the remaining time.

Kafka drops some waiting requests (a second sync of one member, the sync of a member that leaves). This module answers
them: responses leave a connection in order, and a missing one would block all later ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from odradek.broker.coordinator.state.pending_writes import COMMITTED
from odradek.broker.group.state.classic_group import ClassicGroup
from odradek.broker.group.state.classic_members import Member, size_of
from odradek.broker.group.state.classic_rebalance import AT_ONCE, ClassicRebalance
from odradek.broker.group.state.classic_requests import (
    STORE_ERRORS,
    UNKNOWN_MEMBER_ID,
    ClassicGroupState,
    GenerationStored,
    JoinRequest,
    JoinResult,
    ReturnStored,
    SyncRequest,
    SyncResult,
)
from odradek.broker.group.state.classic_sessions import ClassicSessions
from odradek.broker.group.state.classic_static_members import StaticMembers
from odradek.broker.group.state.settings import MEMBERS_SHARE, GroupSettings
from odradek.broker.runtime.state.effects import Each, Effect, Now, TimerName
from odradek.protocol.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
SESSIONS: Final[TimerName] = ("sessions",)


class Membership:
    """The state machine. Methods that take `now` are events; the caller performs the returned effects in order."""

    def __init__(self, group_id: str, settings: GroupSettings, now: Now) -> None:
        self.group = ClassicGroup(group_id, now)
        """The members, the generation and the protocol."""
        self._settings = settings
        self._sessions = ClassicSessions()
        self._rebalance = ClassicRebalance(self.group, self._sessions, settings)
        self._static = StaticMembers(self.group, self._sessions, self._rebalance)
        self._without_session: deque[Member] = deque()

    @property
    def state(self) -> ClassicGroupState:
        """The state of the group."""
        return self.group.state

    @property
    def is_dead(self) -> bool:
        """Whether the group has ended."""
        return self.group.state is ClassicGroupState.DEAD

    @property
    def is_empty(self) -> bool:
        """Whether the group exists and has no members."""
        return self.group.state is ClassicGroupState.EMPTY

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of the members, such as "consumer"; None before the first join."""
        return self.group.protocol_type

    @property
    def knows_subscriptions(self) -> bool:
        """Whether the members are consumers with readable subscriptions."""
        return self.group.knows_subscriptions

    def subscribed(self, topics: Iterable[str]) -> set[str]:
        """Which of these topics a member consumes; all of them where the subscriptions are unknown."""
        return {topic for topic in topics if self.group.subscribes_to(topic)}

    @property
    def armed(self) -> dict[TimerName, int]:
        """The timers that are set, with their deadlines (monotonic ms)."""
        return dict(self._sessions.effects.armed)

    # --- requests ---

    def join(self, token: Any, request: JoinRequest, unique: str, now: Now) -> list[Effect]:
        """Add a member to the next generation. Answered with a JoinResult; a new member id ends in `unique`."""
        member_id = request.member_id
        if self.group.state is ClassicGroupState.DEAD:
            self._sessions.effects.reply(token, JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
        elif not self._has_room(member_id) or not self._has_memory(request):
            self._rebalance.drop(member_id)
            self._sessions.effects.reply(token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID))
        elif not self.group.speaks(request):
            self._sessions.effects.reply(token, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_new(token, request, unique, now)
        elif member_id in self._sessions.pending:
            if request.terms.instance_id is not None:
                self._sessions.effects.reply(token, JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, member_id))
            else:
                self._add(token, member_id, request, now)
        else:
            self._join_known(token, request, now)
        self._rebalance.try_complete_join(now)
        return self._sessions.effects.drain()

    def _has_memory(self, request: JoinRequest) -> bool:
        """Whether the metadata of a member fits the limits of a member and of the group. Kafka has no such limits."""
        limit = self._settings.odradek_group_max_metadata_bytes
        size = size_of(request.terms)
        member = self.group.group_members.get(request.member_id)
        before = member.memory_bytes if member is not None else 0
        return size <= limit // MEMBERS_SHARE and self.group.group_members.memory_bytes + size - before <= limit

    def _has_room(self, member_id: str) -> bool:
        limit = self._settings.group_max_size
        if member_id == UNKNOWN_MEMBER_ID and len(self._sessions.pending) >= limit:
            return False  # Kafka gives any number of ids
        if self.group.state is ClassicGroupState.EMPTY:
            return True
        member = self.group.group_members.get(member_id)
        if self.group.state is ClassicGroupState.PREPARING:
            # Count the members that have joined, not all members: after the limit is lowered, the last to rejoin are
            # refused.
            members = self.group.group_members
            return (
                len(members) < limit
                or (member is not None and member.join_token is not None)
                or members.joining < limit
            )
        return member is not None or len(self.group.group_members) < limit

    def _join_new(self, token: Any, request: JoinRequest, unique: str, now: Now) -> None:
        terms = request.terms
        if terms.instance_id is not None:
            member_id = f"{terms.instance_id}-{unique}"
            known = self.group.group_members.of_instance(terms.instance_id)
            if known is not None:
                self._static.replace(token, known, member_id, request, now)
            else:
                self._add(token, member_id, request, now)
            return
        member_id = f"{terms.client_id}-{unique}"
        if request.id_required:
            self._sessions.expect(member_id, now.monotonic_ms + terms.session_timeout_ms)
            self._sessions.effects.reply(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(token, member_id, request, now)

    def _join_known(self, token: Any, request: JoinRequest, now: Now) -> None:
        error = self.group.check_member(request.member_id, request.terms.instance_id)
        member = self.group.group_members.get(request.member_id)
        if error or member is None:
            self._sessions.effects.reply(token, JoinResult(error or ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        elif self.group.state is ClassicGroupState.EMPTY:
            self._sessions.effects.reply(token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        elif (
            self.group.state is ClassicGroupState.PREPARING
            or member.terms.protocols != request.terms.protocols
            # A leader that rejoins a stable group has detected a change that its metadata lacks, such as new
            # partitions.
            or (self.group.state is ClassicGroupState.STABLE and self.group.group_members.leader == member.member_id)
        ):
            self._rebalance.rejoin(token, member, request.terms)
            self._rebalance.maybe_prepare(now)
        else:
            # Probably the client did not receive the first response; the generation is still the current one.
            self._sessions.effects.reply(token, self.group.join_result(member))

    def _add(self, token: Any, member_id: str, request: JoinRequest, now: Now) -> None:
        self._sessions.expect_no_more(member_id)
        self._rebalance.note_new_member()
        if not self.group.group_members:
            self.group.protocol_type = request.protocol_type
        member = Member(member_id, request.terms)
        member.is_new = True
        member.join_token = token
        self.group.group_members.add(member)
        # It has no session before it has its id, and a disconnected client is not detected while its join waits.
        self._sessions.touch(member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.maybe_prepare(now)

    def sync(self, token: Any, request: SyncRequest, now: Now) -> list[Effect]:
        """Return a member's assignment; the leader's request contains all assignments. Answered with a SyncResult."""
        error = self.group.check_sync(request)
        member = self.group.group_members.get(request.member_id)
        if error or member is None:
            self._sessions.effects.reply(token, SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))
        elif self.group.state is ClassicGroupState.STABLE:
            self._rebalance.synced(member)
            self._sessions.effects.reply(token, self.group.sync_result(member))
            self._sessions.renew(member, now)
        else:
            if member.sync_token is not None:
                self._sessions.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_token = token
            self._rebalance.synced(member)
            if self.group.group_members.leader == member.member_id:
                self._rebalance.assign(request.assignments, now)
        return self._sessions.effects.drain()

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> tuple[ErrorCode, list[Effect]]:
        """Renew the session of a member."""
        if self.group.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        error = self.group.check_member(member_id, instance_id)
        if error:
            return error, []
        if generation != self.group.generation:
            return ErrorCode.ILLEGAL_GENERATION, []
        member = self.group.group_members.get(member_id)
        if self.group.state is ClassicGroupState.EMPTY or member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        self._sessions.renew(member, now)
        preparing = self.group.state is ClassicGroupState.PREPARING
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE, self._sessions.effects.drain()

    def leave(self, member_id: str, instance_id: str | None, now: Now) -> tuple[ErrorCode, list[Effect]]:
        """Remove a member that leaves, or a static member that an administrator names by its instance id alone."""
        if member_id == UNKNOWN_MEMBER_ID:
            static = self.group.group_members.of_instance(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
            self._rebalance.remove(static, now)
        elif member_id in self._sessions.pending:
            self._rebalance.drop(member_id)
            self._rebalance.try_complete_join(now)
        else:
            error = self.group.check_member(member_id, instance_id)
            member = self.group.group_members.get(member_id)
            if error or member is None:
                return error or ErrorCode.UNKNOWN_MEMBER_ID, []
            self._rebalance.remove(member, now)
        return ErrorCode.NONE, self._sessions.effects.drain()

    def _session_deadline(self, member_id: str, now: Now) -> None:
        member = self.group.group_members.get(member_id)
        if member is None or member.counts_as_alive:
            return
        if member.deadline_ms > now.monotonic_ms:
            self._sessions.effects.arm(("member", member_id), member.deadline_ms)
        else:
            self._rebalance.remove(member, now)

    def seen(self, member_id: str, now: Now) -> list[Effect]:
        """Renew the session of a member that has sent another request."""
        member = self.group.group_members.get(member_id)
        if member is not None:
            self._sessions.renew(member, now)
        return self._sessions.effects.drain()

    # --- the log and timers ---

    def stored(self, token: GenerationStored | ReturnStored, error: ErrorCode, now: Now) -> list[Effect]:
        """Handle the outcome of an Append of this state machine; `error` is the code that the log returned."""
        refused = error not in COMMITTED and error is not ErrorCode.REQUEST_TIMED_OUT
        error = STORE_ERRORS.get(error, error)
        if isinstance(token, ReturnStored):
            self._static.stored(token, error, refused, now)
        elif token.assignments is not None:
            self._rebalance.finish_generation(token.generation, token.assignments, error, now)
        elif refused:
            self._rebalance.retry_empty(token.generation, now)
        return self._sessions.effects.drain()

    def reverted(self, now: Now) -> list[Effect]:
        """Return the effects after the log has refused records; `stored` has already handled the refusal."""
        return self._sessions.effects.drain()

    def revive(self, now: Now) -> list[Effect]:
        """Continue in the former state, because the log has refused the records that ended this group.

        A rebalance in progress starts again, since the requests that waited in it have been answered.
        """
        self._begin_sessions(now)
        if self.group.state in (ClassicGroupState.PREPARING, ClassicGroupState.COMPLETING):
            self._rebalance.prepare(now)
        return self._sessions.effects.drain()

    def _begin_sessions(self, now: Now) -> None:
        """Start a new session of each member, of a large group in several events."""
        self._without_session = deque(self.group.group_members)
        self._begin_more_sessions(now)

    def _begin_more_sessions(self, now: Now) -> None:
        for _ in range(min(len(self._without_session), AT_ONCE)):
            member = self._without_session.popleft()
            if self.group.group_members.get(member.member_id) is member:
                self._sessions.renew(member, now)
        if self._without_session:
            self._sessions.effects.arm(SESSIONS, now.monotonic_ms)

    def loaded(self, now: Now, *, changed: bool = False) -> list[Effect]:
        """Start new sessions after a load of the group or, if `changed`, after a change of its protocol."""
        if changed or len(self.group.group_members) > self._settings.group_max_size:
            self._rebalance.prepare(now)
        self._begin_sessions(now)
        return self._sessions.effects.drain()

    def resign(self, now: Now, each: Each) -> list[Effect]:
        """Answer all waiting requests, because this broker no longer coordinates the group; the shell cancels its
        timers. The loop over `each` may be interrupted (Kafka: GroupCoordinator.onResignation).
        """
        self.group.become(ClassicGroupState.DEAD, now)
        self._rebalance.cancel()
        self._sessions.effects.armed.clear()
        self._answer_all(each(list(self.group.group_members)), ErrorCode.NOT_COORDINATOR)
        return self._sessions.effects.drain()

    def unload(self, now: Now, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> list[Effect]:
        """Answer all waiting requests, because the protocol of the group changes or the log has refused the group."""
        self._answer_all(self.group.group_members, error)
        return self.die(now)

    def _answer_all(self, members: Iterable[Member], error: ErrorCode) -> None:
        for member in members:
            self._sessions.answer_join(member, JoinResult(error, member.member_id))
            self._sessions.answer_sync(member, SyncResult(error))

    def die(self, now: Now) -> list[Effect]:
        """End the group: cancel all timers."""
        self.group.become(ClassicGroupState.DEAD, now)
        self._rebalance.cancel()
        for name in list(self._sessions.effects.armed):
            self._sessions.effects.disarm(name)
        return self._sessions.effects.drain()

    def timer(self, name: TimerName, now: Now) -> list[Effect]:
        """Handle a timer that has fired."""
        self._sessions.effects.fired(name)
        match name:
            case ("join",):
                self._rebalance.join_deadline(now)
            case ("sync",):
                self._rebalance.sync_deadline(now)
            case ("answer",):
                self._rebalance.answer_more(now)
                self._rebalance.try_complete_join(now)
            case ("store",):
                self._rebalance.store_more(now)
            case ("sessions",):
                self._begin_more_sessions(now)
            case ("member", member_id):
                self._session_deadline(member_id, now)
            case ("pending", member_id):
                self._rebalance.drop(member_id)
                self._rebalance.try_complete_join(now)
        return self._sessions.effects.drain()
