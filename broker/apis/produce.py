"""Produce (key 0), versions 0 to 13: append batches and acknowledge them.

acks=0 gets no answer; when such a write is refused the connection is closed, which is the only way to tell the
client (Kafka does the same). acks=1 is answered when the leader has appended (and flushed, where the topic asks for
it), acks=all when all in-sync replicas have. Version 8 adds the errors of single records, 10 the current leader in
an answer of the wrong broker (KIP-951), 13 topic ids.

Versions 0 to 2 carry message sets of magic 0 and 1, which are not taken yet: UNSUPPORTED_FOR_MESSAGE_FORMAT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.cluster_view import ClusterView
from odradek.broker.replica import Replica, Replicas
from odradek.broker.waiting import Clock, Timers
from odradek.protocol import messages as m
from odradek.protocol.batch import InvalidRecords
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.dispatch import Call

TOPIC_IDS_FROM = 13
NO_ERROR = ErrorCode.NONE
PartitionResponse = m.ProduceResponse.PartitionProduceResponse
TopicResponse = m.ProduceResponse.TopicProduceResponse
RecordError = m.ProduceResponse.BatchIndexAndErrorMessage
Response = m.ProduceResponse
LEADERS_FROM = 10


class Produce:
    """Writes of clients."""

    KEY = 0
    VERSIONS = (0, 13)

    def __init__(self, replicas: Replicas, view: ClusterView, clock: Clock, timers: Timers) -> None:
        self._replicas = replicas
        self._view = view
        self._clock = clock
        self._timers = timers

    def handle(self, call: Call, request: m.ProduceRequest) -> m.ProduceResponse | None:
        acks = request.acks
        version = call.version
        now_ms = self._clock.now_ms()
        waiting: list[tuple[PartitionResponse, Replica, int]] = []
        failed = False
        topics = []
        for topic in request.topic_data:
            name = topic.name if version < TOPIC_IDS_FROM else self._view.name_of(topic.topic_id)
            partitions = []
            for data in topic.partition_data:
                try:
                    replica = self._replicas.get(name, data.index)
                    if replica is None or not -1 <= acks <= 1:
                        raise _unwritable(name, data.index, acks)
                    appended = replica.produce(data.records, acks, now_ms, version)
                except KafkaError as error:
                    failed = True
                    partitions.append(self._refusal(error, name, data.index, call.version))
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
                    waiting.append((answer, replica, end_offset))
                elif settled is not NO_ERROR:
                    answer.error_code = settled
            topics.append(TopicResponse(name=name or "", topic_id=topic.topic_id, partition_responses=partitions))
        if acks == 0:
            call.no_reply = True
            if failed:
                call.connection.refuse("acks=0", "a write with acks=0 was refused")
            return None
        response = Response(responses=topics)
        if waiting:
            ProduceWait(call, response, waiting, acks).start(
                self._timers, self._clock.monotonic_ms() + max(0, request.timeout_ms)
            )
            return None
        return response

    def _refusal(self, error: KafkaError, name: str | None, index: int, version: int) -> PartitionResponse:
        answer = PartitionResponse(
            index=index, error_code=error.code, base_offset=-1, error_message=error.message or None
        )
        if isinstance(error, InvalidRecords):
            answer.record_errors = [
                RecordError(batch_index=batch_index, batch_index_error_message=message)
                for batch_index, message in error.record_errors
            ]
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= LEADERS_FROM:
            replica = self._replicas.get(name, index)
            if replica is not None:
                answer.current_leader = m.ProduceResponse.LeaderIdAndEpoch(
                    leader_id=replica.machine.leader_id, leader_epoch=replica.machine.leader_epoch
                )
        return answer


def _unwritable(name: str | None, index: int, acks: int) -> KafkaError:
    """Why there is nothing to write to."""
    if not -1 <= acks <= 1:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; -1, 0 and 1 are possible")
    if name is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{index} is not on this broker")


class ProduceWait:
    """A write that waits for its followers or its fsync."""

    __slots__ = ("_acks", "_call", "_response", "_timer", "_waiting")

    def __init__(
        self,
        call: Call,
        response: m.ProduceResponse,
        waiting: list[tuple[PartitionResponse, Replica, int]],
        acks: int,
    ) -> None:
        self._call = call
        self._response = response
        self._waiting = waiting
        self._acks = acks

    def start(self, timers: Timers, deadline_ms: int) -> None:
        """Begin to wait; what is not settled at the deadline is answered REQUEST_TIMED_OUT."""
        self._timer = timers.at(deadline_ms, self._time_out)
        for _, replica, _ in self._waiting:
            replica.watch(self)

    def wake(self, replica: Replica) -> None:
        left = []
        for entry in self._waiting:
            answer, waited, end_offset = entry
            settled = waited.settled(end_offset, self._acks) if waited is replica else None
            if settled is None:
                left.append(entry)
            else:
                answer.error_code = settled
        if len(left) == len(self._waiting):
            return
        self._waiting = left
        if all(waited is not replica for _, waited, _ in left):
            replica.unwatch(self)
        if not left:
            self._timer.cancel()
            self._call.reply(self._response)

    def _time_out(self) -> None:
        for answer, replica, _ in self._waiting:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            replica.unwatch(self)
        self._waiting = []
        self._call.reply(self._response)
