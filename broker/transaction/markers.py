"""Sends transaction markers to the leaders of their partitions (Kafka: TransactionMarkerChannelManager).

One WriteTxnMarkers request at a time is in flight to each broker; later markers are sent with the next one, and so are
those of more than SENT_AT_ONCE partitions. A marker is
retried while the leader of its partition is unknown, has moved or does not answer; a partition that no longer exists
needs no marker. A leader that has received a marker of a later coordinator, or a later epoch of the producer, returns
an error: then this broker no longer coordinates the transaction and stops.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from odradek.broker.metadata.cache import NO_LEADER, MetadataCache
from odradek.broker.network.inter_broker_client import InterBrokerClient
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.transaction.state.preparation import Owner
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
SENT_AT_ONCE: Final = 1000
"""Partitions in one request: the broker that writes their markers serves other requests afterwards."""
ELSEWHERE: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
NOT_TO_BE: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
"""A log that cannot store a marker contains no records of a transaction either."""


class PendingMarker(NamedTuple):
    """The outcome of a transaction."""

    transactional_id: str
    owner: Owner
    commits: bool
    coordinator_epoch: int


OnWritten = Callable[[PendingMarker, TopicPartition], None]


class NewMarkers(Protocol):
    """Creates the sender of markers for a coordinator: `Markers` without the arguments that the broker supplies."""

    def __call__(self, *, on_written: OnWritten, is_wanted: Callable[[PendingMarker], bool]) -> Markers:
        """The arguments are those of `Markers`."""
        ...


class Markers:
    """Markers that are not written yet."""

    def __init__(
        self,
        links: InterBrokerClient,
        metadata_cache: MetadataCache,
        clock: Clock,
        timers: Timers,
        timeout_ms: int,
        *,
        on_written: OnWritten,
        is_wanted: Callable[[PendingMarker], bool],
    ) -> None:
        """`timeout_ms` is the request timeout for a leader.

        `on_written` is called for each partition that has its marker or needs none; `is_wanted` returns whether this
        broker still has to write a marker whose request failed.
        """
        self._links = links
        self._metadata_cache = metadata_cache
        self._clock = clock
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._waiting: dict[PendingMarker, dict[TopicPartition, int]] = {}
        """By marker and partition, the time (monotonic) before which it is not sent again."""
        self._under_way: dict[int, dict[PendingMarker, list[TopicPartition]]] = {}
        self._on_written = on_written
        self._is_wanted = is_wanted
        self._timer: Timer | None = None
        self._deadline_ms = 0
        self._closed = False
        metadata_cache.watch(self._leaders_changed)

    def write(self, marker: PendingMarker, partitions: Iterable[TopicPartition]) -> None:
        """Write this marker to these partitions."""
        self._waiting.setdefault(marker, {}).update(dict.fromkeys(partitions, 0))
        self._send_at(self._clock.monotonic_ms())

    def drop(self, transactional_id: str) -> None:
        """Drop markers of an id that this broker no longer coordinates; requests in flight continue."""
        for marker in [each for each in self._waiting if each.transactional_id == transactional_id]:
            del self._waiting[marker]

    def close(self) -> None:
        """Stop sending markers."""
        self._closed = True
        self._metadata_cache.unwatch(self._leaders_changed)
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    # ---- sending

    def _leaders_changed(self) -> None:
        """Send markers again, because a partition without a leader may have one now."""
        if self._waiting:
            self._send_at(self._clock.monotonic_ms())

    def _send_at(self, deadline_ms: int) -> None:
        """Send waiting markers at this time, or at an earlier time that is already set."""
        if self._closed:
            return
        if self._timer is not None:
            if self._deadline_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._deadline_ms = deadline_ms
        self._timer = self._timers.at(deadline_ms, self._send)

    def _send(self) -> None:
        self._timer = None
        to_send: dict[int, dict[PendingMarker, list[TopicPartition]]] = {}
        gone: list[tuple[PendingMarker, TopicPartition]] = []
        now_ms = self._clock.monotonic_ms()
        later_ms: list[int] = []
        counts: Counter[int] = Counter()
        # Responses contain the producer id only: of two markers of a producer, or two coordinator epochs, one waits.
        alone: dict[tuple[int, int], PendingMarker] = {}
        for marker, partitions in self._waiting.items():
            for partition, not_before_ms in partitions.items():
                leader = self._leader(partition)
                if leader is None:
                    gone.append((marker, partition))
                elif leader == NO_LEADER:
                    later_ms.append(now_ms + RETRY_MS)
                elif leader in self._under_way or (
                    alone.setdefault((leader, marker.owner.producer_id), marker) != marker
                ):
                    continue  # it is sent after the next response of this leader
                elif not_before_ms > now_ms:
                    later_ms.append(not_before_ms)
                elif counts[leader] < SENT_AT_ONCE:
                    counts[leader] += 1
                    to_send.setdefault(leader, {}).setdefault(marker, []).append(partition)
        for marker, partition in gone:
            self._written(marker, partition)
        for broker_id, entries in to_send.items():
            self._under_way[broker_id] = entries
            for marker, sent in entries.items():
                self._take(marker, sent)
            self._links.send_request(
                broker_id,
                _request(entries),
                lambda answer, broker_id=broker_id: self._answered(broker_id, answer),  # type: ignore[misc]
                lambda error, broker_id=broker_id: self._lost(broker_id, str(error)),  # type: ignore[misc]
                self._timeout_ms,
            )
        if later_ms:
            self._send_at(min(later_ms))

    def _leader(self, partition: TopicPartition) -> int | None:
        """The broker that leads a partition, NO_LEADER if there is none; None if the partition does not exist."""
        topic, index = partition
        known = self._metadata_cache.leader(topic, index)
        if known is None:
            return None if self._metadata_cache.brokers else NO_LEADER
        return known[0]

    def _take(self, marker: PendingMarker, partitions: list[TopicPartition]) -> None:
        left = self._waiting.get(marker, {})
        for partition in partitions:
            left.pop(partition, None)
        if not left:
            self._waiting.pop(marker, None)

    # ---- answers

    def _answered(self, broker_id: int, response: m.WriteTxnMarkersResponse) -> None:
        entries = self._under_way.pop(broker_id, {})
        codes = {
            (result.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for result in response.markers
            for topic in result.topics
            for partition in items_of(topic.partitions)
        }
        again: dict[PendingMarker, list[TopicPartition]] = {}
        for marker, partitions in entries.items():
            for partition in items_of(partitions):
                code = codes.get((marker.owner.producer_id, *partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                if code is ErrorCode.NONE or code in NOT_TO_BE:
                    self._written(marker, partition)
                elif code in ELSEWHERE:
                    log.info(
                        "leader refused transaction marker transactional_id=%s producer_id=%d"
                        " producer_epoch=%d commit=%s coordinator_epoch=%d topic=%s partition=%d error=%s",
                        marker.transactional_id,
                        marker.owner.producer_id,
                        marker.owner.epoch,
                        marker.commits,
                        marker.coordinator_epoch,
                        *partition,
                        code.name,
                    )
                else:
                    again.setdefault(marker, []).append(partition)
        self._again(again)

    def _lost(self, broker_id: int, why: str) -> None:
        entries = self._under_way.pop(broker_id, {})
        log.info("retrying transaction markers broker=%d transactions=%d error=%s", broker_id, len(entries), why)
        self._again(entries)

    def _again(self, entries: dict[PendingMarker, list[TopicPartition]]) -> None:
        if self._closed:
            return
        now_ms = self._clock.monotonic_ms()
        for marker, partitions in entries.items():
            if self._is_wanted(marker):
                self._waiting.setdefault(marker, {}).update(dict.fromkeys(partitions, now_ms + RETRY_MS))
        if self._waiting:
            self._send_at(now_ms)

    def _written(self, marker: PendingMarker, partition: TopicPartition) -> None:
        self._take(marker, [partition])
        self._on_written(marker, partition)


def _request(entries: dict[PendingMarker, list[TopicPartition]]) -> m.WriteTxnMarkersRequest:
    markers = []
    for marker, partitions in entries.items():
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        markers.append(
            m.WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=marker.owner.producer_id,
                producer_epoch=marker.owner.epoch,
                transaction_result=marker.commits,
                topics=[
                    m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
        )
    return m.WriteTxnMarkersRequest(markers=markers)
