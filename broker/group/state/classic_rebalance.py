"""Rebalance of a classic group: from one generation to the next (Kafka: GroupMetadataManager.prepareRebalance).

`classic_membership` has the table of the states. A rebalance gathers the joins of all members (`JOIN` ends that), then
the leader's assignment (`SYNC` removes members that did not send their sync), and appends the generation.

Answers to, and removals of, more than AT_ONCE members are divided into parts (`ANSWER`, and `JOIN` or `SYNC` again), so
that a broker serves other clients in between. The group has its new state before the first part, and a request of the
group between two parts is handled in that state. If it begins a rebalance, joins without an answer wait for the next
generation, and syncs are answered as if it had come later: the rebalance does not end before that.

So are the examination of all members at the end of the join phase (`JOIN` again; the group has its former state until
the last part) and the encoding of all members for the record of the generation (`STORE`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

from odradek.broker.coordinator.state.pending_writes import RETRY_MS
from odradek.broker.group.state.classic_generation import NextGeneration
from odradek.broker.group.state.classic_group import ClassicGroup
from odradek.broker.group.state.classic_members import Member
from odradek.broker.group.state.classic_requests import (
    UNKNOWN_MEMBER_ID,
    ClassicGroupState,
    GenerationStored,
    JoinResult,
    ReturnStored,
    SyncResult,
    Terms,
)
from odradek.broker.group.state.classic_sessions import ClassicSessions
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import Now, TimerName
from odradek.protocol.errors import ErrorCode

JOIN: Final[TimerName] = ("join",)
SYNC: Final[TimerName] = ("sync",)
ANSWER: Final[TimerName] = ("answer",)
STORE: Final[TimerName] = ("store",)
AT_ONCE: Final = 250
"""Members that are answered, removed or encoded in one event: about two milliseconds."""
NO_ASSIGNMENTS: Final[Mapping[str, bytes]] = {}
JOIN_TOKEN: Final = attrgetter("join_token")


class ClassicRebalance:
    """The rebalances of one group."""

    def __init__(self, group: ClassicGroup, sessions: ClassicSessions, settings: GroupSettings) -> None:
        self._group = group
        self._sessions = sessions
        self._settings = settings
        self._unsynced: dict[str, None] = {}
        self._overdue: deque[Member] = deque()  # did not sync, and are to be removed
        # Joins and syncs whose outcome is decided, by their tokens, and the errors of syncs.
        self._unanswered: deque[tuple[Member, Any, ErrorCode]] = deque()
        # While the first generation gathers: (the present delay, by how much it may still be prolonged).
        self._initial_delay: tuple[int, int] | None = None
        self._new_member_during_delay = False
        self._next: NextGeneration | None = None
        self._storing_generation = -1
        self._assignments = NO_ASSIGNMENTS
        self._unencoded: deque[Member] = deque()  # for the record with these assignments

    # --- the join phase ---

    def note_new_member(self) -> None:
        """A member joins for the first time: it prolongs the initial delay."""
        if self._group.state is ClassicGroupState.PREPARING and self._group.generation == 0:
            self._new_member_during_delay = True

    def rejoin(self, token: Any, member: Member, terms: Terms) -> None:
        """A member joins again, perhaps with other protocols."""
        self._sessions.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._group.group_members.update(member, terms)
        member.join_token = token

    def maybe_prepare(self, now: Now) -> None:
        """Begin a rebalance, unless members are joining already."""
        if self._group.state in (ClassicGroupState.EMPTY, ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
            self.prepare(now)

    def prepare(self, now: Now) -> None:
        """Begin a rebalance: wait until all members have joined."""
        self._unanswered = deque(each for each in self._unanswered if each[1] is each[0].sync_token is not None)
        if self._group.state is ClassicGroupState.COMPLETING:
            self._refuse_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self._unsynced.clear()
        self._sessions.effects.disarm(SYNC)
        self._stop_storing()
        self._next = None
        timeout_ms = self._group.group_members.rebalance_timeout_ms
        if self._group.state is ClassicGroupState.EMPTY:
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            self._initial_delay = (delay_ms, max(timeout_ms - delay_ms, 0))
            self._sessions.effects.arm(JOIN, now.monotonic_ms + delay_ms)
        else:
            self._initial_delay = None
            self._sessions.effects.arm(JOIN, now.monotonic_ms + timeout_ms)
        self._group.become(ClassicGroupState.PREPARING, now)
        self.try_complete_join(now)

    def try_complete_join(self, now: Now) -> None:
        """End the join phase if every member has joined."""
        if (
            self._group.state is ClassicGroupState.PREPARING
            and self._initial_delay is None
            and not self._sessions.pending
            and not self._unanswered
            and self._group.group_members.all_joined
        ):
            self._complete_join(now)

    def join_deadline(self, now: Now) -> None:
        """End the join phase, or prolong the initial delay."""
        if self._group.state is not ClassicGroupState.PREPARING:
            return
        if self._initial_delay is not None:
            delay_ms, left_ms = self._initial_delay
            if self._new_member_during_delay and left_ms:
                self._new_member_during_delay = False
                next_ms = min(self._settings.group_initial_rebalance_delay_ms, left_ms)
                self._initial_delay = (next_ms, max(left_ms - delay_ms, 0))
                self._sessions.effects.arm(JOIN, now.monotonic_ms + next_ms)
                return
        self._complete_join(now)

    def _complete_join(self, now: Now) -> None:
        self._initial_delay = None
        self._sessions.effects.disarm(JOIN)
        while self._overdue:
            self._drop_overdue()
        expected = () if self._group.group_members.all_joined else self._group.group_members
        absent = [each for each in expected if each.join_token is None and not each.is_static]
        for member in absent[:AT_ONCE]:
            self.drop(member.member_id)
        if len(absent) > AT_ONCE or self._unanswered:
            self._sessions.effects.arm(JOIN, now.monotonic_ms)
            return
        if self._group.group_members and not self._group.group_members.elect():
            # Only static members are left and none has rejoined: wait until one does, or until their sessions end.
            self._sessions.effects.arm(JOIN, now.monotonic_ms + self._group.group_members.rebalance_timeout_ms)
            return
        decided = self._decided()
        if decided is None:
            self._sessions.effects.arm(JOIN, now.monotonic_ms)
            return
        since_ms = self._group.state_since_ms
        self._group.advance(decided)
        self._unsynced.clear()
        if not self._group.group_members:
            self._group.become(ClassicGroupState.EMPTY, now)
            token = GenerationStored(self._group.generation, None)
            self._store(token, NO_ASSIGNMENTS, partial(self._restore_preparing, self._group.generation, since_ms))
            return
        self._group.become(ClassicGroupState.COMPLETING, now)
        self._unsynced = dict.fromkeys(self._group.group_members.ids())
        self._sessions.effects.arm(SYNC, now.monotonic_ms + decided.rebalance_timeout_ms)
        joined = list(self._group.group_members)
        self._answer(list(zip(joined, map(JOIN_TOKEN, joined), repeat(ErrorCode.NONE), strict=False)), now)

    def _decided(self) -> NextGeneration | None:
        """What the members have decided; None where a part of them is not examined yet."""
        if self._next is None or not self._next.is_current:
            self._next = self._group.next_generation()
        if not self._next.examine():
            return None
        decided, self._next = self._next, None
        return decided

    # --- answers ---

    def _answer(self, requests: list[tuple[Member, Any, ErrorCode]], now: Now) -> None:
        """Answer these requests behind those that wait; many of them in later events, after the work of this one."""
        self._unanswered.extend(requests)
        if len(requests) <= AT_ONCE:
            self.answer_more(now)
        else:
            self._sessions.effects.arm(ANSWER, now.monotonic_ms)

    def answer_more(self, now: Now) -> None:
        """Answer a part of the joins and syncs whose outcome is decided."""
        for _ in range(min(len(self._unanswered), AT_ONCE)):
            member, token, error = self._unanswered.popleft()
            if token is not None and token is member.sync_token:
                result = SyncResult(error) if error else self._group.sync_result(member)
                self._sessions.answer_sync(member, result)
            elif token is member.join_token:
                self._sessions.answer_join(member, self._group.join_result(member))
                member.is_new = False
            else:
                continue  # the member has left, or has sent another request
            self._sessions.renew(member, now)
        if self._unanswered:
            self._sessions.effects.arm(ANSWER, now.monotonic_ms)
        else:
            self._sessions.effects.disarm(ANSWER)

    # --- the assignment ---

    def assign(self, assignments: Mapping[str, bytes], now: Now) -> None:
        """Store the leader's assignments.

        A leader that syncs again must not store a second assignment while the first append is pending.
        """
        if self._storing_generation != self._group.generation:
            self._storing_generation = self._group.generation
            self._assignments = assignments
            members = self._group.group_members
            if len(members) > AT_ONCE:
                self._unencoded.extend(members)
            else:
                for each in members:
                    self._group.encode(each, assignments)
            self.store_more(now)

    def store_more(self, now: Now) -> None:
        """Encode a part of the members of a large group; store the generation when none is left.

        No member changes meanwhile: that would have begun a rebalance.
        """
        if self._unencoded:
            for _ in range(min(len(self._unencoded), AT_ONCE)):
                self._group.encode(self._unencoded.popleft(), self._assignments)
            self._sessions.effects.arm(STORE, now.monotonic_ms)
            return
        assignments = self._assignments
        self._stop_storing()
        self._store(GenerationStored(self._group.generation, assignments), assignments)

    def _stop_storing(self) -> None:
        self._assignments = NO_ASSIGNMENTS
        self._unencoded.clear()
        self._sessions.effects.disarm(STORE)

    def synced(self, member: Member) -> None:
        """A member has sent its sync."""
        self._unsynced.pop(member.member_id, None)
        if not self._unsynced:
            self._sessions.effects.disarm(SYNC)

    def sync_deadline(self, now: Now) -> None:
        """Begin a rebalance, and remove the members that did not sync."""
        if self._group.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE) and self._unsynced:
            members = map(self._group.group_members.get, self._unsynced)
            self._overdue = deque(each for each in members if each is not None)
            self._drop_overdue()
            self.prepare(now)
        elif self._group.state is ClassicGroupState.PREPARING:
            self._drop_overdue()
            self.try_complete_join(now)
        if self._overdue:
            self._sessions.effects.arm(SYNC, now.monotonic_ms)

    def _drop_overdue(self) -> None:
        for _ in range(min(len(self._overdue), AT_ONCE)):
            member = self._overdue.popleft()
            if member.join_token is None and self._group.group_members.get(member.member_id) is member:
                self.drop(member.member_id)

    def finish_generation(self, generation: int, assignments: Mapping[str, bytes], error: ErrorCode, now: Now) -> None:
        """Send the assignments, which are durable, or begin a rebalance if the log has refused them."""
        if self._group.generation != generation or self._group.state is not ClassicGroupState.COMPLETING:
            return  # a later rebalance has made this assignment obsolete, or the generation is empty
        self._storing_generation = -1
        if error:
            self._refuse_assignment(error, now)
            self.prepare(now)
            return
        self._group.state = ClassicGroupState.STABLE  # since the time in the record, when the join phase ended
        for member in self._group.group_members:
            member.assignment = assignments.get(member.member_id, b"")
        self._answer_syncs(ErrorCode.NONE, now)

    def _restore_preparing(self, generation: int, since_ms: int | None) -> None:
        """Undo the generation without members, unless a later one has begun."""
        if self._group.generation == generation and self._group.state is ClassicGroupState.EMPTY:
            self._group.generation -= 1
            self._group.state, self._group.state_since_ms = ClassicGroupState.PREPARING, since_ms

    def retry_empty(self, generation: int, now: Now) -> None:
        """The log has refused the generation without members: end the rebalance before it again after RETRY_MS."""
        if self._group.generation == generation - 1 and self._group.state is ClassicGroupState.PREPARING:
            self._sessions.effects.arm(JOIN, now.monotonic_ms + RETRY_MS)

    def _refuse_assignment(self, error: ErrorCode, now: Now) -> None:
        for member in self._group.group_members:
            member.assignment = b""
        self._answer_syncs(error, now)

    def _answer_syncs(self, error: ErrorCode, now: Now) -> None:
        # Their sessions are suspended while their syncs wait.
        members = self._group.group_members
        self._answer([(each, each.sync_token, error) for each in members if each.sync_token is not None], now)

    # --- members that leave ---

    def remove(self, member: Member, now: Now) -> None:
        """Remove a member that leaves or whose session has ended."""
        self.drop(member.member_id)
        if self._group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
            self.prepare(now)
        else:
            self.try_complete_join(now)

    def drop(self, member_id: str) -> None:
        """Remove a member or a pending id, and answer its waiting requests."""
        self._unsynced.pop(member_id, None)
        self._sessions.expect_no_more(member_id)
        member = self._group.group_members.remove(member_id)
        if member is not None:
            self._sessions.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID))
            self._sessions.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            self._sessions.end(member_id)

    def store_return(self, token: ReturnStored, undo: Callable[[], None]) -> None:
        """Append the current generation, in which a static member has another id."""
        self._store(token, None, undo)

    def _store(
        self,
        token: GenerationStored | ReturnStored,
        assignments: Mapping[str, bytes] | None,
        undo: Callable[[], None] | None = None,
    ) -> None:
        """Append the current generation with these assignments; `undo` reverts the changes that led to it."""
        record = self._group.generation_record(assignments)
        before, self._group.in_log = self._group.in_log, record[1]
        restore = partial(setattr, self._group, "in_log", before)
        self._sessions.effects.append([record], token, (restore,) if undo is None else (restore, undo))

    def renamed(self, old_id: str, member_id: str) -> None:
        """A static member has another id."""
        if old_id in self._unsynced:
            del self._unsynced[old_id]
            self._unsynced[member_id] = None

    def cancel(self) -> None:
        """End the rebalance without a result, because the group ends."""
        self._initial_delay = None
        self._next = None
        self._stop_storing()
        self._overdue.clear()
        self._unanswered.clear()
