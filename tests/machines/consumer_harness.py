"""Members of the consumer protocol for `group_harness`, with their clients' state."""

from __future__ import annotations

from typing import Any

from odradek.broker.group.state.classic_requests import SyncResult
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.consumer_group_members import ConsumerGroupMembers
from odradek.broker.group.state.consumer_group_requests import HeartbeatRequest, HeartbeatResult
from odradek.broker.group.state.loading import Loader
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.machines.group_harness import GROUP, Harness, Slot

ReplicaManagerDependencies = set[tuple[str, int]]
SESSION_MS = 45_000
REBALANCE_MS = 60_000


def beat(harness: Harness, member_id: str, epoch: int, **fields: Any) -> Slot:
    """One heartbeat."""
    slot = Slot()
    group = fields.pop("group", GROUP)
    harness.groups.consumer_heartbeat(group, HeartbeatRequest(member_id, epoch, **fields), slot)
    return slot


def join(harness: Harness, member_id: str, *names: str, **fields: Any) -> HeartbeatResult:
    """A member joins; its response has to come at once."""
    given: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "names": names, "owned": {}, **fields}
    result: HeartbeatResult = beat(harness, member_id, 0, **given).answer
    return result


def membership(harness: Harness) -> ConsumerMembership:
    """The group in the coordinator's memory."""
    error, found = harness.groups.describe_consumers(GROUP)
    assert not error
    assert found is not None
    return found


def reloaded(harness: Harness) -> ConsumerGroupMembers:
    """The group that a load would find once everything pending is written."""
    loader = Loader()
    for header, record in harness.log.pending(0):
        loader.feed(header, record)
    groups = loader.groups(harness.settings, harness.coordinator.runtime.now(), harness.topics)
    found = next(group.membership for group in groups if group.group_id == GROUP)
    assert isinstance(found, ConsumerMembership)
    return found.group_members


def facts(group_members: ConsumerGroupMembers) -> dict[str, Any]:
    """All state of the members of a group."""
    return {
        "epoch": group_members.epoch,
        "hash": group_members.hash,
        "target epoch": group_members.target_epoch,
        "members": group_members.members,
        "targets": group_members.targets,
        "resolved": group_members.resolved,
    }


class Client:
    """A consumer of the consumer protocol: it revokes partitions at once, and takes the partitions assigned to it."""

    def __init__(self, harness: Harness, member_id: str, *names: str, expression: str | None = None) -> None:
        self.harness = harness
        self.member_id = member_id
        self.instance_id: str | None = None
        self.names: tuple[str, ...] = names
        self.expression = expression
        self.epoch = 0
        self._has: set[tuple[bytes, int]] = set()
        self.errors: list[ErrorCode] = []
        self._unsure = False

    def beat(self, *, lost: bool = False) -> HeartbeatResult | None:
        """A heartbeat; a `lost` response does not arrive. None while the response waits."""
        joining = self.epoch == 0
        full = joining or self._unsure
        if joining:
            self._has = set()
        slot = beat(
            self.harness,
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            names=self.names if full and self.expression is None else None,
            expression=self.expression if full else None,
            owned=self.report(),
        )
        # After a request without a response it sends every field again, so that the response has every field, too.
        self._unsure = slot.waits or lost
        if self._unsure:
            return None
        result: HeartbeatResult = slot.answer
        self._hear(result)
        return result

    def _hear(self, result: HeartbeatResult) -> None:
        self.errors.append(result.error)
        if result.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.epoch = 0
            self._has = set()
        elif result.error:
            self._unsure = True
        else:
            self.epoch = result.epoch
            if result.assignment is not None:
                self._has = {(topic_id, index) for topic_id, parts in result.assignment.items() for index in parts}

    @property
    def owned(self) -> ReplicaManagerDependencies:
        """The partitions that it uses, of topics that exist; a topic that was deleted and recreated is another one."""
        named = ((self.harness.topics.name_of(topic_id), index) for topic_id, index in self._has)
        return {(name, index) for name, index in named if name is not None}

    def report(self) -> dict[bytes, frozenset[int]]:
        return {
            topic_id: frozenset(index for each, index in self._has if each == topic_id)
            for topic_id in sorted({topic_id for topic_id, _ in self._has})
        }

    def leave(self, *, for_a_while: bool = False) -> Slot:
        self._has = set()
        self.epoch = 0
        return beat(self.harness, self.member_id, -2 if for_a_while else -1, instance_id=self.instance_id)


def settle(harness: Harness, *clients: Client, rounds: int = 30) -> None:
    """All members send heartbeats until the group is Stable."""
    for _ in range(rounds):
        for client in clients:
            client.beat()
        if membership(harness).state.value == "Stable" and all(client.epoch for client in clients):
            for client in clients:
                client.beat()
            return
    raise AssertionError(f"not stable after {rounds} rounds: {facts(membership(harness).group_members)}")


def subscription(*names: str, owned: ReplicaManagerDependencies = frozenset(), version: int = 1) -> bytes:  # type: ignore[assignment]
    """The subscription that a classic consumer sends."""
    topics = sorted({name for name, _ in owned})
    return version.to_bytes(2, "big") + m.ConsumerProtocolSubscription(
        topics=list(names),
        owned_partitions=[
            m.ConsumerProtocolSubscription.TopicPartition(
                topic=topic, partitions=sorted(index for name, index in owned if name == topic)
            )
            for topic in topics
        ],
    ).encode(version)


def assignment(parts: ReplicaManagerDependencies) -> bytes:
    """The assignment that the leader of a classic group sends for a member."""
    topics = sorted({name for name, _ in parts})
    return b"\0\1" + m.ConsumerProtocolAssignment(
        assigned_partitions=[
            m.ConsumerProtocolAssignment.TopicPartition(
                topic=topic, partitions=sorted(index for name, index in parts if name == topic)
            )
            for topic in topics
        ]
    ).encode(1)


def assigned(result: SyncResult) -> ReplicaManagerDependencies:
    """The partitions assigned to a classic member."""
    found = m.ConsumerProtocolAssignment.decode(result.assignment, 1, 2)
    return {(each.topic, index) for each in found.assigned_partitions for index in each.partitions}
