"""Config handlers: apply dynamic configs to logs and limits (KIP-226; Kafka: TopicConfigHandler, BrokerConfigHandler).

A changed broker property goes into the broker's configuration, which its users read at each use. A log keeps a copy of
its configuration, so the handler builds that again: a topic property without an override has the broker's value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.password_encoder import from_stored
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.config.types import ConfigError
from odradek.broker.replication.partition import Replicas
from odradek.broker.replication.replicas import ReplicaHost

log = logging.getLogger(__name__)

OnTopicConfig = Callable[[str, Mapping[str, str]], None]


class ConfigInForce:
    """Applies changed configurations on this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        host: ReplicaHost,
        replicas: Replicas,
        on_topic: OnTopicConfig = lambda name, properties: None,
        on_broker: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_topic` is called for every topic whose overrides have changed, with or without a replica on this broker;
        `on_broker` when the broker's dynamic properties have changed.
        """
        self._on_broker = on_broker
        self._config = config
        self._topics = topics
        self._host = host
        self._replicas = replicas
        self._on_topic = on_topic
        self._layers: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})

    def topic(self, name: str, properties: Mapping[str, str]) -> None:
        """Apply the configuration overrides of a topic; `properties` has all of them."""
        if self._replicas.of_topic(name):
            log.info("topic config changed topic=%s overrides=%s", name, dict(properties))
            self._topics.put(name, properties)
            self._host.configure(name, properties)
        else:
            self._topics.forget(name)  # loaded again when this broker gets a replica of the topic
        self._on_topic(name, properties)

    def broker(self, cluster_default: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Apply the dynamic properties for all brokers and those for this broker, as they are stored."""
        layers = (cluster_default, own)
        if layers == self._layers:
            return
        try:
            changed = self._config.with_dynamic(*(from_stored(self._config, each) for each in layers))
        except ConfigError as error:
            log.error("rejecting invalid dynamic broker config error=%s", error.message)
            return
        self._layers = layers
        self._config.adopt(changed)
        log.info("broker config changed cluster_default=%s broker=%s", sorted(cluster_default), sorted(own))
        for name in dict.fromkeys(replica.topic for replica in self._replicas):
            self._host.configure(name, self._topics.get(name))
        self._on_broker()
