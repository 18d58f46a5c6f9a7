"""Service environment: properties from a container's variables, notifications to systemd, shutdown with the parent.

- KAFKA_BROKER_ID=1 stands for broker.id=1, as in Apache Kafka's own image (KIP-975): lower case, `_` is a dot, `__` an
  underscore, `___` a dash. Variables for that image's start scripts are ignored. KAFKA_CFG_BROKER_ID is an alias from
  another widespread image; where both are set, the alias counts, because the image has values of its own for KAFKA_….
- The process sends READY=1 and STOPPING=1 to systemd where NOTIFY_SOCKET contains its socket (sd_notify(3),
  Type=notify).
- A child that has to end with its parent reads its standard input, a pipe whose other end the parent holds: the kernel
  closes it however the parent ends.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"
ALIAS_PREFIX: Final = "KAFKA_CFG_"
FOR_START_SCRIPTS: Final = frozenset(
    {
        "KAFKA_CLUSTER_ID",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_HOME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
    }
)
_ANY_ADDRESS: Final = {"": "localhost", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
"""A listener at every address of the host -> the address at which the host itself reaches it."""
GRACE_S: Final = 20.0
"""The timeout for a shutdown after the end of the parent, which cannot end the process itself any more."""


def properties_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The broker properties of variables named KAFKA_… and KAFKA_CFG_…, by Kafka's names."""
    aliases, properties = {}, {}
    for name, value in sorted(environment.items()):
        if name.startswith(ALIAS_PREFIX) and len(name) > len(ALIAS_PREFIX):
            aliases[property_named(name)] = value
        # Kubernetes adds KAFKA_PORT=tcp://… to the containers beside a service that is named kafka.
        elif name == f"{PREFIX}PORT" and "://" in value:
            continue
        elif name.startswith(PREFIX) and name not in {PREFIX, ALIAS_PREFIX, *FOR_START_SCRIPTS}:
            properties[property_named(name)] = value
    return {**properties, **aliases}


def property_named(variable: str) -> str:
    """KAFKA_LOG_DIRS and KAFKA_CFG_LOG_DIRS -> log.dirs"""
    dotted = variable.removeprefix(ALIAS_PREFIX).removeprefix(PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def broker_address(environment: Mapping[str, str]) -> str | None:
    """host:port at which this host reaches the broker whose properties are in the environment; None without listeners.

    The listener is that of the other brokers where it has a name (`inter.broker.listener.name`), else the first one.
    """
    properties = properties_in(environment)
    listeners = [each.strip() for each in properties.get("listeners", "").split(",") if each.strip()]
    name = properties.get("inter.broker.listener.name", "").strip().upper()
    named = [each for each in listeners if name and each.upper().startswith(f"{name}://")]
    for listener in (*named, *listeners):
        host, _, port = listener.rpartition("://")[2].rpartition(":")
        return f"{_ANY_ADDRESS.get(host, host)}:{port}"
    return None


def tell_systemd(state: str) -> None:
    """Send `state`, for example READY=1, if systemd requests it; an unreachable systemd is not an error."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # A name that begins with @ is one of Linux's abstract ones, which begin with a zero byte.
    address = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        try:
            notifier.sendto(state.encode(), address)
        except OSError:
            return


def stop_when_stdin_ends() -> None:
    """From now on the end of standard input is a SIGTERM to this process, and after GRACE_S its end."""
    threading.Thread(target=_watch_stdin, daemon=True, name="until stdin ends").start()


def _watch_stdin() -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # closed from the start: there is no parent to wait for either
    os.kill(os.getpid(), signal.SIGTERM)
    late = threading.Timer(GRACE_S, os._exit, (1,))
    late.daemon = True
    late.start()
