"""What follows from a configuration that has changed at run time: logs and limits obey it (KIP-226).

A broker property goes into the broker's configuration, where everyone asks for it anew; logs hold what they obey, so
theirs is made again, since a topic's property that is not set is the broker's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.config.types import ConfigError
from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.replicas import ReplicaHost

log = logging.getLogger(__name__)

OnTopicConfig = Callable[[str, Mapping[str, str]], None]


class ConfigInForce:
    """Puts configurations in force on this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        host: ReplicaHost,
        replicas: Replicas,
        on_topic: OnTopicConfig = lambda name, properties: None,
        on_broker: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_topic` hears of every topic whose properties have changed, whether it has a replica here or not;
        `on_broker` that the broker's have.
        """
        self._on_broker = on_broker
        self._config = config
        self._topics = topics
        self._host = host
        self._replicas = replicas
        self._on_topic = on_topic
        self._layers: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})

    def topic(self, name: str, properties: Mapping[str, str]) -> None:
        """All properties that are set for a topic now."""
        if self._replicas.of_topic(name):
            log.info("topic %s has the configuration %s", name, dict(properties))
            self._topics.put(name, properties)
            self._host.configure(name, properties)
        else:
            self._topics.forget(name)  # read again when the topic comes here
        self._on_topic(name, properties)

    def broker(self, cluster_default: Mapping[str, str], own: Mapping[str, str]) -> None:
        """The properties set at run time for all brokers, and those for this one."""
        layers = (cluster_default, own)
        if layers == self._layers:
            return
        try:
            changed = self._config.with_dynamic(cluster_default, own)
        except ConfigError as error:
            log.error("the broker keeps its configuration, for what is set at run time is wrong: %s", error.message)
            return
        self._layers = layers
        self._config.adopt(changed)
        log.info("set at run time: for all brokers %s, for this one %s", sorted(cluster_default), sorted(own))
        for name in dict.fromkeys(replica.topic for replica in self._replicas):
            self._host.configure(name, self._topics.get(name))
        self._on_broker()
