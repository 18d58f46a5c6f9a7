"""Metadata store access: opens ZooKeeper or the embedded metadata store, and reads the broker's identity from it.

With `zookeeper.connect` the metadata store is Apache ZooKeeper (or another server with its protocol), below the chroot
if one is given. Without it, the broker stores the tree itself, in a folder of its first data directory; the cluster
then has only this broker.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.composition.environment import Environment
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.changes import BROKERS, change_config, read_config
from odradek.broker.config.password_encoder import from_stored, under_new_secret
from odradek.broker.config.system_properties import JAAS_FILE
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

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

REGISTRY_FOLDER: Final = "__cluster_metadata-0"
"""The folder of the embedded metadata store in the first data directory. Kafka 3.9 ignores a folder of this name, so
it can open a data directory of Odradek."""

GIVEN_IDS_BELOW: Final = "reserved.broker.max.id"


def sessions(config: BrokerConfig, environment: Environment, undo: contextlib.AsyncExitStack) -> OpenSession:
    """A function that opens sessions of the metadata store; `undo` receives the callbacks that close it.

    Raises KafkaError with KAFKA_STORAGE_ERROR if the embedded metadata store cannot be opened, and ConfigError for key
    stores that cannot be used.
    """
    if not config["zookeeper.connect"]:
        return _embedded(str(config.log_dirs[0]), environment.disk, environment.clock, undo).connect
    # Imported late: only a broker with ZooKeeper needs the client.
    from odradek.broker.composition.zookeeper_login import find_login
    from odradek.broker.registry import zookeeper

    login = find_login(environment.kafka_opts)
    set_acl = bool(config["zookeeper.set.acl"])
    if set_acl and login is None:
        raise ConfigError(
            "zookeeper.set.acl is true, but the verification of the JAAS login file failed: KAFKA_OPTS has to contain "
            f"-D{JAAS_FILE}=FILE, and FILE a section Client with a DigestLoginModule"
        )
    hosts, chroot = znodes.split_connect(config["zookeeper.connect"])
    timeout_ms = int(config["zookeeper.session.timeout.ms"])
    return partial(
        zookeeper.connect,
        hosts,
        chroot,
        session_timeout_ms=timeout_ms,
        connection_timeout_ms=int(config["zookeeper.connection.timeout.ms"] or timeout_ms),
        login=login,
        set_acl=set_acl,
        tls=_tls(config),
    )


def _tls(config: BrokerConfig) -> ssl.SSLContext | None:
    if not config["zookeeper.ssl.client.enable"]:
        return None
    from odradek.broker.security.zookeeper_tls import zookeeper_context  # imported late, with the libraries of TLS

    return zookeeper_context(config)


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
    """The configuration with a broker id: the configured one, the directory's, or a new one from the metadata store.

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
    """The configuration with the dynamic properties from the metadata store, which are effective from the start on.

    If they are invalid, the broker logs an error and starts without them. Raises RegistryError.
    """
    for_all = await read_config(registry, f"{BROKERS}/{znodes.DEFAULT_ENTITY}")
    entity = f"{BROKERS}/{config.broker_id}"
    own = await read_config(registry, entity)
    renewed = under_new_secret(config, own)
    if renewed != own:
        own = dict((await change_config(registry, entity, lambda stored: under_new_secret(config, stored))).properties)
    try:
        return config.with_dynamic(from_stored(config, for_all), from_stored(config, own))
    except ConfigError as error:
        log.error("ignoring invalid dynamic broker config error=%s", error.message)
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
            return await cluster_id(registry, proposal)  # another broker has created it meanwhile
        return proposal
    return znodes.decode_cluster_id(data)
