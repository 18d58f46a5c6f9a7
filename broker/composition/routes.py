"""Routes: creates the handler of every API with its dependencies. Only this module and `late_handlers` import them."""

from __future__ import annotations

from odradek.broker.apis.add_offsets_to_txn import AddOffsetsToTxn
from odradek.broker.apis.add_partitions_to_txn import AddPartitionsToTxn
from odradek.broker.apis.allocate_producer_ids import AllocateProducerIds
from odradek.broker.apis.alter_partition import AlterPartition
from odradek.broker.apis.api_versions import ApiVersions
from odradek.broker.apis.consumer_group_heartbeat import ConsumerGroupHeartbeat
from odradek.broker.apis.controlled_shutdown import ControlledShutdown
from odradek.broker.apis.create_topics import CreateTopics
from odradek.broker.apis.delete_topics import DeleteTopics
from odradek.broker.apis.describe_cluster import DescribeCluster
from odradek.broker.apis.end_txn import EndTxn
from odradek.broker.apis.envelope import Envelope
from odradek.broker.apis.fetch import Fetch
from odradek.broker.apis.find_coordinator import FindCoordinator
from odradek.broker.apis.heartbeat import Heartbeat
from odradek.broker.apis.init_producer_id import InitProducerId
from odradek.broker.apis.join_group import JoinGroup
from odradek.broker.apis.leader_and_isr import LeaderAndIsr
from odradek.broker.apis.leave_group import LeaveGroup
from odradek.broker.apis.list_offsets import ListOffsets
from odradek.broker.apis.metadata import Metadata
from odradek.broker.apis.offset_commit import OffsetCommit
from odradek.broker.apis.offset_fetch import OffsetFetch
from odradek.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpoch
from odradek.broker.apis.produce import Produce
from odradek.broker.apis.sasl_authenticate import SaslAuthenticate
from odradek.broker.apis.sasl_handshake import SaslHandshake
from odradek.broker.apis.stop_replica import StopReplica
from odradek.broker.apis.sync_group import SyncGroup
from odradek.broker.apis.txn_offset_commit import TxnOffsetCommit
from odradek.broker.apis.update_metadata import UpdateMetadata
from odradek.broker.apis.write_txn_markers import WriteTxnMarkers
from odradek.broker.composition.late_handlers import late_handlers
from odradek.broker.composition.services import Services
from odradek.broker.coordinator.lookup import Coordinators, InternalTopicSettings
from odradek.broker.metadata.topic_responses import TopicAnswers
from odradek.broker.network.dispatcher import Dispatcher, Handler
from odradek.broker.network.large_requests import LargeRequests
from odradek.broker.replication.fetch_reader import FetchReader
from odradek.broker.replication.produce_appends import ProduceAppends
from odradek.broker.replication.replica_selector import RackAwareReplicaSelector, leader_selector

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
MANY = 1 << 16
"""Limit of the replication factor if the number of running brokers does not limit it."""


def handlers(services: Services, dispatcher: Dispatcher) -> list[Handler]:
    """The handlers of all APIs."""
    return [
        *_log_handlers(services, dispatcher),
        *_control_request_handlers(services),
        *_topic_handlers(services, dispatcher),
        *_group_handlers(services, dispatcher.large),
        *_transaction_handlers(services),
        *_controller_handlers(services),
        *_handlers_without_security(),
        *late_handlers(services, dispatcher.large),
        ApiVersions(dispatcher.versions, services.features),
    ]


def _log_handlers(services: Services, dispatcher: Dispatcher) -> list[Handler]:
    config, replicas, clock, purgatory = services.config, services.replicas, services.clock, services.purgatory
    metadata_cache, auth = services.metadata_cache, services.auth

    is_rack_aware = config["replica.selector.class"] == RACK_AWARE
    selector = RackAwareReplicaSelector(metadata_cache) if is_rack_aware else leader_selector
    appends = ProduceAppends(services.coordination.writes, services.conversions, purgatory, clock)
    reader = FetchReader(
        replicas,
        metadata_cache,
        purgatory,
        config["fetch.max.bytes"],
        selector,
        services.leader_quota,
        dispatcher.large.run_fairly,
    )
    return [
        Produce(replicas, metadata_cache, clock, appends, auth),
        Fetch(
            reader,
            replicas,
            metadata_cache,
            services.sessions,
            clock,
            services.conversions.worker,
            auth,
            services.quotas,
            dispatcher.large.handle_in_turns,
        ),
        ListOffsets(replicas, metadata_cache, clock, auth, services.conversions.slow),
        OffsetForLeaderEpoch(replicas, metadata_cache, auth),
    ]


