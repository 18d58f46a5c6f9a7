"""Fetch (key 1), versions 0 to 18: read batches, or wait until there are any (Kafka: KafkaApis.handleFetchRequest).

A consumer requests partitions from offsets and gets whole batches as they are stored in the log, as ranges of files
that are sent without a copy. When fewer than `min_bytes` are available, the response waits up to `max_wait_ms` for logs
to grow. Version 4 adds isolation levels, 5 the log start offset, 7 sessions (KIP-227), 9 the leader epoch (KIP-320), 11
racks (KIP-392), 12 the epoch of the last fetched record, 13 topic ids in place of names (KIP-516), 15 the follower's
state as a tagged field (KIP-903), 16 the leader's address in a response of the wrong broker (KIP-951). Between Odradek
brokers, additional tagged fields contain the progress of compaction (docs/compaction.md).

A consumer needs READ on each topic, a follower CLUSTER_ACTION on the cluster. A partition without authorization has an
error in the response, which waits for the data of the other partitions all the same.

Versions 0 to 3 get message sets of magic 0 and 1 in place of batches (KIP-31, KIP-32), converted in a thread where that
takes long; where the topic forbids it (`message.downconversion.enable`), UNSUPPORTED_VERSION. Up to version 2 a
response never exceeds the requested size, not even by one batch. Topics with zstd compression are readable from version
10 on (KIP-110).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.replication.down_conversion import DownConversion
from odradek.broker.replication.fetch_reader import (
    CONSUMER,
    OLDEST_WITH_BATCHES,
    TOPIC_IDS_FROM,
    FetchReader,
    FetchReading,
    PartitionData,
    Result,
)
from odradek.broker.replication.partition import Replicas, Worker
from odradek.broker.replication.plain_fetch import FEW_PARTITIONS, PLAIN_FROM, PlainRead
from odradek.broker.replication.state.fetch_session import FetchContext, FetchPartition, FetchSessions
from odradek.broker.replication.state.partition import NO_EPOCH
from odradek.broker.runtime.timers import Clock
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import in_turn
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

READ: Final = AclOperation.READ
TOPIC: Final = ResourceType.TOPIC
NO_ERROR: Final = ErrorCode.NONE
STORAGE_ERROR_FROM: Final = 6
SESSIONS_FROM: Final = 7
REPLICA_STATE_FROM: Final = 15
LEADERS_FROM: Final = 16
WRONG_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
NO_RECORDS = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors for which Kafka sends null records, not empty ones."""
BEFORE_THE_LOG = (
    *NO_RECORDS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
"""Errors before a log is read: Kafka then sends an empty list of aborted transactions in place of null."""
ISOLATION_LEVELS: Final = (0, 1)
PARTITIONS_AT_ONCE: Final = 400
"""A session with more partitions is read in turns with the loop, however small the request is: ten microseconds for
each, also where it has no new records.
"""
FIELD_BYTES: Final = 48
"""About the size of a partition in a response without its records, and of the other fields: they count, too."""
TopicResponse = m.FetchResponse.FetchableTopicResponse


class Fetch:
    """Handles Fetch of consumers and followers."""

    KEY = 1
    VERSIONS = (0, 18)

    def __init__(
        self,
        reader: FetchReader,
        replicas: Replicas,
        metadata_cache: MetadataCache,
        sessions: FetchSessions,
        clock: Clock,
        worker: Worker,
        auth: AuthHelper,
        quotas: QuotaManagers,
        handle_in_turns: Callable[[Call, Any], None],
    ) -> None:
        """`worker` converts large responses of old format; `handle_in_turns` calls `handle` in turns with the loop."""
        self._quotas = quotas
        self._handle_in_turns = handle_in_turns
        self._reader = reader
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._sessions = sessions
        self._clock = clock
        self._worker = worker
        self._auth = auth

    def handle(self, call: Call, request: m.FetchRequest) -> m.FetchResponse | None:
        session = self._sessions.get(request.session_id)
        if session is not None and len(session.partitions) > PARTITIONS_AT_ONCE and not in_turn():
            self._handle_in_turns(call, request)
            return None
        replica_id, replica_epoch = request.replica_id, -1
        if call.version >= REPLICA_STATE_FROM:
            state = request.replica_state
            replica_id, replica_epoch = (CONSUMER, -1) if state is None else (state.replica_id, state.replica_epoch)
        try:
            context = self._context(call, request, replica_id)
        except KafkaError as error:
            return m.FetchResponse(error_code=error.code)
        if request.isolation_level not in ISOLATION_LEVELS:
            return _unknown_isolation_level(call, request)
        call.from_follower = replica_id != CONSUMER
        if call.version >= TOPIC_IDS_FROM:
            self._reader.resolve(context.partitions)
        denied: Collection[str] = ()
        if self._auth.is_enabled:
            denied = self._denied(call, context, replica_id)
        plain = None
        if context.incremental and replica_id == CONSUMER and not denied:
            plain = self._read_plain(call, context, request)
            if plain is not None and (request.max_wait_ms <= 0 or plain.is_enough):
                return plain.response(context, has_topic_ids=call.version >= TOPIC_IDS_FROM)
        make_reading = partial(
            FetchReading, self._reader, self, call, request, context, replica_id, replica_epoch, denied
        )
        if plain is not None:
            respond = partial(self._respond_unchanged, context)
            self._reader.wait_for_change(call, plain, make_reading, respond, request.max_wait_ms)
            return None
        reading = make_reading()
        if self._quotas.is_active and not call.from_follower:
            fields = FIELD_BYTES * (1 + len(context.partitions))
            reading.limit(max(0, self._quotas.most_fetch_bytes(call) - fields))
        return self._reader.fetch(call, reading, request.max_wait_ms)

    def _denied(self, call: Call, context: FetchContext, replica_id: int) -> Collection[str]:
        """The topics that the sender may not read; a topic without a name (unknown id) only for followers."""
        partitions = context.partitions
        if replica_id >= 0:
            is_replica = self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION)
            return () if is_replica else {partition.topic for partition in partitions}
        if len(partitions) == 1 and (topic := partitions[0].topic):
            return () if self._auth.authorize(call, READ, TOPIC, topic) else (topic,)
        names = [partition.topic for partition in partitions]
        if call.version >= TOPIC_IDS_FROM and "" in names:
            names = [name for name in names if name]
        return self._auth.unauthorized(call, READ, TOPIC, names)

    def _context(self, call: Call, request: m.FetchRequest, replica_id: int) -> FetchContext:
        """The context of the request in its fetch session."""
        ids = call.version >= TOPIC_IDS_FROM
        wanted = []
        for topic in request.topics:
            name = self._reader.name_of(topic.topic_id) if ids else topic.topic
            for partition in topic.partitions:
                epoch = partition.current_leader_epoch
                entry = FetchPartition(
                    topic=name,
                    topic_id=topic.topic_id,
                    partition=partition.partition,
                    fetch_offset=partition.fetch_offset,
                    max_bytes=partition.partition_max_bytes,
                    current_leader_epoch=epoch if epoch >= 0 else NO_EPOCH,
                    last_fetched_epoch=partition.last_fetched_epoch,
                    log_start_offset=partition.log_start_offset,
                    cleaned_to=-1 if replica_id == CONSUMER else partition.cleaned_to,
                )
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

    def respond(self, call: Call, reading: FetchReading) -> m.FetchResponse | None:
        """The response for the last read, converted for old clients; None if a thread converts it and replies later.

        A consumer that is throttled gets no records and fetches the same partitions again (KIP-219).
        """
        if self._quotas.is_active and not call.from_follower:
            size = sum(size for _, _, size in reading.results) + FIELD_BYTES * (1 + len(reading.results))
            if self._quotas.throttle_fetch(call, size):
                return m.FetchResponse(session_id=self._sessions.withhold(reading.context))
        response = self._response(call, reading)
        if call.version >= OLDEST_WITH_BATCHES:
            return response
        conversion = DownConversion(reading.results, call.version, self.refuse)
        if conversion.is_small:
            conversion.put(conversion.convert())
            return response
        conversion.run(self._worker, call.usage, partial(call.reply, response), call.connection.close)
        return None

    def _respond_unchanged(self, context: FetchContext, plain: PlainRead) -> m.FetchResponse | None:
        """The response to a plain fetch at its deadline, if no partition has changed; otherwise None."""
        if self._quotas.is_active or not plain.is_unchanged(context):
            return None
        return plain.response(context, has_topic_ids=False)

    def _read_plain(self, call: Call, context: FetchContext, request: m.FetchRequest) -> PlainRead | None:
        """The plain read of a consumer's session, None where the request takes another one."""
        if (
            call.version < PLAIN_FROM
            or request.rack_id
            or self._quotas.is_active
            or len(context.partitions) > FEW_PARTITIONS
            or in_turn()
        ):
            return None
        return self._reader.read_plain(context, request.isolation_level, request.max_bytes, request.min_bytes)

    def _response(self, call: Call, reading: FetchReading) -> m.FetchResponse:
        """The response for the last read, in the format of the logs."""
        context, ids, from_follower = reading.context, call.version >= TOPIC_IDS_FROM, call.from_follower
        topics: dict[str | bytes, TopicResponse] = {}
        for wanted, data, size in items_of(reading.results):
            self._count(wanted.topic, data.error_code, size, replicates=from_follower)
            if from_follower and size:
                self._reader.count_replicated(wanted.topic, wanted.partition, size)
            if context.session is not None:
                included = context.update(
                    wanted,
                    ErrorCode(data.error_code) if data.error_code else NO_ERROR,
                    size,
                    data.high_watermark,
                    data.log_start_offset,
                    compacted_everywhere=data.compacted_everywhere if from_follower else None,
                    diverges=data.diverging_epoch is not None,
                )
                if not included:
                    continue
            key: str | bytes = wanted.topic_id if ids else wanted.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = TopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
            topic.partitions.append(data)
        if context.session is not None and len(reading.results) > 1:
            context.session.served([wanted.key for wanted, _, size in reading.results if size])
        response = m.FetchResponse(session_id=context.session_id, responses=list(topics.values()))
        if call.version >= LEADERS_FROM:
            response.node_endpoints = self._leaders(call, reading.results)
        return response

    def _count(self, topic: str, error_code: int, size: int, *, replicates: bool) -> None:
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

    def refuse(self, version: int, wanted: FetchPartition, data: PartitionData, error: KafkaError) -> None:
        """Turn the data of a partition into an error."""
        code = error.code
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # old clients then refresh their metadata
        data.error_code = code
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        data.records = None if code in NO_RECORDS else b""
        data.aborted_transactions = [] if code in BEFORE_THE_LOG else None
        if version >= LEADERS_FROM and error.code in WRONG_LEADER:
            leader = self._leader(wanted.topic, wanted.partition)
            if leader is not None:
                data.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])

    def _leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        """The leader of a partition and its epoch, from this broker's metadata (KIP-951)."""
        replica = self._replicas.get(topic, partition)
        if replica is not None:
            return replica.machine.leader_id, replica.machine.leader_epoch
        return self._metadata_cache.leader(topic, partition)

    def _leaders(self, call: Call, results: list[Result]) -> list[m.FetchResponse.NodeEndpoint]:
        """The endpoints of the leaders in this response."""
        leaders = {data.current_leader.leader_id for _, data, _ in items_of(results) if data.current_leader is not None}
        return [
            m.FetchResponse.NodeEndpoint(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in (self._metadata_cache.live_brokers(call.listener) if leaders else ())
            if broker.broker_id in leaders
        ]


def _unknown_isolation_level(call: Call, request: m.FetchRequest) -> m.FetchResponse:
    """The response to an unknown isolation level, with an error for every partition and at the top level."""
    code = ErrorCode.INVALID_REQUEST
    topics = [
        TopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[PartitionData(partition_index=each.partition, error_code=code) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    return m.FetchResponse(error_code=code, responses=topics if call.version < TOPIC_IDS_FROM else [])
