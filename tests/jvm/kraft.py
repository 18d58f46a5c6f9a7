"""Apache Kafka 4.3.0, one node with KRaft: the oracle for features that Kafka with ZooKeeper does not have.

Its classes, and the files that `kafka-storage format` writes before a first start, come from the cache
(`tests.jvm.archives`).
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import socket
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from odradek.ports import free_port
from tests.jvm.cache import cache_folder
from tests.jvm.kafka import START_TIMEOUT_S
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, archive_options, java_command, run_java
from tests.support.eventually import eventually

VERSION = "4.3.0"
MAIN = "kafka.Kafka"
FORMATTED = "formatted"
"""The folder beside the archive of classes in which a data directory is formatted and empty."""
SMALL_JVM = (*QUICK_START, "-Xmx512m")


class KRaft:
    """A broker that is its own controller. Nothing runs before `start`; `close` ends it without warning.

    `jvm` are the options of its Java; without them it is small and has the archive of classes. `data_dir` is its log
    directory.
    """

    def __init__(
        self, folder: Path, properties: Mapping[str, str] | None = None, jvm: tuple[str, ...] | None = None
    ) -> None:
        self.port = free_port()
        self.data_dir = folder / "logs"
        self._config = write_properties(folder, self.data_dir, self.port, properties or {})
        self._options = (*(jvm or (*SMALL_JVM, *archive_options(VERSION, MAIN))), *QUIET)
        self._process: BackgroundProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Raises RuntimeError when it does not run."""
        return self._running().pid

    def start(self) -> None:
        """Format the data directory if it is new, start the broker, and wait until it accepts connections."""
        if not self.data_dir.exists():
            formatted = cache_folder() / "classes" / VERSION / FORMATTED
            if formatted.exists():
                shutil.copytree(formatted, self.data_dir)
            else:
                format_directory(self._config)
        self._process = BackgroundProcess(java_command(VERSION, MAIN, [str(self._config)], self._options))
        eventually(self._connect, lambda _: True, timeout_s=START_TIMEOUT_S, retry_on=(OSError,))

    def stop(self) -> None:
        """Stop it as an operator does (SIGTERM), and wait for its end."""
        process, self._process = self._running(), None
        process.stop(START_TIMEOUT_S)

    def close(self) -> None:
        """End it at once, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _connect(self) -> None:
        if not self._running().running:
            raise RuntimeError("\n".join(self._running().stderr.lines()[-20:]))
        socket.create_connection(("127.0.0.1", self.port)).close()

    def _running(self) -> BackgroundProcess:
        if self._process is None:
            raise RuntimeError("the broker does not run")
        return self._process


@asynccontextmanager
async def running_kraft(
    folder: Path, properties: Mapping[str, str] | None = None, jvm: tuple[str, ...] | None = None
) -> AsyncIterator[int]:
    """A broker while the block runs; its port. It ends with SIGTERM if it has options `jvm`, else without warning."""
    broker = KRaft(folder, properties, jvm)
    try:
        await asyncio.to_thread(broker.start)
        yield broker.port
        if jvm is not None:
            await asyncio.to_thread(broker.stop)
    finally:
        broker.close()


def format_directory(config: Path) -> None:
    """Let kafka-storage prepare the log.dirs of a broker's properties. Raises ToolError when it cannot."""
    # As Kafka draws it: no id that begins with a dash, which the tool would take for an option.
    ids = (base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in iter(int, 1))
    cluster = next(each for each in ids if not each.startswith("-"))
    arguments = ["format", "-t", cluster, "-c", str(config)]
    run_java(
        java_command(VERSION, "kafka.tools.StorageTool", arguments, (*SMALL_JVM, *QUIET)), timeout_s=START_TIMEOUT_S
    )


def write_properties(folder: Path, data: Path, port: int, properties: Mapping[str, str]) -> Path:
    """The server.properties in `folder` of a broker at a port with its data in `data`."""
    controller = free_port()
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        **properties,
    }
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return config
