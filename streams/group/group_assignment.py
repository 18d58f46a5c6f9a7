"""Group assignment: turns the members' subscriptions into their assignments. Pure, without I/O.

It connects the membership (bytes by member) with the assignor (tasks by thread), as StreamsPartitionAssignor does in
Kafka Streams. The leader has created the internal topics and fetched the end offsets of changelogs (`leadership.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.group.assignor import AssignmentConfig, assign
from odradek.streams.group.assignor_threads import Thread
from odradek.streams.group.group_protocol import Assignments, MemberSubscription
from odradek.streams.group.subscription_info import (
    RUNNING,
    SHUTDOWN_REQUESTED,
    UNKNOWN_POSITION,
    AssignmentInfo,
    HostPartitions,
    Hosts,
    SubscriptionInfo,
    encode_hosts,
)
from odradek.streams.records import TaskId


class TaskPartitions(NamedTuple):
    """The source partitions of a task, and the changelogs of its stores. Without changelogs it has no state to move."""

    sources: tuple[TopicPartition, ...]
    changelogs: tuple[TopicPartition, ...] = ()


class Timing(NamedTuple):
    """The current time and probing.rebalance.interval.ms, both in ms."""

    now_ms: int
    probing_rebalance_interval_ms: int


def assign_group(
    members: Mapping[str, MemberSubscription],
    tasks: Mapping[TaskId, TaskPartitions],
    end_offsets: Mapping[TopicPartition, int] | None,
    config: AssignmentConfig,
    timing: Timing,
) -> Assignments:
    """The assignment of every member.

    `end_offsets` has the end offsets of the changelogs (a partition without an entry is empty), or is None where no
    broker returned them: then tasks stay on their owners as far as the shares allow, and the leader assigns again after
    the interval. All members receive the time of that rebalance; the leader alone requests it. If one member requests a
    shutdown of the application, all members receive the shutdown code. Raises StreamsError for a subscription of
    another kind of application.
    """
    infos = {name: SubscriptionInfo.decode(members[name].userdata) for name in sorted(members)}
    if any(info.error == SHUTDOWN_REQUESTED for info in infos.values()):
        return refuse(members, SHUTDOWN_REQUESTED)
    ends = end_offsets or {}
    stateful = {
        task: sum(ends.get(changelog, 0) for changelog in topics.changelogs)
        for task, topics in tasks.items()
        if topics.changelogs
    }
    threads = {
        name: Thread(
            info.process_id,
            info.active,
            info.standby,
            {task: lag_of(position, stateful[task]) for task, position in info.positions.items() if task in stateful},
            info.tags,
        )
        for name, info in infos.items()
    }
    placement = assign(stateful, [task for task in tasks if task not in stateful], threads, config)
    again_ms = 0
    if placement.probing or end_offsets is None:
        again_ms = timing.now_ms + timing.probing_rebalance_interval_ms
    hosts = encode_hosts(_hosts(infos, placement.active, placement.standby, tasks))
    given = {}
    for name in infos:
        info = AssignmentInfo(tuple(placement.active[name]), tuple(placement.standby[name]), next_rebalance_ms=again_ms)
        given[name] = (_sources(placement.active[name], tasks), info.encode(hosts))
    return given


def refuse(members: Iterable[str], error: int) -> Assignments:
    """An assignment without tasks for every member, with an error code of `subscription_info`."""
    userdata = AssignmentInfo(error=error).encode()
    return {name: ([], userdata) for name in members}


def lag_of(position: int, size: int) -> int:
    """How many records state at `position` is behind a changelog with `size` of them."""
    if position == RUNNING:
        return 0
    if position == UNKNOWN_POSITION or position > size:  # beyond the end offset: the topic was created anew
        return size
    return size - position


def _sources(tasks: Iterable[TaskId], topics: Mapping[TaskId, TaskPartitions]) -> list[TopicPartition]:
    return sorted({partition for task in tasks for partition in topics[task].sources})


def _hosts(
    infos: Mapping[str, SubscriptionInfo],
    active: Mapping[str, list[TaskId]],
    standby: Mapping[str, list[TaskId]],
    tasks: Mapping[TaskId, TaskPartitions],
) -> Hosts:
    """By endpoint, the partitions of its tasks; as in Kafka, a standby task is described by partitions, too."""
    found: dict[str, tuple[dict[str, set[int]], dict[str, set[int]]]] = {}
    for name, info in infos.items():
        if not info.endpoint:
            continue
        host = found.setdefault(info.endpoint, ({}, {}))
        for partitions, own in zip(host, (active[name], standby[name]), strict=True):
            for topic, partition in _sources(own, tasks):
                partitions.setdefault(topic, set()).add(partition)
    return {
        endpoint: HostPartitions(
            {topic: frozenset(numbers) for topic, numbers in run.items()},
            {topic: frozenset(numbers) for topic, numbers in stand.items()},
        )
        for endpoint, (run, stand) in found.items()
    }
