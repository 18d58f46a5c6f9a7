"""Group coordinator: the groups of the partitions that this broker leads (Kafka: GroupCoordinatorService).

A group belongs to one partition of `__consumer_offsets`, and the broker that leads this partition coordinates it. The
coordinator runtime loads the partitions and performs the effects of the groups. Two managers have the requests:
`groups` those of members and administrators, `offsets` those for committed offsets.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.coordinator.runtime import CoordinatorLog
from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.group.groups import GroupRuntime, Groups
from odradek.broker.group.log import TransactionalLog
from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.group.shard import GroupCoordinatorShard
from odradek.broker.group.state.consumer_group_requests import Topics
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.metadata.state.topics import GROUP_OFFSETS
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.broker.runtime.turns import Run, at_once


class GroupCoordinator:
    """The groups of the partitions that this broker leads."""

    def __init__(
        self,
        settings: GroupSettings,
        clock: Clock,
        timers: Timers,
        fresh_id: Callable[[], str],
        offsets_log: CoordinatorLog,
        transactional_log: TransactionalLog,
        topics: Topics,
        run_in_turns: Run = at_once,
    ) -> None:
        """`fresh_id` returns a unique string, normally a random UUID; the coordinator appends it to member ids."""
        self._settings = settings
        self._clock = clock
        self._set_timer = timers.at
        self._cleanup: Timer | None = None
        self._is_closed = False
        self.runtime = GroupRuntime(
            GROUP_OFFSETS,
            lambda partition: GroupCoordinatorShard(settings, topics),
            offsets_log,
            clock,
            timers,
            transactional_writer=transactional_log,
            run_in_turns=run_in_turns,
        )
        """Loads and unloads the partitions."""
        self._groups = Groups(settings, self.runtime, topics)
        self.groups = GroupMetadataManager(settings, self._groups, fresh_id)
        """The requests of members and administrators."""
        self.offsets = OffsetMetadataManager(self._groups, self.runtime, transactional_log)
        """The requests for committed offsets."""

    def start(self) -> None:
        """Start the timer that removes expired offsets every `offsets.retention.check.interval.ms`."""
        if self._is_closed:
            return
        interval_ms = self._settings.offsets_retention_check_interval_ms
        self._cleanup = self._set_timer(self._clock.monotonic_ms() + interval_ms, self._clean)

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR and cancel all timers."""
        self._is_closed = True
        if self._cleanup is not None:
            self._cleanup.cancel()
            self._cleanup = None
        self.runtime.close()

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` to which a group belongs."""
        return self._groups.partition_of(group_id)

    def _clean(self) -> None:
        self._cleanup = None
        self._groups.change_offsets(
            lambda group: group.offsets.partitions(),
            lambda group, partitions, now: group.expire(now, partitions),
            self.start,
        )
