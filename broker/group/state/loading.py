"""Loader: rebuilds the groups of a partition of `__consumer_offsets` from its records (Kafka: CoordinatorLoader).

The caller feeds the records in the order of the log. The last generation of a group is valid, offsets are replayed one
by one, and those of a transaction wait for its marker (KIP-98). A group that never had members and has offsets only
becomes an Empty group in generation 0. The rules are those of Kafka's GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.group.state import consumer_group_records
from odradek.broker.group.state.classic_membership import Membership
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.consumer_group_members import ConsumerGroupMembers
from odradek.broker.group.state.consumer_group_requests import Topics
from odradek.broker.group.state.group import Group
from odradek.broker.group.state.offsets import Offsets
from odradek.broker.group.state.records import GroupKey, OffsetKey, read_group, read_key, read_offset
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import Each, Now
from odradek.protocol import messages as m
from odradek.protocol.batch import Header, Record
from odradek.protocol.errors import ProtocolError

COMMIT_MARKER = 1


class Loader:
    """Collects the state from the records of one partition."""

    def __init__(self) -> None:
        self._generations: dict[str, tuple[m.GroupMetadataValue, bytes]] = {}
        self._members: dict[str, ConsumerGroupMembers] = {}
        self._offsets: dict[str, Offsets] = {}
        self.in_transaction: dict[int, dict[str, None]] = {}
        """Producer id -> the groups with offsets in its open transaction."""

    def feed(
        self, header: Header, record: Record, read_generation: Callable[[bytes], m.GroupMetadataValue] = read_group
    ) -> None:
        """Apply one record, with the header of its batch. `read_generation` decodes the value of a generation.

        Raises ProtocolError for an unreadable record; earlier and later records are not affected.
        """
        if record.key is None:
            raise ProtocolError("key", 0, "a record of __consumer_offsets without a key")
        if header.is_control:
            self._end_transaction(header.producer_id, record.key)
            return
        match read_key(record.key):
            case OffsetKey(group_id, partition):
                committed = read_offset(record.value) if record.value is not None else None
                producer_id = None
                if header.is_transactional:
                    producer_id = header.producer_id
                    self.in_transaction.setdefault(producer_id, {})[group_id] = None
                self._offsets.setdefault(group_id, Offsets()).replay(partition, committed, producer_id)
            case GroupKey(group_id):
                if record.value is None:
                    self._generations.pop(group_id, None)
                else:
                    self._generations[group_id] = read_generation(record.value), record.value
                    self._members.pop(group_id, None)
            case int(version) if version in consumer_group_records.KINDS:
                found = consumer_group_records.read(version, record.key, record.value)
                consumer_group_records.replay(
                    self._members.setdefault(found.key.group_id, ConsumerGroupMembers()), found
                )

    def groups(self, settings: GroupSettings, now: Now, topics: Topics, each: Each = iter) -> list[Group]:
        """The groups as of the end of the log; none of them has a timer yet. Loops over `each` may be interrupted."""
        found = []
        rosters = {
            group_id: group_members
            for group_id, group_members in each(self._members.items())
            if group_members.epoch or group_members.members
        }
        for group_id in each(dict.fromkeys([*self._generations, *rosters, *self._offsets])):
            generation, offsets = self._generations.get(group_id), self._offsets.get(group_id)
            if generation is None and group_id not in rosters and (offsets is None or not offsets.in_use):
                continue
            group = Group(group_id, settings, now, topics)
            if group_id in rosters:
                group.membership = ConsumerMembership(group_id, settings, topics, rosters[group_id])
            elif generation is not None and isinstance(group.membership, Membership):
                group.membership.group.replay(*generation, each)
            if offsets is not None:
                group.offsets = offsets
            found.append(group)
        return found

    def _end_transaction(self, producer_id: int, key: bytes) -> None:
        if len(key) < 4:
            raise ProtocolError("EndTxnMarker.key", 0, f"{len(key)} bytes where version and type take 4")
        commit = int.from_bytes(key[2:4], "big") == COMMIT_MARKER
        for group_id in self.in_transaction.pop(producer_id, {}):
            self._offsets[group_id].complete(producer_id, commit)
