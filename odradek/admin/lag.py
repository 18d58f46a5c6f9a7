"""How far groups are behind the ends of logs (Kafka: ConsumerGroupCommand.collectGroupOffsets)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.admin import offsets
from odradek.admin.client import AdminClient
from odradek.admin.group_offsets import CommittedOffset, committed_offsets_of_groups
from odradek.admin.groups import GroupDescription, MemberDescription
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition


class PartitionLag(NamedTuple):
    """A partition that a group reads. An offset that is not committed, or that no broker returns, is None."""

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    member: MemberDescription | None
    """The member to which the partition is assigned."""

    @property
    def lag(self) -> int | None:
        """Records after the committed offset; None where one of the offsets is missing."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed_offset


def group_lags(client: AdminClient, groups: Iterable[GroupDescription]) -> dict[str, list[PartitionLag] | KafkaError]:
    """The lag of each group in every partition with a committed offset or a member. Ends of logs are asked for once."""
    committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
    results: dict[str, list[PartitionLag] | KafkaError] = {}
    members: dict[str, dict[TopicPartition, MemberDescription]] = {}
    described = {group.group_id: group for group in groups}
    for group_id, found in committed_offsets_of_groups(client, list(described)).items():
        if isinstance(found, KafkaError):
            results[group_id] = found
            continue
        committed[group_id] = found
        group = described[group_id]
        members[group.group_id] = {
            (topic, partition): member
            for member in group.members
            for topic, partitions in member.assignment.items()
            for partition in partitions
        }
    read = {group_id: sorted(each.keys() | members[group_id].keys()) for group_id, each in committed.items()}
    places = {place for each in read.values() for place in each}
    ends = offsets.list_offsets(client, dict.fromkeys(sorted(places), offsets.LATEST)) if places else {}
    for group_id, partitions in read.items():
        results[group_id] = [
            PartitionLag(
                *place,
                _offset(committed[group_id].get(place)),
                _offset(ends[place]),
                members[group_id].get(place),
            )
            for place in partitions
        ]
    return results


def _offset(found: CommittedOffset | offsets.ListedOffset | KafkaError | None) -> int | None:
    return None if found is None or isinstance(found, KafkaError) else found.offset
