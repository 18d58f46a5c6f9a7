"""Produce (key 0), versions 0 to 13: append batches and acknowledge them (Kafka: KafkaApis.handleProduceRequest).

acks=0 gets no response; when the broker refuses such a write, it closes the connection, which is the only way to notify
the client (like Kafka). acks=1 is answered when the leader has appended (and flushed, if the topic's flush policy
requires it), acks=all when all in-sync replicas have. Version 8 adds the errors of single records, 10 the current
leader in a response of the wrong broker (KIP-951), 13 topic ids.

A batch that would begin a transaction in its partition waits until the coordinator has verified the transaction
(KIP-890; see `transactional_produce`). From version 11 on the error can be
TRANSACTION_ABORTABLE, and from version 12 on the leader adds the partition to the transaction itself.

The client needs WRITE on each topic, and for transactional batches WRITE on the transactional id; without the latter
the whole request is refused.

Versions 0 to 2 contain message sets of magic 0 and 1, which are converted to batches. A thread does this and other
conversions of records, such as to the topic's own codec, where they are large; see `conversions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.topics import is_internal
from odradek.broker.replication.conversions import CODEC_POSITION, Conversion, is_cheap
from odradek.broker.replication.delayed_produce import (
    Held,
    PartitionResponse,
    Waiting,
    refuse_unacknowledged,
)
from odradek.broker.replication.partition import Replica, Replicas, SegmentFull
from odradek.broker.replication.produce_appends import ProduceAppends, Spent
from odradek.broker.replication.state.partition import Role
from odradek.broker.replication.transactional_produce import HeldWrite, Sender, Unconfirmed, Written
from odradek.broker.runtime.timers import Clock
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL,
    InvalidRecords,
    NotABatch,
    check_produce_shape,
)
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

TOPIC_IDS_FROM = 13
NO_ERROR = ErrorCode.NONE
TopicResponse = m.ProduceResponse.TopicProduceResponse
RecordError = m.ProduceResponse.BatchIndexAndErrorMessage
Response = m.ProduceResponse
LEADERS_FROM = 10
BATCHES_SINCE = 3
BEHIND_THE_SHAPE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.INVALID_TOPIC_EXCEPTION}
)
"""Errors of a batch that are returned only if `check_produce_shape` accepts it."""
LATE_REFUSALS: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Errors after the records were validated; the response then contains the log start offset."""
EXPLAINED: Final = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.NOT_ENOUGH_REPLICAS})
"""Errors of a failed verification that come with a message: they have other causes as well."""
WRITE: Final = AclOperation.WRITE
TOPIC: Final = ResourceType.TOPIC
ADMIN_CLIENT: Final = "__admin_client"
"""The client id that may write to internal topics."""


