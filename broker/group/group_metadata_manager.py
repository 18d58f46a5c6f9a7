"""Group metadata manager: members, descriptions and deletion of groups (Kafka: GroupMetadataManager).

Each method finds the group and passes the request to its state machine. The rules are those of Kafka's GroupCoordinator
and GroupMetadataManager. No method blocks: the group stores a request that it cannot answer yet as a token, and later
calls the token with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from odradek.broker.group.groups import Groups
from odradek.broker.group.state.classic_group import ClassicGroup
from odradek.broker.group.state.classic_members import PROTOCOL_BYTES
from odradek.broker.group.state.classic_membership import Membership
from odradek.broker.group.state.classic_requests import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    SyncRequest,
    SyncResult,
)
from odradek.broker.group.state.consumer_group import ConsumerMembership
from odradek.broker.group.state.consumer_group_requests import (
    JOINING,
    LOG_ERRORS,
    HeartbeatRequest,
    HeartbeatResult,
    check_heartbeat,
)
from odradek.broker.group.state.group import COMMIT_ERRORS, Group
from odradek.broker.group.state.records import offset_key
from odradek.broker.group.state.settings import MEMBERS_SHARE, GroupSettings
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

DELETED_AT_ONCE: Final = 1000
"""Offsets whose tombstones are encoded and written without an interruption: three milliseconds."""
DELETED_WITH_GROUP: Final = 10_000
"""Offsets that are deleted together with their group, in one batch; those of a larger group are deleted before."""


class GroupMetadataManager:
    """The requests of members and administrators."""

    def __init__(self, settings: GroupSettings, groups: Groups, fresh_id: Callable[[], str]) -> None:
        """`fresh_id` returns a unique string, normally a random UUID; the manager appends it to member ids."""
        self._settings = settings
        self._groups = groups
        self._fresh_id = fresh_id

    # --- members ---

    @property
    def most_protocols(self) -> int:
        """A member with more protocols takes more memory than one member may."""
        return self._settings.odradek_group_max_metadata_bytes // MEMBERS_SHARE // PROTOCOL_BYTES

    def join(self, group_id: str, request: JoinRequest, answer: Callable[[JoinResult], None]) -> None:
        """JoinGroup."""
        error, group = self._groups.look_up(group_id)
        settings, timeout_ms = self._settings, request.terms.session_timeout_ms
        if error:
            answer(JoinResult(error, request.member_id))
            return
        if not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
            answer(JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
            return
        if group is None:
            if request.member_id != UNKNOWN_MEMBER_ID:
                answer(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return
            group = self._groups.create(group_id)
        unique = "" if request.member_id else self._fresh_id()  # a read of the system's random numbers
        self._groups.perform(group, group.join(answer, request, unique, self._groups.now()))

    def sync(self, group_id: str, request: SyncRequest, answer: Callable[[SyncResult], None]) -> None:
        """SyncGroup."""
        error, group = self._groups.look_up(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance ends with the old coordinator. This code makes the member join again, and old clients
            # do not support COORDINATOR_LOAD_IN_PROGRESS here.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if group is None:
            answer(SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self._groups.perform(group, group.sync(answer, request, self._groups.now()))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat."""
        error, group = self._groups.look_up(group_id)
        if error:
            # Accept heartbeats while the group is loading.
            return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error, effects = group.heartbeat(member_id, instance_id, generation, self._groups.now())
        if effects:
            self._groups.perform(group, effects)
        return error

    def leave(self, group_id: str, leavers: Iterable[tuple[str, str | None]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """LeaveGroup: (member id, instance id) of each; one code for all and one for each."""
        error = self._groups.check(group_id)
        if error:
            return error, []
        codes = []
        for member_id, instance_id in items_of(leavers):
            group = self._groups.find(group_id)
            if group is None:
                codes.append(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            code, effects = group.leave(member_id, instance_id, self._groups.now())
            self._groups.perform(group, effects)
            codes.append(code or LOG_ERRORS.get(group.refusal, group.refusal))
        return ErrorCode.NONE, codes

    def consumer_heartbeat(
        self, group_id: str, request: HeartbeatRequest, answer: Callable[[HeartbeatResult], None]
    ) -> None:
        """ConsumerGroupHeartbeat."""
        try:
            check_heartbeat(group_id, request, self._settings.assignors if request.assignor is not None else ())
        except KafkaError as refused:
            answer(HeartbeatResult(refused.code, refused.message))
            return
        error, group = self._groups.look_up(group_id)
        if group is None and not error and request.epoch == JOINING:
            group = self._groups.create(group_id)
        if group is None:
            missing = f"Group {group_id} not found." if not error else None
            answer(HeartbeatResult(error or ErrorCode.GROUP_ID_NOT_FOUND, missing))
            return
        unique = "" if request.member_id else self._fresh_id()  # a read of the system's random numbers
        self._groups.perform_last(group, group.consumer_heartbeat(answer, request, unique, self._groups.now()))

    # --- administration ---

    def describe(self, group_id: str) -> tuple[ErrorCode, ClassicGroup | None]:
        """DescribeGroups: None when there is no such group of the classic protocol."""
        error, membership = self._membership(group_id)
        return error, membership.group if isinstance(membership, Membership) else None

    def describe_consumers(self, group_id: str) -> tuple[ErrorCode, ConsumerMembership | None]:
        """ConsumerGroupDescribe: the same for the consumer protocol."""
        error, membership = self._membership(group_id)
        return error, membership if isinstance(membership, ConsumerMembership) else None

    def members_of(self, group_ids: Iterable[str]) -> int:
        """How many members groups have, in all."""
        found = [self._membership(group_id)[1] for group_id in dict.fromkeys(group_ids)]
        classic = sum(len(each.group.group_members) for each in found if isinstance(each, Membership))
        return classic + sum(len(each.group_members.members) for each in found if isinstance(each, ConsumerMembership))

    def _membership(self, group_id: str) -> tuple[ErrorCode, Membership | ConsumerMembership | None]:
        error, group = self._groups.look_up(group_id, may_be_empty=True)
        return error, group.membership if group is not None else None

    def list_groups(self, states: Iterable[str] = ()) -> tuple[ErrorCode, list[tuple[str, str, str, str]]]:
        """ListGroups: (id, protocol type, state, type) of the groups in these states (case-insensitive; none: all)."""
        wanted = {state.lower() for state in states}
        found = [
            (
                group.group_id,
                group.membership.protocol_type or "",
                group.membership.state.value,
                "classic" if isinstance(group.membership, Membership) else "consumer",
            )
            for group in items_of(list(self._groups.living()))
            if not wanted or group.membership.state.value.lower() in wanted
        ]
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._groups.is_loading else ErrorCode.NONE, found

    def states(self) -> list[tuple[str, int]]:
        """The state and the number of committed offsets of every group that this broker coordinates."""
        return [(group.membership.state.value, len(group.offsets)) for group in self._groups.living()]

    def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups, for one group."""
        error, group = self._groups.look_up(group_id, may_be_empty=True)
        if group is None:
            return error or ErrorCode.GROUP_ID_NOT_FOUND
        keys: dict[TopicPartition, bytes] = {}
        if group.offsets.count > DELETED_AT_ONCE:
            error, keys = self._prepare_deletion(group)
            if error or not self._groups.is_alive(group):
                return error or self._groups.check(group_id)
        error, effects = group.delete(self._groups.now(), keys)
        self._groups.perform_last(group, effects)
        return error or COMMIT_ERRORS.get(group.refusal, group.refusal)

    def offsets_of(self, group_ids: Iterable[str]) -> int:
        """How many offsets groups have, in all."""
        found = [self._groups.look_up(group_id, may_be_empty=True)[1] for group_id in group_ids]
        return sum(group.offsets.count for group in found if group is not None)

    def _prepare_deletion(self, group: Group) -> tuple[ErrorCode, dict[TopicPartition, bytes]]:
        """Delete offsets in parts until the tombstones of the others are no more than a batch may have, and encode the
        keys of those; in a turn, requests may come in between. An error ends the deletion.
        """
        partitions = keep(group.offsets.partitions())
        for first in items_of(range(0, max(0, len(partitions) - DELETED_WITH_GROUP), DELETED_AT_ONCE)):
            if not self._groups.is_alive(group):
                return ErrorCode.NONE, {}
            if not group.is_empty:
                return ErrorCode.NON_EMPTY_GROUP, {}
            _, effects = group.delete_offsets(partitions[first : first + DELETED_AT_ONCE], self._groups.now())
            self._groups.perform_last(group, effects)
            if group.refusal:
                return COMMIT_ERRORS.get(group.refusal, group.refusal), {}
        return ErrorCode.NONE, {each: offset_key(group.group_id, each) for each in items_of(group.offsets.partitions())}
