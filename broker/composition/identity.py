"""Identity of a broker: its id, its cluster's id, and the configuration and data directories that belong to them."""

from __future__ import annotations

import logging
from typing import NamedTuple

from odradek.broker.composition import registry_access
from odradek.broker.composition.environment import Environment
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import NoNodeError, Registry
from odradek.broker.replication.replicas import log_config
from odradek.storage.directories import Directories, open_all
from odradek.storage.directory import DirectoryRequest

log = logging.getLogger(__name__)


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


async def report_logs_without_topic(registry: Registry, directories: Directories) -> None:
    """Log the logs whose topic the metadata store does not have: no client can read them, and no broker removes them.

    The cause is a topic that was deleted while its directory was offline, or a metadata store that has lost topics.
    Raises RegistryError.
    """
    try:
        topics = set((await registry.children(znodes.TOPICS))[0])
    except NoNodeError:
        topics = set()
    for directory in directories:
        for (topic, partition), found in (*directory.logs.items(), *directory.futures.items()):
            if topic not in topics:
                log.error(
                    "log without a topic in the metadata store path=%s topic=%s partition=%d bytes=%d topic_id=%s",
                    found.directory,
                    topic,
                    partition,
                    found.size,
                    znodes.encode_uuid(found.topic_id),
                )
