"""Quotas of a broker: of clients, of addresses and of replication (Kafka: QuotaFactory)."""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.quota.connection_rate_quotas import ConnectionRateQuotas
from odradek.broker.quota.quota_config_handler import QuotaConfigHandler
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.quota.replication_quota_manager import (
    FOLLOWER_RATE,
    LEADER_RATE,
    LOG_DIRS_RATE,
    ReplicationQuotas,
)
from odradek.broker.quota.state.rates import QuotaConfig
from odradek.broker.runtime.timers import Clock


class BrokerQuotas(NamedTuple):
    """All quotas of one broker."""

    clients: QuotaManagers
    connections: ConnectionRateQuotas
    replication: ReplicationQuotas
    handler: QuotaConfigHandler

    def broker_config_changed(self, config: BrokerConfig) -> None:
        """Apply the limits of replication (Kafka: BrokerConfigHandler)."""
        replication = self.replication
        replication.leader.update_quota(config.dynamic_only(LEADER_RATE))
        replication.follower.update_quota(config.dynamic_only(FOLLOWER_RATE))
        replication.alter_log_dirs.update_quota(config.dynamic_only(LOG_DIRS_RATE))


def quotas(config: BrokerConfig, clock: Clock) -> BrokerQuotas:
    """The quotas of a broker; none of a client or address is set yet."""
    of_clients = _window(config["quota.window.num"], config["quota.window.size.seconds"])
    mutations = _window(config["controller.quota.window.num"], config["controller.quota.window.size.seconds"])
    clients = QuotaManagers(of_clients, mutations, clock)
    connections = ConnectionRateQuotas(of_clients, clock)
    replication = ReplicationQuotas(
        config.broker_id,
        _window(config["replication.quota.window.num"], config["replication.quota.window.size.seconds"]),
        _window(
            config["alter.log.dirs.replication.quota.window.num"],
            config["alter.log.dirs.replication.quota.window.size.seconds"],
        ),
        clock,
    )
    made = BrokerQuotas(clients, connections, replication, QuotaConfigHandler(clients, connections))
    made.broker_config_changed(config)
    return made


def _window(samples: int, seconds: int) -> QuotaConfig:
    return QuotaConfig(int(samples), 1000 * int(seconds))
