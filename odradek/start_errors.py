"""Start errors: the reason why a broker has not started, and its remedy, in one line with the user's own properties."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from odradek.broker.composition.registry_access import REGISTRY_FOLDER
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import BadArgumentsError, ConnectionLossError, RegistryError, SessionExpiredError
from odradek.broker.registry.journal import VERSION_FOLDER, DamagedJournalError
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.config.broker_config import BrokerConfig

START_ERRORS = (KafkaError, RegistryError, znodes.ZnodeError, DamagedJournalError, OSError)
"""Errors of a start whose cause is outside the broker; `explain` has a line for each."""


def explain(error: Exception, config: BrokerConfig) -> str:
    """The line for one of START_ERRORS."""
    if isinstance(error, KafkaError):
        return _explain_kafka_error(error)
    if isinstance(error, OSError):
        return _explain_os_error(error, config)
    if isinstance(error, (ConnectionLossError, SessionExpiredError)) and config["zookeeper.connect"]:
        return _explain_missing_zookeeper(error, config)
    if isinstance(error, BadArgumentsError):
        return str(error)
    if isinstance(error, (RegistryError, znodes.ZnodeError)):
        where = config["zookeeper.connect"] or "the data directory"
        return f"cannot use the metadata in {where}: {type(error).__name__}: {error}"
    return str(error)


def _explain_kafka_error(error: KafkaError) -> str:
    message = error.message or str(error)
    if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
        return f"{message.rstrip('.')}. Another folder can be chosen with --override log.dirs=FOLDER"
    return message


def _explain_missing_zookeeper(error: RegistryError, config: BrokerConfig) -> str:
    hosts, _ = znodes.split_connect(config["zookeeper.connect"])
    host, colon, port = hosts.partition(",")[0].rpartition(":")
    if not colon or not port.isdecimal():
        host, port = hosts.partition(",")[0], "2181"
    is_local = host in ("localhost", "127.0.0.1", "[::1]")
    instead = f"Apache ZooKeeper, or `odradek registry --port {port}`" if is_local else "Apache ZooKeeper"
    used = [each for each in config.log_dirs if (each / "meta.properties").exists()]
    used = [each for each in used if not (each / REGISTRY_FOLDER / VERSION_FOLDER).exists()]
    elsewhere = f"; {used[0]} has data of that ZooKeeper's cluster, so choose another log.dirs then" if used else ""
    return (
        f"{error}. Start a ZooKeeper there ({instead}), or remove zookeeper.connect "
        "(--override zookeeper.connect=) for a single broker, which then keeps the metadata in its data directory"
        f"{elsewhere}"
    )


def _explain_os_error(error: OSError, config: BrokerConfig) -> str:
    listeners = ", ".join(map(str, config.listeners))
    folders = ", ".join(map(str, config.log_dirs))
    where = error.filename or folders
    if error.errno == errno.EADDRINUSE:
        return (
            f"the address of {listeners} is in use. Stop the program that uses it, or choose another port: "
            "--override listeners=PLAINTEXT://127.0.0.1:0 takes a free one"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"no interface of this machine has the address of {listeners}. Choose another host in listeners"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename is None:
        return f"not allowed to use {listeners} or {folders}: {error.strerror}. Ports below 1024 need a privilege"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot write to {where}: {error.strerror}. Choose a writable folder with --override log.dirs=FOLDER"
    if error.errno == errno.ENOSPC:
        return f"no space left for {where}. Free some, or choose another folder with --override log.dirs=FOLDER"
    if error.filename is not None:
        return f"cannot use {where}: {error.strerror}"
    return str(error)
