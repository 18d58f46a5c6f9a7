"""Topics: the list of all, and one topic with its partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.admin import log_dirs, offsets, topics
from odradek.admin.client import AdminClient
from odradek.admin.topics import NO_LEADER, TopicDescription
from odradek.console.history import ClusterHistory
from odradek.console.paging import Listing, ListPage, page_of
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list. What is not read yet is None."""

    name: str
    internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    not_preferred: int
    records: int | None
    """The ends of its logs together: an upper bound of its records."""
    records_per_s: float | None
    size_bytes: int | None
    """Of all replicas."""


@dataclass(frozen=True, slots=True)
class PartitionDetail:
    """A partition of one topic; an offset or a size that no broker returns is None."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None
    """Of the leader's replica."""

    @property
    def problem(self) -> str:
        """Its problem in a word or two, or nothing."""
        if self.leader == NO_LEADER:
            return "offline"
        return "under-replicated" if len(self.isr) < len(self.replicas) else ""


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """A topic with its partitions."""

    name: str
    topic_id: str
    internal: bool
    replication_factor: int
    partitions: tuple[PartitionDetail, ...]

    @property
    def records(self) -> int:
        """Offsets between start and end, of the partitions whose leaders answer."""
        return sum(
            part.end_offset - part.start_offset
            for part in self.partitions
            if part.end_offset is not None and part.start_offset is not None
        )

    @property
    def size_bytes(self) -> int | None:
        """Of the leaders' replicas."""
        sizes = [part.size_bytes for part in self.partitions if part.size_bytes is not None]
        return sum(sizes) if sizes else None


HEALTH: Final[Mapping[str, Callable[[TopicRow], bool]]] = {
    "under-replicated": lambda row: row.under_replicated > 0,
    "offline": lambda row: row.offline > 0,
    "not-preferred": lambda row: row.not_preferred > 0,
}
"""Topics with a problem, by the name of the filter."""
SORTS: Final[Mapping[str, Callable[[TopicRow], float | str]]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replication_factor,
    "under-replicated": lambda row: row.under_replicated,
    "records": lambda row: row.records or 0,
    "rate": lambda row: row.records_per_s or 0,
    "size": lambda row: row.size_bytes or 0,
}


def topics_page(
    history: ClusterHistory, listing: Listing, *, internal: bool = False, health: str = ""
) -> ListPage[TopicRow]:
    """A page of the topics of the latest sample; `health` is a name in HEALTH, or empty."""
    rows = [each for each in history.derived("topics", lambda: _rows(history)) if internal or not each.internal]
    problem = HEALTH.get(health)
    if problem is not None:
        rows = [row for row in rows if problem(row)]
    return page_of(rows, listing, lambda row: row.name, SORTS)


def _rows(history: ClusterHistory) -> list[TopicRow]:
    sample = history.sample
    return [] if sample is None else [_row(history, sample.ends, each) for each in sample.topics]


def _row(history: ClusterHistory, ends: Mapping[TopicPartition, int], topic: TopicDescription) -> TopicRow:
    known = [end for part in topic.partitions if (end := ends.get((part.topic, part.partition))) is not None]
    return TopicRow(
        topic.name,
        topic.internal,
        len(topic.partitions),
        topic.replication_factor,
        sum(len(part.isr) < len(part.replicas) for part in topic.partitions),
        sum(part.leader == NO_LEADER for part in topic.partitions),
        sum(bool(part.replicas) and part.leader != part.replicas[0] for part in topic.partitions),
        sum(known) if known else None,
        history.rate_of(topic.name),
        history.disk.by_topic.get(topic.name),
    )


def topic_detail(client: AdminClient, name: str) -> TopicDetail:
    """A topic as it is now. Raises KafkaError where it does not exist, and what the client raises."""
    described = topics.describe_topics(client, [name])[name]
    if isinstance(described, KafkaError):
        raise described
    led = [(name, part.partition) for part in described.partitions if part.leader != NO_LEADER]
    starts = offsets.list_offsets(client, dict.fromkeys(led, offsets.EARLIEST)) if led else {}
    ends = offsets.list_offsets(client, dict.fromkeys(led, offsets.LATEST)) if led else {}
    sizes = _sizes(client, described)
    rows = [
        PartitionDetail(
            part.partition,
            part.leader,
            part.leader_epoch,
            part.replicas,
            part.isr,
            part.offline_replicas,
            _offset(starts.get((name, part.partition))),
            _offset(ends.get((name, part.partition))),
            sizes.get((name, part.partition)),
        )
        for part in described.partitions
    ]
    return TopicDetail(name, described.topic_id, described.internal, described.replication_factor, tuple(rows))


def _sizes(client: AdminClient, topic: TopicDescription) -> dict[TopicPartition, int]:
    """The size of each leader's replica, of the leaders that answer."""
    leaders = {(part.topic, part.partition): part.leader for part in topic.partitions}
    brokers = sorted({each for each in leaders.values() if each != NO_LEADER})
    found = {}
    for broker_id, answer in log_dirs.describe_log_dirs(client, brokers, [topic.name]).items():
        if isinstance(answer, Exception):
            continue
        for directory in answer:
            for replica in directory.replicas:
                place = (replica.topic, replica.partition)
                if leaders.get(place) == broker_id and not replica.is_future:
                    found[place] = replica.size
    return found


def _offset(found: offsets.ListedOffset | KafkaError | None) -> int | None:
    return None if found is None or isinstance(found, KafkaError) else found.offset
