"""The records of groups of the consumer protocol in `__consumer_offsets`, as Kafka 4.x writes them (KIP-848).

| key | about             | value                                                                      |
|-----|-------------------|----------------------------------------------------------------------------|
| 3   | group             | group epoch, hash of the metadata of its topics                            |
| 4   | group             | that metadata in full, by Kafka 4.0 and before; neither used nor written   |
| 5   | group, member     | properties and subscription of the member                                  |
| 6   | group             | the epoch of the target assignment                                         |
| 7   | group, member     | target assignment of the member                                            |
| 8   | group, member     | its epoch, state and current assignment                                    |
| 16  | group, expression | the topics that match a regular expression                                 |

Each function returns a key and a value as messages; `encode` converts them to bytes and `replay` applies them to the
members. A value of None is a tombstone. Only replays change the members, and they accept the records of a compacted log
in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from odradek.broker.group.state.consumer_assignors import Assignment
from odradek.broker.group.state.consumer_group_members import (
    LEFT,
    ClassicTerms,
    ConsumerGroupMembers,
    ConsumerMember,
    MemberState,
    Owned,
    Resolved,
)
from odradek.broker.group.state.interruptible import at_once
from odradek.broker.runtime.state.effects import Each, KeyValue
from odradek.protocol import messages as m
from odradek.protocol.errors import ProtocolError

VALUE_PREFIX: Final = bytes(2)
Current = m.ConsumerGroupCurrentMemberAssignmentValue

Key = (
    m.ConsumerGroupMetadataKey
    | m.ConsumerGroupPartitionMetadataKey
    | m.ConsumerGroupMemberMetadataKey
    | m.ConsumerGroupTargetAssignmentMetadataKey
    | m.ConsumerGroupTargetAssignmentMemberKey
    | m.ConsumerGroupCurrentMemberAssignmentKey
    | m.ConsumerGroupRegularExpressionKey
)
Value = (
    m.ConsumerGroupMetadataValue
    | m.ConsumerGroupPartitionMetadataValue
    | m.ConsumerGroupMemberMetadataValue
    | m.ConsumerGroupTargetAssignmentMetadataValue
    | m.ConsumerGroupTargetAssignmentMemberValue
    | m.ConsumerGroupCurrentMemberAssignmentValue
    | m.ConsumerGroupRegularExpressionValue
)

KINDS: Final[dict[int, tuple[type[Key], type[Value]]]] = {
    3: (m.ConsumerGroupMetadataKey, m.ConsumerGroupMetadataValue),
    4: (m.ConsumerGroupPartitionMetadataKey, m.ConsumerGroupPartitionMetadataValue),
    5: (m.ConsumerGroupMemberMetadataKey, m.ConsumerGroupMemberMetadataValue),
    6: (m.ConsumerGroupTargetAssignmentMetadataKey, m.ConsumerGroupTargetAssignmentMetadataValue),
    7: (m.ConsumerGroupTargetAssignmentMemberKey, m.ConsumerGroupTargetAssignmentMemberValue),
    8: (m.ConsumerGroupCurrentMemberAssignmentKey, m.ConsumerGroupCurrentMemberAssignmentValue),
    16: (m.ConsumerGroupRegularExpressionKey, m.ConsumerGroupRegularExpressionValue),
}
"""The messages by the version of the key, which defines the kind of the record."""
VERSIONS: Final = {key: version for version, (key, _) in KINDS.items()}


class GroupRecord(NamedTuple):
    """One record before encoding."""

    key: Key
    value: Value | None

    def encode(self, each: Each | None = None) -> KeyValue:
        """The record as key and value bytes of the log; with `each`, the loop over topics can be interrupted."""
        version = VERSIONS[type(self.key)]
        key = version.to_bytes(2, "big") + self.key.encode(version)
        if self.value is None:
            return key, None
        if each is not None:
            parts: list[Any] = [VALUE_PREFIX, *self.value.SLICED_ENCODERS[0](self.value, bytearray(), each)]
            return key, b"".join(parts)
        return key, VALUE_PREFIX + self.value.encode(0)


def read(version: int, key: bytes, value: bytes | None) -> GroupRecord:
    """A record of one of `KINDS`, given the version of its key. Raises ProtocolError."""
    key_class, value_class = KINDS[version]
    if value is not None and value[:2] != VALUE_PREFIX:
        raise ProtocolError(f"{value_class.__name__}.version", 0, f"{value[:2].hex()} is not version 0")
    return GroupRecord(
        key_class.decode(key, version, 2), value_class.decode(value, 0, 2) if value is not None else None
    )


# --- records to write ---


def group_epoch(group_id: str, epoch: int, topics_hash: int) -> GroupRecord:
    """A new epoch of the group."""
    return GroupRecord(
        m.ConsumerGroupMetadataKey(group_id=group_id),
        m.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash),
    )


def member_metadata(group_id: str, member: ConsumerMember) -> GroupRecord:
    """The properties and the subscription of a member."""
    classic = None
    if member.classic is not None:
        classic = m.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                m.ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    return GroupRecord(
        m.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        m.ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.names),
            subscribed_topic_regex=member.expression,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=classic,
        ),
    )


def target_epoch(group_id: str, epoch: int) -> GroupRecord:
    """The epoch of the target assignments."""
    return GroupRecord(
        m.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        m.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )


def target(group_id: str, member_id: str, assignment: Assignment, each: Each = at_once) -> GroupRecord:
    """The target assignment of a member."""
    partitions = [
        m.ConsumerGroupTargetAssignmentMemberValue.TopicPartition(
            topic_id=topic_id, partitions=sorted(assignment[topic_id])
        )
        for topic_id in each(sorted(assignment))
    ]
    return GroupRecord(
        m.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        m.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions),
    )


def current(group_id: str, member: ConsumerMember) -> GroupRecord:
    """The epoch, state and current assignment of a member."""
    return GroupRecord(
        m.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        Current(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_owned(member.assigned),
            partitions_pending_revocation=_owned(member.revoking),
        ),
    )


def _owned(owned: Owned) -> list[Current.TopicPartitions]:
    return [
        Current.TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[index] for index in sorted(partitions)],
        )
        for topic_id, partitions in sorted(owned.items())
    ]


def expression(group_id: str, pattern: str, found: Resolved) -> GroupRecord:
    """The topics that match a regular expression."""
    return GroupRecord(
        m.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        m.ConsumerGroupRegularExpressionValue(
            topics=list(found.topics), version=found.version, timestamp=found.timestamp_ms
        ),
    )


def no_expression(group_id: str, pattern: str) -> GroupRecord:
    """The tombstone of an expression to which no member subscribes any more."""
    return GroupRecord(m.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None)


def no_member(group_id: str, member_id: str) -> list[GroupRecord]:
    """The tombstones of a member."""
    return [
        GroupRecord(m.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(m.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(m.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def no_group(group_id: str, group_members: ConsumerGroupMembers) -> list[GroupRecord]:
    """The tombstones of a group."""
    gone = [record for member_id in group_members.members for record in no_member(group_id, member_id)]
    gone += [no_expression(group_id, pattern) for pattern in group_members.resolved]
    gone.append(GroupRecord(m.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    gone.append(GroupRecord(m.ConsumerGroupMetadataKey(group_id=group_id), None))
    return gone


# --- replay ---


def replay(group_members: ConsumerGroupMembers, record: GroupRecord) -> None:
    """Apply a record to the members."""
    key, value = record
    match key:
        case m.ConsumerGroupMetadataKey():
            found = value if isinstance(value, m.ConsumerGroupMetadataValue) else m.ConsumerGroupMetadataValue()
            group_members.epoch, group_members.hash = found.epoch, found.metadata_hash
        case m.ConsumerGroupMemberMetadataKey(member_id=member_id):
            if isinstance(value, m.ConsumerGroupMemberMetadataValue):
                group_members.put(_described(_member(group_members, member_id), value))
            else:
                group_members.remove(member_id)
        case m.ConsumerGroupTargetAssignmentMetadataKey():
            known = isinstance(value, m.ConsumerGroupTargetAssignmentMetadataValue)
            group_members.target_epoch = value.assignment_epoch if known else 0  # type: ignore[union-attr]
        case m.ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
            if isinstance(value, m.ConsumerGroupTargetAssignmentMemberValue):
                group_members.targets[member_id] = {
                    each.topic_id: frozenset(each.partitions) for each in value.topic_partitions if each.partitions
                }
            else:
                group_members.targets.pop(member_id, None)
        case m.ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
            _replay_current(group_members, member_id, value if isinstance(value, Current) else None)
        case m.ConsumerGroupRegularExpressionKey(regular_expression=pattern):
            if isinstance(value, m.ConsumerGroupRegularExpressionValue):
                group_members.resolved[pattern] = Resolved(tuple(sorted(value.topics)), value.version, value.timestamp)
            else:
                group_members.resolved.pop(pattern, None)


def undo_of(group_members: ConsumerGroupMembers, record: GroupRecord) -> Callable[[], None]:
    """A function that undoes the change that the replay of a record is about to make."""
    match record.key:
        case m.ConsumerGroupMetadataKey():
            return partial(group_members.set_epoch, group_members.epoch, group_members.hash)
        case (
            m.ConsumerGroupMemberMetadataKey(member_id=member_id)
            | m.ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id)
        ):
            member = group_members.members.get(member_id)
            return partial(group_members.remove, member_id) if member is None else partial(group_members.put, member)
        case m.ConsumerGroupTargetAssignmentMetadataKey():
            return partial(setattr, group_members, "target_epoch", group_members.target_epoch)
        case m.ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
            return _entry(group_members.targets, member_id)
        case m.ConsumerGroupRegularExpressionKey(regular_expression=pattern):
            return _entry(group_members.resolved, pattern)
    return _nothing


def _entry(entries: dict[str, Any], key: str) -> Callable[[], None]:
    if key in entries:
        return partial(entries.__setitem__, key, entries[key])
    return partial(_forget, entries, key)


def _forget(entries: dict[str, Any], key: str) -> None:
    entries.pop(key, None)


def _nothing() -> None:
    """A record that does not change the members."""


def _member(group_members: ConsumerGroupMembers, member_id: str) -> ConsumerMember:
    return group_members.members.get(member_id) or ConsumerMember(member_id)


def _replay_current(group_members: ConsumerGroupMembers, member_id: str, value: Current | None) -> None:
    if value is None:
        member = group_members.members.get(member_id)
        if member is not None:
            group_members.put(member._replace(epoch=LEFT, previous_epoch=LEFT, assigned={}, revoking={}))
        return
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    member = _member(group_members, member_id)._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=_read_owned(value.assigned_partitions, value.member_epoch),
        revoking=_read_owned(value.partitions_pending_revocation, value.member_epoch),
    )
    group_members.put(member)


def _read_owned(topics: list[Current.TopicPartitions], epoch: int) -> Owned:
    """Kafka before 4.3 wrote no epochs; such a partition has the member's epoch."""
    return {
        each.topic_id: dict(
            zip(each.partitions, each.assignment_epochs or [epoch] * len(each.partitions), strict=False)
        )
        for each in topics
        if each.partitions
    }


def _described(member: ConsumerMember, value: m.ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    return member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        client_id=value.client_id,
        client_host=value.client_host,
        names=tuple(sorted(dict.fromkeys(value.subscribed_topic_names))),  # they are in order already
        expression=value.subscribed_topic_regex or "",
        assignor=value.server_assignor,
        classic=ClassicTerms(
            classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
        )
        if classic is not None
        else None,
    )
