"""Migration of a group between the classic and the consumer protocol (KIP-848, `group.consumer.migration.policy`).

| from            | event                              | policy                   | result                         |
|-----------------|------------------------------------|--------------------------|--------------------------------|
| classic, Empty  | a consumer-protocol member joins   | any                      | consumer, as a new group       |
| classic         | a consumer-protocol member joins   | upgrade, bidirectional   | consumer, with all its members |
| consumer, Empty | a classic member joins             | any                      | classic, as a new group        |
| consumer        | the last consumer-protocol member leaves | downgrade, bidirectional | classic, in a rebalance  |

Offsets stay. In an upgrade, the generation becomes the epoch of the group and of every member; in a downgrade, the
newest of these epochs becomes the generation. A member owns the partitions that it was assigned; in a group without a
current assignment no member owns a partition, and all members have to rejoin. The rules are those of Kafka 4.x's
GroupMetadataManager, ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.group.state import consumer_group_records as records
from odradek.broker.group.state.classic_group import ClassicGroup
from odradek.broker.group.state.classic_members import Member
from odradek.broker.group.state.classic_membership import Membership
from odradek.broker.group.state.classic_requests import ClassicGroupState, Terms
from odradek.broker.group.state.consumer_group import CONSUMER, ConsumerMembership
from odradek.broker.group.state.consumer_group_classic_members import (
    named,
    read_assignment,
    read_subscription,
    write_assignment,
)
from odradek.broker.group.state.consumer_group_members import ClassicTerms, ConsumerMember, MemberState
from odradek.broker.group.state.consumer_group_requests import Topics
from odradek.broker.group.state.records import group_key, group_record
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import KeyValue, Now
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

UPGRADES: Final = ("upgrade", "bidirectional")
DOWNGRADES: Final = ("downgrade", "bidirectional")


def upgraded(classic: ClassicGroup, settings: GroupSettings, topics: Topics) -> ConsumerMembership:
    """Convert the group to the consumer protocol; its records are appended with the next event.

    Raises KafkaError(GROUP_ID_NOT_FOUND) when it must stay classic.
    """
    group = ConsumerMembership(classic.group_id, settings, topics)
    if classic.state is not ClassicGroupState.EMPTY:
        _check_upgrade(classic, settings)
        members = _members(classic, topics)
        group_id, epoch = classic.group_id, classic.generation
        group_writes = group.group_writes
        for member in members:
            group_writes.write(records.member_metadata(group_id, member))
        group_writes.write(records.group_epoch(group_id, epoch, 0))
        for member in members:
            owned = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
            group_writes.write(records.target(group_id, member.member_id, owned))
        group_writes.write(records.target_epoch(group_id, epoch))
        for member in members:
            group_writes.write(records.current(group_id, member))
    if classic.generation > 0:  # generation 0 was never written
        group.group_writes.write_beside((group_key(classic.group_id), None))
    return group


def _check_upgrade(classic: ClassicGroup, settings: GroupSettings) -> None:
    if settings.group_consumer_migration_policy.lower() not in UPGRADES:
        why = "online upgrade is disabled"
    elif classic.protocol_type != CONSUMER:
        why = "the group does not use the consumer embedded protocol"
    elif len(classic.group_members) > settings.group_consumer_max_size:
        why = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise _stays_classic(classic, why)


def _stays_classic(classic: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}.",
    )


def _members(classic: ClassicGroup, topics: Topics) -> list[ConsumerMember]:
    taken: set[tuple[bytes, int]] = set()
    members = []
    for member in classic.group_members:
        try:
            subscription = read_subscription(member.terms.protocols[0][1])
            given = read_assignment(member.assignment)
        except (ProtocolError, IndexError):
            raise _stays_classic(classic, "the embedded consumer protocol is malformed") from None
        if given.user_data:
            raise _stays_classic(classic, "an unsupported custom assignor is in use")
        assigned: dict[bytes, dict[int, int]] = {}
        for topic in given.assigned_partitions:
            topic_id = topics.id_of(topic.topic)
            for index in topic.partitions:
                # A client's assignor may have assigned one partition to two members; here each has one owner.
                if topic_id is not None and (topic_id, index) not in taken:
                    taken.add((topic_id, index))
                    assigned.setdefault(topic_id, {})[index] = classic.generation
        terms = member.terms
        members.append(
            ConsumerMember(
                member.member_id,
                epoch=classic.generation,
                previous_epoch=classic.generation,
                state=MemberState.STABLE,
                instance_id=terms.instance_id,
                rack_id=subscription.rack_id,
                rebalance_timeout_ms=terms.rebalance_timeout_ms,
                client_id=terms.client_id,
                client_host=terms.client_host,
                names=tuple(sorted(set(subscription.topics))),
                classic=ClassicTerms(terms.session_timeout_ms, terms.protocols),
                assigned=assigned,
            )
        )
    return members


def may_downgrade(group: ConsumerMembership, settings: GroupSettings) -> bool:
    """Whether only classic members are left, and the settings allow a downgrade."""
    members = group.group_members.members
    return (
        bool(members)
        and all(member.classic is not None for member in members.values())
        and settings.group_consumer_migration_policy.lower() in DOWNGRADES
        and len(members) <= settings.group_max_size
    )


def downgraded(
    group: ConsumerMembership, settings: GroupSettings, topics: Topics, now: Now
) -> tuple[Membership, KeyValue]:
    """The group in the classic protocol, Stable in the newest epoch of its members, and its record."""
    membership = Membership(group.group_id, settings, now)
    classic = membership.group
    for member in group.group_members.members.values():
        terms = member.classic
        if terms is None:
            continue
        joined = Member(
            member.member_id,
            Terms(
                member.instance_id,
                member.client_id,
                member.client_host,
                terms.session_timeout_ms,
                member.rebalance_timeout_ms,
                terms.protocols,
            ),
        )
        joined.assignment = write_assignment(named(member.assigned, topics), terms.protocols[0][1])
        classic.group_members.add(joined)
    # Not the group's epoch, which has just grown because a member left: members that are up to date must stay so.
    classic.generation = max(member.epoch for member in group.group_members.members.values())
    classic.protocol_type = CONSUMER
    classic.protocol_name = classic.group_members.select_protocol()
    value = classic.generation_value({member.member_id: member.assignment for member in classic.group_members})
    value.current_state_timestamp = now.wall_ms
    record = group_record(group.group_id, value)
    classic.replay(value, record[1])
    return membership, record
