"""Fetch (key 1), versions 0 to 18: read batches, waiting for them if there are none yet.

A consumer asks for partitions from offsets and gets whole batches as they stand in the log, as ranges of files that
leave uncopied. When less than `min_bytes` is there, the answer waits up to `max_wait_ms` for logs to grow. Version 4
brings isolation levels, 5 the log start offset, 7 sessions (KIP-227), 9 the leader epoch (KIP-320), 11 racks
(KIP-392), 12 the epoch of the last fetched record, 13 topic ids in place of names (KIP-516), 15 the follower's
state as a tag (KIP-903), 16 the leader's address in an answer of the wrong broker (KIP-951). Between brokers of ours
tags of our own tell how far a partition has been compacted (docs/compaction.md).

Versions 0 to 3 would need batches converted down to magic 0 and 1, which is not done yet: a partition that has
records answers UNSUPPORTED_VERSION, as Kafka does with message.downconversion.enable=false.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.cluster_view import ClusterView
from odradek.broker.machines.fetch_session import FetchContext, FetchPartition, FetchSessions
from odradek.broker.machines.partition import Role
from odradek.broker.replica import READ_COMMITTED, Replica, Replicas
from odradek.broker.waiting import Clock, Timers
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call

OLDEST_WITH_BATCHES = 4
SESSIONS_FROM = 7
RACKS_FROM = 11
TOPIC_IDS_FROM = 13
LEADERS_FROM = 16
WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
CONSUMER = -1
PartitionData = m.FetchResponse.PartitionData


Nearest = Callable[[Replica, str, int], int]
"""(replica, rack of the consumer, offset) -> the broker to read from; NO_PREFERENCE for this one."""
NO_PREFERENCE = -1


def leader_only(replica: Replica, rack: str, offset: int) -> int:
    """Kafka without `replica.selector.class`: consumers read from the leader."""
    return NO_PREFERENCE


class SameRack:
    """Sends a consumer to a replica in its own rack that has what it wants (RackAwareReplicaSelector)."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def __call__(self, replica: Replica, rack: str, offset: int) -> int:
        machine, brokers = replica.machine, self._view.brokers
        if not rack or machine.role is not Role.LEADER:
            return NO_PREFERENCE
        near = [
            replica_id for replica_id in machine.replicas if replica_id in brokers and brokers[replica_id].rack == rack
        ]
        if not near or machine.broker_id in near:
            return NO_PREFERENCE
        ends = {
            replica_id: machine.remotes[replica_id].end_offset
            for replica_id in near
            if machine.remotes[replica_id].start_offset <= offset <= machine.remotes[replica_id].end_offset
        }
        return max(ends, key=lambda replica_id: ends[replica_id]) if ends else NO_PREFERENCE


