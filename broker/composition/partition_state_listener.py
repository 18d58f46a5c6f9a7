"""Partition state listener: notifies the coordinators and the controller of partition changes on this broker.

The coordinators store their state in partitions of `__consumer_offsets` and `__transaction_state`. They load a
partition when this broker becomes its leader and unload it when this broker stops leading it. When a disk fails, the
broker notifies the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.coordinator.runtime import CoordinatorRuntime
from odradek.broker.group.offset_metadata_manager import OffsetMetadataManager
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.metadata.cache import MetadataCache, TopicMetadata
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.metadata.state.topics import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import RegistryError
from odradek.broker.replication.fetcher import Fetchers
from odradek.broker.replication.partition import Replica
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.transaction.state.settings import TransactionSettings

log = logging.getLogger(__name__)

RETRY_S = 1


class CoordinatorEvents:
    """Notifies the coordinators of partitions that this broker leads or stops leading, and of deleted topics."""

    def __init__(
        self,
        runtimes: Mapping[str, CoordinatorRuntime[Any, Any]],
        offsets: OffsetMetadataManager,
        group_settings: GroupSettings,
        transaction_settings: TransactionSettings,
        metadata_cache: MetadataCache,
    ) -> None:
        """`runtimes` has the coordinator runtime of each internal topic."""
        self._runtimes = runtimes
        self._offsets = offsets
        self._group_settings = group_settings
        self._transaction_settings = transaction_settings
        self._metadata_cache = metadata_cache
        metadata_cache.watch(self._count)

    def _count(self) -> None:
        """Take the number of partitions from the metadata cache: the property counts only at the topic's creation."""
        topics = self._metadata_cache.topics
        if (offsets := topics.get(GROUP_OFFSETS)) is not None:
            self._group_settings.offsets_topic_num_partitions = len(offsets.partitions)
        if (states := topics.get(TRANSACTION_STATE)) is not None:
            self._transaction_settings.transaction_state_log_num_partitions = len(states.partitions)

    def led(self, replica: Replica) -> None:
        """This broker leads a partition: load it, if a coordinator has its state there."""
        runtime = self._runtimes.get(replica.topic)
        if runtime is not None:
            runtime.load(replica.partition, replica.machine.leader_epoch)

    def left(self, topic: str, partition: int) -> None:
        """This broker no longer leads a partition."""
        runtime = self._runtimes.get(topic)
        if runtime is not None:
            runtime.unload(partition)

    def deleted(self, topic: TopicMetadata) -> None:
        """Delete the committed offsets of the partitions of a deleted topic."""
        if topic.name != GROUP_OFFSETS:
            self._offsets.forget_partitions([(topic.name, partition.index) for partition in topic.partitions])


class DiskFailures:
    """Reports failed log directories to the controller, which elects other leaders (KIP-112)."""

    def __init__(
        self,
        broker_id: int,
        session: RegistrySession,
        fetchers: Fetchers,
        request_tasks: RequestTasks,
        events: CoordinatorEvents,
        end: Callable[[str], None],
    ) -> None:
        """`end` is called with the reason when no log directory is left."""
        self._broker_id = broker_id
        self._session = session
        self._fetchers = fetchers
        self._request_tasks = request_tasks
        self._events = events
        self._lost: list[Replica] = []
        self._is_ending = False
        self.all_lost = end

    def replicas_lost(self, replicas: list[Replica]) -> None:
        """The directory of these replicas is offline: end their fetches and coordinators in a task."""
        self._lost += replicas
        if not self._is_ending:
            self._is_ending = True
            self._request_tasks.run(self._end_lost())

    async def _end_lost(self) -> None:
        while self._lost:
            lost, self._lost = self._lost, []
            for replica in lost:  # in a task, because the failed write may be the coordinator's or the fetcher's own
                self._fetchers.leave(replica)
                self._events.left(replica.topic, replica.partition)
            await self._report()
        self._is_ending = False

    async def _report(self) -> None:
        while True:
            try:
                await self._session.registry.create(
                    znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(self._broker_id), sequential=True
                )
            except RegistryError as error:
                log.warning("retrying report of failed log directory broker=%d error=%s", self._broker_id, error)
                await asyncio.sleep(RETRY_S)
            else:
                return
