"""Routes: creates the handler of every API with its dependencies. Only this module imports all handlers."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from odradek.broker.apis.add_offsets_to_txn import AddOffsetsToTxn
from odradek.broker.apis.add_partitions_to_txn import AddPartitionsToTxn
from odradek.broker.apis.allocate_producer_ids import AllocateProducerIds
from odradek.broker.apis.alter_client_quotas import AlterClientQuotas
from odradek.broker.apis.alter_configs import AlterConfigs
from odradek.broker.apis.alter_partition import AlterPartition
from odradek.broker.apis.alter_partition_reassignments import AlterPartitionReassignments
from odradek.broker.apis.alter_replica_log_dirs import AlterReplicaLogDirs
from odradek.broker.apis.alter_user_scram_credentials import AlterUserScramCredentials
from odradek.broker.apis.api_versions import ApiVersions
from odradek.broker.apis.consumer_group_describe import ConsumerGroupDescribe
from odradek.broker.apis.consumer_group_heartbeat import ConsumerGroupHeartbeat
from odradek.broker.apis.controlled_shutdown import ControlledShutdown
from odradek.broker.apis.create_acls import CreateAcls
from odradek.broker.apis.create_delegation_token import CreateDelegationToken
from odradek.broker.apis.create_partitions import CreatePartitions
from odradek.broker.apis.create_topics import CreateTopics
from odradek.broker.apis.delete_acls import DeleteAcls
from odradek.broker.apis.delete_groups import DeleteGroups
from odradek.broker.apis.delete_records import DeleteRecords
from odradek.broker.apis.delete_topics import DeleteTopics
from odradek.broker.apis.describe_acls import DescribeAcls
from odradek.broker.apis.describe_client_quotas import DescribeClientQuotas
from odradek.broker.apis.describe_cluster import DescribeCluster
from odradek.broker.apis.describe_configs import DescribeConfigs
from odradek.broker.apis.describe_delegation_token import DescribeDelegationToken
from odradek.broker.apis.describe_groups import DescribeGroups
from odradek.broker.apis.describe_log_dirs import DescribeLogDirs
from odradek.broker.apis.describe_producers import DescribeProducers
from odradek.broker.apis.describe_topic_partitions import DescribeTopicPartitions
from odradek.broker.apis.describe_transactions import DescribeTransactions
from odradek.broker.apis.describe_user_scram_credentials import DescribeUserScramCredentials
from odradek.broker.apis.elect_leaders import ElectLeaders
from odradek.broker.apis.end_txn import EndTxn
from odradek.broker.apis.envelope import Envelope
from odradek.broker.apis.expire_delegation_token import ExpireDelegationToken
from odradek.broker.apis.fetch import Fetch
from odradek.broker.apis.find_coordinator import FindCoordinator
from odradek.broker.apis.heartbeat import Heartbeat
from odradek.broker.apis.incremental_alter_configs import IncrementalAlterConfigs
from odradek.broker.apis.init_producer_id import InitProducerId
from odradek.broker.apis.join_group import JoinGroup
from odradek.broker.apis.leader_and_isr import LeaderAndIsr
from odradek.broker.apis.leave_group import LeaveGroup
from odradek.broker.apis.list_groups import ListGroups
from odradek.broker.apis.list_offsets import ListOffsets
from odradek.broker.apis.list_partition_reassignments import ListPartitionReassignments
from odradek.broker.apis.list_transactions import ListTransactions
from odradek.broker.apis.metadata import Metadata
from odradek.broker.apis.offset_commit import OffsetCommit
from odradek.broker.apis.offset_delete import OffsetDelete
from odradek.broker.apis.offset_fetch import OffsetFetch
from odradek.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpoch
from odradek.broker.apis.produce import Produce
from odradek.broker.apis.renew_delegation_token import RenewDelegationToken
from odradek.broker.apis.sasl_authenticate import SaslAuthenticate
from odradek.broker.apis.sasl_handshake import SaslHandshake
from odradek.broker.apis.stop_replica import StopReplica
from odradek.broker.apis.sync_group import SyncGroup
from odradek.broker.apis.txn_offset_commit import TxnOffsetCommit
from odradek.broker.apis.update_features import UpdateFeatures
from odradek.broker.apis.update_metadata import UpdateMetadata
from odradek.broker.apis.write_txn_markers import WriteTxnMarkers
from odradek.broker.composition.coordinators import Coordination
from odradek.broker.config.admin_manager import ConfigWriter
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.controller.auto_topic_creation import TopicCreator, TopicsKnown
from odradek.broker.controller.controller import Controller
from odradek.broker.coordinator.lookup import Coordinators, InternalTopicSettings
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.features import FeatureLevels
from odradek.broker.metadata.topic_responses import TopicAnswers
from odradek.broker.network.dispatcher import Dispatcher, Handler
from odradek.broker.network.large_requests import LargeRequests
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.quota.replication_quota_manager import ReplicationQuotaManager
from odradek.broker.replication.alter_log_dirs import ReplicaMoves
from odradek.broker.replication.conversions import Conversions
from odradek.broker.replication.fetch_reader import FetchReader
from odradek.broker.replication.log_dirs import LogDirs
from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.produce_appends import ProduceAppends
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.replication.replica_selector import RackAwareReplicaSelector, leader_selector
from odradek.broker.replication.state.fetch_session import FetchSessions
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.acl_store import AclStore
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.delegation_token_manager import DelegationTokenManager
from odradek.broker.transaction.producer_ids import ProducerIds

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
MANY = 1 << 16
"""Limit of the replication factor if the number of running brokers does not limit it."""


@dataclass(slots=True)
class Services:
    """The parts of the broker that handlers call."""

    config: BrokerConfig
    auth: AuthHelper
    acls: AclStore | None
    tokens: DelegationTokenManager
    clock: Clock
    purgatory: DelayedOperationPurgatory
    random: Random
    metadata_cache: MetadataCache
    replicas: Replicas
    replica_manager: ReplicaManager
    controller: Controller
    creator: TopicCreator
    known: TopicsKnown
    configs: TopicConfigs
    config_writer: ConfigWriter
    client_configs: ClientConfigs
    log_dirs: LogDirs
    moves: ReplicaMoves
    producer_ids: ProducerIds
    coordination: Coordination
    conversions: Conversions
    request_tasks: RequestTasks
    sessions: FetchSessions
    features: FeatureLevels
    quotas: QuotaManagers
    leader_quota: ReplicationQuotaManager
    alone: bool
    """Whether the cluster has only this broker and cannot have more (embedded metadata store)."""


def handlers(services: Services, dispatcher: Dispatcher) -> list[Handler]:
    """The handlers of all APIs."""
    return [
        *_log_handlers(services, dispatcher),
        *_control_request_handlers(services),
        *_topic_handlers(services, dispatcher),
        *_group_handlers(services, dispatcher.large),
        *_transaction_handlers(services),
        *_controller_handlers(services),
        *_client_handlers(services),
        *_acl_handlers(services),
        *_handlers_without_security(),
        *_token_handlers(services),
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
        DeleteRecords(replicas, metadata_cache, purgatory, auth),
        DescribeLogDirs(services.log_dirs, auth),
        AlterReplicaLogDirs(services.moves, metadata_cache, auth),
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
        DescribeConfigs(config, metadata_cache, services.configs, services.request_tasks, auth),
        AlterConfigs(services.config_writer, services.request_tasks, auth),
        IncrementalAlterConfigs(services.config_writer, services.request_tasks, auth),
        DescribeCluster(metadata_cache, auth),
        DescribeTopicPartitions(metadata_cache, lambda: int(config["max.request.partition.size.limit"]), auth),
    ]


def _controller_handlers(services: Services) -> list[Handler]:
    controller, request_tasks, auth = services.controller, services.request_tasks, services.auth
    return [
        AllocateProducerIds(controller, request_tasks, auth),
        AlterPartition(controller, request_tasks, auth),
        AlterPartitionReassignments(controller, request_tasks, auth),
        ControlledShutdown(controller, request_tasks, auth),
        CreatePartitions(controller, services.known, request_tasks, auth, services.quotas),
        ElectLeaders(controller, services.metadata_cache, services.known, request_tasks, auth),
        ListPartitionReassignments(controller, request_tasks, auth),
        UpdateFeatures(services.features, controller, auth),
        Envelope(),
    ]


def _client_handlers(services: Services) -> list[Handler]:
    configs, request_tasks, auth = services.client_configs, services.request_tasks, services.auth
    return [
        DescribeClientQuotas(configs, request_tasks, auth),
        AlterClientQuotas(configs, request_tasks, auth),
        DescribeUserScramCredentials(configs, request_tasks, auth),
        AlterUserScramCredentials(configs, services.controller, request_tasks, auth),
    ]


def _acl_handlers(services: Services) -> list[Handler]:
    auth, acls, request_tasks = services.auth, services.acls, services.request_tasks
    return [
        DescribeAcls(auth, acls),
        CreateAcls(auth, acls, request_tasks),
        DeleteAcls(auth, acls, request_tasks),
    ]


def _handlers_without_security() -> list[Handler]:
    return [
        SaslHandshake(),
        SaslAuthenticate(),
    ]


def _token_handlers(services: Services) -> list[Handler]:
    tokens, request_tasks = services.tokens, services.request_tasks
    return [
        CreateDelegationToken(tokens, services.auth, request_tasks),
        RenewDelegationToken(tokens, request_tasks),
        ExpireDelegationToken(tokens, request_tasks),
        DescribeDelegationToken(tokens, services.auth),
    ]


def _group_handlers(services: Services, large: LargeRequests) -> list[Handler]:
    coordinator, metadata_cache = services.coordination.group_coordinator, services.metadata_cache
    groups, offsets, auth = coordinator.groups, coordinator.offsets, services.auth
    is_offered = "consumer" in services.coordination.group_settings.group_coordinator_rebalance_protocols
    return [
        JoinGroup(groups, auth, large.reply_in_turns),
        SyncGroup(groups, auth),
        Heartbeat(groups, auth),
        LeaveGroup(groups, auth),
        OffsetCommit(offsets, metadata_cache, services.clock, auth),
        OffsetFetch(offsets, metadata_cache, auth, large.handle_in_turns),
        OffsetDelete(offsets, metadata_cache, auth),
        DescribeGroups(groups, auth, large.handle_in_turns),
        ListGroups(groups, auth),
        DeleteGroups(groups, auth),
        ConsumerGroupHeartbeat(groups, auth, is_offered=is_offered),
        ConsumerGroupDescribe(groups, metadata_cache, auth, large.handle_in_turns, is_offered=is_offered),
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
        DescribeTransactions(transactions, auth),
        ListTransactions(transactions, clock, auth),
        WriteTxnMarkers(replicas, clock, purgatory, int(config["request.timeout.ms"]), offsets, auth),
        TxnOffsetCommit(offsets, metadata_cache, clock, auth),
        DescribeProducers(replicas, metadata_cache, auth),
    ]
