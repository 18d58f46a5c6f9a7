"""Broker in a separate process, for tests and scripts: start, stop, kill, pause, all on one port and one folder.

    with BrokerProcess(tmp_path) as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

The pytest plugin provides these as fixtures; `cluster_process` makes a cluster of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.broker.config.dynamic import secrets
from odradek.cluster_security import ClusterSecurity
from odradek.ports import free_port
from odradek.ready_process import HOST, BrokerError, ReadyProcess
from odradek.secured import Secured
from odradek.security import Security
from odradek.wire import Wire

__all__ = ["DEFAULT_OVERRIDES", "BrokerError", "BrokerProcess"]

DEFAULT_OVERRIDES: Final[Mapping[str, str]] = {
    "broker.id": "0",
    # One broker is the whole cluster, and a test does not wait for members that never join.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
"""Properties that differ from Kafka's defaults unless a test overrides them."""


class BrokerProcess(ReadyProcess, Secured):
    """One broker over the life of its data: any number of processes, one after the other, on one port.

    `folder` holds the data and the log. `overrides` are broker properties with Kafka's names, over DEFAULT_OVERRIDES;
    an override of `listeners` determines the port, too, and restarts keep the port only if it is explicit. `timeout_s`
    bounds every wait. `environment` are variables beside those of this process.

    Brokers are forked from a process that has imported Odradek: the first is ready in about 0.4 s, the others in 0.1 s.
    `command` is a command line to start instead; `ready_process.OWN_COMMAND` is a new interpreter for each start.

    With `security` (a text as "tls+scram", or `odradek.security.Security`) clients connect as one of its users, with
    `client_config`. A cluster gives all of its brokers one `ClusterSecurity`, with the port for peers of each.
    """

    KIND = "broker"

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        command: Sequence[str] | None = None,
        timeout_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
        security: ClusterSecurity | Security | str | None = None,
        peers_port: int = 0,
    ) -> None:
        super().__init__(Path(folder) / "broker.log", command, timeout_s, environment)
        self._peers_port = peers_port
        self._is_alone = not isinstance(security, ClusterSecurity)
        if security is None or isinstance(security, ClusterSecurity):
            self._security = security
        else:
            self._security = ClusterSecurity(Path(folder) / "security", security, timeout_s)
        self.data_dir: Path = Path(folder) / "data"
        self._overrides = {**DEFAULT_OVERRIDES, "log.dirs": str(self.data_dir), **(overrides or {})}

    def __enter__(self) -> BrokerProcess:
        if not self.running:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """host:port, for a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def bootstrap_servers(self) -> str:
        """The same, by the name that a cluster has for its addresses."""
        return self.bootstrap

    @property
    def peers_port(self) -> int:
        """The port for other brokers and for fixtures; 0 before the first start of a single broker."""
        return self._peers_port

    def admin(self) -> Wire:
        """A connection for fixtures, which may do everything. Raises OSError."""
        if self._security is None:
            return Wire(self.host, self.port)
        return self._security.admin(self._peers_port)

    def await_ready(self) -> None:
        """Wait until the launched process serves, with its users and ACLs. Raises BrokerError, after ending it."""
        super().await_ready()
        if self._security is not None and self._is_alone:
            self._security.prepare([self])

    def close(self) -> None:
        """End the process, if any. Raises BrokerError when a process did not stop cleanly, after ending it."""
        try:
            super().close()
        finally:
            if self._security is not None and self._is_alone:
                self._security.close()

    def _running_brokers(self) -> Sequence[BrokerProcess]:
        return [self]

    def _arguments(self) -> list[str]:
        if self._security is None:
            overrides = {"listeners": f"PLAINTEXT://{self.host}:{self._port}", **self._overrides}
            hidden = {name: overrides.pop(name) for name in secrets(overrides)}
            file = [str(ClusterSecurity.write(self.log_path.with_name("secret.properties"), hidden))] if hidden else []
            return ["broker", *file, *(f"--override={name}={value}" for name, value in overrides.items())]
        self._peers_port = self._peers_port or free_port(HOST)
        properties = {
            **self._security.listeners(self._port, self._peers_port),
            **self._security.broker_properties(int(self._overrides["broker.id"])),
            **self._overrides,
        }
        return ["broker", str(self._security.write(self.log_path.with_name("server.properties"), properties))]
