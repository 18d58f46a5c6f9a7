"""Broker in a separate process, for tests and scripts: start, stop, kill, pause, all on one port and one folder.

    with BrokerProcess(tmp_path) as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

The pytest plugin provides these as fixtures; `cluster_process` makes a cluster of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.ready_process import OWN_COMMAND, BrokerError, ReadyProcess

__all__ = ["DEFAULT_OVERRIDES", "BrokerError", "BrokerProcess"]

DEFAULT_OVERRIDES: Final[Mapping[str, str]] = {
    "broker.id": "0",
    # One broker is the whole cluster, and a test does not wait for members that never join.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
}
"""Properties that differ from Kafka's defaults unless a test overrides them."""


class BrokerProcess(ReadyProcess):
    """One broker over the life of its data: any number of processes, one after the other, on one port.

    `folder` holds the data and the log. `overrides` are broker properties with Kafka's names, over DEFAULT_OVERRIDES;
    an override of `listeners` determines the port, too, and restarts keep the port only if it is explicit. `command` is
    the command line to start, by default that of this interpreter. `timeout_s` bounds every wait.
    """

    KIND = "broker"

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        *,
        command: Sequence[str] = OWN_COMMAND,
        timeout_s: float = 60.0,
    ) -> None:
        super().__init__(Path(folder) / "broker.log", command, timeout_s)
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

    def _arguments(self) -> list[str]:
        overrides = {"listeners": f"PLAINTEXT://{self.host}:{self._port}", **self._overrides}
        return ["broker", *(f"--override={name}={value}" for name, value in overrides.items())]
