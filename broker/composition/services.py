"""Services: the parts of the broker that the handlers of requests call."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from odradek.broker.composition.coordinators import Coordination
from odradek.broker.config.admin_manager import ConfigWriter
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.controller.auto_topic_creation import TopicCreator, TopicsKnown
from odradek.broker.controller.controller import Controller
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.features import FeatureLevels
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.quota.replication_quota_manager import ReplicationQuotaManager
from odradek.broker.replication.alter_log_dirs import ReplicaMoves
from odradek.broker.replication.conversions import Conversions
from odradek.broker.replication.log_dirs import LogDirs
from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.replication.state.fetch_session import FetchSessions
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.acl_store import AclStore
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.delegation_token_manager import DelegationTokenManager
from odradek.broker.transaction.producer_ids import ProducerIds


class Services(NamedTuple):
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
