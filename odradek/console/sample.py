"""One sample of a cluster: its metadata, the ends of its logs, and its groups with their lag.

It takes one Metadata request, one ListOffsets request for each leader, and for the groups one each of ListGroups,
DescribeGroups (and ConsumerGroupDescribe) and OffsetFetch for each coordinator; and DescribeConfigs where topics are
under-replicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.admin import configs, group_offsets, groups, offsets, quorum
from odradek.admin.client import AdminClient
from odradek.admin.configs import ConfigTarget, ResourceKind
from odradek.admin.controllers import KRAFT, controller_of
from odradek.admin.groups import GroupDescription, GroupListing
from odradek.admin.quorum import MetadataQuorum
from odradek.admin.topics import NO_LEADER, PartitionInfo, TopicDescription, descriptions_of
from odradek.protocol.client.errors import ClientError
from odradek.protocol.errors import KafkaError, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

MIN_ISR: Final = "min.insync.replicas"
MOST_MIN_ISR: Final = 200
"""Topics whose min.insync.replicas is read; where more are under-replicated, one broker is the cause."""
CLIENT_ERRORS = (OSError, KafkaError, ClientError, ProtocolError)
"""What a request to a cluster raises."""


class BrokerNode(NamedTuple):
    """A broker of the cluster (Kafka: Node)."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class GroupSample(NamedTuple):
    """A group at the time of a sample."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    coordinator: int | None
    epoch: int | None
    members: int
    assignment: int
    """A number that changes with the members and what is assigned to them."""
    partitions: int
    """Partitions with a committed offset."""
    lag: int | None
    """Records after the committed offsets; None where none of them is known."""
    topics: Mapping[str, int | None] = MappingProxyType({})
    """The lag in each topic with a committed offset, and None for one that only members have."""


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The cluster at one time, in the view of one broker."""

    taken_s: float
    """Seconds since the epoch."""
    cluster_id: str
    controller_id: int
    """NO_CONTROLLER without one, KRAFT where no broker can be it."""
    brokers: tuple[BrokerNode, ...]
    topics: tuple[TopicDescription, ...]
    """By name."""
    ends: Mapping[TopicPartition, int]
    """The end of each log whose leader answers."""
    groups: Mapping[str, GroupSample]
    """By id."""
    problems: tuple[str, ...] = ()
    """Parts that could not be read, in words."""
    by_name: Mapping[str, TopicDescription] = field(default_factory=dict)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """min.insync.replicas of topics that are under-replicated."""
    quorum: MetadataQuorum | None = None
    """Of the controllers, in a cluster with KRaft."""

    @property
    def partitions(self) -> Iterable[PartitionInfo]:
        """Every partition of every topic."""
        return (part for topic in self.topics for part in topic.partitions)

    @property
    def broker_ids(self) -> frozenset[int]:
        """The brokers that are alive."""
        return frozenset(each.broker_id for each in self.brokers)


def take_sample(client: AdminClient, now_s: float) -> ClusterSample:
    """Read the cluster. Raises what the client raises where no broker returns metadata; of the rest it notes errors."""
    metadata = client.call(client.metadata)
    found = tuple(descriptions_of(metadata))
    problems: list[str] = []
    leaders = {(part.topic, part.partition): part.leader for topic in found for part in topic.partitions}
    ends = _ends(client, leaders, problems)
    found_groups = _groups(client, ends, problems)
    min_isr = _min_isr(client, found, problems)
    controller = controller_of(client, metadata)
    return ClusterSample(
        now_s,
        metadata.cluster_id or "",
        controller,
        tuple(sorted(BrokerNode(each.node_id, each.host, each.port, each.rack) for each in metadata.brokers)),
        found,
        ends,
        found_groups,
        tuple(problems),
        {topic.name: topic for topic in found},
        min_isr,
        _quorum(client, problems) if controller == KRAFT else None,
    )


