"""Replication quota manager: limits the bytes a second of throttled replicas (KIP-73; Kafka: ReplicationQuotaManager).

A broker has three of them: for what its leaders send to followers, for what its followers fetch, and for moves between
its data directories. Only replicas that a topic lists as throttled, and that are not in sync, have to wait; the bytes
of all listed replicas count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.broker.quota.state.rates import UNLIMITED, QuotaConfig, SimpleRate
from odradek.broker.runtime.timers import Clock

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
ALL_REPLICAS: Final = "*"


class ReplicationQuotaManager:
    """One quota, and the replicas that it throttles."""

    def __init__(self, config: QuotaConfig, clock: Clock) -> None:
        self._clock = clock
        self._rate = SimpleRate(config)
        self._throttled: dict[str, frozenset[int] | None] = {}
        """The throttled partitions of each topic; None for all of them."""
        self.bound = UNLIMITED
        """The limit in bytes a second."""
        self.is_active = False
        """Whether any replica is throttled."""

    def update_quota(self, bound: float | None) -> None:
        """Set the limit in bytes a second; None for no limit."""
        self.bound = UNLIMITED if bound is None else bound

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.bound != UNLIMITED

    def mark_throttled(self, topic: str, partitions: frozenset[int] | None) -> None:
        """Throttle these partitions of a topic and no others of it, with None all of them."""
        self._throttled[topic] = partitions
        self.is_active = True

    def remove_throttle(self, topic: str) -> None:
        """Throttle no partition of a topic."""
        self._throttled.pop(topic, None)
        self.is_active = bool(self._throttled)

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether a partition is throttled."""
        if topic not in self._throttled:
            return False
        partitions = self._throttled[topic]
        return partitions is None or partition in partitions

    def is_exceeded(self) -> bool:
        """Whether throttled replicas have to wait."""
        return self.bound != UNLIMITED and self._rate.measure(self._clock.monotonic_ms()) > self.bound

    def record(self, size: int) -> None:
        """Count bytes of throttled replicas."""
        self._rate.record(size, self._clock.monotonic_ms())

    def rate(self) -> float:
        """The bytes a second of throttled replicas."""
        return self._rate.measure(self._clock.monotonic_ms())


class ReplicationQuotas:
    """The three quotas of a broker."""

    def __init__(self, broker_id: int, config: QuotaConfig, moves: QuotaConfig, clock: Clock) -> None:
        """`config` is replication.quota.window.*, `moves` alter.log.dirs.replication.quota.window.*."""
        self._broker_id = broker_id
        self.leader = ReplicationQuotaManager(config, clock)
        self.follower = ReplicationQuotaManager(config, clock)
        self.alter_log_dirs = ReplicationQuotaManager(moves, clock)

    def rates(self) -> dict[str, float]:
        """The bytes a second of each quota that has a limit or throttled replicas, by the names of Kafka's metrics."""
        quotas = {
            "leaderreplication": self.leader,
            "followerreplication": self.follower,
            "alterlogdirsreplication": self.alter_log_dirs,
        }
        return {name: quota.rate() for name, quota in quotas.items() if quota.is_active or quota.is_limited}

    def topic_config_changed(self, topic: str, properties: Mapping[str, str]) -> None:
        """Apply the throttled replicas of a topic (Kafka: TopicConfigHandler.updateThrottledList)."""
        for quota, name in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
            text = properties.get(name, "").strip()
            if text:
                quota.mark_throttled(topic, throttled_partitions(text, self._broker_id))
            else:
                quota.remove_throttle(topic)


def throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """The partitions whose replica on this broker is throttled; None for all (Kafka: parseThrottledPartitions).

    The text has partition:broker pairs, separated by commas. Others are ignored: a broker checks them when they are
    set.
    """
    if text == ALL_REPLICAS:
        return None
    pairs = (each.strip().partition(":") for each in text.split(","))
    return frozenset(
        int(partition)
        for partition, _, broker in pairs
        if partition.isdecimal() and broker.isdecimal() and int(broker) == broker_id
    )
