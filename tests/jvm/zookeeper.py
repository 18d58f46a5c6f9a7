"""The ZooKeeper of an Apache Kafka: one for each process of the tests, in which every cluster has a root of its own."""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from odradek.ports import free_port
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, archive_options, java_command

VERSION = "3.9.2"
START_TIMEOUT_S = 90.0
ZOOKEEPER_JVM = QUICK_START
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_NO_LOG4J = "-Dzookeeper.jmx.log4j.disable=true"  # ZooKeeper 3.4 needs a class that reload4j does not have
_LOGGER = "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxnFactory=info"


class ZooKeeper:
    """One server with its data in `folder`, of Kafka's release `version`. Nothing runs before `start`."""

    def __init__(self, folder: Path, version: str = VERSION, jvm: tuple[str, ...] = ZOOKEEPER_JVM) -> None:
        self._folder = folder
        self._version = version
        self._jvm = jvm
        self._port = free_port()
        self._process: BackgroundProcess | None = None
        self._roots = itertools.count()

    @property
    def connect(self) -> str:
        """host:port for a client."""
        return f"127.0.0.1:{self._port}"

    def new_root(self) -> str:
        """host:port/root for a client, with a root that no other caller receives. The first broker creates it."""
        return f"{self.connect}/kafka-{next(self._roots)}"

    def start(self) -> None:
        """Returns once the server has bound its port, or at once if it runs already."""
        if self._process is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "zookeeper.properties"
        config.write_text(
            java_properties(
                {
                    "dataDir": str(self._folder),
                    "clientPort": str(self._port),
                    "clientPortAddress": "127.0.0.1",
                    "tickTime": "500",
                    "maxSessionTimeout": "60000",
                    "maxClientCnxns": "0",
                    "admin.enableServer": "false",
                }
            )
        )
        archive = archive_options(self._version, _MAIN) if self._jvm == ZOOKEEPER_JVM else ()
        options = (*self._jvm, *archive, *QUIET, _LOGGER, "-Dzookeeper.forceSync=no", _NO_LOG4J)
        self._process = BackgroundProcess(java_command(self._version, _MAIN, [str(config)], options))
        self._process.stderr.wait_for("binding to port", START_TIMEOUT_S)

    def stop(self) -> None:
        """Stops the server if it runs (SIGTERM), and waits for its end."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """Ends the server at once if it runs (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process = None


@functools.cache
def shared_zookeeper() -> ZooKeeper:
    """The server that runs from the first call to the end of this process."""
    folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    shared = ZooKeeper(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(shared.kill)
    shared.start()
    return shared


def java_properties(values: Mapping[str, str]) -> str:
    """The text of a file of properties."""
    return "".join(f"{name}={value}\n" for name, value in values.items())
