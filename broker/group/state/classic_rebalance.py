"""Rebalance of a classic group: from one generation to the next (Kafka: GroupMetadataManager.prepareRebalance).

`classic_membership` has the table of the states. A rebalance gathers the joins of all members (`JOIN` ends that), then
the leader's assignment (`SYNC` removes members that did not send their sync), and appends the generation.

Answers to, and removals of, more than AT_ONCE members are divided into parts (`ANSWER`, and `JOIN` or `SYNC` again), so
that a broker serves other clients in between. The group has its new state before the first part, and a request of the
group between two parts is handled in that state. If it begins a rebalance, joins without an answer wait for the next
generation, and syncs are answered as if it had come later: the rebalance does not end before that.

So are the examination of all members at the end of the join phase (`JOIN` again; the group has its former state until
the last part) and the encoding of all members for the record of the generation (`STORE`). The record of a large group
is made in one event and appended in the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
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
from odradek.broker.group.state.records import encoded_members
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
SYNC_TOKEN: Final = attrgetter("sync_token")


class Unanswered:
    """Joins and syncs whose outcome is decided, by their members and tokens, and the errors of syncs.

    It has no object of its own for each of them: those of 20,000 members take as long as all the rest of an event.
    """

    __slots__ = ("_errors", "_members", "_tokens")

    def __init__(self) -> None:
        self._members: deque[Member] = deque()
        self._tokens: deque[Any] = deque()
        self._errors: deque[ErrorCode] = deque()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, members: Collection[Member], tokens: Iterable[Any], error: ErrorCode) -> None:
        """Add the requests of these members, which have the same outcome."""
        self._members.extend(members)
        self._tokens.extend(tokens)
        self._errors.extend(repeat(error, len(members)))

    def pop(self) -> tuple[Member, Any, ErrorCode]:
        """Remove the request that has waited longest."""
        return self._members.popleft(), self._tokens.popleft(), self._errors.popleft()

    def keep_syncs(self) -> None:
        """Remove all but syncs."""
        for _ in range(len(self)):
            member, token, error = self.pop()
            if token is member.sync_token is not None:
                self.add((member,), (token,), error)

    def clear(self) -> None:
        """Remove all."""
        self._members.clear()
        self._tokens.clear()
        self._errors.clear()


class ClassicRebalance:
    """The rebalances of one group."""

    def __init__(self, group: ClassicGroup, sessions: ClassicSessions, settings: GroupSettings) -> None:
        self._group = group
        self._sessions = sessions
        self._settings = settings
        self._unsynced: dict[str, None] = {}
        self._overdue: deque[Member] = deque()  # did not sync, and are to be removed
        self._unanswered = Unanswered()
        # While the first generation gathers: (the present delay, by how much it may still be prolonged).
        self._initial_delay: tuple[int, int] | None = None
        self._new_member_during_delay = False
        self._next: NextGeneration | None = None
        self._storing_generation = -1
        self._assignments = NO_ASSIGNMENTS
        self._unencoded: deque[Member] = deque()  # for the record with these assignments
        self._encoded = encoded_members([])  # the other members, for the same record
        self._record: tuple[bytes, bytes] | None = None

    # --- the join phase ---

    def note_new_member(self) -> None:
        """A member joins for the first time: it prolongs the initial delay."""
        if self._group.state is ClassicGroupState.PREPARING and self._group.generation == 0:
            self._new_member_during_delay = True

    def rejoin(self, token: Any, member: Member, terms: Terms) -> None:
        """A member joins again, perhaps with other protocols."""
        if member.join_token is not None:
            self._sessions.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self._group.group_members.update(member, terms)
        member.join_token = token

    def maybe_prepare(self, now: Now) -> None:
        """Begin a rebalance, unless members are joining already."""
        if self._group.state in (ClassicGroupState.EMPTY, ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
            self.prepare(now)

    def prepare(self, now: Now) -> None:
        """Begin a rebalance: wait until all members have joined."""
        self._unanswered.keep_syncs()
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
        members = list(self._group.group_members)
        self._unanswered.add(members, map(JOIN_TOKEN, members), ErrorCode.NONE)
        self._answer(len(members), now)

    def _decided(self) -> NextGeneration | None:
        """What the members have decided; None where a part of them is not examined yet."""
        if self._next is None or not self._next.is_current:
            self._next = self._group.next_generation()
        if not self._next.examine():
            return None
        decided, self._next = self._next, None
        return decided

    # --- answers ---

    def _answer(self, added: int, now: Now) -> None:
        """Answer the requests that wait; where many were added, in later events, after the work of this one."""
        if added <= AT_ONCE:
            self.answer_more(now)
        else:
            self._sessions.effects.arm(ANSWER, now.monotonic_ms)

    def answer_more(self, now: Now) -> None:
        """Answer a part of the joins and syncs whose outcome is decided."""
        for _ in range(min(len(self._unanswered), AT_ONCE)):
            member, token, error = self._unanswered.pop()
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
            part = [self._unencoded.popleft() for _ in range(min(len(self._unencoded), AT_ONCE))]
            self._encoded.add([self._group.encode(member, self._assignments) for member in part])
            self._sessions.effects.arm(STORE, now.monotonic_ms)
            return
        if self._encoded and self._record is None:
            self._record = self._group.record_with(self._encoded)
            self._sessions.effects.arm(STORE, now.monotonic_ms)
            return
        assignments, record = self._assignments, self._record
        self._stop_storing()
        self._store(GenerationStored(self._group.generation, assignments), assignments, record=record)

    def _stop_storing(self) -> None:
        self._assignments = NO_ASSIGNMENTS
        self._unencoded.clear()
        self._encoded, self._record = encoded_members([]), None
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
        waiting = [each for each in self._group.group_members if each.sync_token is not None]
        self._unanswered.add(waiting, map(SYNC_TOKEN, waiting), error)
        self._answer(len(waiting), now)

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
        record: tuple[bytes, bytes] | None = None,
    ) -> None:
        """Append the current generation with these assignments, as `record` where it is made already; `undo` reverts
        the changes that led to it.
        """
        record = record or self._group.generation_record(assignments)
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
