"""One stream thread's membership in its consumer group.

A member joins with a protocol of its own ("odradek-streams"), so that the leader of the group, the runtime itself, says
who runs which task: librdkafka takes no assignor. Rebalances are eager, but tasks keep their state over them: a thread
commits and pauses its tasks, joins, and goes on with those that it is given again.

A background thread talks to the coordinator: it joins, waits for the others, and sends heartbeats, so the stream thread
never blocks on the group. All that is to be done comes out of `poll`, in the stream thread, the callbacks too:

    member = GroupMember(config, subscription, assign)
    member.rejoin()                         # the first time as ever after
    while running:
        event = member.poll(0)              # cheap: a look at a queue
        if isinstance(event, RebalanceNeeded):
            close_without_commit() if event.lost else commit_and_pause()
            member.rejoin()                 # returns at once; the answer is an event
        elif isinstance(event, Assigned):
            take_on(event)
        work()
    member.close()

Rules of Kafka: AbstractCoordinator and ConsumerCoordinator (3.9); KIP-62 (background heartbeats: a thread that does not
call `poll` within max.poll.interval.ms leaves the group), KIP-345 (static members: they come back to their assignment
without a rebalance, and never leave by themselves), KIP-394 (the broker names members), KIP-814 (a static leader that
comes back does not assign). Kafka Streams does not leave its group when it closes (internal.leave.group.on.close).
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
    TopicPartition,
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
"""A coordinator may take the whole rebalance timeout to answer, and then some (AbstractCoordinator)."""
CLOSE_TIMEOUT_S: Final = 15.0
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class Phase(enum.Enum):
    """Where a member is on its way."""

    IDLE = "in no generation; waits for rejoin()"
    JOINING = "asks to be in the next generation"
    ASSIGNING = "the leader; waits for the assignment from its stream thread"
    SYNCING = "waits for its part of the assignment"
    STABLE = "has its assignment and sends heartbeats"
    ENDED = "closed, or refused for good"


class _Lead(NamedTuple):
    """To the stream thread: make the assignment of this generation."""

    generation: int
    members: dict[str, MemberState]


class GroupMember:
    """A member of a group. `poll`, `rejoin`, `commit`, `fetch_committed`, `leave` and `close` belong to one thread, the
    stream thread; `request_rejoin` and the properties may be used from any.
    """

    def __init__(self, config: MembershipConfig, subscription: Subscribe, assign: Assign) -> None:
        """Starts the background thread; nothing is sent before `rejoin`. Raises StreamsError for a bad address.

        `subscription` gives the topics and the user data to join with; `assign` makes the assignment of every member
        when this one is the leader. Both are called in the stream thread, within `rejoin` and `poll`; while `assign`
        takes its time, heartbeats go on.
        """
        bootstrap = parse_bootstrap(config.bootstrap_servers)
        self._config = config
        self._subscription = subscription
        self._assign = assign
        timeout_s = config.request_timeout_ms / 1000
        # One way for what waits for the whole group, one for the stream thread: a commit must not wait for a join.
        self._link = CoordinatorLink(bootstrap, config.group_id, config.client_id, timeout_s)
        self._requests = CoordinatorLink(bootstrap, config.group_id, config.client_id, timeout_s)
        self._changed = threading.Condition()
        # All below is guarded by `_changed`.
        self._phase = Phase.IDLE
        self._events: deque[Event | _Lead] = deque()
        self._identity = Identity(-1, "")
        self._held = self._identity  # who was given the tasks; kept when that is over: nobody refuses commits of nobody
        self._leads = False
        self._metadata = b""
        self._given: dict[str, bytes] = {}
        self._announced = False  # the stream thread knows that it has to join again
        self._wanted: str | None = None  # why it should, once it is in
        self._failure: StreamsError | None = None
        self._last_poll = time.monotonic()
        self._next_heartbeat = 0.0
        self._backoff = backoffs(config)
        self._away = False  # the coordinator, as far as it is known
        self._thread = threading.Thread(target=self._run, name=f"{config.client_id}-membership", daemon=True)
        self._thread.start()

    # ---- what a stream thread sees

    @property
    def member_id(self) -> str:
        """The name that the coordinator gave; empty before it did."""
        return self._identity.member_id

    @property
    def generation(self) -> int:
        """The generation of the group that this member is in; -1 for none."""
        return self._identity.generation

    @property
    def group_metadata(self) -> bytes:
        """For `Producer.send_offsets_to_transaction`: as the member that was given the tasks."""
        generation, member_id = self._held
        config = self._config
        return librdkafka_group_metadata(config.group_id, generation, member_id, config.group_instance_id)

    def poll(self, timeout_s: float = 0.0) -> Event | None:
        """The next event, or None after `timeout_s`. It has to be called within max.poll.interval.ms.

        Raises MembershipError when the coordinator refuses this member for good, StreamsError when the background
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
        """Enter the next generation, the first time as ever after; returns at once, and `poll` brings the answer.

        The caller has committed and paused its tasks before. Raises as `poll` does.
        """
        topics, userdata = self._subscription()
        metadata = encode_subscription(topics, userdata, self._config.client_rack)
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if any(isinstance(event, RebalanceNeeded) and event.lost for event in self._events):
                return  # it has to close its tasks first: that event comes next
            self._events.clear()
            self._metadata = metadata
            self._announced = False
            self._wanted = None
            self._enter(Phase.JOINING)

    def request_rejoin(self, reason: str) -> None:
        """Make `poll` ask for a rebalance; while one is under way, after it. From any thread.

        The coordinator begins a rebalance if the leader asks, or a member whose subscription has changed.
        """
        with self._changed:
            if self._phase is Phase.STABLE:
                self._announce(reason)
            elif self._phase is not Phase.IDLE:
                self._wanted = reason

    def commit(self, offsets: Offsets) -> None:
        """Commit positions as the member that was given the tasks; returns when the coordinator has them.

        Tries again by itself while that can help, up to default.api.timeout.ms. Raises CommitFailed.
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
        """The committed positions of those partitions that have one.

        With `require_stable` it waits for open transactions of the past (KIP-447). Raises MembershipError.
        """
        return committed_offsets.fetch(self._requests, self._config, partitions, require_stable)

    def is_counted_in(self) -> bool:
        """Whether the coordinator says that the member is still in that has the tasks; False if it does not say.

        If so, nobody else has had its tasks until the call.
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
        """Leave the group for good, static members too: others take the tasks at once. Then `close`.

        Whether the coordinator has heard it is not certain; it finds out by itself after the session timeout.
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
        """End the background thread and the connections. Leaves the group only if it is configured to."""
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
        """What a refused commit tells about the membership."""
        with self._changed:
            if self._identity != who or self._phase is not Phase.STABLE:
                return
            if failure.kind is CommitFailure.FENCED:
                self._fail(refusal(failure.code, self._config))
            elif failure.kind is CommitFailure.MIGRATED:
                self._lose(failure.code)
            elif failure.kind is CommitFailure.REBALANCING:
                self._announce("a commit met a rebalance")

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
        """Out of the group: the tasks are lost. The name is kept unless the coordinator does not know it."""
        name = self._identity.member_id
        reason = why.name if isinstance(why, ErrorCode) else why
        log.warning("%s is out of the group %s: %s", name, self._config.group_id, reason)
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
        """The coordinator is there, and content."""
        self._backoff = backoffs(self._config)
        if self._away:
            self._away = False
            log.info("the coordinator of the group %s answers again", self._config.group_id)

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
            log.exception("the membership in %s has failed", self._config.group_id)
            with self._changed:
                self._fail(StreamsError(f"the membership in {self._config.group_id} has failed: {error!r}"))
        finally:
            self._link.forget()

    def _await_work(self) -> Phase:
        """Wait until there is something to ask the coordinator."""
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
                    self._lose(code)  # what it had before this rebalance may be elsewhere
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
            # Whether the others have their assignments is unknown: join again, as AbstractCoordinator does.
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
                return  # it has moved on, and will be told in its next request
            if code is ErrorCode.NONE:
                self._answered()
                return
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                if self._phase is Phase.STABLE:  # a leader that assigns learns it when it hands the assignment in
                    self._announce("the group is rebalancing")
                return
            if code in _LOST:
                self._lose(code)
                return
        self._reconsider(code)
        self._hurry()

    def _stalled(self) -> None:
        """The stream thread has not called `poll` for too long: leave, so that others take over (KIP-62)."""
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
            except ConnectionError:  # of a broker that was started anew since this link was last used
                answer = link.ask(request)
            codes = {code_of(answer.error_code), *(code_of(member.error_code) for member in answer.members)}
            outcome = ", ".join(sorted(code.name for code in codes - {ErrorCode.NONE}))
        except (OSError, ProtocolError, KafkaError) as error:
            outcome = str(error)
        if outcome:
            log.warning("leaving the group %s: %s", self._config.group_id, outcome)

    def _longest_wait_s(self) -> float:
        config = self._config
        return max(config.request_timeout_ms / 1000, config.max_poll_interval_ms / 1000 + JOIN_EXTRA_S)

    def _retreat(self) -> None:
        """Back to joining, with the same subscription: the tasks are still paused."""
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
        """Something that passes: the coordinator is away. Raises MembershipError for what does not."""
        if isinstance(error, KafkaError):
            self._reconsider(error.code)
        if self._phase is not Phase.ENDED:
            level = logging.DEBUG if self._away else logging.WARNING  # it is said once, not at every try
            log.log(level, "the coordinator of the group %s: %s", self._config.group_id, error)
            self._away = True
        self._hurry()
        self._pause()

    def _hurry(self) -> None:
        """The next heartbeat is due after a pause only, not after the whole interval."""
        with self._changed:
            if self._phase in (Phase.STABLE, Phase.ASSIGNING):
                self._next_heartbeat = time.monotonic() + next(self._backoff)

    def _pause(self) -> None:
        """Before another try. Heartbeats have theirs in their time of day."""
        with self._changed:
            if self._phase in (Phase.JOINING, Phase.SYNCING):
                phase = self._phase
                self._changed.wait_for(lambda: self._phase is not phase, next(self._backoff))
