"""Samples of clusters that tests make by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.admin.topics import PartitionInfo, TopicDescription
from odradek.console.sample import BrokerNode, ClusterSample, GroupSample


def partition(
    topic: str, number: int, *, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3)
) -> PartitionInfo:
    return PartitionInfo(topic, number, leader, 1, replicas, isr, ())


def topic(name: str, *partitions: PartitionInfo, topic_id: str = "id", internal: bool = False) -> TopicDescription:
    return TopicDescription(name, topic_id, internal, partitions or (partition(name, 0),))


def group(
    group_id: str, *, state: str = "Stable", members: int = 1, assignment: int = 1, lag: int | None = 0
) -> GroupSample:
    return GroupSample(group_id, "classic", "consumer", state, 1, None, members, assignment, 1, lag)


def sample(
    taken_s: float,
    *topics: TopicDescription,
    ends: Mapping[tuple[str, int], int] | None = None,
    groups: Iterable[GroupSample] = (),
    brokers: Iterable[int] = (1, 2, 3),
    controller: int = 1,
    min_isr: Mapping[str, int] | None = None,
) -> ClusterSample:
    return ClusterSample(
        taken_s,
        "cluster",
        controller,
        tuple(BrokerNode(each, "localhost", 9090 + each, None) for each in brokers),
        topics,
        ends if ends is not None else {(part.topic, part.partition): 0 for each in topics for part in each.partitions},
        {each.group_id: each for each in groups},
        (),
        {each.name: each for each in topics},
        min_isr or {},
    )
