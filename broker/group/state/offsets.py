"""Committed offsets of one group: staged, durable, transactional, expired (Kafka: OffsetMetadataManager).

An offset is staged when its record is appended and becomes visible when that record is durable. Two commits of one
partition may be pending at once, and offsets of a transaction become visible only with its marker. So each commit has
its position in the order of the log, and the later position wins in any order of the outcomes (Kafka's
CommitRecordMetadataAndOffset). Kafka stores only the newest pending commit: when it is refused, an older one is
acknowledged and its offset is lost; here each is stored until its outcome is final. A partition with a pending commit,
plain or transactional, is unstable (KIP-447) and does not expire (KAFKA-13636).

Expiration follows KIP-211:

| group                                  | an offset expires when its retention has passed since   |
|----------------------------------------|---------------------------------------------------------|
| Empty, had members before              | the group became empty (or the commit, where unknown)   |
| Stable, consumers                      | the commit, and no member subscribes to the topic       |
| never had members (simple consumer)    | the commit                                              |
| anything else                          | never                                                   |

A commit of versions 2 to 4 may have its own retention, which is stored as its expiration time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from odradek.broker.runtime.state.effects import KeyValue
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

Value = TypeVar("Value")

next_position: Final = count(1).__next__
"""Returns the next position in the order of commits. All groups share it, so that one position is before the later
commits of every group.
"""
NO_EPOCH = -1
NO_EXPIRY = -1
NO_OFFSET = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset. Times are milliseconds since 1970; `expire_ms` of -1: the broker's retention applies."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY


class CommitRequest(NamedTuple):
    """An OffsetCommit request; generation -1 without a member id is a consumer that assigns partitions itself."""

    member_id: str
    instance_id: str | None
    generation: int
    entries: list[tuple[TopicPartition, OffsetAndMetadata]]
    knows_member_epochs: bool = True
    """The generation may be a member epoch (OffsetCommit 9)."""
    records: list[KeyValue] | None = None
    """The record of each entry, where the request is large: they are encoded in parts, before the group checks it."""


class FetchedOffset(NamedTuple):
    """The answer for one partition; `committed` is None when there is no offset, or when it must not be returned."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    error: ErrorCode = ErrorCode.NONE


class Stage(NamedTuple):
    """Commits whose records have been appended and are not yet durable; `producer_id` is None outside transactions."""

    order: int
    entries: list[tuple[TopicPartition, OffsetAndMetadata]]
    producer_id: int | None = None


class Removed(NamedTuple):
    """The result of a removal: the partitions that need a tombstone, and all values that `restore` needs."""

    partitions: tuple[TopicPartition, ...] = ()
    committed: Mapping[TopicPartition, tuple[int, OffsetAndMetadata]] = MappingProxyType({})
    staged: Mapping[TopicPartition, dict[int, OffsetAndMetadata]] = MappingProxyType({})
    staged_in_transaction: Mapping[TopicPartition, dict[int, OffsetAndMetadata]] = MappingProxyType({})
    by_producer: Mapping[int, dict[TopicPartition, tuple[int, OffsetAndMetadata]]] = MappingProxyType({})


