"""Groups: the list of all, one group with its members and lag, and the preview of a reset of its offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.admin import group_offsets, groups, lag, offset_reset, topics
from odradek.admin.client import AdminClient
from odradek.admin.groups import DEAD, EMPTY, GroupDescription
from odradek.admin.lag import PartitionLag
from odradek.admin.offset_reset import OffsetChange, Target
from odradek.console.history import ClusterHistory
from odradek.console.paging import Listing, ListPage, page_of
from odradek.console.sample import GroupSample
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

SORTS: Final[Mapping[str, Callable[[GroupSample], float | str]]] = {
    "group": lambda row: row.group_id,
    "state": lambda row: row.state,
    "members": lambda row: row.members,
    "partitions": lambda row: row.partitions,
    "lag": lambda row: -1 if row.lag is None else row.lag,
}
STATES: Final = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")
RESETS: Final = ("earliest", "latest", "current", "offset", "shift", "time")
"""Kinds of new offsets; the last three have an amount: an offset, a number of records, milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group as it is now."""

    group: GroupDescription
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        """Records after the committed offsets, of the partitions for which both offsets are known."""
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def can_be_reset(self) -> bool:
        """Whether offsets can be changed: only while the group has no members."""
        return self.group.state in (EMPTY, DEAD)


def groups_page(history: ClusterHistory, listing: Listing, *, state: str = "") -> ListPage[GroupSample]:
    """A page of the groups of the latest sample, all or those in one state."""
    sample = history.sample
    rows = [] if sample is None else [each for each in sample.groups.values() if not state or each.state == state]
    return page_of(rows, listing, lambda row: row.group_id, SORTS)


def groups_of_topic(history: ClusterHistory, topic: str) -> list[tuple[GroupSample, int | None]]:
    """The groups of the latest sample that consume a topic, with their lag there, the largest lag first."""
    sample = history.sample
    groups = () if sample is None else sample.groups.values()
    found = [(each, each.topics[topic]) for each in groups if topic in each.topics]
    return sorted(found, key=lambda each: (-(each[1] or 0), each[0].group_id))


def group_detail(client: AdminClient, group_id: str) -> GroupDetail:
    """Raises KafkaError where the group does not exist, and what the client raises."""
    described = groups.describe_groups(client, [group_id])[group_id]
    if isinstance(described, KafkaError):
        raise described
    found = lag.group_lags(client, [described])[group_id]
    if isinstance(found, KafkaError):
        raise found
    return GroupDetail(described, tuple(found))


def plan_of_reset(
    client: AdminClient, group_id: str, kind: str, amount: int = 0, only_topic: str = ""
) -> dict[TopicPartition, OffsetChange | KafkaError]:
    """What a reset would change in the partitions with a committed offset, or in all partitions of one topic.

    Raises KafkaError where the group has members.
    """
    detail = group_detail(client, group_id)
    if not detail.can_be_reset:
        reason = f"offsets can be reset only while the group has no members; its state is {detail.group.state}"
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, reason)
    committed = group_offsets.committed_offsets(client, group_id)
    places = _partitions_of(client, only_topic) if only_topic else list(committed)
    return offset_reset.plan_reset(client, places, committed, _target(client, kind, amount, places))


def reset_offsets(
    client: AdminClient, group_id: str, changes: Mapping[TopicPartition, OffsetChange]
) -> dict[TopicPartition, KafkaError | None]:
    """Commit the new offsets of a plan."""
    return group_offsets.alter_offsets(client, group_id, {place: each.new for place, each in changes.items()})


def _partitions_of(client: AdminClient, topic: str) -> list[TopicPartition]:
    described = topics.describe_topics(client, [topic])[topic]
    if isinstance(described, KafkaError):
        raise described
    return [(topic, part.partition) for part in described.partitions]


def _target(client: AdminClient, kind: str, amount: int, places: Sequence[TopicPartition]) -> Target:
    if kind == "time":
        found = offset_reset.offsets_at(client, places, amount)
        return offset_reset.to_found(found)
    targets: Mapping[str, Target] = {
        "earliest": offset_reset.to_earliest,
        "latest": offset_reset.to_latest,
        "current": offset_reset.to_current,
        "offset": offset_reset.to_offset(max(0, amount)),
        "shift": offset_reset.shift_by(amount),
    }
    if kind not in targets:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{kind!r} is none of {', '.join(RESETS)}")
    return targets[kind]