class Fetch:
    """Reads of consumers and followers."""

    KEY = 1
    VERSIONS = (0, 18)

    def __init__(
        self,
        replicas: Replicas,
        view: ClusterView,
        sessions: FetchSessions,
        clock: Clock,
        timers: Timers,
        max_bytes: Callable[[], int],
        nearest: Nearest = leader_only,
    ) -> None:
        """`max_bytes()` is the broker's own bound on an answer (`fetch.max.bytes`); `nearest` is the way in which
        consumers are sent to followers (`replica.selector.class`).
        """
        self.nearest = nearest
        self.view = view
        self._replicas = replicas
        self._sessions = sessions
        self._clock = clock
        self._timers = timers
        self._max_bytes = max_bytes

    def handle(self, call: Call, request: m.FetchRequest) -> m.FetchResponse | None:
        try:
            context = self._context(call, request)
        except KafkaError as error:
            return m.FetchResponse(error_code=error.code, session_id=request.session_id)
        reading = Reading(self, call, request, context)
        sizes, ready = reading.try_read()
        if ready or request.max_wait_ms <= 0 or not context.partitions:
            return reading.response()
        FetchWait(call, reading, sizes).start(self._timers, self._clock.monotonic_ms() + request.max_wait_ms)
        return None

    def _context(self, call: Call, request: m.FetchRequest) -> FetchContext:
        """Where the request stands in its session."""
        ids = call.version >= TOPIC_IDS_FROM
        replica_id = _replica_id(request, call.version)
        wanted = []
        for topic in request.topics:
            name = self._name(topic.topic_id) if ids else topic.topic
            for partition in topic.partitions:
                entry = FetchPartition(name, topic.topic_id, partition.partition)
                entry.fetch_offset = partition.fetch_offset
                entry.max_bytes = partition.partition_max_bytes
                entry.current_leader_epoch = partition.current_leader_epoch
                entry.last_fetched_epoch = partition.last_fetched_epoch
                entry.log_start_offset = partition.log_start_offset
                if replica_id != CONSUMER:
                    entry.cleaned_to = partition.cleaned_to
                wanted.append(entry)
        if call.version < SESSIONS_FROM:
            return FetchContext(wanted)
        forgotten: list[tuple[str | bytes, int]] = []
        for gone in request.forgotten_topics_data:
            key: str | bytes = gone.topic_id if ids else gone.topic
            forgotten.extend((key, index) for index in gone.partitions)
        return self._sessions.begin(
            request.session_id,
            request.session_epoch,
            wanted,
            forgotten,
            privileged=replica_id != CONSUMER,
            uses_topic_ids=ids,
            now_ms=self._clock.monotonic_ms(),
        )

    def _name(self, topic_id: bytes) -> str:
        """The topic's name, empty where it is not known. A leader knows its replicas before it knows the topic."""
        return self._replicas.name_of(topic_id) or self.view.name_of(topic_id) or ""

    def find(self, wanted: FetchPartition, *, ids: bool, leader_only: bool = True) -> Replica:
        """The replica to read from; raises KafkaError when there is none or the epoch is not the current one.

        Without `leader_only` a follower serves, too (KIP-392).
        """
        if ids and not wanted.topic:
            # The topic may have been created, or become known, since the session began.
            wanted.topic = self._name(wanted.topic_id)
            if not wanted.topic:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        replica = self._replicas.get(wanted.topic, wanted.partition)
        if replica is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if ids and replica.topic_id != wanted.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if leader_only:
            replica.machine.check_leader(wanted.current_leader_epoch)
        else:
            replica.machine.check_epoch(wanted.current_leader_epoch)
            replica.machine.check_online()
        return replica

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Who leads a partition as far as this broker knows, and in which epoch (KIP-951)."""
        replica = self._replicas.get(topic, partition)
        if replica is not None:
            return replica.machine.leader_id, replica.machine.leader_epoch
        return self.view.leader(topic, partition)

    def max_bytes(self, asked: int) -> int:
        """Bytes that one answer may hold."""
        return min(asked, self._max_bytes())


def _replica_id(request: m.FetchRequest, version: int) -> int:
    if version < 15:
        return request.replica_id
    state = request.replica_state
    return CONSUMER if state is None else state.replica_id


def _replica_epoch(request: m.FetchRequest, version: int) -> int:
    state = request.replica_state
    return -1 if version < 15 or state is None else state.replica_epoch


class Reading:
    """One request's partitions, read as often as it takes until there is enough."""

    __slots__ = (
        "_call",
        "_context",
        "_fetch",
        "_follower",
        "_follower_epoch",
        "_ids",
        "_isolation",
        "_leader_only",
        "_max_bytes",
        "_rack",
        "_results",
        "min_bytes",
    )

    def __init__(self, fetch: Fetch, call: Call, request: m.FetchRequest, context: FetchContext) -> None:
        self._fetch = fetch
        self._call = call
        self._context = context
        self._ids = call.version >= TOPIC_IDS_FROM
        self._follower = _replica_id(request, call.version)
        self._follower_epoch = _replica_epoch(request, call.version)
        self._rack = request.rack_id
        self._leader_only = self._follower >= 0 or call.version < RACKS_FROM
        self._isolation = request.isolation_level
        self._max_bytes = fetch.max_bytes(request.max_bytes)
        self.min_bytes = request.min_bytes
        self._results: list[tuple[FetchPartition, m.FetchResponse.PartitionData, int]] = []

    def try_read(self) -> tuple[dict[Replica, int], bool]:
        """Read every partition once.

        Returns the bytes found in each replica, and whether the answer should go out now: because there is enough, or
        because a partition has something to say that must not wait.
        """
        left, found, urgent = self._max_bytes, 0, False
        sizes: dict[Replica, int] = {}
        results = []
        for wanted in self._context.partitions:
            data = PartitionData(partition_index=wanted.partition, records=b"")
            size = 0
            try:
                replica = self._fetch.find(wanted, ids=self._ids, leader_only=self._leader_only)
                if self._turned_away(replica, wanted, data):
                    urgent = True
                else:
                    size = self._read(replica, wanted, data, min(wanted.max_bytes, left), at_least_one=found == 0)
                    if self._follower >= 0:
                        self._followed(replica, wanted, data)
                sizes[replica] = size
            except KafkaError as error:
                urgent = True
                data = self._refusal(wanted, error)
            found += size
            left -= size
            results.append((wanted, data, size))
        self._results = results
        return sizes, urgent or found >= self.min_bytes

    def _turned_away(self, replica: Replica, wanted: FetchPartition, data: m.FetchResponse.PartitionData) -> bool:
        """Whether the reader has to do something else than read here: cut its log, or go to a nearer replica."""
        log = replica.log
        if wanted.last_fetched_epoch >= 0:
            epoch, end = log.epochs.end_offset(wanted.last_fetched_epoch, log.end_offset)
            if end < 0:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"the leader knows nothing of epoch {wanted.last_fetched_epoch}"
                )
            if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
                self._bounds(replica, data)
                data.diverging_epoch = m.FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
                return True
        if self._follower == CONSUMER and self._rack:
            preferred = self._fetch.nearest(replica, self._rack, wanted.fetch_offset)
            if preferred != NO_PREFERENCE:
                self._bounds(replica, data)
                data.preferred_read_replica = preferred
                return True
        return False

    def _followed(self, replica: Replica, wanted: FetchPartition, data: m.FetchResponse.PartitionData) -> None:
        """What a follower says with its fetch, and what it is told because of it. Raises KafkaError."""
        replica.follower_fetched(
            self._follower, wanted.fetch_offset, wanted.log_start_offset, self._follower_epoch, wanted.cleaned_to
        )
        data.high_watermark = replica.machine.high_watermark
        if wanted.cleaned_to >= 0:  # a broker of Kafka does not know the field
            data.compacted_everywhere = replica.machine.compacted_everywhere

    @staticmethod
    def _bounds(replica: Replica, data: m.FetchResponse.PartitionData) -> None:
        data.high_watermark = replica.machine.high_watermark
        data.last_stable_offset = replica.last_stable_offset
        data.log_start_offset = replica.log.start_offset

    def _read(
        self,
        replica: Replica,
        wanted: FetchPartition,
        data: m.FetchResponse.PartitionData,
        max_bytes: int,
        *,
        at_least_one: bool,
    ) -> int:
        # The bounds are read once, so that what the answer says of them and what it holds agree.
        log = replica.log
        self._bounds(replica, data)
        if self._follower != CONSUMER:
            upper = log.end_offset
        elif self._isolation == READ_COMMITTED:
            upper = data.last_stable_offset
        else:
            upper = data.high_watermark
        part = replica.read(wanted.fetch_offset, max(0, max_bytes), upper=upper, at_least_one=at_least_one)
        size = len(part.records)
        if size and self._call.version < OLDEST_WITH_BATCHES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if self._isolation == READ_COMMITTED and self._follower == CONSUMER:
            aborted = log.aborted_transactions(wanted.fetch_offset, min(upper, log.upper_bound(part))) if size else ()
            data.aborted_transactions = [
                m.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in aborted
            ]
        data.records = part.records if size else b""
        return size

    def _refusal(self, wanted: FetchPartition, error: KafkaError) -> m.FetchResponse.PartitionData:
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=error.code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=b"",
        )
        if self._call.version >= LEADERS_FROM and error.code in WRONG_LEADER:
            leader = self._fetch.leader(wanted.topic, wanted.partition)
            if leader is not None:
                data.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        return data

    def available(self, replica: Replica) -> int | None:
        """The bytes that one replica would give now; None when it has something to say that must not wait."""
        for wanted, data, _ in self._results:
            if data.partition_index == replica.partition and wanted.topic == replica.topic:
                try:
                    self._fetch.find(wanted, ids=self._ids, leader_only=self._leader_only)
                    return self._read(replica, wanted, PartitionData(), wanted.max_bytes, at_least_one=True)
                except KafkaError:
                    return None
        return 0

    def response(self) -> m.FetchResponse:
        """The answer to what was read last."""
        context = self._context
        topics: dict[str | bytes, m.FetchResponse.FetchableTopicResponse] = {}
        session = context.session
        served = []
        for wanted, data, size in self._results:
            if session is not None:
                tell = wanted.must_tell(ErrorCode(data.error_code), size, data.high_watermark, data.log_start_offset)
                if data.diverging_epoch is not None:
                    wanted.not_heard()  # a reader that has to cut first does not look at the bounds
                    tell = True
                if self._follower != CONSUMER and wanted.must_tell_compacted(data.compacted_everywhere):
                    tell = True
                if size:
                    served.append(wanted.key)
                if context.incremental and not tell:
                    continue
            key: str | bytes = wanted.topic_id if self._ids else wanted.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = m.FetchResponse.FetchableTopicResponse(
                    topic=wanted.topic, topic_id=wanted.topic_id
                )
            topic.partitions.append(data)
        if session is not None and len(self._results) > 1:
            session.served(served)
        response = m.FetchResponse(session_id=context.session_id, responses=list(topics.values()))
        if self._call.version >= LEADERS_FROM:
            response.node_endpoints = self._leaders()
        return response

    def _leaders(self) -> list[m.FetchResponse.NodeEndpoint]:
        """Where the leaders are that partitions of this answer name."""
        leaders = {data.current_leader.leader_id for _, data, _ in self._results if data.current_leader is not None}
        return [
            m.FetchResponse.NodeEndpoint(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in (self._fetch.view.live_brokers(self._call.listener) if leaders else ())
            if broker.broker_id in leaders
        ]


class FetchWait:
    """A fetch that waits for logs to grow."""

    __slots__ = ("_call", "_found", "_reading", "_sizes", "_timer")

    def __init__(self, call: Call, reading: Reading, sizes: dict[Replica, int]) -> None:
        self._call = call
        self._reading = reading
        self._sizes = sizes
        self._found = sum(sizes.values())

    def start(self, timers: Timers, deadline_ms: int) -> None:
        """Begin to wait; at the deadline the answer is whatever there is."""
        self._timer = timers.at(deadline_ms, self._time_out)
        for replica in self._sizes:
            replica.watch(self)

    def wake(self, replica: Replica) -> None:
        size = self._reading.available(replica)
        if size is not None:
            self._found += size - self._sizes[replica]
            self._sizes[replica] = size
            if self._found < self._reading.min_bytes:
                return
        if self._call.closed:
            self._stop()
            return
        _, ready = self._reading.try_read()
        if ready:
            self._stop()
            self._call.reply(self._reading.response())

    def _time_out(self) -> None:
        self._stop()
        if not self._call.closed:
            self._reading.try_read()
            self._call.reply(self._reading.response())

    def _stop(self) -> None:
        self._timer.cancel()
        for replica in self._sizes:
            replica.unwatch(self)
