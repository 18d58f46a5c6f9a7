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
from odradek.broker.replication.delayed_delete_records import INVALID_LOW_WATERMARK, DelayedDeleteRecords, Result
from odradek.broker.replication.partition import Replica, Replicas
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

HIGH_WATERMARK: Final = -1


class DeleteRecords:
    """Handles DeleteRecords."""

    KEY = 21
    VERSIONS = (0, 2)

    def __init__(
        self,
        replicas: Replicas,
        metadata_cache: MetadataCache,
        purgatory: DelayedOperationPurgatory,
        auth: AuthHelper,
    ) -> None:
        self._auth = auth
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._runs: Callable[[int], bool] = lambda broker_id: broker_id in metadata_cache.brokers
        self._purgatory = purgatory

    def handle(self, call: Call, request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse | None:
        response = m.DeleteRecordsResponse()
        waiting: dict[Replica, tuple[int, Result]] = {}
        names = (topic.name for topic in request.topics)
        allowed = self._auth.filter_by_authorized(call, AclOperation.DELETE, ResourceType.TOPIC, names)
        for name, offsets in items_of(_by_topic(request).items()):
            results = []
            for index, wanted in items_of(offsets.items()):
                result = Result(partition_index=index, low_watermark=INVALID_LOW_WATERMARK)
                results.append(result)
                try:
                    if name not in allowed:
                        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    replica, offset = self._delete(name, index, wanted)
                except KafkaError as refused:
                    result.error_code = refused.code
                    continue
                result.low_watermark = replica.low_watermark(self._runs)
                if result.low_watermark < offset:
                    waiting[replica] = offset, result
            response.topics.append(m.DeleteRecordsResponse.DeleteRecordsTopicResult(name=name, partitions=results))
        if not waiting:
            return response
        operation = DelayedDeleteRecords(call, response, waiting, self._runs)
        self._purgatory.try_complete_else_watch(operation, tuple(waiting), request.timeout_ms)
        return None

    def _delete(self, topic: str, index: int, offset: int) -> tuple[Replica, int]:
        """Advance the leader's log start offset; returns the leader and the offset. Raises KafkaError."""
        replica = self._replicas.get(topic, index)
        absent = ErrorCode.NONE if replica is not None else self._metadata_cache.error_without_replica(topic, index)
        if is_internal(topic) and absent is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot delete records of the internal topic {topic}")
        if replica is None:
            raise KafkaError(absent, f"{topic}-{index} is not on this broker")
        replica.machine.check_leader()
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
        offsets = topics.setdefault(topic.name, {}) if topic.partitions else {}
        for partition in topic.partitions:
            offsets[partition.partition_index] = partition.offset
    return topics
