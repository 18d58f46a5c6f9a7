"""Coordinator thread: joins, syncs and sends heartbeats for one member (Kafka: AbstractCoordinator.HeartbeatThread).

The thread sends the requests that the phase of the member calls for, so the stream thread never blocks on the group. An
error that may pass is retried with growing backoff; any other error ends the member, and the stream thread receives it
with its next `poll`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Final

from odradek.protocol import messages as m
from odradek.protocol.client.connection import code_of
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.streams.errors import StreamsError
from odradek.streams.group.committed_offsets import MOVED, CommittingMember, backoffs
from odradek.streams.group.connection import CoordinatorLink
from odradek.streams.group.group_protocol import (
    MembershipConfig,
    decode_assignment,
    decode_subscription,
    refusal,
)
from odradek.streams.group.group_requests import (
    heartbeat_request,
    join_group_request,
    leave_group,
    sync_group_request,
)
from odradek.streams.group.heartbeat import Heartbeat
from odradek.streams.group.membership_state import MembershipState, Phase

log = logging.getLogger(__name__)

JOIN_EXTRA_S: Final = 5.0
"""Added to the rebalance timeout: a coordinator may use all of it before it answers (AbstractCoordinator)."""
_LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_HEARTBEATING: Final = (Phase.STABLE, Phase.ASSIGNING)


class CoordinatorThread:
    """The thread of one member. Only `start`, `join`, `interrupt` and `is_alive` are for other threads."""

    def __init__(
        self, config: MembershipConfig, state: MembershipState, link: CoordinatorLink, heartbeat: Heartbeat
    ) -> None:
        """`link` belongs to this thread."""
        self._config = config
        self._state = state
        self._link = link
        self._heartbeat = heartbeat
        self._backoff: Iterator[float] = backoffs(config)
        self._away = False
        """Whether the coordinator is unavailable."""
        self._join_timeout_s = max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_EXTRA_S * 1000) / 1000
        self._thread = threading.Thread(target=self._run, name=f"{config.client_id}-membership", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def interrupt(self) -> None:
        """Fail the request that the thread waits for."""
        self._link.interrupt()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread; returns at once in the thread itself."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    # ---- the thread's main function

    def _run(self) -> None:
        state = self._state
        try:
            while (phase := self._await_work()) is not Phase.ENDED:
                try:
                    self._step(phase)
                except (OSError, ProtocolError, KafkaError) as error:
                    self._handle_transient(error)
        except StreamsError as error:
            with state.changed:
                state.fail(error)
        except BaseException as error:
            log.exception("group membership failed group=%s", self._config.group_id)
            with state.changed:
                state.fail(StreamsError(f"the membership in {self._config.group_id} has failed: {error!r}"))
        finally:
            self._link.forget()

    def _await_work(self) -> Phase:
        """Wait until there is a request to send to the coordinator."""
        state = self._state
        with state.changed:
            while True:
                if state.phase in _HEARTBEATING:
                    wait_s = self._heartbeat.time_to_next_s
                    if wait_s <= 0:
                        return state.phase
                    state.changed.wait(wait_s)
                elif state.phase is Phase.IDLE:
                    state.changed.wait()
                else:
                    return state.phase

    def _step(self, phase: Phase) -> None:
        if phase is Phase.JOINING:
            self._join_group()
        elif phase is Phase.SYNCING:
            self._sync_group()
        elif self._heartbeat.poll_timeout_expired:
            self._leave_after_poll_timeout()
        else:
            self._send_heartbeat()

    # ---- JoinGroup

    def _join_group(self) -> None:
        config, state = self._config, self._state
        with state.changed:
            identity, metadata = state.identity, state.metadata
        request = join_group_request(config, identity, metadata)
        answer: m.JoinGroupResponse = self._link.ask(request, self._join_timeout_s)
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            self._handle_join_error(code, answer.member_id, identity)
            return
        leads = answer.leader == answer.member_id
        with state.changed:
            if state.phase is not Phase.JOINING:
                return  # closed meanwhile
            self._coordinator_answered()
            state.joined(CommittingMember(answer.generation_id, answer.member_id), leads)
            if leads and not answer.skip_assignment:
                members = {
                    member.member_id: decode_subscription(member.member_id, member.group_instance_id, member.metadata)
                    for member in answer.members
                }
                self._heartbeat.reset()
                state.begin_assignment(members)
            else:
                state.enter(Phase.SYNCING)

    def _handle_join_error(self, code: ErrorCode, member_id: str, identity: CommittingMember) -> None:
        """`member_id` is the one in the response, `identity` the one in the request."""
        state = self._state
        with state.changed:
            if state.phase is not Phase.JOINING:
                return
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                state.reset_identity(member_id)
                return
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                if identity.generation >= 0:
                    state.lose(code)  # other members may own its earlier tasks
                else:
                    state.reset_identity()
                return
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self._handle_coordinator_error(code)
        self._back_off()

    # ---- SyncGroup

    def _sync_group(self) -> None:
        state = self._state
        with state.changed:
            identity, assignments = state.identity, state.assignments
        request = sync_group_request(self._config, identity, assignments)
        try:
            answer: m.SyncGroupResponse = self._link.ask(request, self._join_timeout_s)
        except (OSError, ProtocolError, KafkaError):
            # The other members may or may not have their assignments: join again, as AbstractCoordinator does.
            self._retry_join()
            raise
        code = code_of(answer.error_code)
        if code is ErrorCode.NONE:
            self._handle_assignment(identity, answer.assignment)
        elif code in _LOST:
            with state.changed:
                if state.phase is Phase.SYNCING:
                    state.lose(code)
        else:
            if code is not ErrorCode.REBALANCE_IN_PROGRESS:
                self._handle_coordinator_error(code)
                self._back_off()
            self._retry_join()

    def _handle_assignment(self, identity: CommittingMember, assignment: bytes) -> None:
        partitions, userdata = decode_assignment(assignment)
        state = self._state
        with state.changed:
            if state.phase is not Phase.SYNCING:
                return
            self._coordinator_answered()
            self._heartbeat.reset()
            state.synced(identity, partitions, userdata)

    def _retry_join(self) -> None:
        with self._state.changed:
            self._state.retry_join()

    # ---- heartbeats

    def _send_heartbeat(self) -> None:
        state = self._state
        with state.changed:
            identity = state.identity
            self._heartbeat.reset()
        answer: m.HeartbeatResponse = self._link.ask(heartbeat_request(self._config, identity))
        code = code_of(answer.error_code)
        with state.changed:
            if state.identity != identity or state.phase not in _HEARTBEATING:
                return  # its identity has changed; the next request gets the error
            if code is ErrorCode.NONE:
                self._coordinator_answered()
                return
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                if state.phase is Phase.STABLE:  # an assigning leader gets the error from SyncGroup
                    state.announce("the group is rebalancing")
                return
            if code in _LOST:
                state.lose(code)
                return
        self._handle_coordinator_error(code)
        self._retry_heartbeat()

    def _leave_after_poll_timeout(self) -> None:
        """The stream thread has not called `poll` for too long: leave, so that other members take over the tasks
        (KIP-62).
        """
        config, state = self._config, self._state
        with state.changed:
            identity = state.identity
            state.lose(f"poll() was not called for max.poll.interval.ms ({config.max_poll_interval_ms} ms)")
            if config.group_instance_id is None:
                state.reset_identity()
        if config.group_instance_id is None:
            leave_group(self._link, config, identity, "consumer poll timeout has expired.")

    def _retry_heartbeat(self) -> None:
        with self._state.changed:
            if self._state.phase in _HEARTBEATING:
                self._heartbeat.retry(next(self._backoff))

    # ---- the coordinator

    def _coordinator_answered(self) -> None:
        """The coordinator has answered without an error."""
        self._backoff = backoffs(self._config)
        if self._away:
            self._away = False
            log.info("group coordinator is available again group=%s", self._config.group_id)

    def _handle_coordinator_error(self, code: ErrorCode) -> None:
        """Find the coordinator again where it has moved. Raises MembershipError for an error that no retry resolves."""
        if code in MOVED:
            self._link.forget()
        elif not code.retriable:
            raise refusal(code, self._config)

    def _handle_transient(self, error: OSError | ProtocolError | KafkaError) -> None:
        """Retry after an error: the coordinator is unavailable. Raises MembershipError for a permanent error."""
        if isinstance(error, KafkaError):
            self._handle_coordinator_error(error.code)
        if self._state.phase is not Phase.ENDED:
            level = logging.DEBUG if self._away else logging.WARNING  # logged once, not at every retry
            log.log(level, "group coordinator is unavailable group=%s error=%s", self._config.group_id, error)
            self._away = True
        self._retry_heartbeat()
        self._back_off()

    def _back_off(self) -> None:
        """Wait before another attempt. Heartbeats are timed by their interval instead."""
        state = self._state
        with state.changed:
            if state.phase in (Phase.JOINING, Phase.SYNCING):
                phase = state.phase
                state.changed.wait_for(lambda: state.phase is not phase, next(self._backoff))
