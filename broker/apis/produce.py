"""Produce (key 0), versions 0 to 13: append batches and acknowledge them.

acks=0 gets no answer; when such a write is refused the connection is closed, which is the only way to tell the
client (Kafka does the same). acks=1 is answered when the leader has appended (and flushed, where the topic asks for
it), acks=all when all in-sync replicas have. Version 8 adds the errors of single records, 10 the current leader in
an answer of the wrong broker (KIP-951), 13 topic ids.

A request that names a transaction goes another way than all others: a batch that would begin the transaction in its
partition waits until the coordinator has confirmed it (KIP-890; see `transactional_writes`). Version 11 can be told of
TRANSACTION_ABORTABLE then, and from version 12 on the leader adds the partition to the transaction itself.

Versions 0 to 2 carry message sets of magic 0 and 1, which are not taken yet: UNSUPPORTED_FOR_MESSAGE_FORMAT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.cluster_view import ClusterView
from odradek.broker.replica import Replica, Replicas
from odradek.broker.transactional_writes import HeldWrite, Sender, TransactionalWrites, Written
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
NOT_YET: Final = 2**63
"""The end of a batch that is not in the log yet: no log ever reaches it."""


class Produce:
    """Writes of clients."""

    KEY = 0
    VERSIONS = (0, 13)

    def __init__(
        self, replicas: Replicas, view: ClusterView, clock: Clock, timers: Timers, transactional: TransactionalWrites
    ) -> None:
        self._transactional = transactional
        self._replicas = replicas
        self._view = view
        self._clock = clock
        self._timers = timers

    def handle(self, call: Call, request: m.ProduceRequest) -> m.ProduceResponse | None:
        if request.transactional_id is not None:
            return self._handle_transactional(call, request, request.transactional_id)
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
        if waiting or acks == 0:
            return self._respond(call, request, Response(responses=topics), waiting, failed)
        return Response(responses=topics)

    def _handle_transactional(
        self, call: Call, request: m.ProduceRequest, transactional_id: str
    ) -> m.ProduceResponse | None:
        """The same with batches that may have to wait before they are written."""
        now_ms = self._clock.now_ms()
        sender = Sender(transactional_id, call.version, request.acks)
        waiting: list[tuple[PartitionResponse, Replica, int]] = []
        held: list[tuple[HeldWrite, PartitionResponse]] = []
        failed = False
        topics = []
        for topic in request.topic_data:
            name = topic.name if call.version < TOPIC_IDS_FROM else self._view.name_of(topic.topic_id)
            partitions = []
            for data in topic.partition_data:
                replica = self._replicas.get(name, data.index)
                try:
                    if replica is None or not -1 <= request.acks <= 1:
                        raise _unwritable(name, data.index, request.acks)
                    written = self._transactional.write(sender, replica, data.records, now_ms)
                except KafkaError as error:
                    failed = True
                    partitions.append(self._refusal(error, name, data.index, call.version))
                    continue
                answer = PartitionResponse(index=data.index)
                partitions.append(answer)
                if isinstance(written, HeldWrite):
                    held.append((written, answer))
                    waiting.append((answer, replica, NOT_YET))
                    continue
                _fill(answer, written)
                settled = replica.settled(written.last_offset + 1, request.acks)
                if settled is None:
                    waiting.append((answer, replica, written.last_offset + 1))
                else:
                    answer.error_code = settled
            topics.append(TopicResponse(name=name or "", topic_id=topic.topic_id, partition_responses=partitions))
        return self._respond(call, request, Response(responses=topics), waiting, failed, held)

    def _respond(
        self,
        call: Call,
        request: m.ProduceRequest,
        response: m.ProduceResponse,
        waiting: list[tuple[PartitionResponse, Replica, int]],
        failed: bool,
        held: list[tuple[HeldWrite, PartitionResponse]] | None = None,
    ) -> m.ProduceResponse | None:
        """Answer at once, later or, with acks=0, never."""
        if request.acks == 0:
            call.no_reply = True
            if failed:
                call.connection.refuse("acks=0", "a write with acks=0 was refused")
            return None
        if not waiting:
            return response
        wait = ProduceWait(call, response, waiting, request.acks)
        wait.start(self._timers, self._clock.monotonic_ms() + max(0, request.timeout_ms))
        if held:
            wait.hold(held, self._refuse)
            self._transactional.hold([write for write, _ in held], wait.written)
        return None

    def _refusal(self, error: KafkaError, name: str | None, index: int, version: int) -> PartitionResponse:
        answer = PartitionResponse(index=index)
        self._refuse(answer, error, self._replicas.get(name, index), version)
        return answer

    def _refuse(self, answer: PartitionResponse, error: KafkaError, replica: Replica | None, version: int) -> None:
        """Say why a batch is not written."""
        answer.error_code = error.code
        answer.error_message = error.message or None
        answer.base_offset = -1
        if isinstance(error, InvalidRecords):
            answer.record_errors = [
                RecordError(batch_index=batch_index, batch_index_error_message=message)
                for batch_index, message in error.record_errors
            ]
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= LEADERS_FROM and replica is not None:
            answer.current_leader = m.ProduceResponse.LeaderIdAndEpoch(
                leader_id=replica.machine.leader_id, leader_epoch=replica.machine.leader_epoch
            )


def _fill(answer: PartitionResponse, appended: Written) -> None:
    """Say where a batch stands."""
    answer.base_offset = appended.first_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = appended.start_offset


def _unwritable(name: str | None, index: int, acks: int) -> KafkaError:
    """Why there is nothing to write to."""
    if not -1 <= acks <= 1:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; -1, 0 and 1 are possible")
    if name is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{index} is not on this broker")


Refuse = Callable[[PartitionResponse, KafkaError, Replica | None, int], None]


class ProduceWait:
    """A write that waits for its followers or its fsync, or to be written at all."""

    __slots__ = ("_acks", "_call", "_held", "_refuse", "_response", "_timer", "_waiting")

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
        self._held: list[tuple[HeldWrite, PartitionResponse]] = []
        self._refuse: Refuse | None = None

    def start(self, timers: Timers, deadline_ms: int) -> None:
        """Begin to wait; what is not settled at the deadline is answered REQUEST_TIMED_OUT."""
        self._timer = timers.at(deadline_ms, self._time_out)
        for _, replica, _ in self._waiting:
            replica.watch(self)

    def hold(self, held: list[tuple[HeldWrite, PartitionResponse]], refuse: Refuse) -> None:
        """These batches are to be written yet; `written` is told of each."""
        self._held = held
        self._refuse = refuse

    def written(self, write: HeldWrite, outcome: Written | KafkaError) -> None:
        """A batch that was held stands in the log now, or never will."""
        answer = next(answer for each, answer in self._held if each is write)
        self._held = [entry for entry in self._held if entry[0] is not write]
        replica = write.replica
        if isinstance(outcome, KafkaError):
            if self._refuse is not None:
                self._refuse(answer, outcome, replica, self._call.version)
            self._keep([entry for entry in self._waiting if entry[0] is not answer], replica)
            return
        _fill(answer, outcome)
        end_offset = outcome.last_offset + 1
        self._waiting = [(each, at, end_offset if each is answer else end) for each, at, end in self._waiting]
        self.wake(replica)

    def wake(self, replica: Replica) -> None:
        left = []
        for entry in self._waiting:
            answer, waited, end_offset = entry
            settled = waited.settled(end_offset, self._acks) if waited is replica else None
            if settled is None:
                left.append(entry)
            else:
                answer.error_code = settled
        if len(left) < len(self._waiting):
            self._keep(left, replica)

    def _keep(self, left: list[tuple[PartitionResponse, Replica, int]], replica: Replica) -> None:
        """Only these are unanswered still; one of `replica` was answered."""
        self._waiting = left
        if self._held:
            self._abandon()
        if all(waited is not replica for _, waited, _ in left):
            replica.unwatch(self)
        if not left:
            self._timer.cancel()
            self._call.reply(self._response)

    def _abandon(self) -> None:
        """A batch that has been answered for is not to be written any more."""
        for write, answer in self._held:
            if all(each is not answer for each, _, _ in self._waiting):
                write.abandon()

    def _time_out(self) -> None:
        for answer, replica, _ in self._waiting:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            replica.unwatch(self)
        self._waiting = []
        self._abandon()
        self._call.reply(self._response)
