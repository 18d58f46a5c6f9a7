"""Fetch (key 1), versions 0 to 18: read batches, or wait until there are any (Kafka: KafkaApis.handleFetchRequest).

A consumer requests partitions from offsets and gets whole batches as they are stored in the log, as ranges of files
that are sent without a copy. When fewer than `min_bytes` are available, the response waits up to `max_wait_ms` for logs
to grow. Version 4 adds isolation levels, 5 the log start offset, 7 sessions (KIP-227), 9 the leader epoch (KIP-320), 11
racks (KIP-392), 12 the epoch of the last fetched record, 13 topic ids in place of names (KIP-516), 15 the follower's
state as a tagged field (KIP-903), 16 the leader's address in a response of the wrong broker (KIP-951). Between Odradek
brokers, additional tagged fields contain the progress of compaction (docs/compaction.md).

Versions 0 to 3 get message sets of magic 0 and 1 in place of batches (KIP-31, KIP-32), converted in a thread where that
takes long; where the topic forbids it (`message.downconversion.enable`), UNSUPPORTED_VERSION. Up to version 2 a
response never exceeds the requested size, not even by one batch. Topics with zstd compression are readable from version
10 on (KIP-110).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.replication.conversions import down_convert
from odradek.broker.replication.delayed_fetch import DelayedFetch
from odradek.broker.replication.partition import READ_COMMITTED, Replica, Replicas, Worker
from odradek.broker.replication.state.fetch_session import FetchContext, FetchPartition, FetchSessions
from odradek.broker.replication.state.partition import NO_EPOCH, Role
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.timers import Clock
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call
    from odradek.broker.replication.partition import LogConfig

log = logging.getLogger(__name__)

TIMESTAMPS_FROM = 2
AT_LEAST_ONE_FROM = 3
OLDEST_WITH_BATCHES = 4
STORAGE_ERROR_FROM = 6
ZSTD_FROM = 10
SESSIONS_FROM = 7
RACKS_FROM = 11
TOPIC_IDS_FROM = 13
LEADERS_FROM = 16
WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
NO_RECORDS = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors for which Kafka sends null records, not empty ones."""
BEFORE_THE_LOG = (
    *NO_RECORDS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
"""Errors before a log is read: Kafka then sends an empty list of aborted transactions in place of null."""
CONSUMER = -1
ISOLATION_LEVELS = (0, 1)
EPOCHS_AT_ONCE: Final = 1000
"""Leader epochs in a response to a follower; it gets later ones from their batches, or with its next fetch."""
DOWN_CONVERTED_AT_ONCE_BYTES: Final = 64 << 10
"""The limit for a conversion of batches on the event loop, in bytes."""
PartitionData = m.FetchResponse.PartitionData
EpochStart = m.FetchResponse.EpochStartOffset


Nearest = Callable[[Replica, str, int], int]
"""(replica, rack of the consumer, offset) -> the broker to read from; NO_PREFERENCE for this broker."""
NO_PREFERENCE = -1


def leader_only(replica: Replica, rack: str, offset: int) -> int:
    """Kafka without `replica.selector.class`: consumers read from the leader."""
    return NO_PREFERENCE


class SameRack:
    """Selects a replica in the consumer's own rack that has the offset (Kafka: RackAwareReplicaSelector)."""

    def __init__(self, metadata_cache: MetadataCache) -> None:
        self._metadata_cache = metadata_cache

    def __call__(self, replica: Replica, rack: str, offset: int) -> int:
        machine, brokers = replica.machine, self._metadata_cache.brokers
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


class Reads(NamedTuple):
    """The dependencies and limits of reads.

    `max_bytes()` is the broker's own limit of a response (`fetch.max.bytes`); `nearest` selects the follower from which
    a consumer reads (`replica.selector.class`).
    """

    replicas: Replicas
    metadata_cache: MetadataCache
    max_bytes: Callable[[], int]
    nearest: Nearest = leader_only


class Fetch:
    """Handles Fetch of consumers and followers."""

    KEY = 1
    VERSIONS = (0, 18)

    def __init__(
        self,
        reads: Reads,
        sessions: FetchSessions,
        clock: Clock,
        purgatory: DelayedOperationPurgatory,
        worker: Worker,
    ) -> None:
        """`worker` converts large responses of old format."""
        self.nearest = reads.nearest
        self.metadata_cache = reads.metadata_cache
        self.worker = worker
        self._replicas = reads.replicas
        self._max_bytes = reads.max_bytes
        self._sessions = sessions
        self._clock = clock
        self._purgatory = purgatory

    def handle(self, call: Call, request: m.FetchRequest) -> m.FetchResponse | None:
        try:
            context = self._context(call, request)
        except KafkaError as error:
            return m.FetchResponse(error_code=error.code)
        if request.isolation_level not in ISOLATION_LEVELS:
            return _unheard_of(call, request)
        reading = Reading(self, call, request, context)
        sizes, ready = reading.try_read()
        if ready or request.max_wait_ms <= 0 or not context.partitions:
            return reading.finish()
        self._purgatory.try_complete_else_watch(DelayedFetch(call, reading, sizes), sizes, request.max_wait_ms)
        return None

    def _context(self, call: Call, request: m.FetchRequest) -> FetchContext:
        """The context of the request in its fetch session."""
        ids = call.version >= TOPIC_IDS_FROM
        replica_id = _replica_id(request, call.version)
        wanted = []
        for topic in request.topics:
            name = self._name(topic.topic_id) if ids else topic.topic
            for partition in topic.partitions:
                entry = FetchPartition(name, topic.topic_id, partition.partition)
                entry.fetch_offset = partition.fetch_offset
                entry.max_bytes = partition.partition_max_bytes
                epoch = partition.current_leader_epoch
                entry.current_leader_epoch = epoch if epoch >= 0 else NO_EPOCH
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
        """The topic's name, empty if unknown. A leader may have a replica before its metadata contain the topic."""
        return self._replicas.name_of(topic_id) or self.metadata_cache.name_of(topic_id) or ""

    def count(self, topic: str, error_code: int, size: int, *, replicates: bool) -> None:
        """Update the metrics for one partition of a response."""
        metrics = self._replicas.metrics.get(topic)
        if metrics is None:
            return
        metrics.fetches += 1
        if error_code:
            metrics.failed_fetches += 1
        elif size and replicates:
            metrics.replication_bytes_out += size
        elif size:
            metrics.bytes_out += size

    def find(self, wanted: FetchPartition, *, ids: bool, leader_only: bool = True) -> Replica:
        """The replica to read from; raises KafkaError when there is none or the epoch is not the current one.

        Without `leader_only`, a follower is accepted as well (KIP-392).
        """
        if ids and not wanted.topic:
            # The topic may have been created, or its metadata received, since the session began.
            wanted.topic = self._name(wanted.topic_id)
            if not wanted.topic:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        replica = self._replicas.get(wanted.topic, wanted.partition)
        if replica is None:
            raise KafkaError(self.metadata_cache.error_without_replica(wanted.topic, wanted.partition))
        if ids and replica.topic_id != wanted.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if leader_only:
            replica.machine.check_leader(wanted.current_leader_epoch)
        else:
            replica.machine.check_epoch(wanted.current_leader_epoch)
            replica.machine.check_online()
        return replica

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """The leader of a partition and its epoch, from this broker's metadata (KIP-951)."""
        replica = self._replicas.get(topic, partition)
        if replica is not None:
            return replica.machine.leader_id, replica.machine.leader_epoch
        return self.metadata_cache.leader(topic, partition)

    def max_bytes(self, asked: int) -> int:
        """The byte limit of one response."""
        return min(asked, self._max_bytes())


def _unheard_of(call: Call, request: m.FetchRequest) -> m.FetchResponse:
    """The response to an unknown isolation level, with an error for every partition and at the top level."""
    code = ErrorCode.INVALID_REQUEST
    topics = [
        m.FetchResponse.FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[PartitionData(partition_index=each.partition, error_code=code) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    return m.FetchResponse(error_code=code, responses=topics if call.version < TOPIC_IDS_FROM else [])


def _replica_id(request: m.FetchRequest, version: int) -> int:
    if version < 15:
        return request.replica_id
    state = request.replica_state
    return CONSUMER if state is None else state.replica_id


def _replica_epoch(request: m.FetchRequest, version: int) -> int:
    state = request.replica_state
    return -1 if version < 15 or state is None else state.replica_epoch


def _check_format(config: LogConfig, version: int) -> None:
    """Raise KafkaError where the topic has no records that an old client can read, or is allowed to."""
    if config.compression_type == "zstd":
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"version {version} does not support zstd")
    if version < OLDEST_WITH_BATCHES and not config.message_downconversion_enable:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable is false")


class Reading:
    """The partitions of one request, read as often as necessary until there is enough data."""

    __slots__ = (
        "_call",
        "_context",
        "_ends",
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
        call.from_follower = self._follower != CONSUMER
        self._rack = request.rack_id
        self._leader_only = self._follower >= 0 or call.version < RACKS_FROM
        self._isolation = request.isolation_level
        self._max_bytes = fetch.max_bytes(request.max_bytes)
        self.min_bytes = request.min_bytes
        self._ends = 0
        """The sum of the end offsets of a follower's partitions at the last read."""
        self._results: list[tuple[FetchPartition, m.FetchResponse.PartitionData, int]] = []

    def try_read(self) -> tuple[dict[Replica, int], bool]:
        """Read every partition once.

        Returns the bytes found in each replica, and whether to send the response now: because there is enough data, or
        because the response of a partition must not wait.
        """
        left, found, urgent = self._max_bytes, 0, False
        self._ends = 0
        sizes: dict[Replica, int] = {}
        results = []
        for wanted in self._context.partitions:
            data = PartitionData(partition_index=wanted.partition, records=b"", aborted_transactions=None)
            size = 0
            try:
                replica = self._fetch.find(wanted, ids=self._ids, leader_only=self._leader_only)
                if self._turned_away(replica, wanted, data):
                    urgent = True
                else:
                    size = self._read(replica, wanted, data, min(wanted.max_bytes, left), at_least_one=found == 0)
                    if self._follower >= 0:
                        self._ends += replica.log.end_offset
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
        """Whether the reader has to act before it reads here: truncate its log, or fetch from a nearer replica."""
        log = replica.log
        if wanted.last_fetched_epoch >= 0:
            epoch, end = log.epochs.end_offset(wanted.last_fetched_epoch, log.end_offset)
            if end < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the leader has no epoch {wanted.last_fetched_epoch}")
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
        """Apply a follower's position, and add the fields for followers to its response. Raises KafkaError."""
        try:
            replica.follower_fetched(
                self._follower, wanted.fetch_offset, wanted.log_start_offset, self._follower_epoch, wanted.cleaned_to
            )
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_LEADER_EPOCH and wanted.current_leader_epoch == NO_EPOCH:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from None  # it sends no epochs
            raise
        data.high_watermark = replica.machine.high_watermark
        if wanted.cleaned_to >= 0:  # a Kafka broker does not support the fields
            data.compacted_everywhere = replica.machine.compacted_everywhere
            if wanted.fetch_offset <= replica.log.epochs.latest_start:
                found = replica.log.epochs.starting_from(wanted.fetch_offset, EPOCHS_AT_ONCE)
                data.leader_epochs = [EpochStart(epoch=epoch, start_offset=start) for epoch, start in found]

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
        # The bounds are read once, so that the bounds and the records of the response are consistent.
        log = replica.log
        self._bounds(replica, data)
        if self._follower != CONSUMER:
            upper = log.end_offset
        elif self._isolation == READ_COMMITTED:
            upper = data.last_stable_offset
        else:
            upper = data.high_watermark
        version = self._call.version
        if version < ZSTD_FROM:
            _check_format(log.config, version)
        if max_bytes < 0 and (wanted.max_bytes < 0 or self._max_bytes < 0):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the maximum size of the response is negative")
        whole = at_least_one and version >= AT_LEAST_ONE_FROM
        part = replica.read(wanted.fetch_offset, max(0, max_bytes), upper=upper, at_least_one=whole)
        size = 0 if part.incomplete else len(part.records)  # a reader cannot use a truncated batch
        if self._isolation == READ_COMMITTED and self._follower == CONSUMER:
            aborted = log.aborted_transactions(wanted.fetch_offset, min(upper, log.upper_bound(part))) if size else ()
            data.aborted_transactions = [
                m.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in aborted
            ]
        data.records = part.records if size else b""
        return size

    def _refusal(self, wanted: FetchPartition, error: KafkaError) -> m.FetchResponse.PartitionData:
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._call.version < STORAGE_ERROR_FROM:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # old clients then refresh their metadata
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=code,
            high_watermark=-1,
            last_stable_offset=-1,
            log_start_offset=-1,
            records=None if code in NO_RECORDS else b"",
            aborted_transactions=[] if code in BEFORE_THE_LOG else None,
        )
        if self._call.version >= LEADERS_FROM and error.code in WRONG_LEADER:
            leader = self._fetch.leader(wanted.topic, wanted.partition)
            if leader is not None:
                data.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        return data

    def is_outdated(self, replicas: Iterable[Replica]) -> bool:
        """Whether a partition has changed since it was read; `replicas` are all that were read.

        Only a follower's fetch can change a log after it has read it: the follower's position advances the high
        watermark, this completes a coordinator's append, and the next request of the coordinator appends to a log that
        was read before. The end offsets of a leader's logs only grow, so their sum shows whether one of them did.
        """
        if self._follower < 0:
            return False
        ends = 0
        for replica in replicas:
            if replica.machine.role is not Role.LEADER:
                return True
            ends += replica.log.end_offset
        return ends != self._ends

    def available(self, replica: Replica) -> int | None:
        """The bytes that a read of one replica would return now; None if its response must not wait."""
        for wanted, data, _ in self._results:
            if data.partition_index == replica.partition and wanted.topic == replica.topic:
                try:
                    self._fetch.find(wanted, ids=self._ids, leader_only=self._leader_only)
                    return self._read(replica, wanted, PartitionData(), wanted.max_bytes, at_least_one=True)
                except KafkaError:
                    return None
        return 0

    def finish(self) -> m.FetchResponse | None:
        """The response for the last read, converted for old clients; None if a thread converts it and replies later."""
        response = self.response()
        if self._call.version >= OLDEST_WITH_BATCHES:
            return response
        sets = [MessageSet(wanted, data, size) for wanted, data, size in self._results if size]
        if sum(each.size for each in sets) <= DOWN_CONVERTED_AT_ONCE_BYTES:
            for each in sets:
                each.settle(self, each.work(self._call.version))
            return response
        self._down_convert(response, sets)
        return None

    def _down_convert(self, response: m.FetchResponse, sets: list[MessageSet]) -> None:
        outcomes: list[bytes | KafkaError] = []
        version, call = self._call.version, self._call

        def work() -> None:
            outcomes.extend(each.work(version) for each in sets)

        def done(error: BaseException | None) -> None:
            if error is not None:
                log.error("cannot down-convert fetch response version=%d error=%r", version, error)
                call.connection.close()
                return
            for each, outcome in zip(sets, outcomes, strict=True):
                each.settle(self, outcome)
            call.reply(response)

        self._fetch.worker.run(work, done)

    def refuse(self, wanted: FetchPartition, data: m.FetchResponse.PartitionData, error: KafkaError) -> None:
        """Change the data of a partition to an error."""
        refusal = self._refusal(wanted, error)
        for name in ("error_code", "high_watermark", "last_stable_offset", "log_start_offset", "records"):
            setattr(data, name, getattr(refusal, name))

    def response(self) -> m.FetchResponse:
        """The response for the last read, in the format of the logs."""
        context = self._context
        topics: dict[str | bytes, m.FetchResponse.FetchableTopicResponse] = {}
        session = context.session
        served = []
        for wanted, data, size in self._results:
            self._fetch.count(wanted.topic, data.error_code, size, replicates=self._follower != CONSUMER)
            if session is not None:
                tell = wanted.must_tell(ErrorCode(data.error_code), size, data.high_watermark, data.log_start_offset)
                if data.diverging_epoch is not None:
                    wanted.forget_bounds()  # a reader that has to truncate first ignores the bounds
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
        """The endpoints of the leaders in this response."""
        leaders = {data.current_leader.leader_id for _, data, _ in self._results if data.current_leader is not None}
        return [
            m.FetchResponse.NodeEndpoint(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in (self._fetch.metadata_cache.live_brokers(self._call.listener) if leaders else ())
            if broker.broker_id in leaders
        ]


class MessageSet:
    """The batches of one partition that are converted to messages of magic 0 or 1."""

    __slots__ = ("_data", "_wanted", "size")

    def __init__(self, wanted: FetchPartition, data: m.FetchResponse.PartitionData, size: int) -> None:
        self._wanted = wanted
        self._data = data
        self.size = size

    def work(self, version: int) -> bytes | KafkaError:
        """Read and convert; in any thread."""
        return down_convert(self._data.records, 0 if version < TIMESTAMPS_FROM else 1, self._wanted.fetch_offset)

    def settle(self, reading: Reading, outcome: bytes | KafkaError) -> None:
        """Put the result of the conversion into the response."""
        if isinstance(outcome, KafkaError):
            reading.refuse(self._wanted, self._data, outcome)
        else:
            self._data.records = outcome
