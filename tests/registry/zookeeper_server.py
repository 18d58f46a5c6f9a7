"""Apache ZooKeeper alone, from the jars of Kafka 3.9.2: the reference for the registry's semantics and formats."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from odradek.ports import free_port
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, archive_options, java_command

VERSION = "3.9.2"
START_TIMEOUT_S = 60.0
# The port is bound before the data is read; a client that comes in between waits for its whole session timeout.
_READY = "PrepRequestProcessor (sid:0) started"
_LOGGER = "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.PrepRequestProcessor=info"
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeperServer:
    """One standalone server over a data directory. It runs from `start` to `stop`; the data stays.

    With `upgrade` it also takes the data of a ZooKeeper 3.4 that has not written a snapshot yet (ZOOKEEPER-3056).
    `settings` are further lines of its configuration, `options` further ones of its Java.
    """

    def __init__(
        self,
        folder: Path,
        data: Path,
        *,
        upgrade: bool = False,
        settings: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        self._options = options
        self._upgrade = upgrade
        self._settings = settings or {}
        self._config = folder / "zookeeper.properties"
        self._data = data
        self._port = free_port()
        self._process: BackgroundProcess | None = None

    @property
    def connect(self) -> str:
        """host:port for a client."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns once the server serves. Raises EOFError, with what it printed, if it ends instead."""
        self._data.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f"dataDir={self._data}\nclientPort={self._port}\nclientPortAddress=127.0.0.1\n"
            "tickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            + "".join(f"{name}={value}\n" for name, value in self._settings.items())
        )
        options = (
            *QUICK_START,
            *archive_options(VERSION, _MAIN),
            *QUIET,
            _LOGGER,
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.preAllocSize=64",
            f"-Dzookeeper.snapshot.trust.empty={str(self._upgrade).lower()}",
            *self._options,
        )
        self._process = BackgroundProcess(java_command(VERSION, _MAIN, [str(self._config)], options))
        self._process.stderr.wait_for(_READY, START_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL to the server, which runs."""
        self._running().kill()
        self._process = None

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and sends nothing."""
        os.kill(self._running().pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: the end of `pause`."""
        os.kill(self._running().pid, signal.SIGCONT)

    def stop(self) -> None:
        """Ends the server, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _running(self) -> BackgroundProcess:
        assert self._process is not None, "it does not run"
        return self._process
