"""Fetch (key 1), versions 0 to 18: read batches, waiting for them if there are none yet.

A consumer asks for partitions from offsets and gets whole batches as they stand in the log, as ranges of files that
leave uncopied. When less than `min_bytes` is there, the answer waits up to `max_wait_ms` for logs to grow. Version 4
brings isolation levels, 5 the log start offset, 7 sessions (KIP-227), 9 the leader epoch (KIP-320), 11 racks
(KIP-392), 12 the epoch of the last fetched record, 13 topic ids in place of names (KIP-516), 15 the follower's
state as a tag (KIP-903), 16 the leader's address in an answer of the wrong broker (KIP-951).

Versions 0 to 3 would need batches converted down to magic 0 and 1, which is not done yet: a partition that has
records answers UNSUPPORTED_VERSION, as Kafka does with message.downconversion.enable=false.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.cluster_view import ClusterView
from odradek.broker.machines.fetch_session import FetchContext, FetchPartition, FetchSessions
from odradek.broker.replica import READ_COMMITTED, Replica, Replicas
from odradek.broker.waiting import Clock, Timers
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call

OLDEST_WITH_BATCHES = 4
SESSIONS_FROM = 7
TOPIC_IDS_FROM = 13
CONSUMER = -1
PartitionData = m.FetchResponse.PartitionData


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
    ) -> None:
        """`max_bytes()` is the broker's own bound on an answer (`fetch.max.bytes`)."""
        self._replicas = replicas
        self._view = view
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
        wanted = []
        for topic in request.topics:
            name = (self._view.name_of(topic.topic_id) or "") if ids else topic.topic
            for partition in topic.partitions:
                entry = FetchPartition(name, topic.topic_id, partition.partition)
                entry.fetch_offset = partition.fetch_offset
                entry.max_bytes = partition.partition_max_bytes
                entry.current_leader_epoch = partition.current_leader_epoch
                entry.last_fetched_epoch = partition.last_fetched_epoch
                entry.log_start_offset = partition.log_start_offset
                wanted.append(entry)
        if call.version < SESSIONS_FROM:
            return FetchContext(wanted)
        forgotten: list[tuple[str | bytes, int]] = []
        for gone in request.forgotten_topics_data:
            key: str | bytes = (self._view.name_of(gone.topic_id) or gone.topic_id) if ids else gone.topic
            forgotten.extend((key, index) for index in gone.partitions)
        replica_id = _replica_id(request, call.version)
        return self._sessions.begin(
            request.session_id,
            request.session_epoch,
            wanted,
            forgotten,
            privileged=replica_id != CONSUMER,
            uses_topic_ids=ids,
            now_ms=self._clock.monotonic_ms(),
        )

    def find(self, wanted: FetchPartition, *, ids: bool) -> Replica:
        """The replica to read from; raises KafkaError when there is none or the epoch is not the current one."""
        if ids and not wanted.topic:
            # The topic may have been created, or become known, since the session began.
            wanted.topic = self._view.name_of(wanted.topic_id) or ""
            if not wanted.topic:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        replica = self._replicas.get(wanted.topic, wanted.partition)
        if replica is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if ids and replica.topic_id != wanted.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        replica.machine.check_leader(wanted.current_leader_epoch)
        return replica

    def max_bytes(self, asked: int) -> int:
        """Bytes that one answer may hold."""
        return min(asked, self._max_bytes())


def _replica_id(request: m.FetchRequest, version: int) -> int:
    if version < 15:
        return request.replica_id
    state = request.replica_state
    return CONSUMER if state is None else state.replica_id


class Reading:
    """One request's partitions, read as often as it takes until there is enough."""

    __slots__ = (
        "_call",
        "_context",
        "_fetch",
        "_follower",
        "_ids",
        "_isolation",
        "_max_bytes",
        "_results",
        "min_bytes",
    )

    def __init__(self, fetch: Fetch, call: Call, request: m.FetchRequest, context: FetchContext) -> None:
        self._fetch = fetch
        self._call = call
        self._context = context
        self._ids = call.version >= TOPIC_IDS_FROM
        self._follower = _replica_id(request, call.version)
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
                replica = self._fetch.find(wanted, ids=self._ids)
                size = self._read(replica, wanted, data, min(wanted.max_bytes, left), at_least_one=found == 0)
                sizes[replica] = size
            except KafkaError as error:
                urgent = True
                data = _refusal(wanted.partition, error)
            found += size
            left -= size
            results.append((wanted, data, size))
        self._results = results
        return sizes, urgent or found >= self.min_bytes

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
        machine, log = replica.machine, replica.log
        data.high_watermark = machine.high_watermark
        data.last_stable_offset = replica.last_stable_offset
        data.log_start_offset = log.start_offset
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
            data.aborted_transactions = [
                m.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in (log.aborted_transactions(wanted.fetch_offset, upper) if size else ())
            ]
        data.records = part.records if size else b""
        return size

    def available(self, replica: Replica) -> int | None:
        """The bytes that one replica would give now; None when it has something to say that must not wait."""
        for wanted, data, _ in self._results:
            if data.partition_index == replica.partition and wanted.topic == replica.topic:
                try:
                    self._fetch.find(wanted, ids=self._ids)
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
        return m.FetchResponse(session_id=context.session_id, responses=list(topics.values()))


def _refusal(index: int, error: KafkaError) -> m.FetchResponse.PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error.code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )


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