class Offsets:
    """The offsets of one group."""

    __slots__ = ("_by_producer", "_committed", "_order", "_staged", "_staged_in_transaction", "_tombstones")

    def __init__(self) -> None:
        self._order = 0
        self._committed: dict[TopicPartition, tuple[int, OffsetAndMetadata]] = {}
        # partition -> position -> commit whose outcome is open, outside of transactions and within
        self._staged: dict[TopicPartition, dict[int, OffsetAndMetadata]] = {}
        self._staged_in_transaction: dict[TopicPartition, dict[int, OffsetAndMetadata]] = {}
        # producer id -> partition -> (position, durable commit), until the marker
        self._by_producer: dict[int, dict[TopicPartition, tuple[int, OffsetAndMetadata]]] = {}
        # partition with an offset in an open transaction -> the position of the last tombstone
        self._tombstones: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def in_use(self) -> bool:
        """Whether there is a commit, durable or pending."""
        return bool(self._committed or self._staged or self._staged_in_transaction or self._by_producer)

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The durable commit of a partition."""
        found = self._committed.get(partition)
        return found[1] if found is not None else None

    def items(self) -> list[tuple[TopicPartition, OffsetAndMetadata]]:
        """Every durable commit."""
        return [(partition, committed) for partition, (_, committed) in self._committed.items()]

    @property
    def count(self) -> int:
        """The number of partitions with a durable commit."""
        return len(self._committed)

    def partitions(self) -> list[TopicPartition]:
        """The partitions with a durable commit."""
        return list(self._committed)

    def stage(self, entries: list[tuple[TopicPartition, OffsetAndMetadata]], producer_id: int | None = None) -> Stage:
        """Stage commits that are being appended; pass the stage to `finish` when the outcome is final."""
        self._order = next_position()
        staged = self._staged if producer_id is None else self._staged_in_transaction
        for partition, committed in entries:
            staged.setdefault(partition, {})[self._order] = committed
        return Stage(self._order, entries, producer_id)

    def put(self, entries: list[tuple[TopicPartition, OffsetAndMetadata]]) -> None:
        """Apply commits whose records are durable, and behind all others in the log."""
        self._order = order = next_position()
        for partition, committed in entries:
            self._committed[partition] = (order, committed)

    def latest(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The last commit of each partition in the log outside of open transactions, durable or not."""
        found = dict(self._committed)
        for partition, places in self._staged.items():
            order = max(places)
            _put_newer(found, partition, order, places[order])
        return {partition: committed for partition, (_, committed) in found.items()}

    def finish(self, stage: Stage, durable: bool) -> None:
        """Apply a stage whose records are durable, or drop it when they were refused."""
        order, entries, producer_id = stage
        staged = self._staged if producer_id is None else self._staged_in_transaction
        commits = self._committed
        if producer_id is not None and durable and entries:
            commits = self._by_producer.setdefault(producer_id, {})
        for partition, committed in dict(entries).items():  # the last of several entries of a partition is valid
            places = staged.get(partition)
            if places is None or places.pop(order, None) is None:
                continue  # removed since, with its topic
            if not places:
                del staged[partition]
            if durable:  # as `_put_newer` does, without 20,000 calls for a large commit
                current = commits.get(partition)
                if current is None or current[0] <= order:
                    commits[partition] = (order, committed)
        if producer_id is not None and durable and not commits:
            self._by_producer.pop(producer_id, None)

    def replay(
        self, partition: TopicPartition, committed: OffsetAndMetadata | None, producer_id: int | None = None
    ) -> None:
        """Apply one record of the log; None is a tombstone. A commit that has become durable uses the same code."""
        if committed is not None:
            self.finish(self.stage([(partition, committed)], producer_id), durable=True)
        elif producer_id is None:
            self._committed.pop(partition, None)
            self._note_tombstones([partition])
        else:
            self._drop_pending(producer_id, partition)

    def complete(self, producer_id: int, commit: bool) -> None:
        """Apply the marker that ends a producer's transaction."""
        pending = self._by_producer.pop(producer_id, {})
        if commit:
            for partition, (order, committed) in pending.items():
                _put_newer(self._committed, partition, order, committed)
        for partition in [each for each in self._tombstones if not self._in_transaction(each)]:
            del self._tombstones[partition]

    def overtaken(self, producer_id: int) -> list[tuple[TopicPartition, OffsetAndMetadata]]:
        """The offsets of an open transaction that precede a tombstone in the log.

        They become valid when the transaction commits, but compaction removes them because of the tombstone.
        """
        return [
            (partition, committed)
            for partition, (order, committed) in self._by_producer.get(producer_id, {}).items()
            if order < self._tombstones.get(partition, 0)
        ]

    def fetch(self, partitions: Iterable[TopicPartition], require_stable: bool) -> list[FetchedOffset]:
        """The commits of these partitions."""
        return [
            FetchedOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if require_stable and self.is_unstable(partition)
            else FetchedOffset(partition, self.get(partition))
            for partition in partitions
        ]

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit of this partition is pending, so that the durable one may soon be out of date."""
        return partition in self._staged or self._in_transaction(partition)

    def remove(self, partitions: Iterable[TopicPartition] | None = None, *, pending: bool = False) -> Removed:
        """Remove these partitions (None: all), with pending commits outside of transactions.

        Offsets of an open transaction are not committed yet: their commit, if any, follows this removal. Only `pending`
        removes those, too. Returns the partitions with a record that is or may become part of the log, which need a
        tombstone; `restore` undoes the removal.
        """
        if partitions is None and not (self._staged or self._by_producer or self._staged_in_transaction):
            committed, self._committed = self._committed, {}
            return Removed(tuple(committed), committed)
        wanted = list(dict.fromkeys([*self._committed, *self._staged] if partitions is None else partitions))
        removed = Removed(
            tuple(each for each in wanted if each in self._committed or each in self._staged),
            _pop_all(self._committed, wanted),
            _pop_all(self._staged, wanted),
            _pop_all(self._staged_in_transaction, wanted) if pending else {},
            {producer_id: _pop_all(offsets, wanted) for producer_id, offsets in self._by_producer.items()}
            if pending
            else {},
        )
        for producer_id in [each for each, offsets in self._by_producer.items() if not offsets]:
            del self._by_producer[producer_id]
        self._note_tombstones(removed.partitions)
        return removed

    def among(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Those of the partitions that may have an offset, found in the smaller of both collections."""
        own: list[Collection[TopicPartition]] = [self._committed, self._staged, self._staged_in_transaction]
        own += self._by_producer.values()
        if len(partitions) <= sum(map(len, own)):
            return partitions
        return dict.fromkeys(each for entries in own for each in entries if each in partitions)

    def unchanged_since(self, position: int, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions that have no commit behind this position."""
        if self._order < position:
            return partitions
        return [partition for partition in partitions if self._newest(partition) < position]

    def _newest(self, partition: TopicPartition) -> int:
        commits = (self._committed, *self._by_producer.values())
        positions = [found[0] for found in (each.get(partition) for each in commits) if found is not None]
        for staged in (self._staged, self._staged_in_transaction):
            positions += staged.get(partition, ())
        return max(positions, default=0)

    def restore(self, removed: Removed) -> None:
        """Undo a removal: the log has refused its tombstones."""
        for partition, (order, committed) in removed.committed.items():
            _put_newer(self._committed, partition, order, committed)
        for ours, theirs in (
            (self._staged, removed.staged),
            (self._staged_in_transaction, removed.staged_in_transaction),
        ):
            for partition, places in theirs.items():
                ours.setdefault(partition, {}).update(places)
        for producer_id, offsets in removed.by_producer.items():
            for partition, (order, committed) in offsets.items():
                _put_newer(self._by_producer.setdefault(producer_id, {}), partition, order, committed)

    def _note_tombstones(self, partitions: Iterable[TopicPartition]) -> None:
        held = [partition for partition in partitions if self._in_transaction(partition)]
        if held:
            self._order = next_position()
            self._tombstones.update(dict.fromkeys(held, self._order))

    def _in_transaction(self, partition: TopicPartition) -> bool:
        return partition in self._staged_in_transaction or any(
            partition in offsets for offsets in self._by_producer.values()
        )

    def expire(
        self,
        now_ms: int,
        retention_ms: int,
        base_ms: int | None,
        kept: Callable[[Iterable[str]], set[str]] | None = None,
        among: Iterable[TopicPartition] | None = None,
    ) -> Removed:
        """Remove offsets whose retention has passed, counted from `base_ms` (None: from each commit), of all partitions
        or those `among`. Returns them.

        `kept` returns those of some topics whose offsets are not removed; it is called where there are expired ones.
        """
        commits = self._committed
        expired = [
            partition
            for partition in (commits if among is None else among)
            if (found := commits.get(partition)) is not None
            and (
                now_ms >= found[1].expire_ms
                if found[1].expire_ms != NO_EXPIRY
                else now_ms - (found[1].commit_ms if base_ms is None else base_ms) >= retention_ms
            )
            and not self.is_unstable(partition)
        ]
        if kept is not None and expired:
            topics = kept({topic for topic, _ in expired})
            expired = [partition for partition in expired if partition[0] not in topics]
        return self.remove(expired)

    def _drop_pending(self, producer_id: int, partition: TopicPartition) -> None:
        transaction = self._by_producer.get(producer_id, {})
        transaction.pop(partition, None)
        if not transaction:
            self._by_producer.pop(producer_id, None)


def _pop_all(entries: dict[TopicPartition, Value], partitions: list[TopicPartition]) -> dict[TopicPartition, Value]:
    return {partition: entries.pop(partition) for partition in partitions if partition in entries}


def _put_newer(
    commits: dict[TopicPartition, tuple[int, OffsetAndMetadata]],
    partition: TopicPartition,
    order: int,
    committed: OffsetAndMetadata,
) -> None:
    current = commits.get(partition)
    # One request may contain a partition twice, at one position of the log; then the last entry is valid.
    if current is None or current[0] <= order:
        commits[partition] = (order, committed)
