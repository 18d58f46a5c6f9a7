"""Records of `__consumer_offsets` in the format of Kafka 3.9 (Kafka: GroupMetadataManager, CoordinatorRecordHelpers).

| key version | key                     | value                                                                 |
|-------------|-------------------------|-----------------------------------------------------------------------|
| 0, 1        | group, topic, partition | a committed offset (OffsetCommitValue); null: tombstone               |
| 2           | group                   | a generation of a group (GroupMetadataValue); null: tombstone         |
| 3 to 8, 16  |                         | groups of KIP-848: `consumer_group_records`                           |
| others      |                         | later kinds of groups; not read                                       |

Keys and values begin with their version as int16. This module writes key versions 1 and 2 and value version 3, but
value version 1 for an offset with its own expiration time, because later versions have no field for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from odradek.broker.group.state.classic_members import ClassicGroupMembers, Member
from odradek.broker.group.state.classic_requests import Terms
from odradek.broker.group.state.offsets import NO_EXPIRY, OffsetAndMetadata
from odradek.broker.runtime.state.effects import Each, KeyValue
from odradek.protocol import messages as m
from odradek.protocol.decoding import Meter
from odradek.protocol.encoded import EncodedArray, EncodedElement
from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition

VERSION: Final = struct.Struct(">h")
OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3

_PLAIN_VALUE: Final = struct.Struct(">hqihq")
"""A value of OFFSET_VALUE_VERSION with empty metadata: version, offset, leader epoch, length of the metadata, time."""
LONGEST_REMEMBERED: Final = 256
"""Characters of a group and a topic whose keys are remembered: with 4,096 keys, they take two megabytes at most."""
OFFSET_KEY_PREFIX: Final = VERSION.pack(OFFSET_KEY_VERSION)
GROUP_KEY_PREFIX: Final = VERSION.pack(GROUP_KEY_VERSION)
OFFSET_VALUE_PREFIX: Final = VERSION.pack(OFFSET_VALUE_VERSION)
GROUP_VALUE_PREFIX: Final = VERSION.pack(GROUP_VALUE_VERSION)


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    """The key of a group's generation."""

    group_id: str


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """The key of a partition's offset."""
    is_short = len(group_id) + len(partition[0]) <= LONGEST_REMEMBERED
    return _remembered_key(group_id, partition) if is_short else _offset_key(group_id, partition)


def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = m.OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1])
    return key.encode(OFFSET_KEY_VERSION, OFFSET_KEY_PREFIX)


_remembered_key: Final = lru_cache(maxsize=4096)(_offset_key)
"""A consumer commits the offsets of the same partitions again and again."""


def group_key(group_id: str) -> bytes:
    """The key of a group's generation."""
    return GROUP_KEY_PREFIX + m.GroupMetadataKey(group=group_id).encode(GROUP_KEY_VERSION)


def offset_record(group_id: str, partition: TopicPartition, committed: OffsetAndMetadata) -> KeyValue:
    """The record of one commit."""
    if committed.expire_ms == NO_EXPIRY and not committed.metadata:
        data = _PLAIN_VALUE.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch, 0, committed.commit_ms)
        return offset_key(group_id, partition), data
    value = m.OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
    )
    if committed.expire_ms == NO_EXPIRY:
        data = value.encode(OFFSET_VALUE_VERSION, OFFSET_VALUE_PREFIX)
    else:
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY
        data = value.encode(version, VERSION.pack(version))
    return offset_key(group_id, partition), data


def group_record(group_id: str, value: m.GroupMetadataValue) -> tuple[bytes, bytes]:
    """The record of one generation."""
    return group_key(group_id), GROUP_VALUE_PREFIX + value.encode(GROUP_VALUE_VERSION)


def encoded_member(member: Member, protocol: str | None, assignment: bytes) -> EncodedElement:
    """The same as `member_value`, encoded for a generation's record."""
    return EncodedElement(member_value(member, protocol, assignment).encode(GROUP_VALUE_VERSION))


def encoded_members(members: Iterable[EncodedElement]) -> EncodedArray:
    """The members of a generation's record."""
    return EncodedArray(members, GROUP_VALUE_VERSION)


def member_value(member: Member, protocol: str | None, assignment: bytes) -> m.GroupMetadataValue.MemberMetadata:
    """The member in a generation's record: its metadata for the selected protocol only."""
    return m.GroupMetadataValue.MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.terms.instance_id,
        client_id=member.terms.client_id,
        client_host=member.terms.client_host,
        rebalance_timeout=member.terms.rebalance_timeout_ms,
        session_timeout=member.terms.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=assignment,
    )


def restore_members(group_members: ClassicGroupMembers, value: m.GroupMetadataValue, each: Each) -> None:
    """Apply the members of a generation's record. Existing members keep the fields that the record omits.

    They are encoded, too: the next record may come from one request, which cannot be interrupted.
    """
    for stored in each(value.members):
        member = group_members.get(stored.member_id)
        if member is None:
            # Version 0 had one field for both timeouts.
            rebalance_ms = stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
            terms = Terms(
                instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                session_timeout_ms=stored.session_timeout,
                rebalance_timeout_ms=rebalance_ms,
                protocols=((value.protocol or "", stored.subscription),),
            )
            member = Member(stored.member_id, terms)
            group_members.add(member)
        member.assignment = stored.assignment
        member.encoded = encoded_member(member, value.protocol, stored.assignment)
    if value.leader is not None and value.leader in group_members:
        group_members.leader = value.leader


def read_key(key: bytes) -> OffsetKey | GroupKey | int:
    """The key of a record, or the version of a key of another kind. Raises ProtocolError."""
    version = _version("key", key)
    if version in (0, OFFSET_KEY_VERSION):
        offset = m.OffsetCommitKey.decode(key, version, VERSION.size)
        return OffsetKey(offset.group, (offset.topic, offset.partition))
    if version == GROUP_KEY_VERSION:
        return GroupKey(m.GroupMetadataKey.decode(key, version, VERSION.size).group)
    return version


def read_offset(value: bytes) -> OffsetAndMetadata:
    """A committed offset of any version. Raises ProtocolError."""
    version = _version("OffsetCommitValue", value, m.OffsetCommitValue.MAX_VERSION)
    stored = m.OffsetCommitValue.decode(value, version, VERSION.size)
    return OffsetAndMetadata(
        stored.offset, stored.leader_epoch, stored.metadata, stored.commit_timestamp, stored.expire_timestamp
    )


def read_group(value: bytes, meter: Meter | None = None) -> m.GroupMetadataValue:
    """A generation of a group of any version; with `meter`, its members are read with interruptions.

    Raises ProtocolError.
    """
    version = _version("GroupMetadataValue", value, m.GroupMetadataValue.MAX_VERSION)
    if meter is not None:
        found: m.GroupMetadataValue = m.GroupMetadataValue.METERED_DECODERS[version](value, VERSION.size, meter)[0]
        return found
    return m.GroupMetadataValue.decode(value, version, VERSION.size)


def _version(field: str, data: bytes, highest: int | None = None) -> int:
    if len(data) < VERSION.size:
        raise ProtocolError(f"{field}.version", 0, f"{len(data)} bytes where a version of 2 is expected")
    version: int = VERSION.unpack_from(data)[0]
    if highest is not None and not 0 <= version <= highest:
        raise ProtocolError(f"{field}.version", 0, f"version {version} is not one of 0 to {highest}")
    return version
