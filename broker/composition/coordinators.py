"""Builds the group coordinator and the transaction coordinator of a broker, and connects them to partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple, TypeVar

from odradek.broker.composition.partition_state_listener import CoordinatorEvents
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.coordinator.log import InternalTopicLog
from odradek.broker.coordinator.lookup import CODECS
from odradek.broker.group.coordinator import GroupCoordinator
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.state.topics import GROUP_OFFSETS, TRANSACTION_STATE
from odradek.broker.metadata.topics_for_groups import CachedTopics
from odradek.broker.network.inter_broker_client import InterBrokerClient, Local
from odradek.broker.network.inter_broker_connection import Network
from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.transaction_verification import TransactionVerification, coordinator_in
from odradek.broker.replication.transactional_produce import TransactionalWrites
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.scheduler import Periodic
from odradek.broker.runtime.turns import Run
from odradek.broker.transaction.coordinator import TransactionCoordinator
from odradek.broker.transaction.markers import Markers
from odradek.broker.transaction.offset_commits import TransactionalOffsets
from odradek.broker.transaction.producer_ids import ProducerIds
from odradek.broker.transaction.state.settings import TransactionSettings

Settings = TypeVar("Settings", GroupSettings, TransactionSettings)


class CoordinatorDependencies(NamedTuple):
    """Dependencies of the coordinators on other parts of the broker."""

    config: BrokerConfig
    metadata_cache: MetadataCache
    replicas: Replicas
    network: Network
    local: Local
    producer_ids: ProducerIds
    fresh_id: Callable[[], str]
    run_in_turns: Run

    def links(self, purpose: str) -> InterBrokerClient:
        """A separate inter-broker client for one purpose, with its own connections to all brokers."""
        config = self.config
        return InterBrokerClient.of_metadata(
            self.metadata_cache, config.inter_broker_listener, config.broker_id, self.network, self.local, purpose
        )

    def topic(
        self, name: str, purgatory: DelayedOperationPurgatory, timeout_ms: int, **options: Any
    ) -> InternalTopicLog:
        """The coordinator log of an internal topic."""
        return InternalTopicLog(name, self.replicas, self.network.clock, purgatory, timeout_ms=timeout_ms, **options)


class Coordination:
    """The coordinators of a broker; they serve the partitions of internal topics that this broker leads."""

    def __init__(self, dependencies: CoordinatorDependencies) -> None:
        config, network = dependencies.config, dependencies.network
        clock, timers = network.clock, network.timers
        purgatory = DelayedOperationPurgatory(timers)
        self.group_settings = _settings(config, GroupSettings)
        self.transaction_settings = _settings(config, TransactionSettings)
        # Separate from the connections for markers: those wait for followers, and producers wait for verifications.
        self._verification_client = dependencies.links("txn-verification")
        self._marker_links = dependencies.links("txn-markers")
        verification = TransactionVerification(
            self._verification_client.send_request,
            partial(coordinator_in, dependencies.metadata_cache),
            lambda: bool(config["transaction.partition.verification.enable"]),
            clock,
            timers,
        )
        self.writes = TransactionalWrites(verification, clock)
        settings = self.group_settings
        codec = CODECS[settings.offsets_topic_compression_codec]
        self.group_coordinator = GroupCoordinator(
            settings,
            clock,
            timers,
            dependencies.fresh_id,
            dependencies.topic(
                GROUP_OFFSETS,
                purgatory,
                settings.offsets_commit_timeout_ms,
                codec=codec,
                acks=settings.offsets_commit_required_acks,
                load_bytes=settings.offsets_load_buffer_size,
            ),
            TransactionalOffsets(settings, dependencies.replicas, verification, clock, purgatory),
            CachedTopics(dependencies.metadata_cache),
            dependencies.run_in_turns,
        )
        timeout_ms = self.transaction_settings.request_timeout_ms
        load_bytes = self.transaction_settings.transaction_state_log_load_buffer_size
        self.transaction_coordinator = TransactionCoordinator(
            self.transaction_settings,
            clock,
            timers,
            dependencies.producer_ids,
            dependencies.topic(TRANSACTION_STATE, purgatory, timeout_ms, load_bytes=load_bytes),
            partial(Markers, self._marker_links, dependencies.metadata_cache, clock, timers, timeout_ms),
            dependencies.run_in_turns,
        )
        self.events = CoordinatorEvents(
            {
                GROUP_OFFSETS: self.group_coordinator.runtime,
                TRANSACTION_STATE: self.transaction_coordinator.runtime,
            },
            self.group_coordinator.offsets,
            settings,
            self.transaction_settings,
            dependencies.metadata_cache,
        )
        self._periodic = Periodic(clock, timers)

    @property
    def offers_consumer_protocol(self) -> bool:
        """Whether groups may use the protocol of KIP-848."""
        return "consumer" in self.group_settings.group_coordinator_rebalance_protocols

    def start(self) -> None:
        """Start the periodic jobs."""
        settings = self.transaction_settings
        self.group_coordinator.start()
        self._periodic.every(
            "transactions to abort",
            lambda: settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.transaction_coordinator.abort_timed_out,
        )
        self._periodic.every(
            "transactional ids to forget",
            lambda: settings.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.transaction_coordinator.forget_expired,
        )

    def close(self) -> None:
        """Close the coordinators; waiting requests receive an error, and clients then look up the coordinator again."""
        self._periodic.close()
        self._verification_client.close()
        self.transaction_coordinator.close()
        self._marker_links.close()
        self.group_coordinator.close()


def _settings(config: BrokerConfig, kind: type[Settings]) -> Settings:
    """An instance of a settings class; the fields have the values of the properties of the same names."""
    return kind(**{field.name: config[field.name.replace("_", ".")] for field in fields(kind)})
