"""Plain fetches: reads the partitions of a consumer's fetch session in one pass, where nothing is special about them.

Most Fetch requests are plain: a session of few partitions that this broker leads, of which some have new records, or
none. `FetchReading` handles all requests, and costs several times as much. `read_plain` leaves everything to it that
is not plain: an error, a diverging log, records for a read-committed consumer (which needs the aborted transactions).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from odradek.broker.replication.partition import READ_COMMITTED, Replica, Replicas
from odradek.broker.replication.state.fetch_session import NO_TOPIC_ID, FetchContext, FetchPartition
from odradek.broker.replication.state.partition import LEADER, NO_EPOCH
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError
from odradek.protocol.outbox import READ_BYTES
from odradek.storage.log import Log
from odradek.storage.recent_batches import read_recent
from odradek.storage.segment import EMPTY, FileRange

PLAIN_FROM: Final = 10
"""The first version that has sessions and supports every format of records."""
FEW_PARTITIONS: Final = 16
"""A session with more is read in turns, or waits for other requests: it is not small."""
PartitionData = m.FetchResponse.PartitionData
TopicResponse = m.FetchResponse.FetchableTopicResponse
Changed = tuple[FetchPartition, PartitionData]


class PlainRead:
    """What one pass has found: the bytes in each replica, and the partitions that the response has to include."""

    __slots__ = ("changed", "found", "is_enough", "sizes")

    def __init__(self, sizes: dict[Replica, int], found: int, changed: Sequence[Changed]) -> None:
        self.sizes = sizes
        self.found = found
        self.changed = changed
        self.is_enough = False
        """Whether there are as many bytes as the request waits for."""

    def is_unchanged(self, context: FetchContext) -> bool:
        """Whether the session has nothing new as long as no partition has notified its watchers: retention moves the
        start of a log without that, and a disk fails.
        """
        if self.changed:
            return False
        for replica, wanted in zip(self.sizes, context.partitions, strict=True):
            if replica.machine.role is not LEADER or replica.log.start_offset != wanted.sent_log_start_offset:
                return False
        return True

    def response(self, context: FetchContext, *, has_topic_ids: bool) -> m.FetchResponse:
        """The response, whose offsets the session stores as sent. Counts it in the metrics."""
        for replica, size in self.sizes.items():
            metrics = replica.metrics
            metrics.fetches += 1
            metrics.bytes_out += size
        if not self.changed:
            return m.FetchResponse(session_id=context.session_id)
        topics: dict[str | bytes, TopicResponse] = {}
        for wanted, data in self.changed:
            wanted.sent_high_watermark = data.high_watermark
            wanted.sent_log_start_offset = data.log_start_offset
            key = wanted.topic_id if has_topic_ids else wanted.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = TopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
            topic.partitions.append(data)
        if self.found and len(self.sizes) > 1 and context.session is not None:
            context.session.served([wanted.key for wanted, data in self.changed if data.records])
        return m.FetchResponse(session_id=context.session_id, responses=list(topics.values()))


def read_plain(
    replicas: Replicas, partitions: Sequence[FetchPartition], isolation_level: int, max_bytes: int
) -> PlainRead | None:
    """Read the partitions of an incremental fetch of a consumer without a rack; None where it is not a plain one.

    `max_bytes` is the limit of the response, above 0. Nothing has changed when this returns.
    """
    committed = isolation_level == READ_COMMITTED
    sizes: dict[Replica, int] = {}
    changed: list[Changed] = []
    found = 0
    for wanted in partitions:
        replica = replicas.get(wanted.topic, wanted.partition)
        if replica is None or not _is_plain(replica, wanted):
            return None
        high_watermark, start, offset = replica.machine.high_watermark, replica.log.start_offset, wanted.fetch_offset
        records: FileRange | bytes = EMPTY
        size = 0
        if offset != (replica.last_stable_offset if committed else high_watermark):
            if committed:
                return None
            left = max_bytes - found
            most = wanted.max_bytes if wanted.max_bytes < left else left
            try:
                records = _read(replica.log, offset, most, high_watermark, at_least_one=not found)
            except KafkaError:
                return None
            size = len(records)
        if size or wanted.sent_high_watermark != high_watermark or wanted.sent_log_start_offset != start:
            data = PartitionData(
                partition_index=wanted.partition,
                high_watermark=high_watermark,
                last_stable_offset=replica.last_stable_offset,
                log_start_offset=start,
                aborted_transactions=[] if committed else None,
                records=records,
            )
            changed.append((wanted, data))
        sizes[replica] = size
        found += size
    return PlainRead(sizes, found, changed)


def _read(log: Log, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool) -> FileRange | bytes:
    """The whole batches of a read: small ones as bytes, so that they become a part of the encoded response. Raises
    KafkaError.
    """
    records = read_recent(log, offset, max_bytes if max_bytes < READ_BYTES else READ_BYTES, end_offset=end_offset)
    if records is not None:
        return records
    part = log.read(offset, max(0, max_bytes), end_offset=end_offset, at_least_one=at_least_one)
    if part.incomplete:
        return EMPTY
    if type(part.records) is FileRange and len(part.records) <= READ_BYTES:
        with contextlib.suppress(OSError, KafkaError):  # the connection finds the reason when it reads
            return part.records.read()
    return part.records


def _is_plain(replica: Replica, wanted: FetchPartition) -> bool:
    """Whether this broker leads the partition in the epoch that the client expects, and the log does not diverge."""
    machine, log = replica.machine, replica.log
    return (
        machine.role is LEADER
        and log.failure is None
        and wanted.max_bytes >= 0
        and wanted.current_leader_epoch in (NO_EPOCH, machine.leader_epoch)
        and (
            wanted.last_fetched_epoch == NO_EPOCH
            or (wanted.last_fetched_epoch == log.epochs.latest and wanted.fetch_offset <= log.end_offset)
        )
        and wanted.topic_id in (NO_TOPIC_ID, replica.topic_id)
    )
