"""Where the broker's registry is: an ensemble of ZooKeeper's, or the tree inside this broker.

With `zookeeper.connect` the registry is Apache ZooKeeper (or whatever speaks its protocol), below the chroot if one is
given. Without, the broker keeps the tree itself, in a folder of its first data directory: one broker is then the whole
cluster.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.changes import BROKERS, read_config
from odradek.broker.config.types import ConfigError
from odradek.broker.metadata.registry_session import OpenSession
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import NodeExistsError, NoNodeError, Registry, ensure_path
from odradek.broker.registry.journal import JournalInUseError
from odradek.broker.runtime.timers import Clock
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.directory_identity import read_identity
from odradek.storage.disk import Disk, OsDisk, ReservedDisk, make_durable_directory

log = logging.getLogger(__name__)

REGISTRY_FOLDER: Final = "__cluster_metadata-0"
"""Where the embedded registry lies within the first data directory. Kafka 3.9 passes over a folder of this name, so
it opens a data directory of ours as it opens its own."""

GIVEN_IDS_BELOW: Final = "reserved.broker.max.id"


def sessions(config: BrokerConfig, disk: Disk, clock: Clock, undo: contextlib.AsyncExitStack) -> OpenSession:
    """How sessions with the registry are opened; `undo` takes what is to be closed in the end.

    Raises KafkaError with KAFKA_STORAGE_ERROR when the embedded registry cannot be opened.
    """
    if not config["zookeeper.connect"]:
        return _embedded(str(config.log_dirs[0]), disk, clock, undo).connect
    from odradek.broker.registry import zookeeper  # a broker without ZooKeeper need not load its client

    hosts, chroot = znodes.split_connect(config["zookeeper.connect"])
    timeout_ms = int(config["zookeeper.session.timeout.ms"])
    return partial(
        zookeeper.connect,
        hosts,
        chroot,
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=int(config["zookeeper.connection.timeout.ms"] or timeout_ms),
    )


def _embedded(first: str, disk: Disk, clock: Clock, undo: contextlib.AsyncExitStack) -> EmbeddedEnsemble:
    try:
        make_durable_directory(disk, f"{first}/{REGISTRY_FOLDER}")
        journals = ReservedDisk() if type(disk) is OsDisk else disk
        ensemble = EmbeddedEnsemble(journals, f"{first}/{REGISTRY_FOLDER}", now_ms=clock.now_ms)
    except JournalInUseError as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"Failed to acquire lock on file .lock in {first}. "
            "A Kafka instance in another process or thread is using this directory.",
        ) from error
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot open the data directory {first}: {error}") from error
    undo.push_async_callback(ensemble.close)
    return ensemble


async def identify(config: BrokerConfig, disk: Disk, registry: Registry) -> BrokerConfig:
    """The configuration with a broker id: the configured one, the directory's, or a new one from the registry.

    Raises RegistryError.
    """
    if config.broker_id >= 0:
        return config
    for path in config.log_dirs:
        known = read_identity(disk, str(path)).get("broker.id")
        if known is not None:
            return config.with_broker_id(int(known))
    await ensure_path(registry, znodes.BROKER_SEQUENCE)
    stat = await registry.set(znodes.BROKER_SEQUENCE, b"")
    return config.with_broker_id(int(config[GIVEN_IDS_BELOW]) + stat.version)


async def with_run_time_layers(config: BrokerConfig, registry: Registry) -> BrokerConfig:
    """The configuration with what was set at run time, as it stands in the registry: it counts from the start on.

    Where that does not fit, the broker starts without it, and says so. Raises RegistryError.
    """
    for_all = await read_config(registry, f"{BROKERS}/{znodes.DEFAULT_ENTITY}")
    own = await read_config(registry, f"{BROKERS}/{config.broker_id}")
    try:
        return config.with_dynamic(for_all, own)
    except ConfigError as error:
        log.error("what is set at run time is passed over, for it is wrong: %s", error.message)
        return config


async def cluster_id(registry: Registry, proposal: str) -> str:
    """The id of the cluster; `proposal` becomes it when the cluster is new. Raises RegistryError."""
    try:
        data, _ = await registry.get(znodes.CLUSTER_ID)
    except NoNodeError:
        await ensure_path(registry, znodes.CLUSTER_ID.rpartition("/")[0])
        try:
            await registry.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(proposal))
        except NodeExistsError:
            return await cluster_id(registry, proposal)  # another broker was faster
        return proposal
    return znodes.decode_cluster_id(data)