class Produce:
    """Handles Produce."""

    KEY = 0
    VERSIONS = (0, 13)

    def __init__(
        self,
        replicas: Replicas,
        metadata_cache: MetadataCache,
        clock: Clock,
        appends: ProduceAppends,
        auth: AuthHelper,
    ) -> None:
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._clock = clock
        self._appends = appends
        self._auth = auth

    def handle(self, call: Call, request: m.ProduceRequest) -> m.ProduceResponse | None:
        acks, version = request.acks, call.version
        if request.transactional_id is not None and not self._may_write_transactions(call, request):
            return self._refuse_all(call, request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        now_ms = self._clock.now_ms()
        waiting: Waiting = {}
        held: Held = []
        failed, spent = False, None
        plain = request.transactional_id is None and not self._appends.conversions.waiting
        topics = []
        for topic in request.topic_data:
            name = topic.name if version < TOPIC_IDS_FROM else self._metadata_cache.name_of(topic.topic_id)
            denied = name is not None and not self._auth.authorize(call, WRITE, TOPIC, name)
            partitions = []
            for data in topic.partition_data:
                records = data.records
                try:
                    if denied:
                        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no WRITE on topic {name}")
                    replica = self._replicas.get(name, data.index)
                    if replica is None or replica.is_internal or not -1 <= acks <= 1:
                        replica = self._writable(call, name, data.index, replica, acks)
                    appended = None
                    if plain and (records is None or len(records) <= HEADER_SIZE or is_cheap(records, replica)):
                        try:
                            appended = replica.produce(records, acks, now_ms, version, may_roll=False)
                        except SegmentFull:
                            appended = None  # it waits for its segment, too
                    if appended is None:
                        spent = spent or Spent()
                        written = self._append(call, request, replica, records, now_ms, spent)
                        if isinstance(written, HeldWrite | Conversion):
                            held.append((written, PartitionResponse(index=data.index)))
                            partitions.append(held[-1][1])
                            continue
                        appended = written
                except KafkaError as refused:
                    error = _first_fault(records, refused, request, version)
                    failed = failed or error.code is not NO_ERROR
                    partitions.append(self._refusal(error, name, data.index))
                    continue
                answer = PartitionResponse(
                    index=data.index,
                    base_offset=appended.first_offset,
                    log_append_time_ms=appended.log_append_time_ms,
                    log_start_offset=appended.start_offset,
                )
                partitions.append(answer)
                end_offset = appended.last_offset + 1
                settled = replica.settled(end_offset, acks)
                if settled is None:
                    waiting.setdefault(replica, []).append((answer, end_offset))
                elif settled is not NO_ERROR:
                    answer.error_code = settled
            if partitions:
                topics.append(TopicResponse(name=name or "", topic_id=topic.topic_id, partition_responses=partitions))
        response = Response(responses=topics)
        if waiting or held or failed or acks == 0:
            return self._respond(call, request, response, waiting, held, failed=failed)
        return response

    def _append(
        self,
        call: Call,
        request: m.ProduceRequest,
        replica: Replica,
        records: memoryview | None,
        now_ms: int,
        spent: Spent,
    ) -> Written | HeldWrite | Conversion:
        """Append a batch that is not plain or begins a segment, or return it as one that is appended later. Raises
        KafkaError.
        """
        _require_transactional_id(records, request, call.version)
        sender = Sender(request.transactional_id, call.version, request.acks)
        return self._appends.append(call.connection, replica, records, sender, now_ms, spent)

    def _may_write_transactions(self, call: Call, request: m.ProduceRequest) -> bool:
        """Whether the client may write to its transactional id, or writes no transactional batch."""
        transactional_id = request.transactional_id
        assert transactional_id is not None
        if not any(_is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data):
            return True
        return self._auth.authorize(call, WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def _refuse_all(self, call: Call, request: m.ProduceRequest, code: ErrorCode) -> m.ProduceResponse | None:
        """The response with one error for all partitions; with acks=0, close the connection."""
        if request.acks == 0:
            self._stay_silent(call, [], failed=True)
            return None
        return Response(
            responses=[
                TopicResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionResponse(
                            index=data.index,
                            error_code=code,
                            base_offset=-1,
                        )
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _respond(
        self,
        call: Call,
        request: m.ProduceRequest,
        response: m.ProduceResponse,
        waiting: Waiting,
        held: Held,
        *,
        failed: bool,
    ) -> m.ProduceResponse | None:
        """Send the response now, later or, with acks=0, never."""
        if request.acks == 0:
            self._stay_silent(call, held, failed=failed)
            return None
        if failed:
            self.name_leaders(call, response)
        if not (waiting or held):
            return response
        self._appends.wait(call, request, response, waiting, held, self)
        return None

    def _stay_silent(self, call: Call, held: Held, *, failed: bool) -> None:
        """acks=0: notify the client of failures only, by closing its connection."""
        if failed:
            refuse_unacknowledged(call)
        if held:
            self._appends.append_unacknowledged(call, held)
        else:
            call.no_reply = True

    def _writable(self, call: Call, name: str | None, index: int, replica: Replica | None, acks: int) -> Replica:
        """The replica, unless there is none or the client may not write to it; errors have the order of Kafka's checks.

        Raises KafkaError.
        """
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        absent = NO_ERROR if replica is not None else self._metadata_cache.error_without_replica(name, index)
        if absent is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(absent, f"there is no partition {name}-{index}")
        if not -1 <= acks <= 1:
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; -1, 0 and 1 are possible")
        if is_internal(name) and call.client_id != ADMIN_CLIENT:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients do not write to the internal topic {name}")
        if replica is None:
            raise KafkaError(absent, f"{name}-{index} is not on this broker")
        return replica

    def _refusal(self, error: KafkaError, name: str | None, index: int) -> PartitionResponse:
        answer = PartitionResponse(index=index)
        self.refuse(answer, error, self._replicas.get(name, index))
        return answer

    def refuse(self, answer: PartitionResponse, error: KafkaError, replica: Replica | None) -> None:
        """Set the error of a batch; with a message for single records, a malformed batch or a failed verification."""
        answer.error_code = error.code
        answer.base_offset = -1
        late = error.code in LATE_REFUSALS or type(error) is InvalidRecords
        leads = replica is not None and replica.machine.role is Role.LEADER
        if late and replica is not None and leads and not isinstance(error, Unconfirmed):
            answer.log_start_offset = replica.log.start_offset
        if isinstance(error, NotABatch) or (isinstance(error, Unconfirmed) and error.code in EXPLAINED):
            answer.error_message = error.message
        elif isinstance(error, InvalidRecords):
            if error.record_errors:
                answer.error_message = error.message
            answer.record_errors = [
                RecordError(batch_index=batch_index, batch_index_error_message=message)
                for batch_index, message in error.record_errors
            ]

    def name_leaders(self, call: Call, response: m.ProduceResponse) -> None:
        """Add the leader and its endpoint for each partition that this broker does not lead (KIP-951)."""
        if call.version < LEADERS_FROM:
            return
        leaders: dict[int, None] = {}
        for topic in items_of(response.responses):
            name = topic.name if call.version < TOPIC_IDS_FROM else self._metadata_cache.name_of(topic.topic_id)
            if name is None:
                continue
            for answer in items_of(topic.partition_responses):
                if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    continue
                replica = self._replicas.get(name, answer.index)
                known = self._metadata_cache.leader(name, answer.index)
                if replica is not None:
                    known = replica.machine.leader_id, replica.machine.leader_epoch
                if known is not None:
                    leaders[known[0]] = None
                    answer.current_leader = Response.LeaderIdAndEpoch(leader_id=known[0], leader_epoch=known[1])
        response.node_endpoints = [
            Response.NodeEndpoint(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in (self._metadata_cache.nodes(call.listener, leaders) if leaders else ())
        ]


def _is_transactional(records: memoryview | None) -> bool:
    """Whether the first batch is transactional."""
    if records is None or len(records) <= CODEC_POSITION or records[MAGIC_POSITION] != MAGIC:
        return False
    return bool(records[CODEC_POSITION] & TRANSACTIONAL)


def _malformed(records: memoryview | None, refused: KafkaError, version: int) -> KafkaError:
    """The error of a refused batch: if it is also malformed, that error, because Kafka checks the format first."""
    if refused.code in BEHIND_THE_SHAPE and version >= BATCHES_SINCE:
        try:
            check_produce_shape(records, version)
        except KafkaError as fault:
            return fault
    return refused


def _first_fault(
    records: memoryview | None, refused: KafkaError, request: m.ProduceRequest, version: int
) -> KafkaError:
    """The error of a refused batch: if it is transactional and the request has no transactional id, that error."""
    refused = _malformed(records, refused, version)
    if request.transactional_id is not None:
        return refused
    if records is None or not _is_transactional(records) or isinstance(refused, NotABatch):
        return refused
    if LOG_OVERHEAD + int.from_bytes(records[8:12]) > len(records):
        return refused  # no whole batch
    return _no_transactional_id()


def _require_transactional_id(records: memoryview | None, request: m.ProduceRequest, version: int) -> None:
    """Raises KafkaError for a transactional batch without it, which no thread has to decompress."""
    if request.transactional_id is None and version >= BATCHES_SINCE and _is_transactional(records):
        check_produce_shape(records, version)
        raise _no_transactional_id()


def _no_transactional_id() -> KafkaError:
    text = "a transactional batch without a transactional id"
    return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
