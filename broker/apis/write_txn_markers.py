"""WriteTxnMarkers (key 27), versions 0 to 2: the leaders append the markers of the transaction coordinator.

The response has a code for each partition of every marker, once the marker is on the in-sync replicas. A partition of
`__consumer_offsets` is answered only when the group coordinator has applied or discarded the offsets of the
transaction: a client that gets the end of a transaction must find its offsets (KAFKA-17507). The request takes ALTER
(KIP-1037) or CLUSTER_ACTION on the cluster.

Version 2 adds the version of the transaction protocol of the producer (KIP-1228): under version 2 each transaction has
its own epoch, which its marker exceeds, so a marker with an epoch that has already written to the partition is late.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from odradek.broker.metadata.state.topics import GROUP_OFFSETS
from odradek.broker.replication.delayed_append import DelayedAppend
from odradek.broker.replication.partition import Replicas
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.timers import Clock
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class PendingTransactionalOffsets(Protocol):
    """The group coordinator, which applies the offsets of transactions."""

    def before_commit(self, partition: int, producer_id: int) -> None:
        """Prepare a partition of `__consumer_offsets` for a commit marker. Raises KafkaError."""
        ...

    def end_transaction(self, partition: int, producer_id: int, commit: bool) -> None:
        """Apply a marker that is in a partition of `__consumer_offsets`."""
        ...


EPOCH_PER_TRANSACTION = 2
"""The first version of the transaction protocol whose producers get a new epoch with every transaction."""

Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
MarkerResult = m.WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = m.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = m.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


class WriteTxnMarkers:
    """Handles WriteTxnMarkers."""

    KEY = 27
    VERSIONS = (0, 2)

    def __init__(
        self,
        replicas: Replicas,
        clock: Clock,
        purgatory: DelayedOperationPurgatory,
        request_timeout_ms: int,
        groups: PendingTransactionalOffsets,
        auth: AuthHelper,
    ) -> None:
        """`request_timeout_ms` is the time limit for the replication of a marker to the in-sync replicas."""
        self._replicas = replicas
        self._clock = clock
        self._purgatory = purgatory
        self._request_timeout_ms = request_timeout_ms
        self._groups = groups
        self._auth = auth

    def handle(self, call: Call, request: m.WriteTxnMarkersRequest) -> m.WriteTxnMarkersResponse | None:
        if not self._auth.authorize_cluster(
            call, AclOperation.ALTER, log_if_denied=False
        ) and not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
            return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        response = m.WriteTxnMarkersResponse()
        answered: list[bool] = []
        wait = DelayedAppend(lambda: call.reply(response) if answered else answered.append(True))
        results = _Results()
        for marker in items_of(request.markers):
            for topic in items_of(marker.topics):
                partitions = [
                    self._write(wait, marker, topic.name, index) for index in items_of(topic.partition_indexes)
                ]
                if partitions:
                    results.add(marker.producer_id, topic.name, partitions)
        response.markers = results.markers
        wait.start(self._purgatory, self._request_timeout_ms)
        if answered:
            return response
        answered.append(True)
        return None

    def _write(self, wait: DelayedAppend, marker: Marker, topic: str, index: int) -> PartitionResult:
        answer = PartitionResult(partition_index=index)
        replica = self._replicas.get(topic, index)
        if replica is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return answer
        if marker.producer_id < 0:
            answer.error_code = ErrorCode.INVALID_REQUEST
            return answer
        try:
            if topic == GROUP_OFFSETS and marker.transaction_result:
                self._groups.before_commit(index, marker.producer_id)
            end_offset = replica.end_transaction(
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                self._clock.now_ms(),
                epoch_per_transaction=marker.transaction_version >= EPOCH_PER_TRANSACTION,
            )
        except KafkaError as refused:
            answer.error_code = refused.code
        else:
            wait.add(replica, end_offset, partial(self._written, answer, marker, topic))
        return answer

    def _written(self, answer: PartitionResult, marker: Marker, topic: str, code: ErrorCode) -> None:
        answer.error_code = code
        if topic == GROUP_OFFSETS and code is ErrorCode.NONE:
            self._groups.end_transaction(answer.partition_index, marker.producer_id, marker.transaction_result)


def _refused(request: m.WriteTxnMarkersRequest, code: ErrorCode) -> m.WriteTxnMarkersResponse:
    """The error for each partition of each marker."""
    results = _Results()
    for marker in request.markers:
        results.begin(marker.producer_id)
        for topic in marker.topics:
            partitions = [PartitionResult(partition_index=index, error_code=code) for index in topic.partition_indexes]
            results.add(marker.producer_id, topic.name, partitions)
    return m.WriteTxnMarkersResponse(markers=results.markers)


class _Results:
    """The results of a request: those of a producer and of a topic are together, as in Kafka."""

    __slots__ = ("_by_producer", "_by_topic")

    def __init__(self) -> None:
        self._by_producer: dict[int, MarkerResult] = {}
        self._by_topic: dict[tuple[int, str], TopicResult] = {}

    @property
    def markers(self) -> list[MarkerResult]:
        """The result of each producer."""
        return list(self._by_producer.values())

    def begin(self, producer_id: int) -> MarkerResult:
        """The result of a producer, without topics at first."""
        found = self._by_producer.get(producer_id)
        if found is None:
            found = self._by_producer[producer_id] = MarkerResult(producer_id=producer_id)
        return found

    def add(self, producer_id: int, name: str, partitions: list[PartitionResult]) -> None:
        """Add the results of some partitions of a topic."""
        found = self._by_topic.get((producer_id, name))
        if found is None:
            found = self._by_topic[producer_id, name] = TopicResult(name=name)
            self.begin(producer_id).topics.append(found)
        found.partitions += partitions
