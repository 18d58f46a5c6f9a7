"""Group leader: creates missing internal topics and assigns the tasks (Kafka: StreamsPartitionAssignor).

The leader derives the tasks (`topic_groups.py`), creates internal topics (`internal_topics.py`), fetches the end
offsets of changelogs and calls the pure `assignor.py`, or the assignor of `task.assignor.class` (`task_assignment.py`);
with a rack.aware.assignment.strategy that is Java's default assignor, if there is no other. For an application that
cannot run, the leader sends an assignment with an error code, so that every instance reports the error and not only the
leader's (AssignorError).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka.admin import AdminClient

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.assignment.application_state import NONE, AssignmentConfigs
from odradek.streams.assignment.high_availability import HighAvailabilityTaskAssignor
from odradek.streams.assignment.task_assignor import TaskAssignmentError, TaskAssignor
from odradek.streams.config import StreamsConfig
from odradek.streams.errors import MissingSourceTopicError, StreamsError
from odradek.streams.group.assignor import AssignmentConfig, assign
from odradek.streams.group.assignor_threads import Thread
from odradek.streams.group.group_protocol import MemberSubscription
from odradek.streams.group.subscription_info import (
    ASSIGNMENT_ERROR,
    INCOMPLETE_SOURCE_TOPIC_METADATA,
    RUNNING,
    SHUTDOWN_REQUESTED,
    UNKNOWN_POSITION,
    AssignmentInfo,
    HostPartitions,
    SubscriptionInfo,
    encode_hosts,
)
from odradek.streams.records import TaskId
from odradek.streams.running.client import high_watermarks
from odradek.streams.running.internal_topics import InternalTopics, wanted_topics
from odradek.streams.running.replica_racks import ReplicaRacks
from odradek.streams.running.task_assignment import AssignorRun, Members, Placed, application_state, without_lags
from odradek.streams.running.topic_groups import Plan, plan
from odradek.streams.topology import Topology

log = logging.getLogger(__name__)

Given = dict[str, tuple[list[TopicPartition], bytes]]
_TOPICS_TIMEOUT_S: Final = 60.0
_RETRY_BACKOFF_S: Final = 0.1
"""The default of retry.backoff.ms of Kafka's clients."""


class GroupLeader:
    """Assigns tasks to the members of a group. Any thread may become the leader."""

    def __init__(self, topology: Topology, config: StreamsConfig, admin: AdminClient) -> None:
        self._topology = topology
        self._config = config
        self._admin = admin
        self._topics = InternalTopics(admin, config["replication.factor"], _TOPICS_TIMEOUT_S)
        self._assignor_config = AssignmentConfig(
            config["num.standby.replicas"],
            config["acceptable.recovery.lag"],
            config["max.warmup.replicas"],
            tuple(config["rack.aware.assignment.tags"]),
        )
        self._assignor: TaskAssignor | None = config["task.assignor.class"]
        if self._assignor is None and config["rack.aware.assignment.strategy"] != NONE:
            self._assignor = HighAvailabilityTaskAssignor()
        self._seen: Mapping[str, int] | None = None
        """The partition counts of the source topics at the last assignment."""

    def assign(self, members: dict[str, MemberSubscription]) -> Given:
        """Assign all tasks. Raises StreamsError for errors of this instance alone; all members receive the others as a
        code.
        """
        if any(SubscriptionInfo.decode(each.userdata).error == SHUTDOWN_REQUESTED for each in members.values()):
            log.error("an instance has requested the shutdown of the whole application")
            return _to_all(members, SHUTDOWN_REQUESTED)
        existing = self._topics.partitions()
        try:
            found = plan(self._topology, self._config["application.id"], existing)
            made = self._topics.make_ready(wanted_topics(self._topology, found, self._config))
        except MissingSourceTopicError as error:
            log.error("cannot assign tasks without all source topics error=%s", error)
            return _to_all(members, INCOMPLETE_SOURCE_TOPIC_METADATA, str(error))
        except StreamsError as error:
            log.error("cannot assign tasks error=%s", error)
            return _to_all(members, ASSIGNMENT_ERROR, str(error))
        self._seen = self._source_partitions(existing)
        try:
            return self._place(found, members, made)
        except TaskAssignmentError as error:
            log.error("cannot assign tasks error=%s", error)
            return _to_all(members, ASSIGNMENT_ERROR, str(error))

    def topics_have_changed(self) -> bool:
        """Whether source topics were created, deleted or expanded since the last assignment. Raises StreamsError."""
        return self._seen is not None and self._source_partitions(self._topics.partitions()) != self._seen

    # ---- internals

    def _source_partitions(self, existing: Mapping[str, int]) -> dict[str, int]:
        application_id = self._config["application.id"]
        internal = {self._topology.cluster_name(name, application_id) for name in self._topology.internal_topics}
        return {
            topic: existing.get(topic, 0)
            for each in self._topology.subtopologies(application_id, existing).values()
            for topic in each.source_topics
            if topic not in internal
        }

    def _place(self, found: Plan, subscriptions: dict[str, MemberSubscription], made: set[str]) -> Given:
        logged = {task: list(topics.changelogs.values()) for task, topics in found.tasks.items() if topics.changelogs}
        wanted = {place for places in logged.values() for place in places if place[0] not in made}
        ends: dict[TopicPartition, int] | None = None
        try:
            ends = end_offsets(self._admin, wanted, self._timeout_s)
        except StreamsError as error:
            log.warning("assigning tasks without the end offsets of changelogs error=%s", error)
        infos = {name: SubscriptionInfo.decode(subscriptions[name].userdata) for name in sorted(subscriptions)}
        sizes = {task: sum((ends or {}).get(place, 0) for place in places) for task, places in logged.items()}
        threads = {
            name: Thread(info.process_id, info.active, info.standby, _lags(info, sizes), info.tags)
            for name, info in infos.items()
        }
        if self._assignor is not None:
            members = Members(subscriptions, infos, threads)
            return self._run_assignor(self._assignor, found, members, None if ends is None else sizes)
        placement = assign(sizes, [task for task in found.tasks if task not in sizes], threads, self._assignor_config)
        probe = self._probing_time() if placement.probing or ends is None else 0
        return _encode(found, infos, Placed(placement.active, placement.standby, probe))

    def _run_assignor(
        self, assignor: TaskAssignor, found: Plan, members: Members, sizes: Mapping[TaskId, int] | None
    ) -> Given:
        topics = {place[0] for each in found.tasks.values() for place in (*each.sources, *each.changelogs.values())}
        racks = ReplicaRacks(self._admin, topics, self._timeout_s)
        state = application_state(AssignmentConfigs.of(self._config), found, members, sizes, racks)
        chosen = without_lags(assignor) if sizes is None else assignor
        run = AssignorRun(chosen, members)
        placed = run.place(state, [task for task, each in found.tasks.items() if each.changelogs])
        if chosen is not assignor:
            placed = placed._replace(next_rebalance_ms=self._probing_time())
        given = _encode(found, members.infos, placed)
        run.report(given)
        return given

    def _probing_time(self) -> int:
        return int(time.time() * 1000) + int(self._config["probing.rebalance.interval.ms"])

    @property
    def _timeout_s(self) -> float:
        return float(self._config["request.timeout.ms"]) / 1000


