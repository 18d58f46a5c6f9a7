"""From sub-topologies and the cluster's topics to tasks: who reads which partitions, and how wide internal topics are.

A sub-topology has as many tasks as the widest of its source topics has partitions. A repartition topic is as wide as
the widest topic upstream of it, through chains of them, unless a number was given; topics that are joined have to be
equally wide, and repartition topics follow there (InternalTopologyBuilder.topicGroups, RepartitionTopics,
CopartitionedTopicsEnforcer).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.streams.errors import MissingSourceTopicError, TopologyError
from odradek.streams.records import TaskId
from odradek.streams.topology import InternalTopic, SourceNode, Subtopology, Topology

TopicPartition = tuple[str, int]


class TaskTopics(NamedTuple):
    """What one task reads, and where its stores are logged."""

    sources: tuple[TopicPartition, ...]
    changelogs: Mapping[str, TopicPartition]
    """By store."""


class WantedTopic(NamedTuple):
    """An internal topic: how many partitions it has to have, and how it is to be set."""

    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows from a topology in a cluster."""

    subtopologies: Mapping[int, Subtopology]
    tasks: Mapping[TaskId, TaskTopics]
    repartition_topics: Mapping[str, InternalTopic]
    partitions: Mapping[str, int]
    """How many partitions each source and repartition topic has, or has to have."""
    changelogs: Mapping[str, tuple[str, int]]
    """Of each changelog topic that the application makes: its store, and how many partitions it has to have."""


def plan(topology: Topology, application_id: str, existing: Mapping[str, int]) -> Plan:
    """Work it out. `existing` has the number of partitions of each topic in the cluster.

    Raises MissingSourceTopicError where a topic is not there, TopologyError where topics do not fit together.
    """
    subtopologies = topology.subtopologies(application_id, existing)
    repartition = {name: topic for each in subtopologies.values() for name, topic in each.repartition_topics.items()}
    partitions = _source_partitions(subtopologies, repartition, existing)
    _derive(subtopologies, repartition, partitions)
    for group in topology.copartitioned:
        _align(_topics_of(topology, group, application_id, existing), repartition, partitions)
    tasks: dict[TaskId, TaskTopics] = {}
    changelogs: dict[str, tuple[str, int]] = {}
    for index, each in subtopologies.items():
        count = max((partitions[topic] for topic in each.source_topics), default=0)
        for partition in range(count):
            sources = tuple((topic, partition) for topic in each.source_topics if partition < partitions[topic])
            logged = {store: (topic, partition) for store, topic in each.changelogs.items()}
            tasks[TaskId(index, partition)] = TaskTopics(sources, logged)
        for store, topic in each.changelogs.items():
            if topic not in partitions:  # a source topic that is its store's changelog is the user's
                changelogs[topic] = store, count
    return Plan(subtopologies, tasks, repartition, partitions, changelogs)


def _source_partitions(
    subtopologies: Mapping[int, Subtopology], repartition: Mapping[str, InternalTopic], existing: Mapping[str, int]
) -> dict[str, int]:
    """What is known from the start: users' topics, and repartition topics with a number of their own."""
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
            "is started; only its internal topics are made by itself"
        )
    return found


def _derive(
    subtopologies: Mapping[int, Subtopology], repartition: Mapping[str, InternalTopic], partitions: dict[str, int]
) -> None:
    """A repartition topic without a number is as wide as the widest topic that is read to write it.

    Where topics follow from each other in a circle, as those of a foreign-key join do, what is known has to do.
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
                f"the number of partitions of {', '.join(open_topics)} follows from nothing: say one with Repartitioned"
            )


def _topics_of(topology: Topology, group: Iterable[str], application_id: str, existing: Mapping[str, int]) -> list[str]:
    topics: dict[str, None] = {}
    for name in group:
        node = topology.nodes[name]
        assert isinstance(node, SourceNode)
        topics.update(dict.fromkeys(topology.source_of(node, application_id, tuple(existing))))
    return list(topics)


def _align(topics: list[str], repartition: Mapping[str, InternalTopic], partitions: dict[str, int]) -> None:
    """Topics that are joined: those whose number is fixed have to agree, the others follow. Raises TopologyError."""
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
