"""What becomes of partitions, told to those on this broker who have to know.

The coordinators keep what they coordinate in partitions of `__consumer_offsets` and `__transaction_state`: they read
one when this broker begins to lead it, and let go when it does not any more. A disk that fails is told to the
controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from odradek.broker.group.coordinator import GroupCoordinator
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.metadata.cache import MetadataCache, TopicMetadata
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.metadata.state.topics import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import RegistryError
from odradek.broker.replication.fetcher import Fetchers
from odradek.broker.replication.partition import Replica
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.broker.transaction.state.settings import TransactionSettings

log = logging.getLogger(__name__)

RETRY_S = 1


class CoordinatorEvents:
    """What the coordinators have to know of partitions."""

    def __init__(
        self,
        groups: GroupCoordinator,
        group_settings: GroupSettings,
        transactions: TransactionCoordinator,
        transaction_settings: TransactionSettings,
        metadata_cache: MetadataCache,
    ) -> None:
        self._groups = groups
        self._group_settings = group_settings
        self._transactions = transactions
        self._transaction_settings = transaction_settings
        self._metadata_cache = metadata_cache
        metadata_cache.watch(self._count)

    def _count(self) -> None:
        """A topic has as many partitions as it was made with, whatever the property says now."""
        topics = self._metadata_cache.topics
        if (offsets := topics.get(GROUP_OFFSETS)) is not None:
            self._group_settings.offsets_topic_num_partitions = len(offsets.partitions)
        if (states := topics.get(TRANSACTION_STATE)) is not None:
            self._transaction_settings.transaction_state_log_num_partitions = len(states.partitions)

    def led(self, replica: Replica) -> None:
        if replica.topic == GROUP_OFFSETS:
            self._groups.load(replica.partition)
        elif replica.topic == TRANSACTION_STATE:
            self._transactions.load(replica.partition, replica.machine.leader_epoch)

    def left(self, topic: str, partition: int) -> None:
        if topic == GROUP_OFFSETS:
            self._groups.unload(partition)
        elif topic == TRANSACTION_STATE:
            self._transactions.unload(partition)

    def deleted(self, topic: TopicMetadata) -> None:
        """Offsets of partitions that are gone go with them."""
        if topic.name != GROUP_OFFSETS:
            self._groups.forget_partitions([(topic.name, partition.index) for partition in topic.partitions])


class DiskFailures:
    """Replicas whose disk has failed are told to the controller, which looks for other leaders (KIP-112)."""

    def __init__(
        self,
        broker_id: int,
        session: RegistrySession,
        fetchers: Fetchers,
        request_tasks: RequestTasks,
        events: CoordinatorEvents,
        end: Callable[[str], None],
    ) -> None:
        """`end` hears why the broker cannot go on."""
        self._broker_id = broker_id
        self._session = session
        self._fetchers = fetchers
        self._request_tasks = request_tasks
        self._events = events
        self._lost: list[Replica] = []
        self._telling = False
        self.all_lost = end

    def replicas_lost(self, replicas: list[Replica]) -> None:
        """These replicas serve no more: end what goes on for them, soon."""
        self._lost += replicas
        if not self._telling:
            self._telling = True
            self._request_tasks.run(self._tell())

    async def _tell(self) -> None:
        while self._lost:
            lost, self._lost = self._lost, []
            for replica in lost:  # not before: it may be a coordinator's or a follower's own write that has failed
                self._fetchers.leave(replica)
                self._events.left(replica.topic, replica.partition)
            await self._report()
        self._telling = False

    async def _report(self) -> None:
        while True:
            try:
                await self._session.registry.create(
                    znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(self._broker_id), sequential=True
                )
            except RegistryError as error:
                log.warning("the failed disk could not be reported yet: %s", error)
                await asyncio.sleep(RETRY_S)
            else:
                return
