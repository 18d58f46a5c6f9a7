"""Apache Kafka 4.3.0, one node with KRaft: the oracle for features that Kafka with ZooKeeper does not have."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from odradek.ports import free_port
from tests.jvm.kafka import START_TIMEOUT_S
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, java_command, run_java
from tests.support.eventually import eventually_async

VERSION = "4.3.0"
SMALL = (*QUICK_START, "-Xmx512m", *QUIET)


@asynccontextmanager
async def running_kraft(folder: Path, properties: dict[str, str] | None = None) -> AsyncIterator[int]:
    """A broker that is its own controller, while the block runs; its port."""
    port, controller = free_port(), free_port()
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(folder / "logs"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        **(properties or {}),
    }
    config = _written(folder, values)
    # As Kafka draws it: no id that begins with a dash, which the tool would take for an option.
    ids = (base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=") for _ in iter(int, 1))
    cluster = next(each for each in ids if not each.startswith("-"))
    arguments = ["format", "-t", cluster, "-c", str(config)]
    await asyncio.to_thread(
        run_java, java_command(VERSION, "kafka.tools.StorageTool", arguments, SMALL), timeout_s=START_TIMEOUT_S
    )
    process = BackgroundProcess(java_command(VERSION, "kafka.Kafka", [str(config)], SMALL))
    try:
        await _answers(port, process)
        yield port
    finally:
        process.kill()


def _written(folder: Path, values: dict[str, str]) -> Path:
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
