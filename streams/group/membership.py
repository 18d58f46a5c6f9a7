"""Group membership of one stream thread (Kafka: AbstractCoordinator, ConsumerCoordinator).

A member joins with its own protocol ("odradek-streams"), so that the leader of the group, which is the runtime itself,
assigns the tasks: librdkafka takes no assignor. Rebalances are eager, but tasks keep their state over them: a thread
commits and pauses its tasks, joins, and continues with those that it is assigned again.

A background thread sends the requests to the coordinator: it joins, waits for the other members, and sends heartbeats,
so the stream thread never blocks on the group. `poll` returns all events, and calls the callbacks, in the stream
thread:

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

import enum
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError
from odradek.streams.group import committed_offsets
from odradek.streams.group.committed_offsets import MOVED, Committed, Identity, Offsets, backoffs
from odradek.streams.group.connection import CoordinatorLink, code_of, parse_bootstrap
from odradek.streams.group.group_protocol import (
    PROTOCOL_NAME,
    PROTOCOL_TYPE,
    Assign,
    Assigned,
    Assignments,
    CommitFailed,
    CommitFailure,
    Event,
    MembershipConfig,
    MembershipError,
    MemberState,
    RebalanceNeeded,
    Subscribe,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    librdkafka_group_metadata,
    refusal,
)

__all__ = [
    "Assigned",
    "CommitFailed",
    "CommitFailure",
    "Committed",
    "GroupMember",
    "MemberState",
    "MembershipConfig",
    "MembershipError",
    "RebalanceNeeded",
]

log = logging.getLogger(__name__)

JOIN_EXTRA_S: Final = 5.0
"""Added to the rebalance timeout: a coordinator may use all of it before it answers (AbstractCoordinator)."""
CLOSE_TIMEOUT_S: Final = 15.0
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class Phase(enum.Enum):
    """The phases of a member."""

    IDLE = "in no generation; waits for rejoin()"
    JOINING = "requests to join the next generation"
    ASSIGNING = "the leader; waits for the assignment from its stream thread"
    SYNCING = "waits for its part of the assignment"
    STABLE = "has its assignment and sends heartbeats"
    ENDED = "closed, or rejected permanently"


class _Lead(NamedTuple):
    """To the stream thread: assign this generation."""

    generation: int
    members: dict[str, MemberState]


class GroupMember:
    """A member of a group. Only the stream thread calls `poll`, `rejoin`, `commit`, `fetch_committed`, `leave` and
    `close`; any thread may call `request_rejoin` and read the properties.
    """

    def __init__(self, config: MembershipConfig, subscription: Subscribe, assign: Assign) -> None:
        """Starts the background thread; nothing is sent before `rejoin`. Raises StreamsError for an invalid address.

        `subscription` returns the topics and the user data to join with; `assign` makes the assignment of every member
        when this one is the leader. The stream thread calls both, within `rejoin` and `poll`; while `assign` runs,
        heartbeats continue.
        """
        bootstrap = parse_bootstrap(config.bootstrap_servers)
        self._config = config
        self._subscription = subscription
        self._assign = assign
        timeout_s = config.request_timeout_ms / 1000
        # Two links, one for requests that wait for the whole group, one for the stream thread: a commit must not wait
        # for a join.
        self._link = CoordinatorLink(bootstrap, config.group_id, config.client_id, timeout_s)
        self._requests = CoordinatorLink(bootstrap, config.group_id, config.client_id, timeout_s)
        self._changed = threading.Condition()
        # `_changed` guards everything below.
        self._phase = Phase.IDLE
        self._events: deque[Event | _Lead] = deque()
        self._identity = Identity(-1, "")
        self._held = (
            self._identity
        )  # the owner of the tasks; kept after its end: without an identity a commit is never fenced
        self._leads = False
        self._metadata = b""
        self._given: dict[str, bytes] = {}
        self._announced = False  # the stream thread has received the request to join again
        self._wanted: str | None = None  # the reason for a rejoin after the current rebalance
        self._failure: StreamsError | None = None
        self._last_poll = time.monotonic()
        self._next_heartbeat = 0.0
        self._backoff = backoffs(config)
        self._away = False  # whether the coordinator is unavailable
        self._thread = threading.Thread(target=self._run, name=f"{config.client_id}-membership", daemon=True)
        self._thread.start()

    # ---- called by the stream thread

    @property
    def member_id(self) -> str:
        """The member id from the coordinator; empty before the first response."""
        return self._identity.member_id

    @property
    def generation(self) -> int:
        """The generation of the group that this member is in; -1 for none."""
        return self._identity.generation

    @property
    def group_metadata(self) -> bytes:
        """For `Producer.send_offsets_to_transaction`: the identity that owns the tasks."""
        generation, member_id = self._held
        config = self._config
        return librdkafka_group_metadata(config.group_id, generation, member_id, config.group_instance_id)

    def poll(self, timeout_s: float = 0.0) -> Event | None:
        """The next event, or None after `timeout_s`. The thread has to call it within max.poll.interval.ms.

        Raises MembershipError when the coordinator rejects this member permanently, StreamsError when the background
        thread has failed or the member is closed, and what `assign` raises.
        """
        self._last_poll = now = time.monotonic()
        if timeout_s <= 0 and not self._events and self._failure is None:
            return None  # the common case, without a lock
        deadline = now + timeout_s
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self._failure, deadline - time.monotonic())
                if self._failure is not None:
                    raise self._failure
                if not self._events:
                    return None
                event = self._events.popleft()
            self._last_poll = time.monotonic()
            if not isinstance(event, _Lead):
                return event
            self._lead(event)
            self._last_poll = time.monotonic()

    def rejoin(self) -> None:
        """Join the next generation, the first time and each later time; returns at once, and `poll` returns the answer.

        The caller has committed and paused its tasks before. Raises as `poll` does.
        """
        topics, userdata = self._subscription()
        metadata = encode_subscription(topics, userdata, self._config.client_rack)
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if any(isinstance(event, RebalanceNeeded) and event.lost for event in self._events):
                return  # it has to close its tasks first: `poll` returns that event next
            self._events.clear()
            self._metadata = metadata
            self._announced = False
            self._wanted = None
            self._enter(Phase.JOINING)

    def request_rejoin(self, reason: str) -> None:
        """Request a rebalance through `poll`; while one is in progress, after it. Any thread may call it.

        The coordinator begins a rebalance if the leader joins again, or a member whose subscription has changed.
        """
        with self._changed:
            if self._phase is Phase.STABLE:
                self._announce(reason)
            elif self._phase is not Phase.IDLE:
                self._wanted = reason

    def commit(self, offsets: Offsets) -> None:
        """Commit offsets as the owner of the tasks; returns when the coordinator has stored them.

        Retries retriable errors up to default.api.timeout.ms. Raises CommitFailed.
        """
        who = self._held
        try:
            committed_offsets.commit(self._requests, self._config, who, offsets)
        except CommitFailed as failure:
            self._consider(who, failure)
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
        generation, member_id = self._held
        request = m.HeartbeatRequest(
            group_id=self._config.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self._config.group_instance_id,
        )
        try:
            answer: m.HeartbeatResponse = self._requests.ask(request, self._config.session_timeout_ms / 1000)
        except (OSError, ProtocolError, KafkaError):
            return False
        return code_of(answer.error_code) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, reason: str = "the consumer is being closed") -> None:
        """Leave the group permanently, static members too: the tasks go to other members at once. Then `close`.

        The request may be lost; the coordinator then removes the member after the session timeout.
        """
        with self._changed:
            who, self._identity = self._identity, Identity(-1, "")
            static = self._config.group_instance_id is not None
            if self._phase is not Phase.ENDED:
                self._enter(Phase.IDLE)
        if who.member_id or static:
            self._say_goodbye(self._requests, who, reason)
        self._end()

    def close(self) -> None:
        """End the background thread and close the connections. Leaves the group only if it is configured to."""
        if self._config.leave_group_on_close and self._config.group_instance_id is None and self._thread.is_alive():
            self.leave()
        self._end()

    # ---- in the stream thread

    def _lead(self, lead: _Lead) -> None:
        given = self._assign(lead.members)
        encoded = self._encode(lead, given)
        with self._changed:
            if self._phase is Phase.ASSIGNING and self._identity.generation == lead.generation:
                self._given = encoded
                self._enter(Phase.SYNCING)

    def _encode(self, lead: _Lead, given: Assignments) -> dict[str, bytes]:
        strangers = given.keys() - lead.members.keys()
        if strangers:
            raise StreamsError(
                f"the assignment names members that are not in the group: {', '.join(sorted(strangers))}"
            )
        return {name: encode_assignment(*given.get(name, ([], b""))) for name in lead.members}

    def _consider(self, who: Identity, failure: CommitFailed) -> None:
        """Apply the consequences of a rejected commit to the membership."""
        with self._changed:
            if self._identity != who or self._phase is not Phase.STABLE:
                return
            if failure.kind is CommitFailure.FENCED:
                self._fail(refusal(failure.code, self._config))
            elif failure.kind is CommitFailure.MIGRATED:
                self._lose(failure.code)
            elif failure.kind is CommitFailure.REBALANCING:
                self._announce("a commit failed because of a rebalance")

    def _end(self) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = StreamsError(f"the member of {self._config.group_id} is closed")
            self._enter(Phase.ENDED)
        self._link.interrupt()
        self._requests.interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_TIMEOUT_S)
        self._requests.forget()

    # ---- guarded by `_changed`

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._changed.notify_all()

    def _announce(self, reason: str) -> None:
        if not self._announced:
            self._announced = True
            self._events.append(RebalanceNeeded(reason, lost=False))
            self._changed.notify_all()

    def _lose(self, why: ErrorCode | str) -> None:
        """The member is out of the group: its tasks are lost. It keeps its member id unless that is unknown to the
        coordinator.
        """
        name = self._identity.member_id
        reason = why.name if isinstance(why, ErrorCode) else why
        log.warning("member is out of the group member=%s group=%s reason=%s", name, self._config.group_id, reason)
        self._identity = Identity(-1, "" if why is ErrorCode.UNKNOWN_MEMBER_ID else name)
        self._events.clear()
        self._events.append(RebalanceNeeded(reason, lost=True))
        self._announced = True
        self._enter(Phase.IDLE)

    def _fail(self, failure: StreamsError) -> None:
        if self._failure is None:
            self._failure = failure
        self._enter(Phase.ENDED)

    def _answered(self) -> None:
        """The coordinator has answered without an error."""
        self._backoff = backoffs(self._config)
        if self._away:
            self._away = False
            log.info("group coordinator is available again group=%s", self._config.group_id)

    # ---- in the background thread

    def _run(self) -> None:
        try:
            while (phase := self._await_work()) is not Phase.ENDED:
                try:
                    self._step(phase)
                except (OSError, ProtocolError, KafkaError) as error:
                    self._excuse(error)
        except StreamsError as error:
            with self._changed:
                self._fail(error)
        except BaseException as error:
            log.exception("group membership failed group=%s", self._config.group_id)
            with self._changed:
                self._fail(StreamsError(f"the membership in {self._config.group_id} has failed: {error!r}"))
        finally:
            self._link.forget()

    def _await_work(self) -> Phase:
        """Wait until there is a request to send to the coordinator."""
        with self._changed:
            while True:
                if self._phase in (Phase.STABLE, Phase.ASSIGNING):
                    wait_s = self._next_heartbeat - time.monotonic()
                    if wait_s <= 0:
                        return self._phase
                    self._changed.wait(wait_s)
                elif self._phase is Phase.IDLE:
                    self._changed.wait()
                else:
                    return self._phase

    def _step(self, phase: Phase) -> None:
        if phase is Phase.JOINING:
            self._join()
        elif phase is Phase.SYNCING:
            self._sync()
        elif time.monotonic() - self._last_poll > self._config.max_poll_interval_ms / 1000:
            self._stalled()
        else:
            self._heartbeat()

    def _join(self) -> None:
        config = self._config
        with self._changed:
            who, metadata = self._identity, self._metadata
        request = m.JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=who.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=metadata)],
        )
        answer: m.JoinGroupResponse = self._link.ask(request, self._longest_wait_s())
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            self._join_refused(code, answer.member_id, who)
            return
        leads = answer.leader == answer.member_id
        with self._changed:
            if self._phase is not Phase.JOINING:
                return  # closed meanwhile
            self._answered()
            self._identity = Identity(answer.generation_id, answer.member_id)
            self._leads = leads
            self._given = {}
            if leads and not answer.skip_assignment:
                members = {
                    member.member_id: decode_subscription(member.member_id, member.group_instance_id, member.metadata)
                    for member in answer.members
                }
                self._next_heartbeat = time.monotonic() + config.heartbeat_interval_ms / 1000
                self._events.append(_Lead(answer.generation_id, members))
                self._enter(Phase.ASSIGNING)
            else:
                self._enter(Phase.SYNCING)

    def _join_refused(self, code: ErrorCode, named: str, who: Identity) -> None:
        with self._changed:
            if self._phase is not Phase.JOINING:
                return
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self._identity = Identity(-1, named)
                return
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                if who.generation >= 0:
                    self._lose(code)  # other members may own its earlier tasks
                else:
                    self._identity = Identity(-1, "")
                return
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self._reconsider(code)
        self._pause()

    def _sync(self) -> None:
        config = self._config
        with self._changed:
            who, given = self._identity, self._given
        request = m.SyncGroupRequest(
            group_id=config.group_id,
            generation_id=who.generation,
            member_id=who.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_NAME,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in given.items()
            ],
        )
        try:
            answer: m.SyncGroupResponse = self._link.ask(request, self._longest_wait_s())
        except (OSError, ProtocolError, KafkaError):
            # The other members may or may not have their assignments: join again, as AbstractCoordinator does.
            self._retreat()
            raise
        code = code_of(answer.error_code)
        if code is ErrorCode.NONE:
            self._settle(who, answer.assignment)
        elif code in _LOST:
            with self._changed:
                if self._phase is Phase.SYNCING:
                    self._lose(code)
        else:
            if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._reconsider(code)
                self._pause()
            self._retreat()

    def _settle(self, who: Identity, assignment: bytes) -> None:
        partitions, userdata = decode_assignment(assignment)
        with self._changed:
            if self._phase is not Phase.SYNCING:
                return
            self._answered()
            self._held = who
            self._next_heartbeat = time.monotonic() + self._config.heartbeat_interval_ms / 1000
            self._events.append(Assigned(partitions, userdata, who.generation, who.member_id, self._leads))
            self._announced = False
            if self._wanted is not None:
                self._announce(self._wanted)
                self._wanted = None
            self._enter(Phase.STABLE)

    def _heartbeat(self) -> None:
        config = self._config
        with self._changed:
            who = self._identity
            self._next_heartbeat = time.monotonic() + config.heartbeat_interval_ms / 1000
        request = m.HeartbeatRequest(
            group_id=config.group_id,
            generation_id=who.generation,
            member_id=who.member_id,
            group_instance_id=config.group_instance_id,
        )
        answer: m.HeartbeatResponse = self._link.ask(request)
        code = code_of(answer.error_code)
        with self._changed:
            if self._identity != who or self._phase not in (Phase.STABLE, Phase.ASSIGNING):
                return  # its identity has changed; the next request gets the error
            if code is ErrorCode.NONE:
                self._answered()
                return
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                if self._phase is Phase.STABLE:  # an assigning leader gets the error from SyncGroup
                    self._announce("the group is rebalancing")
                return
            if code in _LOST:
                self._lose(code)
                return
        self._reconsider(code)
        self._hurry()

    def _stalled(self) -> None:
        """The stream thread has not called `poll` for too long: leave, so that other members take over the tasks
        (KIP-62).
        """
        config = self._config
        with self._changed:
            who = self._identity
            self._lose(f"poll() was not called for max.poll.interval.ms ({config.max_poll_interval_ms} ms)")
            if config.group_instance_id is None:
                self._identity = Identity(-1, "")
        if config.group_instance_id is None:
            self._say_goodbye(self._link, who, "consumer poll timeout has expired.")

    def _say_goodbye(self, link: CoordinatorLink, who: Identity, reason: str) -> None:
        request = m.LeaveGroupRequest(
            group_id=self._config.group_id,
            members=[
                m.LeaveGroupRequest.MemberIdentity(
                    member_id=who.member_id, group_instance_id=self._config.group_instance_id, reason=reason
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
            log.warning("error while leaving the group group=%s error=%s", self._config.group_id, outcome)

    def _longest_wait_s(self) -> float:
        config = self._config
        return max(config.request_timeout_ms / 1000, config.max_poll_interval_ms / 1000 + JOIN_EXTRA_S)

    def _retreat(self) -> None:
        """Join again with the same subscription: the tasks are still paused."""
        with self._changed:
            if self._phase is Phase.SYNCING:
                self._enter(Phase.JOINING)

    def _reconsider(self, code: ErrorCode) -> None:
        """Find the coordinator again, or give up. Raises MembershipError."""
        if code in MOVED:
            self._link.forget()
        elif not code.retriable:
            raise refusal(code, self._config)

    def _excuse(self, error: OSError | ProtocolError | KafkaError) -> None:
        """Handle a transient error: the coordinator is unavailable. Raises MembershipError for a permanent error."""
        if isinstance(error, KafkaError):
            self._reconsider(error.code)
        if self._phase is not Phase.ENDED:
            level = logging.DEBUG if self._away else logging.WARNING  # logged once, not at every retry
            log.log(level, "group coordinator is unavailable group=%s error=%s", self._config.group_id, error)
            self._away = True
        self._hurry()
        self._pause()

    def _hurry(self) -> None:
        """The next heartbeat is due after a backoff, not after the whole interval."""
        with self._changed:
            if self._phase in (Phase.STABLE, Phase.ASSIGNING):
                self._next_heartbeat = time.monotonic() + next(self._backoff)

    def _pause(self) -> None:
        """Wait before another attempt. Heartbeats are timed by their interval instead."""
        with self._changed:
            if self._phase in (Phase.JOINING, Phase.SYNCING):
                phase = self._phase
                self._changed.wait_for(lambda: self._phase is not phase, next(self._backoff))
