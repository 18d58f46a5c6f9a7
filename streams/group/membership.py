"""Group membership of one stream thread (Kafka: AbstractCoordinator, ConsumerCoordinator).

A member joins with its own protocol ("odradek-streams"), so that the leader of the group, which is the runtime itself,
assigns the tasks: librdkafka takes no assignor. Rebalances are eager, but tasks keep their state over them: a thread
commits and pauses its tasks, joins, and continues with those that it is assigned again.

The coordinator thread (`coordinator_thread.py`) sends the requests of the membership: it joins, waits for the other
members, and sends heartbeats, so the stream thread never blocks on the group. `poll` returns all events, and calls the
callbacks, in the stream thread:

    member = GroupMember(config, subscription, assign)
    member.rejoin()                         # the first time and after each RebalanceNeeded
    while running:
        event = member.poll(0)              # cheap: checks a queue
        if isinstance(event, RebalanceNeeded):
            close_without_commit() if event.lost else commit_and_pause()
            member.rejoin()                 # returns at once; the answer is an event
        elif isinstance(event, Assigned):
            take_on(event)
        work()
    member.close()

Rules of Kafka: AbstractCoordinator and ConsumerCoordinator (3.9); KIP-62 (background heartbeats: a thread that does not
call `poll` within max.poll.interval.ms leaves the group), KIP-345 (static members: they return to their assignment
without a rebalance, and never leave by themselves), KIP-394 (the broker assigns member ids), KIP-814 (a static leader
that returns does not assign). Kafka Streams does not leave its group when it closes (internal.leave.group.on.close).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from odradek.protocol import messages as m
from odradek.protocol.client.connection import code_of
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError
from odradek.streams.group import committed_offsets
from odradek.streams.group.committed_offsets import Committed, CommittingMember, Offsets
from odradek.streams.group.connection import CoordinatorLink, parse_bootstrap
from odradek.streams.group.coordinator_thread import CoordinatorThread
from odradek.streams.group.group_protocol import (
    Assign,
    Assigned,
    Assignments,
    CommitFailed,
    CommitFailure,
    Event,
    MembershipConfig,
    MembershipError,
    MemberSubscription,
    RebalanceNeeded,
    Subscribe,
    encode_assignment,
    encode_subscription,
    librdkafka_group_metadata,
    refusal,
)
from odradek.streams.group.group_requests import heartbeat_request, leave_group
from odradek.streams.group.heartbeat import Heartbeat
from odradek.streams.group.membership_state import AssignmentNeeded, MembershipState, Phase

__all__ = [
    "Assigned",
    "CommitFailed",
    "CommitFailure",
    "Committed",
    "GroupMember",
    "MemberSubscription",
    "MembershipConfig",
    "MembershipError",
    "RebalanceNeeded",
]

CLOSE_TIMEOUT_S: Final = 15.0


class GroupMember:
    """A member of a group. Only the stream thread calls `poll`, `rejoin`, `commit`, `fetch_committed`, `leave` and
    `close`; any thread may call `request_rejoin` and read the properties.
    """

    def __init__(self, config: MembershipConfig, subscription: Subscribe, assign: Assign) -> None:
        """Starts the coordinator thread; nothing is sent before `rejoin`. Raises StreamsError for an invalid address.

        `subscription` returns the topics and the user data to join with; `assign` makes the assignment of every member
        when this one is the leader. The stream thread calls both, within `rejoin` and `poll`; while `assign` runs,
        heartbeats continue.
        """
        bootstrap = parse_bootstrap(config.bootstrap_servers)
        self._config = config
        self._subscription = subscription
        self._assign = assign
        timeout_s = config.request_timeout_ms / 1000
        self._state = MembershipState(config.group_id)
        self._heartbeat = Heartbeat(config)
        # Two links, one for requests that wait for the whole group, one for the stream thread: a commit must not wait
        # for a join.
        arguments = (bootstrap, config.group_id, config.client_id, timeout_s, config.security)
        self._requests, link = CoordinatorLink(*arguments), CoordinatorLink(*arguments)
        self._coordinator = CoordinatorThread(config, self._state, link, self._heartbeat)
        self._coordinator.start()

    # ---- called by the stream thread

    @property
    def member_id(self) -> str:
        """The member id from the coordinator; empty before the first response."""
        return self._state.identity.member_id

    @property
    def generation(self) -> int:
        """The generation of the group that this member is in; -1 for none."""
        return self._state.identity.generation

    @property
    def group_metadata(self) -> bytes:
        """For `Producer.send_offsets_to_transaction`: the identity that owns the tasks."""
        generation, member_id = self._state.owner
        config = self._config
        return librdkafka_group_metadata(config.group_id, generation, member_id, config.group_instance_id)

    def poll(self, timeout_s: float = 0.0) -> Event | None:
        """The next event, or None after `timeout_s`. The thread has to call it within max.poll.interval.ms.

        Raises MembershipError when the coordinator rejects this member permanently, StreamsError when the coordinator
        thread has failed or the member is closed, and what `assign` raises.
        """
        self._heartbeat.poll()
        state = self._state
        if timeout_s <= 0 and not state.events and state.failure is None:
            return None  # the common case, without a lock
        deadline = time.monotonic() + timeout_s
        while True:
            with state.changed:
                state.changed.wait_for(lambda: state.events or state.failure, deadline - time.monotonic())
                state.check_failure()
                if not state.events:
                    return None
                event = state.events.popleft()
            self._heartbeat.poll()
            if not isinstance(event, AssignmentNeeded):
                return event
            self._assign_members(event)
            self._heartbeat.poll()

    def rejoin(self) -> None:
        """Join the next generation, the first time and each later time; returns at once, and `poll` returns the answer.

        The caller has committed and paused its tasks before. Raises as `poll` does.
        """
        topics, userdata = self._subscription()
        metadata = encode_subscription(topics, userdata, self._config.client_rack)
        state = self._state
        with state.changed:
            state.check_failure()
            if not state.is_lost:  # else it has to close its tasks first: `poll` returns that event next
                state.begin_join(metadata)

    def request_rejoin(self, reason: str) -> None:
        """Request a rebalance through `poll`; while one is in progress, after it. Any thread may call it.

        The coordinator begins a rebalance if the leader joins again, or a member whose subscription has changed.
        """
        with self._state.changed:
            self._state.request_rejoin(reason)

    def commit(self, offsets: Offsets) -> None:
        """Commit offsets as the owner of the tasks; returns when the coordinator has stored them.

        Retries retriable errors up to default.api.timeout.ms. Raises CommitFailed.
        """
        identity = self._state.owner
        try:
            committed_offsets.commit(self._requests, self._config, identity, offsets)
        except CommitFailed as failure:
            self._handle_commit_failure(identity, failure)
            raise

    def fetch_committed(
        self, partitions: Iterable[TopicPartition], require_stable: bool = True
    ) -> dict[TopicPartition, Committed]:
        """The committed offsets of those partitions that have one.

        With `require_stable` it waits for open transactions of earlier owners (KIP-447). Raises MembershipError.
        """
        return committed_offsets.fetch(self._requests, self._config, partitions, require_stable)

    def is_counted_in(self) -> bool:
        """Whether the coordinator confirms that the owner of the tasks is still a member; False without a confirmation.

        If so, no other member has had its tasks until the call.
        """
        request = heartbeat_request(self._config, self._state.owner)
        try:
            answer: m.HeartbeatResponse = self._requests.ask(request, self._config.session_timeout_ms / 1000)
        except (OSError, ProtocolError, KafkaError):
            return False
        return code_of(answer.error_code) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, reason: str = "the consumer is being closed") -> None:
        """Leave the group permanently, static members too: the tasks go to other members at once. Then `close`.

        The request may be lost; the coordinator then removes the member after the session timeout.
        """
        config, state = self._config, self._state
        with state.changed:
            identity = state.reset_identity()
            if state.phase is not Phase.ENDED:
                state.enter(Phase.IDLE)
        if identity.member_id or config.group_instance_id is not None:
            leave_group(self._requests, config, identity, reason)
        self._end()

    def close(self) -> None:
        """End the coordinator thread and close the connections. Leaves the group only if it is configured to."""
        if self._config.leave_group_on_close and self._config.group_instance_id is None and self._coordinator.is_alive:
            self.leave()
        self._end()

    # ---- internals

    def _assign_members(self, event: AssignmentNeeded) -> None:
        encoded = _encode_assignments(event.members, self._assign(event.members))
        state = self._state
        with state.changed:
            if state.phase is Phase.ASSIGNING and state.identity.generation == event.generation:
                state.assignments = encoded
                state.enter(Phase.SYNCING)

    def _handle_commit_failure(self, identity: CommittingMember, failure: CommitFailed) -> None:
        """Apply the consequences of a rejected commit to the membership."""
        state = self._state
        with state.changed:
            if state.identity != identity or state.phase is not Phase.STABLE:
                return
            if failure.kind is CommitFailure.FENCED:
                state.fail(refusal(failure.code, self._config))
            elif failure.kind is CommitFailure.MIGRATED:
                state.lose(failure.code)
            elif failure.kind is CommitFailure.REBALANCING:
                state.announce("a commit failed because of a rebalance")

    def _end(self) -> None:
        with self._state.changed:
            self._state.fail(StreamsError(f"the member of {self._config.group_id} is closed"))
        self._coordinator.interrupt()
        self._requests.interrupt()
        self._coordinator.join(CLOSE_TIMEOUT_S)
        self._requests.forget()


def _encode_assignments(members: dict[str, MemberSubscription], given: Assignments) -> dict[str, bytes]:
    """The assignment of each member; a member without one gets nothing. Raises StreamsError for an unknown member."""
    unknown = given.keys() - members.keys()
    if unknown:
        raise StreamsError(f"the assignment names members that are not in the group: {', '.join(sorted(unknown))}")
    return {name: encode_assignment(*given.get(name, ([], b""))) for name in members}
