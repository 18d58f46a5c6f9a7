"""Members, generations and assignments of one group in the classic protocol (Kafka: GroupMetadata, ClassicGroup).

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
session, ("pending", id) removes a member id that the coordinator gave and no member used. A heartbeat does not set a
timer: it moves the member's deadline, and a timer that fires early is set again for the remaining time.

Kafka drops some waiting requests (a second sync of one member, the sync of a member that leaves). This module answers
them: responses leave a connection in order, and a missing one would block all later ones.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from odradek.broker.coordinator.state.pending_writes import COMMITTED, RETRY_MS
from odradek.broker.group.state.classic_generation import Generation
from odradek.broker.group.state.classic_members import Member
from odradek.broker.group.state.classic_requests import (
    STORE_ERRORS,
    UNKNOWN_MEMBER_ID,
    GenerationStored,
    JoinRequest,
    JoinResult,
    ReturnStored,
    State,
    SyncRequest,
    SyncResult,
    Terms,
)
from odradek.broker.group.state.records import group_record, restore_members
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import Effect, Effects, Now, TimerName
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
JOIN: Final[TimerName] = ("join",)
SYNC: Final[TimerName] = ("sync",)


class Membership(Generation):
    """The state machine. Methods that take `now` are events; the caller performs the returned effects in order."""

    def __init__(self, group_id: str, settings: GroupSettings, now: Now) -> None:
        super().__init__(group_id, now)
        self._settings = settings
        self._pending: dict[str, None] = {}
        self._unsynced: dict[str, None] = {}
        # While the first generation gathers: (the present delay, by how much it may still be prolonged).
        self._initial_delay: tuple[int, int] | None = None
        self._newcomer_during_delay = False
        self._storing_generation = -1
        self._effects = Effects()

    @property
    def armed(self) -> dict[TimerName, int]:
        """The timers that are set, with their deadlines (monotonic ms)."""
        return dict(self._effects.armed)

    # --- joining ---

    def join(self, token: Any, request: JoinRequest, unique: str, now: Now) -> list[Effect]:
        """Add a member to the next generation. Answered with a JoinResult; a new member id ends in `unique`."""
        member_id = request.member_id
        if self.state is State.DEAD:
            self._effects.reply(token, JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
        elif not self._has_room(member_id):
            self._drop(member_id)
            self._effects.reply(token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID))
        elif not self._speaks(request):
            self._effects.reply(token, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif member_id == UNKNOWN_MEMBER_ID:
            self._join_new(token, request, unique, now)
        elif member_id in self._pending:
            if request.terms.instance_id is not None:
                self._effects.reply(token, JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR, member_id))
            else:
                self._add(token, member_id, request, now)
        else:
            self._join_known(token, request, now)
        self._try_complete_join(now)
        return self._effects.drain()

    def _has_room(self, member_id: str) -> bool:
        limit = self._settings.group_max_size
        if self.state is State.EMPTY:
            return True
        member = self.group_members.get(member_id)
        if self.state is State.PREPARING:
            # Count the members that have joined, not all members: after the limit is lowered, the last to rejoin are
            # refused.
            return (member is not None and member.join_token is not None) or self.group_members.joining < limit
        return member is not None or len(self.group_members) < limit

    def _speaks(self, request: JoinRequest) -> bool:
        if self.state is State.EMPTY:
            return bool(request.protocol_type and request.terms.protocols)
        return self.protocol_type == request.protocol_type and self.group_members.supports(request.terms.protocols)

    def _join_new(self, token: Any, request: JoinRequest, unique: str, now: Now) -> None:
        terms = request.terms
        if terms.instance_id is not None:
            member_id = f"{terms.instance_id}-{unique}"
            known = self.group_members.of_instance(terms.instance_id)
            if known is not None:
                self._return_static(token, known, member_id, request, now)
            else:
                self._add(token, member_id, request, now)
            return
        member_id = f"{terms.client_id}-{unique}"
        if request.id_required:
            self._pending[member_id] = None
            self._effects.arm(("pending", member_id), now.monotonic_ms + terms.session_timeout_ms)
            self._effects.reply(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(token, member_id, request, now)

    def _join_known(self, token: Any, request: JoinRequest, now: Now) -> None:
        error = self._check_member(request.member_id, request.terms.instance_id)
        member = self.group_members.get(request.member_id)
        if error or member is None:
            self._effects.reply(token, JoinResult(error or ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        elif self.state is State.EMPTY:
            self._effects.reply(token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        elif (
            self.state is State.PREPARING
            or member.terms.protocols != request.terms.protocols
            # A leader that rejoins a stable group has detected a change that its metadata lacks, such as new
            # partitions.
            or (self.state is State.STABLE and self.group_members.leader == member.member_id)
        ):
            self._rejoin(token, member, request.terms)
            self._maybe_prepare(now)
        else:
            # Probably the client did not receive the first response; the generation is still the current one.
            self._effects.reply(token, self._generation_for(member))

    def _add(self, token: Any, member_id: str, request: JoinRequest, now: Now) -> None:
        if member_id in self._pending:
            del self._pending[member_id]
            self._effects.disarm(("pending", member_id))
        if self.state is State.PREPARING and self.generation == 0:
            self._newcomer_during_delay = True
        if not self.group_members:
            self.protocol_type = request.protocol_type
        member = Member(member_id, request.terms)
        member.is_new = True
        member.join_token = token
        self.group_members.add(member)
        # It has no session before it has its id, and a disconnected client is not detected while its join waits.
        self._touch(member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._maybe_prepare(now)

    def _rejoin(self, token: Any, member: Member, terms: Terms) -> None:
        self._answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.group_members.update(member, terms)
        member.join_token = token

    def _return_static(self, token: Any, member: Member, member_id: str, request: JoinRequest, now: Now) -> None:
        old_id, old_terms, old_leader = member.member_id, member.terms, self.group_members.leader or ""
        self._answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._rename(member, member_id, now)
        self._rejoin(token, member, request.terms)
        if self.state is State.COMPLETING:
            # The leader may send an assignment for the old id at this moment.
            self._prepare(now)
        elif self.state is State.STABLE:
            if self.group_members.select_protocol() != self.protocol_name:
                self._maybe_prepare(now)
                return
            undo = ReturnStored(
                self.generation, member, member_id, old_id, old_terms, old_leader, request.may_skip_assignment
            )
            self._store({each.member_id: each.assignment for each in self.group_members}, undo)

    def _finish_return(self, token: ReturnStored, error: ErrorCode, refused: bool, now: Now) -> None:
        member = token.member
        overtaken = self.state is not State.STABLE or self.generation != token.generation
        if overtaken or member.member_id != token.new_id:
            return  # a rebalance answers the join when it ends, or the member has rejoined since
        if refused:
            self.group_members.update(member, token.old_terms)
            self._rename(member, token.old_id, now)
        if member.join_token is None:
            return  # the join was answered when the append timed out, or when the member rejoined
        if error:
            result = self._generation_for(member)._replace(
                error=error, member_id=UNKNOWN_MEMBER_ID, leader=token.old_leader, members=()
            )
        elif token.may_skip_assignment:
            result = self._generation_for(member)._replace(
                skip_assignment=self.group_members.leader == member.member_id
            )
        else:
            # An older client that receives its own id as the leader's would compute an assignment again, and a stable
            # group would not distribute it; so it receives the leader's old id.
            result = self._generation_for(member)._replace(leader=token.old_leader, members=())
        self._answer_join(member, result)
        self._touch(member, now, member.terms.session_timeout_ms)

    def _rename(self, member: Member, member_id: str, now: Now) -> None:
        self._effects.disarm(("member", member.member_id))
        if member.member_id in self._unsynced:
            del self._unsynced[member.member_id]
            self._unsynced[member_id] = None
        self.group_members.rename(member, member_id)
        self._touch(member, now, member.terms.session_timeout_ms)

    # --- the rebalance ---

    def _maybe_prepare(self, now: Now) -> None:
        if self.state in (State.EMPTY, State.STABLE, State.COMPLETING):
            self._prepare(now)

    def _prepare(self, now: Now) -> None:
        if self.state is State.COMPLETING:
            self._refuse_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._unsynced.clear()
        self._effects.disarm(SYNC)
        timeout_ms = self.group_members.rebalance_timeout_ms
        if self.state is State.EMPTY:
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            self._initial_delay = (delay_ms, max(timeout_ms - delay_ms, 0))
            self._effects.arm(JOIN, now.monotonic_ms + delay_ms)
        else:
            self._initial_delay = None
            self._effects.arm(JOIN, now.monotonic_ms + timeout_ms)
        self._become(State.PREPARING, now)
        self._try_complete_join(now)

    def _try_complete_join(self, now: Now) -> None:
        if (
            self.state is State.PREPARING
            and self._initial_delay is None
            and not self._pending
            and self.group_members.all_joined
        ):
            self._complete_join(now)

    def _join_deadline(self, now: Now) -> None:
        if self.state is not State.PREPARING:
            return
        if self._initial_delay is not None:
            delay_ms, left_ms = self._initial_delay
            if self._newcomer_during_delay and left_ms:
                self._newcomer_during_delay = False
                next_ms = min(self._settings.group_initial_rebalance_delay_ms, left_ms)
                self._initial_delay = (next_ms, max(left_ms - delay_ms, 0))
                self._effects.arm(JOIN, now.monotonic_ms + next_ms)
                return
        self._complete_join(now)

    def _complete_join(self, now: Now) -> None:
        self._initial_delay = None
        self._effects.disarm(JOIN)
        for member in [each for each in self.group_members if each.join_token is None and not each.is_static]:
            self._drop(member.member_id)
        if self.group_members and not self.group_members.elect():
            # Only static members are left and none has rejoined: wait until one does, or until their sessions end.
            self._effects.arm(JOIN, now.monotonic_ms + self.group_members.rebalance_timeout_ms)
            return
        self.generation += 1
        self._unsynced.clear()
        if not self.group_members:
            self.protocol_name = None
            self._become(State.EMPTY, now)
            self._subscribed = self._consumed_topics()
            self._store({}, None)
            return
        self.protocol_name = self.group_members.select_protocol()
        self._become(State.COMPLETING, now)
        self._subscribed = self._consumed_topics()
        for member in self.group_members:
            self._answer_join(member, self._generation_for(member))
            self._touch(member, now, member.terms.session_timeout_ms)
            member.is_new = False
            self._unsynced[member.member_id] = None
        self._effects.arm(SYNC, now.monotonic_ms + self.group_members.rebalance_timeout_ms)

    # --- the assignment ---

    def sync(self, token: Any, request: SyncRequest, now: Now) -> list[Effect]:
        """Return a member's assignment; the leader's request contains all assignments. Answered with a SyncResult."""
        error = self._check_sync(request)
        member = self.group_members.get(request.member_id)
        if error or member is None:
            self._effects.reply(token, SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))
        elif self.state is State.STABLE:
            self._synced(member)
            self._effects.reply(token, self._assignment_of(member))
            self._touch(member, now, member.terms.session_timeout_ms)
        else:
            self._answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_token = token
            self._synced(member)
            if self.group_members.leader == member.member_id and self._storing_generation != self.generation:
                # A leader that syncs again must not store a second assignment while the first append is pending.
                self._storing_generation = self.generation
                self._store(
                    {each.member_id: request.assignments.get(each.member_id, b"") for each in self.group_members}, None
                )
        return self._effects.drain()

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._check_member(request.member_id, request.instance_id)
        if error:
            return error
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else ErrorCode.NONE

    def _synced(self, member: Member) -> None:
        self._unsynced.pop(member.member_id, None)
        if not self._unsynced:
            self._effects.disarm(SYNC)

    def _sync_deadline(self, now: Now) -> None:
        if self.state in (State.COMPLETING, State.STABLE) and self._unsynced:
            for member_id in list(self._unsynced):
                self._drop(member_id)
            self._prepare(now)

    def _finish_generation(self, value: m.GroupMetadataValue, error: ErrorCode, now: Now) -> None:
        if self.generation != value.generation or self.state is not State.COMPLETING:
            return  # a later rebalance has made this assignment obsolete, or the generation is empty
        self._storing_generation = -1
        if error:
            self._refuse_assignment(error, now)
            self._prepare(now)
            return
        self.replay(value)
        for member in self.group_members:
            if member.sync_token is not None:
                self._answer_sync(member, self._assignment_of(member))
                self._touch(member, now, member.terms.session_timeout_ms)

    def _revert_empty(self, value: m.GroupMetadataValue, now: Now) -> None:
        """The log has refused the generation without members: the rebalance before it ends again after RETRY_MS."""
        if self.generation == value.generation and self.state is State.EMPTY:
            self.generation -= 1
            self._become(State.PREPARING, now)
            self._effects.arm(JOIN, now.monotonic_ms + RETRY_MS)

    def _refuse_assignment(self, error: ErrorCode, now: Now) -> None:
        for member in self.group_members:
            member.assignment = b""
            if member.sync_token is not None:
                self._answer_sync(member, SyncResult(error))
                # Its session was suspended while its sync waited.
                self._touch(member, now, member.terms.session_timeout_ms)

    # --- staying and leaving ---

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now: Now
    ) -> tuple[ErrorCode, list[Effect]]:
        """Renew the session of a member."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        error = self._check_member(member_id, instance_id)
        if error:
            return error, []
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION, []
        member = self.group_members.get(member_id)
        if self.state is State.EMPTY or member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, []
        self._touch(member, now, member.terms.session_timeout_ms)
        preparing = self.state is State.PREPARING
        return ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE, self._effects.drain()

    def leave(self, member_id: str, instance_id: str | None, now: Now) -> tuple[ErrorCode, list[Effect]]:
        """Remove a member that leaves, or a static member that an administrator names by its instance id alone."""
        if member_id == UNKNOWN_MEMBER_ID:
            static = self.group_members.of_instance(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, []
            self._lose(static, now)
        elif member_id in self._pending:
            self._drop(member_id)
            self._try_complete_join(now)
        else:
            error = self._check_member(member_id, instance_id)
            member = self.group_members.get(member_id)
            if error or member is None:
                return error or ErrorCode.UNKNOWN_MEMBER_ID, []
            self._lose(member, now)
        return ErrorCode.NONE, self._effects.drain()

    def _lose(self, member: Member, now: Now) -> None:
        self._drop(member.member_id)
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare(now)
        else:
            self._try_complete_join(now)

    def _session_deadline(self, member_id: str, now: Now) -> None:
        member = self.group_members.get(member_id)
        if member is None or member.counts_as_alive:
            return
        if member.deadline_ms > now.monotonic_ms:
            self._effects.arm(("member", member_id), member.deadline_ms)
        else:
            self._lose(member, now)

    # --- offsets: which commits the membership allows ---

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether this sender may commit; generation -1 without ids is a consumer that assigns partitions itself."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and member_id == UNKNOWN_MEMBER_ID and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID  # a group with members accepts commits of its members only
        error = self._check_member(member_id, instance_id)
        if error:
            return error
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        # The member has received the new generation, so it must not commit what it read in the old one.
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.COMPLETING else ErrorCode.NONE

    def seen(self, member_id: str, now: Now) -> list[Effect]:
        """Renew the session of a member that has sent another request."""
        member = self.group_members.get(member_id)
        if member is not None:
            self._touch(member, now, member.terms.session_timeout_ms)
        return self._effects.drain()

    # --- the log and timers ---

    def stored(self, token: GenerationStored | ReturnStored, error: ErrorCode, now: Now) -> list[Effect]:
        """Handle the outcome of an Append of this state machine; `error` is the code that the log returned."""
        refused = error not in COMMITTED and error is not ErrorCode.REQUEST_TIMED_OUT
        error = STORE_ERRORS.get(error, error)
        if isinstance(token, ReturnStored):
            self._finish_return(token, error, refused, now)
        elif token.value.members:
            self._finish_generation(token.value, error, now)
        elif refused:
            self._revert_empty(token.value, now)
        return self._effects.drain()

    def replay(self, value: m.GroupMetadataValue) -> None:
        """Apply a generation that is in the log: during a load, and when an assignment has become durable."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        restore_members(self.group_members, value)
        self.state = State.STABLE if value.members else State.EMPTY
        self.state_since_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
        self._subscribed = self._consumed_topics()
        self.in_log = value

    def reverted(self, now: Now) -> list[Effect]:
        """Return the effects after the log has refused records; `stored` has already handled the refusal."""
        return self._effects.drain()

    def revive(self, now: Now) -> list[Effect]:
        """Continue in the former state, because the log has refused the records that ended this group.

        A rebalance in progress starts again, since the requests that waited in it have been answered.
        """
        for member in self.group_members:
            self._touch(member, now, member.terms.session_timeout_ms)
        if self.state in (State.PREPARING, State.COMPLETING):
            self._prepare(now)
        return self._effects.drain()

    def loaded(self, now: Now, *, changed: bool = False) -> list[Effect]:
        """Start new sessions after a load of the group or, if `changed`, after a change of its protocol."""
        if changed or len(self.group_members) > self._settings.group_max_size:
            self._prepare(now)
        for member in self.group_members:
            self._touch(member, now, member.terms.session_timeout_ms)
        return self._effects.drain()

    def unload(self, now: Now, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> list[Effect]:
        """Answer all waiting requests, because this broker no longer coordinates the group or its protocol changes."""
        for member in self.group_members:
            self._answer_join(member, JoinResult(error, member.member_id))
            self._answer_sync(member, SyncResult(error))
        return self.die(now)

    def die(self, now: Now) -> list[Effect]:
        """End the group: cancel all timers."""
        self._become(State.DEAD, now)
        self._initial_delay = None
        for name in list(self._effects.armed):
            self._effects.disarm(name)
        return self._effects.drain()

    def timer(self, name: TimerName, now: Now) -> list[Effect]:
        """Handle a timer that has fired."""
        self._effects.fired(name)
        match name:
            case ("join",):
                self._join_deadline(now)
            case ("sync",):
                self._sync_deadline(now)
            case ("member", member_id):
                self._session_deadline(member_id, now)
            case ("pending", member_id):
                self._drop(member_id)
                self._try_complete_join(now)
        return self._effects.drain()

    # --- helpers ---

    def _store(self, assignments: dict[str, bytes], undo: ReturnStored | None) -> None:
        value = self.generation_value(assignments)
        before, self.in_log = self.in_log, value
        self._effects.append(
            [group_record(self.group_id, value)],
            undo or GenerationStored(value),
            (partial(setattr, self, "in_log", before),),
        )

    def _become(self, state: State, now: Now) -> None:
        self.state = state
        self.state_since_ms = now.wall_ms

    def _drop(self, member_id: str) -> None:
        """Remove a member or a pending id, and answer its waiting requests."""
        self._unsynced.pop(member_id, None)
        if member_id in self._pending:
            del self._pending[member_id]
            self._effects.disarm(("pending", member_id))
        member = self.group_members.remove(member_id)
        if member is not None:
            self._answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID))
            self._answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            self._effects.disarm(("member", member_id))

    def _touch(self, member: Member, now: Now, timeout_ms: int) -> None:
        member.deadline_ms = now.monotonic_ms + timeout_ms
        name = ("member", member.member_id)
        armed = self._effects.armed.get(name)
        if armed is None or armed > member.deadline_ms:
            self._effects.arm(name, member.deadline_ms)

    def _answer_join(self, member: Member, result: JoinResult) -> None:
        if member.join_token is not None:
            self._effects.reply(member.join_token, result)
            member.join_token = None

    def _answer_sync(self, member: Member, result: SyncResult) -> None:
        if member.sync_token is not None:
            self._effects.reply(member.sync_token, result)
            member.sync_token = None