def end_offsets(admin: AdminClient, places: set[TopicPartition], timeout_s: float) -> dict[TopicPartition, int]:
    """The current end offsets of partitions. Raises StreamsError.

    The first request gets a fifth of the time: it may go to a leader that has died, and the client fetches metadata
    only after that. While leaders change, requests fail at once; they are retried until the time is over.
    """
    found: dict[TopicPartition, int] = {}
    deadline, share = time.monotonic() + timeout_s, 0.2
    while missing := places - found.keys():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        found |= high_watermarks(admin, missing, share * left_s)
        share = 1.0
        if missing - found.keys():
            time.sleep(min(_RETRY_BACKOFF_S, max(0.0, deadline - time.monotonic())))
    if missing:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(missing))
        raise StreamsError(f"the brokers did not return the end offsets of {names} within {timeout_s:g} s")
    return found


def position_of(offsets: Mapping[TopicPartition, int]) -> int:
    """The position of a task's state, from the offset of the last record in each of its stores."""
    return sum(offset + 1 for offset in offsets.values() if offset >= 0)


def _lags(info: SubscriptionInfo, sizes: Mapping[TaskId, int]) -> dict[TaskId, int]:
    """How many records a process is behind, for each task whose state it has."""
    lags = {}
    for task, position in info.positions.items():
        size = sizes.get(task)
        if size is None:
            continue
        if position == RUNNING:
            lags[task] = 0
        elif position == UNKNOWN_POSITION or position > size:  # beyond the end offset: the topic was created anew
            lags[task] = size
        else:
            lags[task] = size - position
    return lags


def _encode(found: Plan, infos: Mapping[str, SubscriptionInfo], placed: Placed) -> Given:
    """The assignment of each member."""
    hosts = encode_hosts(_hosts(found, infos, placed))
    probe = placed.next_rebalance_ms
    log.info("assigned tasks tasks=%d threads=%d probing=%s", len(found.tasks), len(infos), bool(probe))
    return {
        name: (
            [place for task in placed.active[name] for place in found.tasks[task].sources],
            AssignmentInfo(tuple(placed.active[name]), tuple(placed.standby[name]), probe).encode(hosts),
        )
        for name in infos
    }


def _hosts(found: Plan, infos: Mapping[str, SubscriptionInfo], placed: Placed) -> dict[str, HostPartitions]:
    """The instances that answer queries of each partition."""
    collected: dict[str, tuple[dict[str, set[int]], dict[str, set[int]]]] = {}
    for name, info in infos.items():
        if not info.endpoint:
            continue
        roles = collected.setdefault(info.endpoint, ({}, {}))
        for role, tasks in zip(roles, (placed.active[name], placed.standby[name]), strict=True):
            for topic, partition in (place for task in tasks for place in found.tasks[task].sources):
                role.setdefault(topic, set()).add(partition)
    return {
        endpoint: HostPartitions(
            {topic: frozenset(numbers) for topic, numbers in active.items()},
            {topic: frozenset(numbers) for topic, numbers in standby.items()},
        )
        for endpoint, (active, standby) in collected.items()
    }


def _to_all(members: Mapping[str, MemberSubscription], error: int, reason: str = "") -> Given:
    """An assignment without tasks, with an error code and its reason, for every member."""
    userdata = AssignmentInfo(error=error, reason=reason).encode()
    return {name: ([], userdata) for name in members}
