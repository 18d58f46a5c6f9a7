"""A timeline of a cluster: elections, ISR changes, controllers, brokers, topics and rebalances between two samples.

An event is what differs between two samples, so its time is that of the later one, and what begins and ends between
them is not seen. Many events of one cause become one (`MOST_OF_A_KIND`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from odradek.admin.controllers import KRAFT
from odradek.admin.quorum import MetadataQuorum
from odradek.admin.topics import NO_LEADER, PartitionInfo
from odradek.console.sample import ClusterSample, GroupSample

MOST_OF_A_KIND: Final = 12
"""Events of one kind in one sample; more are one event that counts them."""
NAMED: Final = 3
"""Subjects that such an event names."""
REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
"""States in which partitions of a group move (Kafka: ClassicGroupState, ConsumerGroupState)."""


class ChangeKind(Enum):
    """What changed; the value is for a reader."""

    CONTROLLER = "controller"
    BROKER = "broker"
    ELECTION = "leader election"
    ISR = "ISR"
    TOPIC = "topic"
    REBALANCE = "rebalance"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """One event. `subject` is the object, as `orders-0` or `broker 2`; `text` is a sentence about it."""

    time_s: float
    kind: ChangeKind
    subject: str
    text: str
    is_problem: bool = False
    """Whether it takes availability or redundancy away."""


class Timeline:
    """The newest events of a cluster, `limit` at most."""

    def __init__(self, limit: int = 2000) -> None:
        self._changes: deque[ClusterChange] = deque(maxlen=limit)

    def extend(self, changes: Iterable[ClusterChange]) -> None:
        """Append events in the order of time."""
        self._changes.extend(changes)

    def __len__(self) -> int:
        return len(self._changes)

    def newest(self, kinds: Sequence[ChangeKind] = (), subject: str = "") -> list[ClusterChange]:
        """The events, the newest first: those of `kinds`, and those that name `subject`, where these are given."""
        return [
            each
            for each in reversed(tuple(self._changes))
            if (not kinds or each.kind in kinds) and (not subject or subject in each.subject or subject in each.text)
        ]


def changes_between(before: ClusterSample, after: ClusterSample) -> list[ClusterChange]:
    """The events between two samples of one cluster. Causes come last: a reader sees the newest event first."""
    elections: list[ClusterChange] = []
    isr: list[ClusterChange] = []
    for topic in after.topics:
        old = before.by_name.get(topic.name)
        if old is None or old.topic_id != topic.topic_id or old.partitions == topic.partitions:
            continue
        for was, now in zip(old.partitions, topic.partitions, strict=False):
            if was != now:
                elections += _election(was, now, after.taken_s)
                isr += _isr(was, now, after.taken_s)
    rebalances = [change for each in after.groups.values() for change in _group(before, each, after.taken_s)]
    gone = [
        ClusterChange(after.taken_s, ChangeKind.GROUP, name, "the group is gone")
        for name in before.groups.keys() - after.groups.keys()
        if not after.problems
    ]
    gone.sort(key=lambda each: each.subject)
    return [
        *_summarized(gone, lambda count: f"{count} groups are gone"),
        *_summarized(rebalances, lambda count: f"{count} groups changed"),
        *_summarized(isr, lambda count: f"the ISR of {count} partitions changed"),
        *_summarized(elections, lambda count: f"{count} partitions have new leaders"),
        *_topics(before, after),
        *_brokers(before, after),
        *_controllers(before, after),
    ]


def _controllers(before: ClusterSample, after: ClusterSample) -> Iterator[ClusterChange]:
    old, new = before.controller_id, after.controller_id
    if old != new and KRAFT not in (old, new):
        text = (
            f"the controller is broker {new}; before, {_broker(old)}" if new >= 0 else "the cluster has no controller"
        )
        yield ClusterChange(after.taken_s, ChangeKind.CONTROLLER, f"broker {new}", text, new < 0)
    if before.quorum is not None and after.quorum is not None:
        yield from _quorum(before.quorum, after.quorum, after.taken_s)


def _quorum(old: MetadataQuorum, new: MetadataQuorum, time_s: float) -> Iterator[ClusterChange]:
    if (old.leader_id, old.leader_epoch) != (new.leader_id, new.leader_epoch):
        subject, leads = f"controller {new.leader_id}", new.leader_id >= 0
        text = f"the controller leads the quorum at epoch {new.leader_epoch}; before, {_controller(old.leader_id)}"
        text = text if leads else "the quorum of controllers has no leader"
        yield ClusterChange(time_s, ChangeKind.CONTROLLER, subject, text, not leads)


def _brokers(before: ClusterSample, after: ClusterSample) -> Iterator[ClusterChange]:
    for broker in sorted(before.broker_ids - after.broker_ids):
        text = "the broker has left the cluster"
        yield ClusterChange(after.taken_s, ChangeKind.BROKER, f"broker {broker}", text, True)
    for broker in sorted(after.broker_ids - before.broker_ids):
        yield ClusterChange(after.taken_s, ChangeKind.BROKER, f"broker {broker}", "the broker has joined the cluster")


def _topics(before: ClusterSample, after: ClusterSample) -> list[ClusterChange]:
    found = []
    for name in sorted(before.by_name.keys() | after.by_name.keys()):
        old, new = before.by_name.get(name), after.by_name.get(name)
        if old is None and new is not None:
            found.append((name, f"the topic was created with {_partitions(len(new.partitions))}"))
        elif old is not None and new is None:
            found.append((name, "the topic was deleted"))
        elif old is not None and new is not None and old.topic_id != new.topic_id:
            found.append((name, "the topic was deleted and created again"))
        elif old is not None and new is not None and len(new.partitions) > len(old.partitions):
            found.append((name, f"the topic has {_partitions(len(new.partitions))}; before, {len(old.partitions)}"))
    changes = [ClusterChange(after.taken_s, ChangeKind.TOPIC, name, text) for name, text in found]
    return _summarized(changes, lambda count: f"{count} topics were created, changed or deleted")


def _election(was: PartitionInfo, now: PartitionInfo, time_s: float) -> Iterator[ClusterChange]:
    if was.leader == now.leader:
        return
    subject = f"{now.topic}-{now.partition}"
    if now.leader == NO_LEADER:
        text = f"no broker leads the partition; before, broker {was.leader}"
    else:
        text = f"broker {now.leader} leads the partition; before, {_broker(was.leader)}"
    yield ClusterChange(time_s, ChangeKind.ELECTION, subject, text, now.leader == NO_LEADER)


def _isr(was: PartitionInfo, now: PartitionInfo, time_s: float) -> Iterator[ClusterChange]:
    old, new = set(was.isr), set(now.isr)
    if old == new:
        return
    left, joined = _ids(old - new), _ids(new - old)
    parts = [f"{left} left the ISR" if left else "", f"{joined} joined the ISR" if joined else ""]
    text = f"{', '.join(part for part in parts if part)}, which is {_ids(new) or 'empty'}"
    yield ClusterChange(time_s, ChangeKind.ISR, f"{now.topic}-{now.partition}", text, bool(left) and not joined)


def _group(before: ClusterSample, now: GroupSample, time_s: float) -> Iterator[ClusterChange]:
    was = before.groups.get(now.group_id)
    if was is None:
        if not before.problems:
            yield ClusterChange(time_s, ChangeKind.GROUP, now.group_id, f"the group exists, in state {now.state}")
        return
    if now.state in REBALANCING and was.state not in REBALANCING:
        yield ClusterChange(time_s, ChangeKind.REBALANCE, now.group_id, f"a rebalance began: {now.state}")
    elif now.state in REBALANCING:
        return
    elif was.members != now.members:
        text = f"the group has {_members(now.members)}; before, {was.members}"
        yield ClusterChange(time_s, ChangeKind.REBALANCE, now.group_id, text, now.members == 0 and bool(now.lag))
    elif was.assignment != now.assignment or (was.epoch or 0) < (now.epoch or 0):
        yield ClusterChange(time_s, ChangeKind.REBALANCE, now.group_id, "partitions were assigned anew")
    elif was.state in REBALANCING:
        yield ClusterChange(time_s, ChangeKind.REBALANCE, now.group_id, f"the rebalance ended: {now.state}")


def _summarized(changes: list[ClusterChange], text: Callable[[int], str]) -> list[ClusterChange]:
    if len(changes) <= MOST_OF_A_KIND:
        return changes
    first, names = changes[0], ", ".join(each.subject for each in changes[:NAMED])
    is_problem = any(each.is_problem for each in changes)
    return [ClusterChange(first.time_s, first.kind, f"{names}, …", text(len(changes)), is_problem)]


def _broker(broker_id: int) -> str:
    return f"broker {broker_id}" if broker_id >= 0 else "none"


def _controller(node_id: int) -> str:
    return f"controller {node_id}" if node_id >= 0 else "none"


def _ids(broker_ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(broker_ids)))


def _partitions(count: int) -> str:
    return f"{count} partition" + "s" * (count != 1)


def _members(count: int) -> str:
    return f"{count} member" + "s" * (count != 1)
