"""DeleteRecords (key 21), versions 0 to 2: advance the log start offsets of partitions (KIP-107).

The leader advances its log start offset and answers once every live replica has advanced its own, or with
REQUEST_TIMED_OUT; the response contains the low watermark, the lowest log start offset of all those. Retention deletes
the files later. Offset -1 stands for the high watermark. Topics with compaction only are refused: POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.topics import is_internal
from odradek.broker.replication.partition import Replica, Replicas
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

HIGH_WATERMARK: Final = -1
INVALID_LOW_WATERMARK: Final = -1
NO_EPOCH: Final = -1

Result = m.DeleteRecordsResponse.DeleteRecordsPartitionResult


class DeleteRecords:
    """Handles DeleteRecords."""

    KEY = 21
    VERSIONS = (0, 2)

    def __init__(self, replicas: Replicas, metadata_cache: MetadataCache, clock: Clock, timers: Timers) -> None:
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._runs: Callable[[int], bool] = lambda broker_id: broker_id in metadata_cache.brokers
        self._clock = clock
        self._timers = timers

    def handle(self, call: Call, request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse | None:
        response = m.DeleteRecordsResponse()
        waiting: list[tuple[Replica, int, Result]] = []
        for name, offsets in _by_topic(request).items():
            results = []
            for index, wanted in offsets.items():
                result = Result(partition_index=index, low_watermark=INVALID_LOW_WATERMARK)
                results.append(result)
                try:
                    replica, offset = self._delete(name, index, wanted)
                except KafkaError as refused:
                    result.error_code = refused.code
                    continue
                result.low_watermark = replica.low_watermark(self._runs)
                if result.low_watermark < offset:
                    waiting.append((replica, offset, result))
            response.topics.append(m.DeleteRecordsResponse.DeleteRecordsTopicResult(name=name, partitions=results))
        if not waiting:
            return response
        _Deletion(waiting, self._runs, lambda: call.reply(response)).start(
            self._timers, self._clock.monotonic_ms() + request.timeout_ms
        )
        return None

    def _delete(self, topic: str, index: int, offset: int) -> tuple[Replica, int]:
        """Advance the leader's log start offset; returns the leader and the offset. Raises KafkaError."""
        replica = self._replicas.get(topic, index)
        absent = ErrorCode.NONE if replica is not None else self._metadata_cache.error_without_replica(topic, index)
        if is_internal(topic) and absent is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot delete records of the internal topic {topic}")
        if replica is None:
            raise KafkaError(absent, f"{topic}-{index} is not on this broker")
        replica.machine.check_leader(NO_EPOCH)
        if not replica.log.config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{topic} has no cleanup.policy delete, so its records stay as they are"
            )
        if offset == HIGH_WATERMARK:
            offset = replica.machine.high_watermark
        if offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is no offset; -1 is the high watermark")
        replica.delete_records(offset)
        return replica, offset


def _by_topic(request: m.DeleteRecordsRequest) -> dict[str, dict[int, int]]:
    """The offset for each partition; the last one of several for a partition."""
    topics: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            topics.setdefault(topic.name, {})[partition.partition_index] = partition.offset
    return topics


class _Deletion:
    """The replicas for which one request still waits (Kafka: DelayedDeleteRecords)."""

    def __init__(
        self, waiting: list[tuple[Replica, int, Result]], runs: Callable[[int], bool], done: Callable[[], None]
    ) -> None:
        self._waiting = waiting
        self._runs = runs
        self._done = done
        self._timer: Timer | None = None

    def start(self, timers: Timers, deadline_ms: int) -> None:
        self._timer = timers.at(deadline_ms, self._time_out)
        replicas = dict.fromkeys(replica for replica, _, _ in self._waiting)
        for replica in replicas:
            replica.watch(self)
        for replica in replicas:
            self.wake(replica)  # the completion of other partitions of the request may have settled this one

    def wake(self, replica: Replica) -> None:
        """Check a replica that has advanced, or that is no longer the leader."""
        left = []
        for waited, offset, result in self._waiting:
            if waited is not replica or not self._settled(replica, offset, result):
                left.append((waited, offset, result))
        self._waiting = left
        if all(waited is not replica for waited, _, _ in left):
            replica.unwatch(self)
        if not left and self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._done()

    def _settled(self, replica: Replica, offset: int, result: Result) -> bool:
        try:
            replica.machine.check_leader(NO_EPOCH)
        except KafkaError as error:
            result.error_code, result.low_watermark = error.code, INVALID_LOW_WATERMARK
            return True
        low_watermark = replica.low_watermark(self._runs)
        if low_watermark < offset:
            return False
        result.low_watermark = low_watermark
        return True

    def _time_out(self) -> None:
        self._timer = None
        for replica, _, result in self._waiting:
            replica.unwatch(self)
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._waiting = []
        self._done()
