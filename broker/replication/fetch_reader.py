"""Fetch reader: reads the partitions of Fetch requests (Kafka: ReplicaManager.fetchMessages, readFromLog).

`FetchReading` reads the partitions of one request until there is enough data; until then the request waits as a
`DelayedFetch`. A follower's fetch also acknowledges the records below its offset, and returns the leader epochs and the
progress of compaction (docs/compaction.md). A reader whose log diverges from the leader's gets the diverging epoch in
place of records (KIP-595), and a consumer with a rack may be sent to a nearer replica (`replica_selector`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.quota.replication_quota_manager import ReplicationQuotaManager
from odradek.broker.replication.delayed_fetch import DelayedFetch, DelayedPlainFetch
from odradek.broker.replication.partition import READ_COMMITTED, LogConfig, Replica, Replicas
from odradek.broker.replication.plain_fetch import PlainRead, read_plain
from odradek.broker.replication.replica_selector import NO_PREFERENCE, ReplicaSelector, leader_selector
from odradek.broker.replication.state.fetch_session import FetchContext, FetchPartition
from odradek.broker.replication.state.partition import NO_EPOCH, Role
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.turns import each as items_of
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

AT_LEAST_ONE_FROM: Final = 3
OLDEST_WITH_BATCHES: Final = 4
ZSTD_FROM: Final = 10
RACKS_FROM: Final = 11
TOPIC_IDS_FROM: Final = 13
CONSUMER: Final = -1
"""The replica id of consumers."""
THROTTLED_MS: Final = 100
"""The time until the quota is looked at again for a follower that gets no records because of it. (Kafka lets the fetch
wait for as long as any other.)
"""
EPOCHS_AT_ONCE: Final = 1000
"""Leader epochs in a response to a follower; it gets later ones from their batches, or with its next fetch."""
ORDER: Final[dict[int, int]] = {
    ErrorCode.UNKNOWN_TOPIC_ID: 1,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 2,
}
"""The errors of partitions that are not read; they follow the other partitions."""
PartitionData = m.FetchResponse.PartitionData
EpochStart = m.FetchResponse.EpochStartOffset
Result = tuple[FetchPartition, PartitionData, int]
"""A partition of the request, its part of the response, and the bytes of its records."""


class FetchResponder(Protocol):
    """Makes responses: translates errors, and the format of records for old clients."""

    def refuse(self, version: int, wanted: FetchPartition, data: PartitionData, error: KafkaError) -> None:
        """Turn the data of a partition into an error."""
        ...

    def respond(self, call: Call, reading: FetchReading) -> m.FetchResponse | None:
        """The response for the last read; None if it is sent later."""
        ...


def at_once(work: Callable[[], None]) -> None:
    """Call the function now."""
    work()


class FetchReader:
    """Finds the replicas of fetched partitions, and lets fetches wait for data."""

    def __init__(
        self,
        replicas: Replicas,
        metadata_cache: MetadataCache,
        purgatory: DelayedOperationPurgatory,
        max_bytes: int,
        select: ReplicaSelector = leader_selector,
        leader_quota: ReplicationQuotaManager | None = None,
        run: Callable[[Callable[[], None]], None] = at_once,
    ) -> None:
        """`max_bytes` is the broker's own limit of a response (`fetch.max.bytes`); `leader_quota` limits what
        throttled followers get. `run` calls functions when the event loop has time for a request that is not small.
        """
        self._run = run
        self.select = select
        self._leader_quota = leader_quota
        self._replicas = replicas
        self._metadata_cache = metadata_cache
        self._purgatory = purgatory
        self._max_bytes = max_bytes

    def fetch(self, call: Call, reading: FetchReading, max_wait_ms: int) -> m.FetchResponse | None:
        """Read; if there are fewer than `min_bytes`, wait for up to `max_wait_ms` and return None."""
        sizes, ready = reading.try_read()
        if ready or max_wait_ms <= 0 or not sizes:
            return reading.finish()
        if reading.is_throttled:
            max_wait_ms = min(max_wait_ms, THROTTLED_MS)
        self._purgatory.try_complete_else_watch(DelayedFetch(call, reading, sizes, self._run), sizes, max_wait_ms)
        return None

    def wait_for_change(
        self,
        call: Call,
        plain: PlainRead,
        make_reading: Callable[[], FetchReading],
        respond: Callable[[PlainRead], m.FetchResponse | None],
        max_wait_ms: int,
    ) -> None:
        """Wait for up to `max_wait_ms` after a plain read that has found too little; see `DelayedPlainFetch`."""
        operation = DelayedPlainFetch(call, plain, make_reading, respond, self._run)
        self._purgatory.try_complete_else_watch(operation, plain.sizes, max_wait_ms)

    def read_plain(
        self, context: FetchContext, isolation_level: int, max_bytes: int, min_bytes: int
    ) -> PlainRead | None:
        """Read the partitions of a consumer in one pass, if nothing is special about them; the limits are those of the
        request.
        """
        max_bytes = self.max_bytes(max_bytes)
        if max_bytes <= 0:
            return None
        plain = read_plain(self._replicas, context.partitions, isolation_level, max_bytes)
        if plain is not None:
            plain.is_enough = plain.found >= min(min_bytes, max_bytes)
        return plain

    def is_throttled(self, replica: Replica, follower: int) -> bool:
        """Whether a follower has to wait for records: it is throttled and not in sync (Kafka: shouldLeaderThrottle)."""
        quota = self._leader_quota
        if quota is None or not quota.is_active or follower in replica.machine.isr:
            return False
        return quota.is_throttled(replica.topic, replica.partition) and quota.is_exceeded()

    def count_replicated(self, topic: str, partition: int, size: int) -> None:
        """Count bytes that a follower gets against its quota."""
        quota = self._leader_quota
        if quota is not None and quota.is_active and quota.is_throttled(topic, partition):
            quota.record(size)

    def max_bytes(self, asked: int) -> int:
        """The byte limit of one response."""
        most = self._max_bytes
        return asked if asked < most else most

    def name_of(self, topic_id: bytes) -> str:
        """The topic's name, empty if unknown. A leader may have a replica before its metadata contain the topic."""
        return self._replicas.name_of(topic_id) or self._metadata_cache.name_of(topic_id) or ""

    def resolve(self, partitions: Iterable[FetchPartition]) -> None:
        """Set the names of topics that were created, or whose metadata came, since the fetch session began.

        Only here, before the authorization: a read does not get a name that was not checked.
        """
        for wanted in items_of(partitions):
            if not wanted.topic:
                wanted.topic = self.name_of(wanted.topic_id)

    def find(self, wanted: FetchPartition, *, ids: bool, leader_only: bool = True) -> Replica:
        """The replica to read from; raises KafkaError when there is none or the epoch is not the current one.

        Without `leader_only`, a follower is accepted as well (KIP-392).
        """
        if ids and not wanted.topic:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        replica = self._replicas.get(wanted.topic, wanted.partition)
        if replica is None:
            raise KafkaError(self._metadata_cache.error_without_replica(wanted.topic, wanted.partition))
        if ids and replica.topic_id != wanted.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if leader_only:
            replica.machine.check_leader(wanted.current_leader_epoch)
        else:
            replica.machine.check_epoch(wanted.current_leader_epoch)
            replica.machine.check_online()
        return replica