def _quorum(client: AdminClient, problems: list[str]) -> MetadataQuorum | None:
    try:
        return client.call(lambda: quorum.describe_quorum(client))
    except CLIENT_ERRORS as error:
        problems.append(f"the quorum of controllers cannot be read: {error}")
        return None


def _ends(client: AdminClient, leaders: Mapping[TopicPartition, int], problems: list[str]) -> dict[TopicPartition, int]:
    led = {place: leader for place, leader in leaders.items() if leader != NO_LEADER}
    if not led:
        return {}
    try:
        results = offsets.list_offsets(client, dict.fromkeys(led, offsets.LATEST), leaders=led)
    except CLIENT_ERRORS as error:
        problems.append(f"the ends of logs cannot be read: {error}")
        return {}
    return {place: each.offset for place, each in results.items() if not isinstance(each, KafkaError)}


def _min_isr(client: AdminClient, found: Iterable[TopicDescription], problems: list[str]) -> dict[str, int]:
    """min.insync.replicas of the topics that have a partition with fewer in-sync replicas than replicas."""
    names = [each.name for each in found if any(len(part.isr) < len(part.replicas) for part in each.partitions)]
    targets = [ConfigTarget(ResourceKind.TOPIC, name) for name in names[:MOST_MIN_ISR]]
    if not targets:
        return {}
    try:
        described = configs.describe_configs(client, targets, [MIN_ISR])
    except CLIENT_ERRORS as error:
        problems.append(f"configs of under-replicated topics cannot be read: {error}")
        return {}
    return {
        target.name: int(entry.value)
        for target, entries in described.items()
        if not isinstance(entries, KafkaError)
        for entry in entries
        if entry.value is not None and entry.value.isdigit()
    }


def _groups(client: AdminClient, ends: Mapping[TopicPartition, int], problems: list[str]) -> dict[str, GroupSample]:
    try:
        listed = groups.list_groups(client)
        problems += [f"broker {broker} does not list its groups: {error}" for broker, error in listed.errors.items()]
        names = [each.group_id for each in listed.groups]
        described = groups.describe_groups(client, names) if names else {}
        committed = group_offsets.committed_offsets_of_groups(client, names) if names else {}
    except CLIENT_ERRORS as error:
        problems.append(f"groups cannot be read: {error}")
        return {}
    found = {}
    for each in listed.groups:
        description, offsets_of_group = described[each.group_id], committed[each.group_id]
        known = {} if isinstance(offsets_of_group, KafkaError) else offsets_of_group
        behind = {place: max(0, ends[place] - commit.offset) for place, commit in known.items() if place in ends}
        lag = sum(behind.values()) if behind else None
        found[each.group_id] = _group(each, description, len(known), lag, _topics(description, known, behind))
    return found


def _group(
    listed: GroupListing,
    described: GroupDescription | KafkaError,
    partitions: int,
    lag: int | None,
    topics: Mapping[str, int | None],
) -> GroupSample:
    if isinstance(described, KafkaError):
        return GroupSample(
            listed.group_id, listed.type, listed.protocol_type, listed.state, None, None, 0, 0, partitions, lag, topics
        )
    assignment = hash(
        tuple((member.member_id, tuple(sorted(member.assignment.items()))) for member in described.members)
    )
    return GroupSample(
        listed.group_id,
        described.type,
        described.protocol_type,
        described.state,
        described.coordinator,
        described.epoch,
        len(described.members),
        assignment,
        partitions,
        lag,
        topics,
    )


def _topics(
    described: GroupDescription | KafkaError, known: Iterable[TopicPartition], behind: Mapping[TopicPartition, int]
) -> dict[str, int | None]:
    """The lag of a group in each of its topics."""
    members = () if isinstance(described, KafkaError) else described.members
    found: dict[str, int | None] = {topic: None for member in members for topic in member.assignment}
    for place in known:
        found[place[0]] = (found.get(place[0]) or 0) + behind.get(place, 0)
    return found
