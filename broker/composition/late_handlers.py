"""Late handlers: the handlers of administrative APIs, imported when the first request for one of a group arrives.

Most brokers never receive most of these requests, and a third of the time that all handlers take to import is theirs.
The import opens files, so it uses the reserve of file descriptors: a broker without a free one still handles the
request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from odradek.protocol import messages as m
from odradek.storage.descriptors import RESERVE

if TYPE_CHECKING:
    from odradek.broker.composition.services import Services
    from odradek.broker.network.dispatcher import Handler
    from odradek.broker.network.large_requests import LargeRequests


class LateHandler:
    """The handler of an API that is imported at its first request."""

    def __init__(self, api: m.Api, group: Callable[[], Mapping[int, Handler]]) -> None:
        """`group` returns handlers by API key."""
        self.KEY = api.key
        self.VERSIONS = (api.min, api.max)
        self._group = group

    @cached_property
    def handle(self) -> Callable[..., Any]:
        """The method of the handler."""
        return self._group()[self.KEY].handle


def late_handlers(services: Services, large: LargeRequests) -> list[Handler]:
    """A handler for each administrative API."""
    apis = {api.name: api for api in m.APIS.values()}
    return [
        LateHandler(apis[name], handlers)
        for names, make in _GROUPS.items()
        for handlers in [_imported(make, services, large)]
        for name in names
    ]


def _imported(
    make: Callable[[Services, LargeRequests], list[Handler]], services: Services, large: LargeRequests
) -> Callable[[], Mapping[int, Handler]]:
    @cache
    def handlers() -> Mapping[int, Handler]:
        with RESERVE.lent():
            return {handler.KEY: handler for handler in make(services, large)}

    return handlers


def _access_lists(services: Services, _: LargeRequests) -> list[Handler]:
    from odradek.broker.apis.create_acls import CreateAcls
    from odradek.broker.apis.delete_acls import DeleteAcls
    from odradek.broker.apis.describe_acls import DescribeAcls

    auth, acls, request_tasks = services.auth, services.acls, services.request_tasks
    return [
        DescribeAcls(auth, acls),
        CreateAcls(auth, acls, request_tasks),
        DeleteAcls(auth, acls, request_tasks),
    ]


def _tokens(services: Services, _: LargeRequests) -> list[Handler]:
    from odradek.broker.apis.create_delegation_token import CreateDelegationToken
    from odradek.broker.apis.describe_delegation_token import DescribeDelegationToken
    from odradek.broker.apis.expire_delegation_token import ExpireDelegationToken
    from odradek.broker.apis.renew_delegation_token import RenewDelegationToken

    tokens, request_tasks = services.tokens, services.request_tasks
    return [
        CreateDelegationToken(tokens, services.auth, request_tasks),
        RenewDelegationToken(tokens, request_tasks),
        ExpireDelegationToken(tokens, request_tasks),
        DescribeDelegationToken(tokens, services.auth),
    ]


def _clients(services: Services, _: LargeRequests) -> list[Handler]:
    from odradek.broker.apis.alter_client_quotas import AlterClientQuotas
    from odradek.broker.apis.alter_user_scram_credentials import AlterUserScramCredentials
    from odradek.broker.apis.describe_client_quotas import DescribeClientQuotas
    from odradek.broker.apis.describe_user_scram_credentials import DescribeUserScramCredentials

    configs, request_tasks, auth = services.client_configs, services.request_tasks, services.auth
    return [
        DescribeClientQuotas(configs, request_tasks, auth),
        AlterClientQuotas(configs, request_tasks, auth),
        DescribeUserScramCredentials(configs, request_tasks, auth),
        AlterUserScramCredentials(configs, services.controller, request_tasks, auth),
    ]


def _configs(services: Services, _: LargeRequests) -> list[Handler]:
    from odradek.broker.apis.alter_configs import AlterConfigs
    from odradek.broker.apis.describe_configs import DescribeConfigs
    from odradek.broker.apis.incremental_alter_configs import IncrementalAlterConfigs

    request_tasks, auth = services.request_tasks, services.auth
    return [
        DescribeConfigs(services.config, services.metadata_cache, services.configs, request_tasks, auth),
        AlterConfigs(services.config_writer, request_tasks, auth),
        IncrementalAlterConfigs(services.config_writer, request_tasks, auth),
    ]


def _partitions(services: Services, _: LargeRequests) -> list[Handler]:
    from odradek.broker.apis.alter_partition_reassignments import AlterPartitionReassignments
    from odradek.broker.apis.create_partitions import CreatePartitions
    from odradek.broker.apis.delete_records import DeleteRecords
    from odradek.broker.apis.describe_topic_partitions import DescribeTopicPartitions
    from odradek.broker.apis.elect_leaders import ElectLeaders
    from odradek.broker.apis.list_partition_reassignments import ListPartitionReassignments

    config, controller, request_tasks, auth = (
        services.config,
        services.controller,
        services.request_tasks,
        services.auth,
    )
    return [
        AlterPartitionReassignments(controller, request_tasks, auth),
        CreatePartitions(controller, services.known, request_tasks, auth, services.quotas),
        DeleteRecords(services.replicas, services.metadata_cache, services.purgatory, auth),
        DescribeTopicPartitions(services.metadata_cache, lambda: int(config["max.request.partition.size.limit"]), auth),
        ElectLeaders(controller, services.metadata_cache, services.known, request_tasks, auth),
        ListPartitionReassignments(controller, request_tasks, auth),
    ]


def _broker(services: Services, _: LargeRequests) -> list[Handler]:
    from odradek.broker.apis.alter_replica_log_dirs import AlterReplicaLogDirs
    from odradek.broker.apis.describe_log_dirs import DescribeLogDirs
    from odradek.broker.apis.update_features import UpdateFeatures

    return [
        AlterReplicaLogDirs(services.moves, services.metadata_cache, services.auth),
        DescribeLogDirs(services.log_dirs, services.auth),
        UpdateFeatures(services.features, services.controller, services.auth),
    ]


def _transactions(services: Services, _: LargeRequests) -> list[Handler]:
    from odradek.broker.apis.describe_producers import DescribeProducers
    from odradek.broker.apis.describe_transactions import DescribeTransactions
    from odradek.broker.apis.list_transactions import ListTransactions

    coordinator, auth = services.coordination.transaction_coordinator, services.auth
    return [
        DescribeProducers(services.replicas, services.metadata_cache, auth),
        DescribeTransactions(coordinator, auth),
        ListTransactions(coordinator, services.clock, auth),
    ]


def _groups(services: Services, large: LargeRequests) -> list[Handler]:
    from odradek.broker.apis.consumer_group_describe import ConsumerGroupDescribe
    from odradek.broker.apis.delete_groups import DeleteGroups
    from odradek.broker.apis.describe_groups import DescribeGroups
    from odradek.broker.apis.list_groups import ListGroups
    from odradek.broker.apis.offset_delete import OffsetDelete

    coordinator, metadata_cache, auth = services.coordination.group_coordinator, services.metadata_cache, services.auth
    groups, is_offered = coordinator.groups, services.coordination.offers_consumer_protocol
    return [
        ConsumerGroupDescribe(groups, metadata_cache, auth, large.handle_in_turns, is_offered=is_offered),
        DeleteGroups(groups, auth, large.handle_in_turns),
        DescribeGroups(groups, auth, large.handle_in_turns),
        ListGroups(groups, auth),
        OffsetDelete(coordinator.offsets, metadata_cache, auth),
    ]


_GROUPS = {
    ("CreateAcls", "DeleteAcls", "DescribeAcls"): _access_lists,
    ("CreateDelegationToken", "DescribeDelegationToken", "ExpireDelegationToken", "RenewDelegationToken"): _tokens,
    (
        "AlterClientQuotas",
        "AlterUserScramCredentials",
        "DescribeClientQuotas",
        "DescribeUserScramCredentials",
    ): _clients,
    ("AlterConfigs", "DescribeConfigs", "IncrementalAlterConfigs"): _configs,
    (
        "AlterPartitionReassignments",
        "CreatePartitions",
        "DeleteRecords",
        "DescribeTopicPartitions",
        "ElectLeaders",
        "ListPartitionReassignments",
    ): _partitions,
    ("AlterReplicaLogDirs", "DescribeLogDirs", "UpdateFeatures"): _broker,
    ("DescribeProducers", "DescribeTransactions", "ListTransactions"): _transactions,
    ("ConsumerGroupDescribe", "DeleteGroups", "DescribeGroups", "ListGroups", "OffsetDelete"): _groups,
}
"""The APIs of each group, and the function that imports and makes their handlers."""
