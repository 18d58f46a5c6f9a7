"""Apache Kafka 4.3.0, one node with KRaft: the oracle for features that Kafka with ZooKeeper does not have.

Its classes, and the files that `kafka-storage format` writes before a first start, come from the cache
(`tests.jvm.archives`).
"""

from __future__ import annotations

import asyncio
import base64
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from odradek.ports import free_port
from tests.jvm.cache import cache_folder
from tests.jvm.kafka import START_TIMEOUT_S
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, archive_options, java_command, run_java
from tests.support.eventually import eventually_async

VERSION = "4.3.0"
MAIN = "kafka.Kafka"
FORMATTED = "formatted"
"""The folder beside the archive of classes in which a data directory is formatted and empty."""
_SMALL = (*QUICK_START, "-Xmx512m")


@asynccontextmanager
async def running_kraft(
    folder: Path, properties: dict[str, str] | None = None, jvm: tuple[str, ...] | None = None
) -> AsyncIterator[int]:
    """A broker that is its own controller, while the block runs; its port. It ends with SIGTERM if `jvm` has further
    options of its Java, in place of the archive, and without warning otherwise.
    """
    port = free_port()
    config = write_properties(folder, folder / "logs", port, properties or {})
    formatted = cache_folder() / "classes" / VERSION / FORMATTED
    if formatted.exists():
        shutil.copytree(formatted, folder / "logs")
    else:
        await asyncio.to_thread(format_directory, config)
    options = (*_SMALL, *(archive_options(VERSION, MAIN) if jvm is None else jvm), *QUIET)
    process = BackgroundProcess(java_command(VERSION, MAIN, [str(config)], options))
    try:
        await _answers(port, process)
        yield port
        if jvm is not None:
            process.stop(START_TIMEOUT_S)
    finally:
        process.kill()


def format_directory(config: Path) -> None:
    """Let kafka-storage prepare the log.dirs of a broker's properties. Raises ToolError when it cannot."""
    # As Kafka draws it: no id that begins with a dash, which the tool would take for an option.
    ids = (base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in iter(int, 1))
    cluster = next(each for each in ids if not each.startswith("-"))
    arguments = ["format", "-t", cluster, "-c", str(config)]
    run_java(java_command(VERSION, "kafka.tools.StorageTool", arguments, (*_SMALL, *QUIET)), timeout_s=START_TIMEOUT_S)


def write_properties(folder: Path, data: Path, port: int, properties: dict[str, str]) -> Path:
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


async def _answers(port: int, process: BackgroundProcess) -> None:
    async def connect() -> None:
        if not process.running:
            raise RuntimeError("\n".join(process.stderr.lines()[-20:]))
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    await eventually_async(connect, lambda _: True, timeout_s=START_TIMEOUT_S, retry_on=(OSError,))