def _check_format(config: LogConfig, version: int) -> None:
    """Raise KafkaError where the topic has no records that an old client can read, or is allowed to."""
    if config.compression_type == "zstd":
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"version {version} does not support zstd")
    if version < OLDEST_WITH_BATCHES and not config.message_downconversion_enable:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "message.downconversion.enable is false")


class FetchReading:
    """The partitions of one request, read as often as necessary until there is enough data."""

    __slots__ = (
        "_call",
        "_denied",
        "_ends",
        "_follower",
        "_follower_epoch",
        "_ids",
        "_isolation",
        "_leader_only",
        "_max_bytes",
        "_rack",
        "_reader",
        "_responder",
        "_version",
        "context",
        "is_throttled",
        "min_bytes",
        "results",
    )

    def __init__(
        self,
        reader: FetchReader,
        responder: FetchResponder,
        call: Call,
        request: m.FetchRequest,
        context: FetchContext,
        replica_id: int,
        replica_epoch: int,
        denied: Collection[str] = (),
    ) -> None:
        """`context` is the request in its fetch session. `replica_id` and `replica_epoch` are those of the follower;
        CONSUMER and -1 for a consumer. `denied` are the topics that the sender may not read.
        """
        self._reader = reader
        self._responder = responder
        self._call = call
        self.context = context
        self._denied = denied
        self._version = version = call.version
        self._ids = version >= TOPIC_IDS_FROM
        self._follower = replica_id
        self._follower_epoch = replica_epoch
        self._rack = request.rack_id
        self._leader_only = replica_id >= 0 or version < RACKS_FROM
        self._isolation = request.isolation_level
        self._max_bytes = reader.max_bytes(request.max_bytes)
        self.min_bytes = min(request.min_bytes, self._max_bytes)  # as Kafka; no cap of max_wait_ms there
        self._ends = 0
        """The sum of the end offsets of a follower's partitions at the last read."""
        self.is_throttled = False
        """Whether the quota of a follower withheld records from the last read."""
        self.results: list[Result] = []
        """The partitions of the last read, in the order of the request."""

    def limit(self, most_bytes: int) -> None:
        """Limit the size of the response further: no consumer gets more at once than its quota allows."""
        self._max_bytes = min(self._max_bytes, most_bytes)
        self.min_bytes = min(self.min_bytes, self._max_bytes)

    def try_read(self) -> tuple[dict[Replica, int], bool]:
        """Read every partition once.

        Returns the bytes found in each replica, and whether to send the response now: because there is enough data, or
        because the response of a partition must not wait.
        """
        left, found, urgent, denied = self._max_bytes, 0, False, self._denied
        self.is_throttled = False
        self._ends = 0
        sizes: dict[Replica, int] = {}
        results: list[Result] = []
        in_order = True
        for wanted in items_of(self.context.partitions):
            data = PartitionData(partition_index=wanted.partition, records=b"", aborted_transactions=None)
            size = 0
            if wanted.topic in denied:
                self._responder.refuse(self._version, wanted, data, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                results.append((wanted, data, size))
                in_order = False
                continue
            try:
                replica = self._reader.find(wanted, ids=self._ids, leader_only=self._leader_only)
                if self._turned_away(replica, wanted, data):
                    urgent = True
                else:
                    size = self._read(replica, wanted, data, min(wanted.max_bytes, left), at_least_one=found == 0)
                    if self._follower >= 0:
                        if size and self._reader.is_throttled(replica, self._follower):
                            data.records, size = b"", 0
                            self.is_throttled = True
                        self._ends += replica.log.end_offset
                        self._followed(replica, wanted, data)
                        urgent = urgent or self._has_new_start(replica, wanted)
                sizes[replica] = size
            except KafkaError as error:
                urgent, in_order = True, False
                self._responder.refuse(self._version, wanted, data, error)
            found += size
            left -= size
            results.append((wanted, data, size))
        if not in_order:
            results = _in_order(results)
        self.results = results
        return sizes, urgent or found >= self.min_bytes

    def _turned_away(self, replica: Replica, wanted: FetchPartition, data: m.FetchResponse.PartitionData) -> bool:
        """Whether the reader has to act before it reads here: truncate its log, or fetch from a nearer replica."""
        log = replica.log
        if wanted.last_fetched_epoch >= 0:
            epoch, end = log.epochs.end_offset(wanted.last_fetched_epoch, log.end_offset)
            if end < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the leader has no epoch {wanted.last_fetched_epoch}")
            if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
                self._bounds(replica, data)
                data.diverging_epoch = m.FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
                return True
        if self._follower == CONSUMER and self._rack:
            preferred = self._reader.select(replica, self._rack, wanted.fetch_offset)
            if preferred != NO_PREFERENCE:
                self._bounds(replica, data)
                data.preferred_read_replica = preferred
                return True
        return False

    def _followed(self, replica: Replica, wanted: FetchPartition, data: m.FetchResponse.PartitionData) -> None:
        """Apply a follower's position, and add the fields for followers to its response. Raises KafkaError."""
        try:
            replica.follower_fetched(
                self._follower, wanted.fetch_offset, wanted.log_start_offset, self._follower_epoch, wanted.cleaned_to
            )
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_LEADER_EPOCH and wanted.current_leader_epoch == NO_EPOCH:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from None  # it sends no epochs
            raise
        data.high_watermark = replica.machine.high_watermark
        if wanted.cleaned_to >= 0:  # a Kafka broker does not support the fields
            data.compacted_everywhere = replica.machine.compacted_everywhere
            if wanted.fetch_offset <= replica.log.epochs.latest_start:
                found = replica.log.epochs.starting_from(wanted.fetch_offset, EPOCHS_AT_ONCE)
                data.leader_epochs = [EpochStart(epoch=epoch, start_offset=start) for epoch, start in found]

    @staticmethod
    def _bounds(replica: Replica, data: m.FetchResponse.PartitionData) -> None:
        data.high_watermark = replica.machine.high_watermark
        data.last_stable_offset = replica.last_stable_offset
        data.log_start_offset = replica.log.start_offset

    def _read(
        self,
        replica: Replica,
        wanted: FetchPartition,
        data: m.FetchResponse.PartitionData,
        max_bytes: int,
        *,
        at_least_one: bool,
    ) -> int:
        # The bounds are read once, so that the bounds and the records of the response are consistent.
        log = replica.log
        self._bounds(replica, data)
        if self._follower != CONSUMER:
            upper = log.end_offset
        elif self._isolation == READ_COMMITTED:
            upper = data.last_stable_offset
        else:
            upper = data.high_watermark
        version = self._version
        if version < ZSTD_FROM:
            _check_format(log.config, version)
        if max_bytes < 0 and (wanted.max_bytes < 0 or self._max_bytes < 0):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the maximum size of the response is negative")
        whole = at_least_one and version >= AT_LEAST_ONE_FROM
        part = replica.read(wanted.fetch_offset, max(0, max_bytes), upper=upper, at_least_one=whole)
        size = 0 if part.incomplete else len(part.records)  # a reader cannot use a truncated batch
        if self._isolation == READ_COMMITTED and self._follower == CONSUMER:
            end = min(upper, log.search.upper_bound(part, log.end_offset)) if size else 0
            aborted = log.search.aborted_transactions(wanted.fetch_offset, end) if size else ()
            data.aborted_transactions = [
                m.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in aborted
            ]
        data.records = part.records if size else b""
        return size

    def is_outdated(self, replicas: Iterable[Replica], *, in_turns: bool) -> bool:
        """Whether a partition has changed since it was read; `replicas` are all that were read.

        Between the partitions of a read in turns other requests write. Otherwise only a follower's fetch can change a
        log after it has read it: the follower's position advances the high watermark, this completes a coordinator's
        append, and the next request of the coordinator appends to a log that was read before. The end offsets of a
        leader's logs only grow, so their sum shows whether one of them did.
        """
        if self._follower < 0:
            return in_turns and any(map(self._has_new_end, self.results))
        ends = 0
        for replica in replicas:
            if replica.machine.role is not Role.LEADER:
                return True
            ends += replica.log.end_offset
        return ends != self._ends

    def _has_new_start(self, replica: Replica, wanted: FetchPartition) -> bool:
        """Whether the fetch session has not sent the leader's log start offset to the follower yet.

        DeleteRecords waits until the followers have it. Kafka sends it with the next response, up to
        `replica.fetch.wait.max.ms` later.
        """
        return 0 <= wanted.sent_log_start_offset < replica.log.start_offset

    def _has_new_end(self, result: Result) -> bool:
        """Whether a partition has other records for a consumer than at its read."""
        wanted, data, _ = result
        if data.error_code:
            return False
        try:
            replica = self._reader.find(wanted, ids=self._ids, leader_only=self._leader_only)
        except KafkaError:
            return True
        bounds = (replica.machine.high_watermark, replica.last_stable_offset)
        return bounds != (data.high_watermark, data.last_stable_offset)

    def available(self, replica: Replica) -> int | None:
        """The bytes that a read of one replica would return now; None if its response must not wait."""
        for wanted in self.context.partitions:
            if wanted.partition == replica.partition and wanted.topic == replica.topic:
                if self._follower >= 0 and self._has_new_start(replica, wanted):
                    return None
                try:
                    self._reader.find(wanted, ids=self._ids, leader_only=self._leader_only)
                    if self._follower >= 0 and self._reader.is_throttled(replica, self._follower):
                        return 0
                    return self._read(replica, wanted, PartitionData(), wanted.max_bytes, at_least_one=True)
                except KafkaError:
                    return None
        return 0

    def finish(self) -> m.FetchResponse | None:
        """The response for the last read; None if it is sent later."""
        return self._responder.respond(self._call, self)


def _in_order(results: list[Result]) -> list[Result]:
    """The results in the order of `ORDER`, otherwise as they are. A sort could not be interrupted."""
    parts: dict[int, list[Result]] = {}
    for result in items_of(results):
        parts.setdefault(ORDER.get(result[1].error_code, 0), []).append(result)
    return [result for place in sorted(parts) for result in parts[place]]
