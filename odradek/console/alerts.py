"""What is wrong with a cluster, in plain words: from the latest sample and the lags of its groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from urllib.parse import quote

from odradek.admin.controllers import NO_CONTROLLER
from odradek.admin.topics import NO_LEADER, PartitionInfo
from odradek.console.history import ClusterHistory
from odradek.console.sample import ClusterSample
from odradek.console.series import Series

GROWING_S: Final = 60.0
"""Lag whose least value in the second half of this time is larger than in the first, and never zero, grows: that of a
group that commits every few seconds rises and falls in between.
"""
LEAST_SPAN_S: Final = 20.0
"""Between the first and the last sample: a group commits every five seconds by default."""
LEAST_GROWTH: Final = 100
"""Records."""
NAMED: Final = 3
"""Objects that an alert names."""


class AlertLevel(IntEnum):
    """How urgent an alert is."""

    NOTE = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class ClusterAlert:
    """A problem: a sentence, what to do, and the path of the console's page about it."""

    level: AlertLevel
    text: str
    advice: str
    path: str


def alerts_of(history: ClusterHistory) -> list[ClusterAlert]:
    """The problems of a cluster, the most urgent first."""
    if history.error is not None:
        text = f"The cluster does not answer: {history.error}"
        unreachable = [ClusterAlert(AlertLevel.CRITICAL, text, "What follows is older than this.", "/brokers")]
    else:
        unreachable = []
    sample = history.sample
    if sample is None:
        return unreachable
    partitions = history.derived("partition alerts", lambda: [*_of_cluster(sample), *_of_partitions(sample)])
    found = [*partitions, *_of_disks(history), *_of_groups(history, sample)]
    found += [
        ClusterAlert(AlertLevel.WARNING, f"A part of the cluster is not shown: {each}", "", "/brokers")
        for each in sample.problems
    ]
    return unreachable + sorted(found, key=lambda each: -each.level)


def _of_cluster(sample: ClusterSample) -> Iterator[ClusterAlert]:
    if sample.controller_id == NO_CONTROLLER:
        text = "No broker is the controller: topics cannot be created, and no leader can be elected."
        yield ClusterAlert(AlertLevel.CRITICAL, text, "Look at the logs of the brokers.", "/brokers")
    replicas: dict[int, int] = {}
    for part in sample.partitions:
        for broker in part.replicas:
            replicas[broker] = replicas.get(broker, 0) + 1
    for broker in sorted(replicas.keys() - sample.broker_ids):
        text = f"Broker {broker} is not in the cluster; {_count(replicas[broker], 'replica')} should be on it."
        advice = "Start the broker, or move its replicas with odradek reassign."
        yield ClusterAlert(AlertLevel.CRITICAL, text, advice, "/brokers")


def _of_partitions(sample: ClusterSample) -> Iterator[ClusterAlert]:
    offline, blocked, under, moved = [], [], [], []
    for part in sample.partitions:
        if part.leader == NO_LEADER:
            offline.append(part)
        elif len(part.isr) < sample.min_isr.get(part.topic, 0):
            blocked.append(part)
        elif len(part.isr) < len(part.replicas):
            under.append(part)
        elif part.replicas and part.leader != part.replicas[0]:
            moved.append(part)
    if offline:
        text = f"{_are(offline)} without a leader: {_names(offline)}. They can be neither written nor read."
        advice = "Start a broker that has an in-sync replica."
        yield ClusterAlert(AlertLevel.CRITICAL, text, advice, "/topics?health=offline")
    if blocked:
        text = f"{_are(blocked)} under min.insync.replicas: {_names(blocked)}. Writes with acks=all fail."
        advice = "Start the brokers of the other replicas; lower min.insync.replicas only if these are lost."
        yield ClusterAlert(AlertLevel.CRITICAL, text, advice, "/topics?health=under-replicated")
    if under:
        text = f"{_are(under)} under-replicated: {_names(under)}. A follower is down or behind."
        advice = "A follower that runs catches up by itself; see the timeline for when it left the ISR."
        yield ClusterAlert(AlertLevel.WARNING, text, advice, "/topics?health=under-replicated")
    if moved:
        text = f"{_are(moved)} not led by the preferred replica: {_names(moved)}."
        advice = "The controller moves them back after some minutes; odradek leader elect does it now."
        yield ClusterAlert(AlertLevel.NOTE, text, advice, "/topics?health=not-preferred")


def _of_disks(history: ClusterHistory) -> Iterator[ClusterAlert]:
    for each in history.disk.offline:
        advice = "Replace the disk and restart the broker."
        yield ClusterAlert(AlertLevel.CRITICAL, f"A log directory is offline: {each}", advice, "/brokers")


def _of_groups(history: ClusterHistory, sample: ClusterSample) -> Iterator[ClusterAlert]:
    for group in sample.groups.values():
        path = f"/group?id={quote(group.group_id, safe='')}"
        if not group.lag:
            continue
        grown = _growth(history.lags_of(group.group_id), sample.taken_s)
        if grown < LEAST_GROWTH:
            continue
        if group.members == 0:
            text = f"Group {group.group_id} has no members, and {_count(group.lag, 'record')} wait for it."
            yield ClusterAlert(AlertLevel.WARNING, text, "Start its consumers.", path)
        else:
            grew = f"grew by {round(grown):,} within a minute"
            text = f"Group {group.group_id} falls behind: its lag {grew}, to {group.lag:,} records."
            yield ClusterAlert(AlertLevel.WARNING, text, "Start more consumers, or look for a slow one.", path)


def _growth(series: Series | None, now_s: float) -> float:
    """How much the lag has grown; 0 where that is not known yet."""
    recent = [(time_s, value) for time_s, value in series or () if time_s >= now_s - GROWING_S]
    if not recent or recent[-1][0] - recent[0][0] < LEAST_SPAN_S or min(value for _, value in recent) <= 0:
        return 0
    middle_s = (recent[0][0] + recent[-1][0]) / 2
    old = min(value for time_s, value in recent if time_s < middle_s)
    return min(value for time_s, value in recent if time_s >= middle_s) - old


def _are(partitions: list[PartitionInfo]) -> str:
    return "1 partition is" if len(partitions) == 1 else f"{len(partitions):,} partitions are"


def _names(partitions: list[PartitionInfo]) -> str:
    names = ", ".join(f"{each.topic}-{each.partition}" for each in partitions[:NAMED])
    return names + ", …" * (len(partitions) > NAMED)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)