def _control_request_handlers(services: Services) -> list[Handler]:
    replica_manager, auth = services.replica_manager, services.auth
    return [
        LeaderAndIsr(replica_manager, auth),
        StopReplica(replica_manager, auth),
        UpdateMetadata(replica_manager, auth),
    ]


def _topic_handlers(services: Services, dispatcher: Dispatcher) -> list[Handler]:
    config, metadata_cache, controller = services.config, services.metadata_cache, services.controller

    def replicas() -> int:
        """The largest replication factor of internal topics: one if the cluster has only this broker. Otherwise it is
        not limited, because other brokers of the cluster may still be starting.
        """
        return len(metadata_cache.brokers) if services.alone else MANY

    coordination, auth = services.coordination, services.auth
    topics = InternalTopicSettings(coordination.group_settings, coordination.transaction_settings, replicas)
    return [
        Metadata(
            metadata_cache,
            services.creator,
            lambda: bool(config["auto.create.topics.enable"]),
            topics.creatable_topic,
            TopicAnswers(metadata_cache),
            auth,
            services.quotas,
            dispatcher.large.reply_in_turns,
        ),
        FindCoordinator(Coordinators(topics, metadata_cache, services.creator, services.known), services.quotas, auth),
        CreateTopics(controller, services.known, services.request_tasks, auth, services.quotas),
        DeleteTopics(
            metadata_cache,
            controller,
            lambda: bool(config["delete.topic.enable"]),
            services.known,
            services.request_tasks,
            auth,
            services.quotas,
        ),
        DescribeCluster(metadata_cache, auth),
    ]


def _controller_handlers(services: Services) -> list[Handler]:
    controller, request_tasks, auth = services.controller, services.request_tasks, services.auth
    return [
        AllocateProducerIds(controller, request_tasks, auth),
        AlterPartition(controller, request_tasks, auth),
        ControlledShutdown(controller, request_tasks, auth),
        Envelope(),
    ]


def _handlers_without_security() -> list[Handler]:
    return [
        SaslHandshake(),
        SaslAuthenticate(),
    ]


def _group_handlers(services: Services, large: LargeRequests) -> list[Handler]:
    coordinator, metadata_cache = services.coordination.group_coordinator, services.metadata_cache
    groups, offsets, auth = coordinator.groups, coordinator.offsets, services.auth
    return [
        JoinGroup(groups, auth, large.reply_in_turns),
        SyncGroup(groups, auth),
        Heartbeat(groups, auth),
        LeaveGroup(groups, auth),
        OffsetCommit(offsets, metadata_cache, services.clock, auth),
        OffsetFetch(offsets, metadata_cache, auth, large.handle_in_turns),
        ConsumerGroupHeartbeat(groups, auth, is_offered=services.coordination.offers_consumer_protocol),
    ]


def _transaction_handlers(services: Services) -> list[Handler]:
    config, replicas, clock, purgatory = services.config, services.replicas, services.clock, services.purgatory
    groups, transactions = services.coordination.group_coordinator, services.coordination.transaction_coordinator
    offsets, metadata_cache, auth = groups.offsets, services.metadata_cache, services.auth
    return [
        InitProducerId(services.producer_ids, transactions, auth),
        AddPartitionsToTxn(transactions, metadata_cache, auth),
        AddOffsetsToTxn(transactions, groups, auth),
        EndTxn(transactions, auth),
        WriteTxnMarkers(replicas, clock, purgatory, int(config["request.timeout.ms"]), offsets, auth),
        TxnOffsetCommit(offsets, metadata_cache, clock, auth),
    ]
