"""Topic groups: derives tasks, their partitions and the partition counts of internal topics from the topology.

A sub-topology has as many tasks as the largest partition count of its source topics. A repartition topic has the
largest partition count of the topics upstream of it, through chains of them, unless a number was given; topics that are
joined must have equal partition counts, and repartition topics adopt theirs (InternalTopologyBuilder.topicGroups,
RepartitionTopics, CopartitionedTopicsEnforcer).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import MissingSourceTopicError, TopologyError
from odradek.streams.records import TaskId
from odradek.streams.topology import InternalTopic, SourceNode, Subtopology, Topology


class TaskTopics(NamedTuple):
    """The source partitions of one task, and the changelog partitions of its stores."""

    sources: tuple[TopicPartition, ...]
    changelogs: Mapping[str, TopicPartition]
    """By store."""


class WantedTopic(NamedTuple):
    """An internal topic: its required partition count, and its configs."""

    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks and topics of a topology in a cluster."""

    subtopologies: Mapping[int, Subtopology]
    tasks: Mapping[TaskId, TaskTopics]
    repartition_topics: Mapping[str, InternalTopic]
    partitions: Mapping[str, int]
    """The existing or required partition count of each source and repartition topic."""
    changelogs: Mapping[str, TopicPartition]
    """For each changelog topic that the application creates: its store, and its required partition count."""


def plan(topology: Topology, application_id: str, existing: Mapping[str, int]) -> Plan:
    """Derive the plan. `existing` has the partition count of each topic in the cluster.

    Raises MissingSourceTopicError for a missing source topic, TopologyError where partition counts do not match.
    """
    subtopologies = topology.subtopologies(application_id, existing)
    repartition = {name: topic for each in subtopologies.values() for name, topic in each.repartition_topics.items()}
    partitions = _source_partitions(subtopologies, repartition, existing)
    _derive(subtopologies, repartition, partitions)
    _align_all(topology, application_id, existing, repartition, partitions)
    tasks: dict[TaskId, TaskTopics] = {}
    changelogs: dict[str, TopicPartition] = {}
    for index, each in subtopologies.items():
        count = max((partitions[topic] for topic in each.source_topics), default=0)
        for partition in range(count):
            sources = tuple((topic, partition) for topic in each.source_topics if partition < partitions[topic])
            logged = {store: (topic, partition) for store, topic in each.changelogs.items()}
            tasks[TaskId(index, partition)] = TaskTopics(sources, logged)
        for store, topic in each.changelogs.items():
            if topic not in partitions:  # a source topic that is its store's changelog belongs to the user
                changelogs[topic] = store, count
    return Plan(subtopologies, tasks, repartition, partitions, changelogs)


def _source_partitions(
    subtopologies: Mapping[int, Subtopology], repartition: Mapping[str, InternalTopic], existing: Mapping[str, int]
) -> dict[str, int]:
    """The given partition counts: users' topics, and repartition topics with an explicit number."""
    found: dict[str, int] = {}
    missing = []
    for each in subtopologies.values():
        for topic in each.source_topics:
            if topic in repartition:
                given = repartition[topic].partitions
                if given is not None:
                    found[topic] = given
            elif topic in existing:
                found[topic] = existing[topic]
            else:
                missing.append(topic)
    if missing:
        raise MissingSourceTopicError(
            f"source topics that do not exist: {', '.join(sorted(set(missing)))}. Create them before the application "
            "is started; it creates only its internal topics"
        )
    return found


def _derive(
    subtopologies: Mapping[int, Subtopology], repartition: Mapping[str, InternalTopic], partitions: dict[str, int]
) -> None:
    """A repartition topic without a number gets the largest partition count of the topics upstream of it.

    Where topics depend on each other in a cycle, as those of a foreign-key join do, the known counts decide.
    """
    open_topics = [topic for topic in repartition if topic not in partitions]
    some_will_do = False
    while open_topics:
        before = len(open_topics)
        for topic in list(open_topics):
            upstream = {
                source for each in subtopologies.values() if topic in each.sink_topics for source in each.source_topics
            }
            known = upstream & partitions.keys()
            if known and (some_will_do or known == upstream):
                partitions[topic] = max(partitions[source] for source in known)
                open_topics.remove(topic)
                some_will_do = False
        if len(open_topics) == before and not some_will_do:
            some_will_do = True
        elif len(open_topics) == before:
            raise TopologyError(
                f"the number of partitions of {', '.join(open_topics)} cannot be derived: set it with Repartitioned"
            )


def _topics_of(topology: Topology, group: Iterable[str], application_id: str, existing: Mapping[str, int]) -> list[str]:
    topics: dict[str, None] = {}
    for name in group:
        node = topology.nodes[name]
        assert isinstance(node, SourceNode)
        topics.update(dict.fromkeys(topology.source_of(node, application_id, tuple(existing))))
    return list(topics)


def _align_all(
    topology: Topology,
    application_id: str,
    existing: Mapping[str, int],
    repartition: Mapping[str, InternalTopic],
    partitions: dict[str, int],
) -> None:
    """Align the partition counts of each group of topics. Raises TopologyError with a line for each that differs."""
    problems: dict[str, None] = {}
    for group in topology.copartitioned:
        try:
            _align(_topics_of(topology, group, application_id, existing), repartition, partitions)
        except TopologyError as error:
            problems[str(error)] = None
    if problems:
        raise TopologyError("\n".join(problems))


def _align(topics: list[str], repartition: Mapping[str, InternalTopic], partitions: dict[str, int]) -> None:
    """Co-partitioned topics: fixed partition counts have to agree, the others adopt them. Raises TopologyError."""
    fixed = {
        topic: partitions[topic]
        for topic in topics
        if topic not in repartition or repartition[topic].partitions is not None
    }
    counts = ", ".join(f"{topic} has {count}" for topic, count in sorted(fixed.items()))
    if len(set(fixed.values())) > 1:
        raise TopologyError(
            f"Topics not co-partitioned: [{','.join(sorted(fixed))}]: {counts}. Topics that are joined need the same "
            "number of partitions: repartition() one of them"
        )
    count = next(iter(fixed.values()), None) or max(partitions[topic] for topic in topics)
    for topic in topics:
        partitions[topic] = count
