"""ListOffsets (key 2), versions 0 to 11: the offset for a timestamp, or at an end of the log.

Special timestamps: -1 the end (the high watermark, or the last stable offset with read_committed), -2 the start, -3 the
record with the largest timestamp (KIP-734), -4 the start of the data on local disk, -5 the end of the data in tiered
storage (KIP-405, KIP-1005) and -6 the start of the data that is to be moved there: without tiered storage -4 is the
start, -5 and -6 have no result. Version 0 returns the base offsets of segments; 4 adds the leader epoch, 2 isolation
levels.

A thread reads batches with many records, and batches that decompress to much; the response then comes later.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.replication.offset_search import Known, SlowBatch, SlowSearch
from odradek.broker.replication.partition import Replica, Replicas, Worker
from odradek.broker.replication.state.partition import UNKNOWN_OFFSET
from odradek.broker.runtime.timers import Clock
from odradek.broker.runtime.turns import keep
from odradek.broker.runtime.usage import charged
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
LOWEST_VERSION_OF: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
OLDEST: Final = 0
NO_VERSION: Final = 1 << 15
ISOLATION_LEVELS: Final = (0, 1)
NO_TIMESTAMP: Final = -1
CONSUMER: Final = -1
DEBUGGING_CONSUMER: Final = -2

Found = tuple[int, int, int]
"""(offset, timestamp in ms, leader epoch); -1 for unknown values."""
NOTHING: Final[Found] = (UNKNOWN_OFFSET, NO_TIMESTAMP, -1)
PartitionResponse = m.ListOffsetsResponse.ListOffsetsPartitionResponse
TopicResponse = m.ListOffsetsResponse.ListOffsetsTopicResponse


class ListOffsets:
    """Handles ListOffsets."""

    KEY = 2
    VERSIONS = (0, 11)

    def __init__(
        self, replicas: Replicas, metadata_cache: MetadataCache, clock: Clock, auth: AuthHelper, worker: Worker
    ) -> None:
        """`worker` reads batches whose records take long to read."""
        self._worker = worker
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._clock = clock
        self._auth = auth

    def handle(self, call: Call, request: m.ListOffsetsRequest) -> m.ListOffsetsResponse | None:
        slow: list[SlowSearch] = []
        counts = keep(
            Counter(
                (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
            )
        )
        topics: list[TopicResponse] = []
        refused: list[TopicResponse] = []
        for topic in request.topics:
            answers = []
            authorized = self._auth.authorize(call, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
            for partition in topic.partitions:
                answer = PartitionResponse(partition_index=partition.partition_index)
                answers.append(answer)
                try:
                    if not authorized:
                        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if not call.version:
                        answer.old_style_offsets = self._before(request, topic.name, partition)
                        continue
                    if counts[topic.name, partition.partition_index] > 1:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request contains the partition twice")
                    self._fill(call, request, topic.name, partition, answer, {})
                except KafkaError as error:
                    answer.error_code = error.code
                except SlowBatch as batch:
                    slow.append(SlowSearch(topic.name, partition, answer, batch))
            (topics if authorized else refused).append(TopicResponse(name=topic.name, partitions=answers))
        topics += refused
        response = m.ListOffsetsResponse(topics=topics)
        if not slow:
            return response
        self._read_slowly(call, request, response, slow)
        return None

    def _read_slowly(
        self, call: Call, request: m.ListOffsetsRequest, response: m.ListOffsetsResponse, slow: list[SlowSearch]
    ) -> None:
        """Continue the searches one after the other, each batch in a thread; then send the response."""
        try:
            self._worker.run(charged(slow[-1].read, call.usage), partial(self._has_read, call, request, response, slow))
        except RuntimeError:  # the threads are closed, because the broker is stopping
            call.connection.close()

    def _has_read(
        self,
        call: Call,
        request: m.ListOffsetsRequest,
        response: m.ListOffsetsResponse,
        slow: list[SlowSearch],
        error: BaseException | None,
    ) -> None:
        if call.closed:
            return
        search = slow.pop()
        try:
            if error is not None:
                raise error if isinstance(error, KafkaError) else KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
            self._fill(call, request, search.name, search.partition, search.answer, search.known)
        except KafkaError as refused:
            search.answer.error_code = refused.code
        except SlowBatch as batch:
            search.batch = batch
            slow.append(search)
        if slow:
            self._read_slowly(call, request, response, slow)
        else:
            call.reply(response)

    def _fill(
        self,
        call: Call,
        request: m.ListOffsetsRequest,
        name: str,
        partition: m.ListOffsetsRequest.ListOffsetsPartition,
        answer: m.ListOffsetsResponse.ListOffsetsPartitionResponse,
        known: Known,
    ) -> None:
        _check_known(call.version, partition.timestamp)
        if request.replica_id == CONSUMER and request.isolation_level not in ISOLATION_LEVELS:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {request.isolation_level}")
        replica = self._replica(request, name, partition)
        if request.replica_id == CONSUMER:
            upper = replica.readable_end(request.isolation_level)
            lags = replica.machine.high_watermark < replica.machine.epoch_start_offset
            if lags and partition.timestamp not in (EARLIEST, EARLIEST_LOCAL):
                # A new leader may have a lower high watermark than the one that clients have seen before (KIP-207).
                # The last stable offset does not show that: a transaction can stay open over elections.
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE if call.version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
                )
        else:
            upper = replica.log.end_offset
        offset, timestamp, epoch = find(replica, partition.timestamp, upper, known)
        answer.offset, answer.timestamp = offset, timestamp
        if offset >= 0 and call.version >= 4:
            answer.leader_epoch = epoch

    def _replica(
        self, request: m.ListOffsetsRequest, name: str, partition: m.ListOffsetsRequest.ListOffsetsPartition
    ) -> Replica:
        """The replica that may answer: the leader, or any replica for a debugging consumer. Raises KafkaError."""
        replica = self._replicas.get(name, partition.partition_index)
        if replica is None:
            raise KafkaError(self._metadata_cache.error_without_replica(name, partition.partition_index))
        if request.replica_id == DEBUGGING_CONSUMER:
            replica.machine.check_epoch(partition.current_leader_epoch)
        else:
            replica.machine.check_leader(partition.current_leader_epoch)
        return replica

    def _before(
        self, request: m.ListOffsetsRequest, name: str, partition: m.ListOffsetsRequest.ListOffsetsPartition
    ) -> list[int]:
        """The result of version 0. Raises KafkaError.

        It has the base offsets of segments that were last modified at a time or before, newest first, preceded by the
        end of the log.
        """
        _check_known(OLDEST, partition.timestamp)
        replica = self._replica(request, name, partition)
        log, wanted = replica.log, partition.timestamp
        if partition.max_num_offsets < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the number of offsets is negative")
        steps = [(max(each.base_offset, log.start_offset), each.modified_ms) for each in log.segments]
        if log.segments[-1].size:
            steps.append((log.end_offset, self._clock.now_ms()))
        if wanted == LATEST:
            count = len(steps)
        elif wanted == EARLIEST:
            count = 1
        else:
            count = next((at + 1 for at in reversed(range(len(steps))) if steps[at][1] <= wanted), 0)
        found = sorted((offset for offset, _ in steps[max(0, count - partition.max_num_offsets) : count]), reverse=True)
        committed = replica.machine.high_watermark
        if request.replica_id == CONSUMER and found and found[0] > committed:
            return [committed, *(offset for offset in found if offset <= committed)]
        return found


def _check_known(version: int, timestamp: int) -> None:
    """Raises KafkaError with UNSUPPORTED_VERSION for a special timestamp that this version does not support."""
    if timestamp < EARLIEST and version < LOWEST_VERSION_OF.get(timestamp, NO_VERSION):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"version {version} has no special timestamp {timestamp}")


def find(replica: Replica, timestamp: int, upper: int, known: Known) -> Found:
    """The offset at `timestamp` (ms, or one of the special ones) below `upper`. Raises SlowBatch."""
    log = replica.log
    if timestamp == LATEST:
        return upper, NO_TIMESTAMP, replica.machine.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, NO_TIMESTAMP, log.epochs.epoch_at(log.start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        found = log.search.max_timestamp(known)
    else:
        found = log.search.offset_for_timestamp(timestamp, log.start_offset, upper, known)
    if found is None or found[0] >= upper:
        return NOTHING
    return found
