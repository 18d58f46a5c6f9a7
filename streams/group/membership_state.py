"""Membership state: phase, generation and events of one member (Kafka: AbstractCoordinator.MemberState, Generation).

The stream thread and the coordinator thread of a member share this state. Each of them holds `changed` while it calls a
method or writes an attribute; a single attribute may be read without it.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections import deque
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError
from odradek.streams.group.committed_offsets import CommittingMember
from odradek.streams.group.group_protocol import Assigned, Event, MemberSubscription, RebalanceNeeded

log = logging.getLogger(__name__)


class Phase(enum.Enum):
    """The phases of a member."""

    IDLE = "in no generation; waits for rejoin()"
    JOINING = "requests to join the next generation"
    ASSIGNING = "the leader; waits for the assignment from its stream thread"
    SYNCING = "waits for its part of the assignment"
    STABLE = "has its assignment and sends heartbeats"
    ENDED = "closed, or rejected permanently"


class AssignmentNeeded(NamedTuple):
    """To the stream thread of the leader: assign this generation."""

    generation: int
    members: dict[str, MemberSubscription]


class MembershipState:
    """The state of one member of a group."""

    def __init__(self, group_id: str) -> None:
        self.changed = threading.Condition()
        self.phase = Phase.IDLE
        self.events: deque[Event | AssignmentNeeded] = deque()
        """Events that the stream thread has not received yet."""
        self.identity = CommittingMember(-1, "")
        self.owner = self.identity
        """The identity that owns the tasks; kept after its end: without an identity a commit is never fenced."""
        self.failure: StreamsError | None = None
        """Why the member has ended."""
        self.metadata = b""
        """The subscription to join with."""
        self.assignments: dict[str, bytes] = {}
        """The assignment of each member, made by the leader; empty for other members."""
        self._group_id = group_id
        self._leads = False
        self._announced = False
        """Whether the stream thread has received the request to join again."""
        self._wanted: str | None = None
        """The reason for a rejoin after the current rebalance."""

    def enter(self, phase: Phase) -> None:
        """Change the phase."""
        self.phase = phase
        self.changed.notify_all()

    def check_failure(self) -> None:
        """Raises the error that has ended the member."""
        if self.failure is not None:
            raise self.failure

    @property
    def is_lost(self) -> bool:
        """Whether the stream thread has yet to receive that its tasks are lost."""
        return any(isinstance(event, RebalanceNeeded) and event.lost for event in self.events)

    # ---- rebalances

    def begin_join(self, metadata: bytes) -> None:
        """Join the next generation with this subscription."""
        self.events.clear()
        self.metadata = metadata
        self._announced = False
        self._wanted = None
        self.enter(Phase.JOINING)

    def joined(self, identity: CommittingMember, leads: bool) -> None:
        """The coordinator has accepted the member. `begin_assignment` follows, or the phase SYNCING."""
        self.identity = identity
        self._leads = leads
        self.assignments = {}

    def begin_assignment(self, members: dict[str, MemberSubscription]) -> None:
        """Send the stream thread the event that it has to assign the tasks of these members."""
        self.events.append(AssignmentNeeded(self.identity.generation, members))
        self.enter(Phase.ASSIGNING)

    def synced(self, identity: CommittingMember, partitions: list[TopicPartition], userdata: bytes) -> None:
        """The coordinator has sent the member its part of the assignment."""
        self.owner = identity
        self.events.append(Assigned(partitions, userdata, identity.generation, identity.member_id, self._leads))
        self._announced = False
        if self._wanted is not None:
            self.announce(self._wanted)
            self._wanted = None
        self.enter(Phase.STABLE)

    def retry_join(self) -> None:
        """Join again with the same subscription: the tasks are still paused."""
        if self.phase is Phase.SYNCING:
            self.enter(Phase.JOINING)

    def request_rejoin(self, reason: str) -> None:
        """Announce a rebalance; while one is in progress, after it."""
        if self.phase is Phase.STABLE:
            self.announce(reason)
        elif self.phase is not Phase.IDLE:
            self._wanted = reason

    def announce(self, reason: str) -> None:
        """Send the stream thread the event that it has to join again, once."""
        if not self._announced:
            self._announced = True
            self.events.append(RebalanceNeeded(reason, lost=False))
            self.changed.notify_all()

    # ---- the end of a membership

    def reset_identity(self, member_id: str = "") -> CommittingMember:
        """Leave the generation and join later as `member_id`, or as a new member. Returns the previous identity."""
        before, self.identity = self.identity, CommittingMember(-1, member_id)
        return before

    def lose(self, why: ErrorCode | str) -> None:
        """The member is out of the group: its tasks are lost. It keeps its member id unless that is unknown to the
        coordinator.
        """
        name = self.identity.member_id
        reason = why.name if isinstance(why, ErrorCode) else why
        log.warning("member is out of the group member=%s group=%s reason=%s", name, self._group_id, reason)
        self.reset_identity("" if why is ErrorCode.UNKNOWN_MEMBER_ID else name)
        self.events.clear()
        self.events.append(RebalanceNeeded(reason, lost=True))
        self._announced = True
        self.enter(Phase.IDLE)

    def fail(self, failure: StreamsError) -> None:
        """End the member; the first error counts."""
        if self.failure is None:
            self.failure = failure
        self.enter(Phase.ENDED)
