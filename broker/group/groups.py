"""Groups of the partitions that this broker leads: finds and creates them (Kafka: GroupMetadataManager.group).

The decisions here precede a group: whether this broker coordinates its partition, and whether the partition is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from odradek.broker.coordinator.runtime import CoordinatorRuntime
from odradek.broker.group.shard import GroupCoordinatorShard
from odradek.broker.group.state.consumer_group_requests import Topics
from odradek.broker.group.state.group import Group
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.runtime.state.effects import Effect, Now
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)
NO_ERROR: Final = ErrorCode.NONE
GroupRuntime = CoordinatorRuntime[Group, GroupCoordinatorShard]


CHANGED_AT_ONCE: Final = 1000
"""Offsets that one event examines or deletes: three milliseconds."""
GROUPS_AT_ONCE: Final = 250


def _nothing() -> None:
    """The work of `Groups.change_offsets` is done."""


class Groups:
    """The groups that this broker coordinates."""

    def __init__(self, settings: GroupSettings, runtime: GroupRuntime, topics: Topics) -> None:
        self._settings = settings
        self._runtime = runtime
        self._topics = topics
        self.now = runtime.now
        """The time of an event; bound here, because each request needs it."""

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` to which a group belongs."""
        return partition_for(group_id, self._settings.offsets_topic_num_partitions)

    @property
    def is_loading(self) -> bool:
        """Whether a partition is loading."""
        return self._runtime.is_loading

    def check(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Whether this broker serves a group; NONE if it does."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        return self._runtime.check(self.partition_of(group_id))

    def find(self, group_id: str) -> Group | None:
        """A group that has not ended; its partition has to be active."""
        group = self._runtime.find(self.partition_of(group_id), group_id)
        return group if group is not None and not group.is_dead else None

    def look_up(self, group_id: str, *, may_be_empty: bool = False) -> tuple[ErrorCode, Group | None]:
        """The error where this broker does not serve the group; otherwise the group, if it exists."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID, None
        partition = self.partition_of(group_id)
        group = self._runtime.find_active(partition, group_id)
        if group is None:
            return self._runtime.check(partition), None
        return NO_ERROR, None if group.is_dead else group

    def create(self, group_id: str) -> Group:
        """A new group, or a group that has ended, for a new beginning."""
        partition, now = self.partition_of(group_id), self.now()
        group = self._runtime.find(partition, group_id)
        if group is None:
            group = Group(group_id, self._settings, now, self._topics)
            self._runtime.put(partition, group_id, group)
        else:  # the tombstone of the dead group is not durable yet, and the log may refuse it
            group.begin_anew(now)
        return group

    def living(self) -> list[Group]:
        """Every group that has not ended."""
        return [group for group in self._runtime.machines() if not group.is_dead]

    def perform(self, group: Group, effects: list[Effect]) -> None:
        """Perform the effects of an event."""
        self._runtime.perform(group, effects)

    def perform_last(self, group: Group, effects: list[Effect]) -> None:
        """Perform the effects of an event that may end the group, and remove the group if nothing is left of it."""
        self._runtime.perform(group, effects)
        self._runtime.release(group)

    def change_offsets(
        self,
        partitions_of: Callable[[Group], Collection[TopicPartition]],
        event: Callable[[Group, list[TopicPartition], Now], list[Effect]],
        done: Callable[[], None] = _nothing,
    ) -> None:
        """Pass an event that may end a group to every group, with CHANGED_AT_ONCE of its partitions at a time, or none;
        then call `done`. Where there are many groups or offsets, it is done in turns with the loop, and requests come
        between the events.
        """
        groups = list(self._runtime.machines())
        work = partial(self._change_offsets, groups, partitions_of, event, done)
        if len(groups) > GROUPS_AT_ONCE or sum(group.offsets.count for group in groups) > CHANGED_AT_ONCE:
            self._runtime.run_in_turns(partial(_run_logged, work))
        else:
            work()

    def _change_offsets(
        self,
        groups: list[Group],
        partitions_of: Callable[[Group], Collection[TopicPartition]],
        event: Callable[[Group, list[TopicPartition], Now], list[Effect]],
        done: Callable[[], None],
    ) -> None:
        for group in items_of(groups):
            if not self.is_alive(group):
                continue
            found = partitions_of(group)
            partitions = keep(found if isinstance(found, list) else list(found))
            for first in items_of(range(0, max(1, len(partitions)), CHANGED_AT_ONCE)):
                if not self.is_alive(group):
                    break
                part = partitions[first : first + CHANGED_AT_ONCE]
                self.perform_last(group, event(group, part, self.now()))
                if group.refusal:
                    break  # of the log, which refuses the others, too
        done()

    def is_alive(self, group: Group) -> bool:
        """Whether this broker still coordinates a group, and the group has not ended."""
        return self._runtime.has(group) and not group.is_dead


def _run_logged(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception:
        log.exception("cannot remove offsets of groups")
