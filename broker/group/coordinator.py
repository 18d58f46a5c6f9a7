"""Group coordinator: runs the state machines of the groups that this broker coordinates (Kafka: GroupCoordinator).

A group belongs to one partition of `__consumer_offsets`, and the broker that leads this partition coordinates it. The
coordinator finds the group, passes requests, timers and the outcomes of appends to it, and performs the effects that it
returns. The coordinator itself decides only what precedes a group: whether this broker coordinates the partition,
whether the partition is loaded, and whether a group may be created. The rules are those of Kafka's GroupCoordinator and
GroupMetadataManager.

No method blocks: the group stores a request that it cannot answer yet as a token, and later calls the token with the
answer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from odradek.broker.coordinator.state.pending_writes import Write
from odradek.broker.group.log import OffsetsLog, TransactionalLog
from odradek.broker.group.state.classic_membership import Membership
from odradek.broker.group.state.classic_requests import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.consumer_group_requests import (
    JOINING,
    LOG_ERRORS,
    HeartbeatRequest,
    HeartbeatResult,
    Topics,
    check_heartbeat,
)
from odradek.broker.group.state.group import COMMIT_ERRORS, Group
from odradek.broker.group.state.loading import Loader
from odradek.broker.group.state.offsets import CommitRequest, FetchedOffset
from odradek.broker.group.state.records import offset_record
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.runtime.state.effects import Append, CancelTimer, Effect, KeyValue, Now, Reply, SetTimer, TimerName
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol.batch import Header, Record
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call
    from odradek.broker.replication.transaction_verification import Support, Transaction

__all__ = ["Answer", "GroupCoordinator", "GroupSettings", "OffsetsLog"]

log = logging.getLogger(__name__)

Result = TypeVar("Result")

RECORDS_AT_A_TIME: Final = 1000
"""How many records a load reads before it returns to the event loop: about ten milliseconds."""


class Answer(Generic[Result]):
    """The answer of a request, given during the call or later.

    A handler passes it as the token of the request and then returns `response()`: the response when the group has
    already given it, otherwise None, and `Call.reply` sends the answer later.
    """

    __slots__ = ("_call", "_deferred", "_response", "_translate")

    def __init__(self, call: Call, translate: Callable[[Call, Result], Any]) -> None:
        self._call = call
        self._translate = translate
        self._deferred = False
        self._response: Any = None

    def __call__(self, result: Result) -> None:
        response = self._translate(self._call, result)
        if self._deferred:
            self._call.reply(response)
        else:
            self._response = response

    def response(self) -> Any:
        """Return the response if there is one; a later answer is sent when it is given."""
        self._deferred = True
        return self._response


class _Load:
    """A partition that is loading."""

    __slots__ = ("done", "loader", "markers", "records", "timer")

    def __init__(self, records: Iterator[tuple[Header, Record]], done: Callable[[], None] | None) -> None:
        self.records = records
        self.loader = Loader()
        self.done = done
        self.timer: Timer | None = None
        self.markers: list[tuple[int, bool]] = []  # (producer id, commit or not) of markers written during the load


class GroupCoordinator:
    """The groups of the partitions that this broker leads."""

    def __init__(
        self,
        settings: GroupSettings,
        clock: Clock,
        timers: Timers,
        fresh_id: Callable[[], str],
        offsets_log: OffsetsLog,
        transactional_log: TransactionalLog,
        topics: Topics,
    ) -> None:
        """`fresh_id` returns a unique string, normally a random UUID; the coordinator appends it to member ids."""
        self._settings = settings
        self._clock = clock
        self._set_timer = timers.at
        self._fresh_id = fresh_id
        self._log = offsets_log
        self._topics = topics
        self._transactional_log = transactional_log
        self._groups: dict[int, dict[str, Group]] = {}
        self._loading: dict[int, _Load] = {}
        self._unreadable: dict[int, None] = {}
        # partition -> producer id -> the groups that have offsets in its open transaction
        self._in_transaction: dict[int, dict[int, dict[str, None]]] = {}
        self._timers: dict[tuple[str, TimerName], Timer] = {}
        self._cleanup: Timer | None = None
        self._effects: deque[tuple[Group, Effect]] = deque()
        self._performing = False

    # --- loading and unloading ---

    def start(self) -> None:
        """Start the timer that removes expired offsets every `offsets.retention.check.interval.ms`."""
        self._arm_cleanup()

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR and cancel all timers."""
        if self._cleanup is not None:
            self._cleanup.cancel()
            self._cleanup = None
        for partition in [*self._groups, *self._loading]:
            self.unload(partition)

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` to which a group belongs."""
        return partition_for(group_id, self._settings.offsets_topic_num_partitions)

    def load(self, partition: int, done: Callable[[], None] | None = None) -> None:
        """Load a partition that this broker now leads and serve its groups; then call `done`.

        If a partition cannot be read to its end, its groups are not served, because offsets would be missing.
        """
        self._unreadable.pop(partition, None)
        if partition in self._groups or partition in self._loading:
            return
        self._loading[partition] = _Load(self._log.read_all(partition), done)
        self._load_more(partition)

    def unload(self, partition: int) -> None:
        """Unload a partition that this broker no longer leads."""
        self._unreadable.pop(partition, None)
        load = self._loading.pop(partition, None)
        if load is not None and load.timer is not None:
            load.timer.cancel()
        now = self._now()
        self._in_transaction.pop(partition, None)
        for group in self._groups.pop(partition, {}).values():
            self._perform(group, group.unload(now))

    def _load_more(self, partition: int) -> None:
        load = self._loading[partition]
        load.timer = None
        try:
            for _ in range(RECORDS_AT_A_TIME):
                found = next(load.records, None)
                if found is None:
                    self._loaded(partition, load)
                    return
                self._feed(partition, load.loader, *found)
        except (KafkaError, ProtocolError, OSError):
            log.exception("cannot load __consumer_offsets partition=%d", partition)
            del self._loading[partition]
            self._unreadable[partition] = None
            return
        load.timer = self._set_timer(self._clock.monotonic_ms(), partial(self._load_more, partition))

    def _feed(self, partition: int, loader: Loader, header: Header, record: Record) -> None:
        try:
            loader.feed(header, record)
        except ProtocolError as error:
            log.warning(
                "skipping invalid record of __consumer_offsets partition=%d offset=%d error=%s",
                partition,
                record.offset,
                error,
            )

    def _loaded(self, partition: int, load: _Load) -> None:
        now = self._now()
        groups = {group.group_id: group for group in load.loader.groups(self._settings, now, self._topics)}
        del self._loading[partition]
        self._groups[partition] = groups
        self._in_transaction[partition] = load.loader.in_transaction
        for producer_id, commit in load.markers:
            self.end_transaction(partition, producer_id, commit)
        for group in list(groups.values()):
            self._perform(group, group.loaded(now))
        if load.done is not None:
            load.done()

    def _check(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Whether this broker serves a group; NONE if it does."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        partition = self.partition_of(group_id)
        if partition in self._groups:
            return ErrorCode.NONE
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if partition in self._unreadable else ErrorCode.NOT_COORDINATOR

    def _find(self, group_id: str) -> Group | None:
        group = self._groups[self.partition_of(group_id)].get(group_id)
        return group if group is not None and not group.is_dead else None

    def _create(self, group_id: str) -> Group:
        groups = self._groups[self.partition_of(group_id)]
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = Group(group_id, self._settings, self._now(), self._topics)
        else:  # the tombstone of the dead group is not durable yet, and the log may refuse it
            group.begin_anew(self._now())
        return group

    def _living(self) -> list[Group]:
        return [group for groups in self._groups.values() for group in groups.values() if not group.is_dead]

    # --- membership ---

    def join(self, group_id: str, request: JoinRequest, answer: Callable[[JoinResult], None]) -> None:
        """JoinGroup."""
        error = self._check(group_id)
        settings, timeout_ms = self._settings, request.terms.session_timeout_ms
        if error:
            answer(JoinResult(error, request.member_id))
            return
        if not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
            answer(JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
            return
        group = self._find(group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER_ID:
                answer(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            group = self._create(group_id)
        self._perform(group, group.join(answer, request, self._fresh_id(), self._now()))

    def sync(self, group_id: str, request: SyncRequest, answer: Callable[[SyncResult], None]) -> None:
        """SyncGroup."""
        error = self._check(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance ends with the old coordinator. This code makes the member join again, and old clients
            # do not support COORDINATOR_LOAD_IN_PROGRESS here.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        group = self._find(group_id) if not error else None
        if group is None:
            answer(SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self._perform(group, group.sync(answer, request, self._now()))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat."""
        error = self._check(group_id)
        if error:
            # Accept heartbeats while the group is loading.
            return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        group = self._find(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error, effects = group.heartbeat(member_id, instance_id, generation, self._now())
        self._perform(group, effects)
        return error

    def leave(self, group_id: str, leavers: Iterable[tuple[str, str | None]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """LeaveGroup: (member id, instance id) of each; one code for all and one for each."""
        error = self._check(group_id)
        if error:
            return error, []
        group = self._find(group_id)
        if group is None:
            return ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID for _ in leavers]
        codes = []
        for member_id, instance_id in leavers:
            code, effects = group.leave(member_id, instance_id, self._now())
            self._perform(group, effects)
            codes.append(code or LOG_ERRORS.get(group.refusal, group.refusal))
        return ErrorCode.NONE, codes

    def consumer_heartbeat(
        self, group_id: str, request: HeartbeatRequest, answer: Callable[[HeartbeatResult], None]
    ) -> None:
        """ConsumerGroupHeartbeat."""
        try:
            check_heartbeat(group_id, request, self._settings.assignors)
        except KafkaError as refused:
            answer(HeartbeatResult(refused.code, refused.message))
            return
        error = self._check(group_id)
        group = self._find(group_id) if not error else None
        if group is None and not error and request.epoch == JOINING:
            group = self._create(group_id)
        if group is None:
            missing = f"Group {group_id} not found." if not error else None
            answer(HeartbeatResult(error or ErrorCode.GROUP_ID_NOT_FOUND, missing))
            return
        self._perform(group, group.consumer_heartbeat(answer, request, self._fresh_id(), self._now()))
        self._forget_if_gone(group)

    # --- offsets ---

    def commit(self, group_id: str, request: CommitRequest, answer: Callable[[list[ErrorCode]], None]) -> None:
        """OffsetCommit: answered with one code for each entry."""
        error = self._check(group_id, may_be_empty=True)
        group = self._find(group_id) if not error else None
        if group is None and not error:
            if request.generation < 0:
                group = self._create(group_id)  # a consumer that assigns partitions itself and only stores offsets
            else:
                error = ErrorCode.ILLEGAL_GENERATION
        if group is None:
            answer([error] * len(request.entries))
            return
        self._perform(group, group.commit(answer, request, self._now()))

    def commit_in_transaction(
        self,
        group_id: str,
        request: CommitRequest,
        transaction: Transaction,
        support: Support,
        answer: Callable[[list[ErrorCode]], None],
    ) -> None:
        """TxnOffsetCommit: answered, once durable, with a code for each entry.

        The commit marker makes the offsets valid.
        """
        error = self._check(group_id)
        if error:
            answer([error] * len(request.entries))
            return
        permitted = partial(self._commit_permitted, group_id, request, transaction.producer_id, answer)
        self._transactional_log.ask(self.partition_of(group_id), transaction, support, permitted)

    def _commit_permitted(
        self,
        group_id: str,
        request: CommitRequest,
        producer_id: int,
        answer: Callable[[list[ErrorCode]], None],
        error: ErrorCode,
        permit: Any,
    ) -> None:
        error = COMMIT_ERRORS.get(error, error) or self._check(group_id)
        group = self._find(group_id) if not error else None
        if group is None and not error:
            if request.generation < 0:
                group = self._create(group_id)
            else:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is None:
            answer([error] * len(request.entries))
            return
        self._perform(group, group.commit_in_transaction(answer, request, producer_id, permit))

    def before_commit(self, partition: int, producer_id: int) -> None:
        """Append offsets again that precede a tombstone, before the commit marker of their transaction is written.

        The offsets are valid from the marker on. Without the second append, compaction would remove them because of the
        tombstone, and a load would miss them. Raises KafkaError where the marker must not be written yet; the
        transaction coordinator retries it.
        """
        groups = self._groups.get(partition)
        if groups is None:
            if partition in self._unreadable:
                return
            # Kafka 4.x gives this error while its coordinator loads: only a loaded coordinator has the pending offsets.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"__consumer_offsets-{partition} is not loaded")
        for group_id in self._in_transaction.get(partition, {}).get(producer_id, {}):
            group = groups.get(group_id)
            overtaken = group.offsets.overtaken(producer_id) if group is not None else []
            for at, committed in overtaken:
                record = offset_record(group_id, at, committed)
                self._transactional_log.append_again(partition, producer_id, [record])
                groups[group_id].offsets.replay(at, committed, producer_id)

    def end_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """Apply a marker of `__consumer_offsets`: the producer's pending offsets become valid, or are discarded.

        A marker that is written during a load has a higher offset than all records of the load, so it is applied at the
        end of the load.
        """
        load = self._loading.get(partition)
        if load is not None:
            load.markers.append((producer_id, commit))
            return
        groups = self._groups.get(partition, {})
        for group_id in self._in_transaction.get(partition, {}).pop(producer_id, {}):
            group = groups.get(group_id)
            if group is not None:
                group.offsets.complete(producer_id, commit)

    def fetch(
        self,
        group_id: str,
        partitions: list[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        epoch: int = -1,
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of these partitions, or of all that have an offset; the consumer protocol checks the member."""
        error = self._check(group_id, may_be_empty=True)
        if error:
            return error, []
        group = self._find(group_id)
        if group is None:
            return ErrorCode.NONE, [FetchedOffset(partition, None) for partition in partitions or ()]
        error = group.check_fetch(member_id, epoch)
        return error, group.offsets.fetch(partitions, require_stable) if not error else []

    def delete_offsets(self, group_id: str, partitions: list[TopicPartition]) -> tuple[ErrorCode, list[ErrorCode]]:
        """OffsetDelete: one code for all, and when that is NONE one for each partition."""
        error = self._check(group_id)
        group = self._find(group_id) if not error else None
        if group is None:
            return error or ErrorCode.GROUP_ID_NOT_FOUND, []
        try:
            codes, effects = group.delete_offsets(partitions, self._now())
        except KafkaError as refused:
            return refused.code, []
        self._perform(group, effects)
        self._forget_if_gone(group)
        return COMMIT_ERRORS.get(group.refusal, group.refusal), codes

    def forget_partitions(self, partitions: list[TopicPartition]) -> None:
        """Remove the offsets that any group here has of these deleted topic partitions."""
        self._for_all(lambda group, now: group.forget(partitions, now))

    # --- administration ---

    def describe(self, group_id: str) -> tuple[ErrorCode, Membership | None]:
        """DescribeGroups: the members of a group, None when there is no such group of the classic protocol."""
        error, membership = self._membership(group_id)
        return error, membership if isinstance(membership, Membership) else None

    def describe_consumers(self, group_id: str) -> tuple[ErrorCode, ConsumerMembership | None]:
        """ConsumerGroupDescribe: the same for the consumer protocol."""
        error, membership = self._membership(group_id)
        return error, membership if isinstance(membership, ConsumerMembership) else None

    def _membership(self, group_id: str) -> tuple[ErrorCode, Membership | ConsumerMembership | None]:
        error = self._check(group_id, may_be_empty=True)
        group = self._find(group_id) if not error else None
        return error, group.membership if group is not None else None

    def list_groups(self, states: Iterable[str] = ()) -> tuple[ErrorCode, list[tuple[str, str, str, str]]]:
        """ListGroups: (id, protocol type, state, type) of the groups in these states (case-insensitive; none: all)."""
        wanted = {state.lower() for state in states}
        found = [
            (
                group.group_id,
                group.membership.protocol_type or "",
                group.membership.state.value,
                "classic" if isinstance(group.membership, Membership) else "consumer",
            )
            for group in self._living()
            if not wanted or group.membership.state.value.lower() in wanted
        ]
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._loading else ErrorCode.NONE, found

    def states(self) -> list[tuple[str, int]]:
        """The state and the number of committed offsets of every group that this broker coordinates."""
        return [(group.membership.state.value, len(group.offsets)) for group in self._living()]

    def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups, for one group."""
        error = self._check(group_id, may_be_empty=True)
        group = self._find(group_id) if not error else None
        if group is None:
            return error or ErrorCode.GROUP_ID_NOT_FOUND
        error, effects = group.delete(self._now())
        self._perform(group, effects)
        self._forget_if_gone(group)
        return error or COMMIT_ERRORS.get(group.refusal, group.refusal)

    # --- effects of the state machines ---

    def _perform(self, group: Group, effects: list[Effect]) -> None:
        """Perform effects in order. Effects of an append that is durable at once follow after the others."""
        self._effects.extend((group, effect) for effect in effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._effects:
                self._carry_out(*self._effects.popleft())
        finally:
            self._performing = False

    def _carry_out(self, group: Group, effect: Effect) -> None:
        match effect:
            case Append(records, token, permit):
                self._append(group, records, token, permit)
            case Reply(token, answer):
                try:
                    token(answer)
                except Exception:  # an error in one reply must not prevent the other replies
                    log.exception("cannot send response group=%s", group.group_id)
            case SetTimer(name, deadline_ms):
                self._cancel_timer(group, name)
                fire = partial(self._fire, group, name)
                self._timers[group.group_id, name] = self._set_timer(deadline_ms, fire)
            case CancelTimer(name):
                self._cancel_timer(group, name)

    def _append(self, group: Group, records: list[KeyValue], token: Write, permit: Any) -> None:
        if token.is_void:
            return
        done = partial(self._appended, group, token)
        partition = self.partition_of(group.group_id)
        try:
            if permit is None:
                self._log.append(partition, records, done)
            else:
                producers = self._in_transaction.setdefault(partition, {})
                producers.setdefault(permit.producer_id, {})[group.group_id] = None
                self._transactional_log.append(partition, records, permit, done)
        except KafkaError as error:
            done(error.code)

    def _appended(self, group: Group, token: Write, error: ErrorCode) -> None:
        if error and not token.is_void:
            log.warning("cannot append group records group=%s error=%s", group.group_id, error.name)
        self._perform(group, group.appended(token, error, self._now()))
        self._forget_if_gone(group)

    def _fire(self, group: Group, name: TimerName) -> None:
        self._timers.pop((group.group_id, name), None)
        self._perform(group, group.timer(name, self._now()))

    def _cancel_timer(self, group: Group, name: TimerName) -> None:
        timer = self._timers.pop((group.group_id, name), None)
        if timer is not None:
            timer.cancel()

    def _arm_cleanup(self) -> None:
        interval_ms = self._settings.offsets_retention_check_interval_ms
        self._cleanup = self._set_timer(self._clock.monotonic_ms() + interval_ms, self._clean)

    def _clean(self) -> None:
        self._for_all(Group.expire)
        self._arm_cleanup()

    def _for_all(self, event: Callable[[Group, Now], list[Effect]]) -> None:
        now = self._now()
        for group in self._living():
            self._perform(group, event(group, now))
            self._forget_if_gone(group)

    def _forget_if_gone(self, group: Group) -> None:
        if (group.is_dead or group.is_blank) and not group.has_pending_writes:
            self._groups.get(self.partition_of(group.group_id), {}).pop(group.group_id, None)

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.monotonic_ms())
