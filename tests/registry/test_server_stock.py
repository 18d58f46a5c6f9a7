"""Stock clients of the embedded server: ZooKeeper's shell as Kafka ships it, and Apache Kafka itself."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kazoo.client import KazooClient

from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.registry.conftest import serving
from tests.registry.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

SHELLS = {
    "2.8.2": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
    "3.9.2": "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka",
}
SCRIPT = """
create /a one
create /a/b
create -e /a/e x
create -s /a/s- y
create -s -e /a/s- z
create /a again
create /none/a x
create /a/e/child x
get -s /a
get /a/b
set -s /a two
set -v 0 /a three
set -v 1 -s /a three
stat /a
stat /none
ls /none
ls -s /a
ls -R /a
getAcl -s /a
setAcl /a world:anyone:cdrwa
addauth digest user:secret
sync /a
delete /a
delete -v 7 /a/b
delete -v 0 /a/b
deleteall /a
ls /zookeeper
quit
"""


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    """The embedded server, in a thread; yields host:port."""
    started, stop = threading.Event(), asyncio.Event()
    running: list[tuple[asyncio.AbstractEventLoop, str]] = []

    async def serve() -> None:
        async with serving() as connect:
            running.append((asyncio.get_running_loop(), connect))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(30)
        loop, connect = running[0]
        yield connect
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def _shell(version: str, connect: str) -> list[str]:
    """The output of the shell for the script, without the numbers that differ between servers."""
    result = run_tool(version, SHELLS[version], ["-server", connect], stdin=SCRIPT, check=False)
    times = re.compile(r"^([cm]time = ).*$|^([cmp]Zxid = |ephemeralOwner = )0x[0-9a-f]{2,}$", re.MULTILINE)
    printed = times.sub(lambda found: found[1] or found[2], result.stdout + result.stderr)
    printed = re.sub(r"(?<=Zxid = )0x[0-9a-f]+|" + re.escape(connect), "", printed)
    lines = [line for line in printed.splitlines() if "Session establishment" not in line and line.strip()]
    # The shell's event thread prints these at any time.
    return [line for line in lines if not line.startswith(("WATCHER", "WatchedEvent", "Welcome", "JLine"))]


@pytest.mark.parametrize("version", SHELLS)
def test_the_shell_prints_the_same_as_on_zookeeper(version: str, ours: str, zookeeper: ZooKeeperServer) -> None:
    printed = _shell(version, ours)
    assert printed == _shell(version, zookeeper.connect)
    assert "Created /a/s-0000000002" in printed
    assert "numChildren = 4" in printed


def test_kafka_runs_on_the_embedded_server(ours: str, tmp_path: Path) -> None:
    chroot = f"{ours}/kafka"
    with contextlib.closing(KazooClient(ours)) as client:
        client.start(timeout=30)
        client.create("/kafka")
        client.stop()
    # A producer that has written to a topic keeps requesting it, and would recreate it after its deletion.
    kafka = Kafka(tmp_path, {"auto.create.topics.enable": "false"}, zookeeper=chroot)
    with contextlib.closing(kafka):
        kafka.start()
        created = ["--zookeeper", chroot, "--create", "--topic", "t", "--partitions", "3", "--replication-factor", "1"]
        assert "Created topic t" in run_tool("2.8.2", "kafka-topics", created).stdout
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(100):
            producer.produce("t", str(number).encode(), partition=number % 3)
        assert producer.flush(60) == 0
        kafka.kill()
        kafka.start()  # waits for the end of the session before
        described = run_tool("2.8.2", "kafka-topics", ["--zookeeper", chroot, "--describe", "--topic", "t"]).stdout
        assert described.count("Leader: 0") == 3
        assert _values(kafka.bootstrap, 100) == {str(number) for number in range(100)}
        run_tool("3.9.2", "kafka-topics", ["--bootstrap-server", kafka.bootstrap, "--delete", "--topic", "t"])
        _await_gone(chroot, "/brokers/topics/t")
        kafka.stop()
        kafka.start()
        listed = run_tool("2.8.2", "kafka-topics", ["--zookeeper", chroot, "--list"]).stdout
        assert "t" not in listed.split()
        assert "__consumer_offsets" in listed.split()
        kafka.stop()


def _await_gone(connect: str, path: str) -> None:
    client = KazooClient(connect)
    client.start(timeout=30)
    try:
        gone = threading.Event()
        assert not client.exists(path, watch=lambda _: gone.set()) or gone.wait(30)
        assert not client.exists(path)
    finally:
        client.stop()
        client.close()


def _values(bootstrap: str, count: int) -> set[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        messages = consumer.consume(count, timeout=60)
        assert [message.error() for message in messages] == [None] * count
        return {(message.value() or b"").decode() for message in messages}
    finally:
        consumer.close()
