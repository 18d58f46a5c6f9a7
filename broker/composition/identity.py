"""Identity of a broker: its id, its cluster's id, and the configuration and data directories that belong to them."""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.composition import registry_access
from odradek.broker.composition.environment import Environment
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.replication.replicas import log_config
from odradek.storage.directories import Directories, open_all
from odradek.storage.directory import DirectoryRequest


class Identity(NamedTuple):
    """The results of the first phase of a start, which reads the metadata store and the data directories."""

    config: BrokerConfig
    """With the broker id, and with the dynamic properties of the metadata store."""
    cluster_id: str
    topic_configs: TopicConfigs
    directories: Directories


async def find_identity(config: BrokerConfig, environment: Environment, session: RegistrySession) -> Identity:
    """Determine broker id and cluster id, load topic configurations and open the data directories.

    Opens the first session. Raises KafkaError, RegistryError, OSError.
    """
    registry = await session.start()
    config = await registry_access.identify(config, environment.disk, registry)
    config.adopt(await registry_access.with_run_time_layers(config, registry))
    cluster_id = await registry_access.cluster_id(registry, environment.random_cluster_id())
    topic_configs = TopicConfigs(lambda: session.registry)
    await topic_configs.load_all()
    request = DirectoryRequest(
        broker_id=config.broker_id,
        cluster_id=cluster_id,
        now_ms=environment.clock.now_ms(),
        config_for=lambda topic: log_config(config, topic_configs.get(topic)),
        random=environment.random,
        recovery_processes=config.number_if_set("num.recovery.threads.per.data.dir"),
    )
    paths = [str(path.absolute()) for path in config.log_dirs]  # as clients receive them
    return Identity(config, cluster_id, topic_configs, Directories(open_all(paths, request, environment.disk)))
