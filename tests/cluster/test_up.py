"""`odradek cluster up`, as a user runs it: one command, its lines, Ctrl-C, and its errors."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.wire import parse_address
from tests.jvm.kafka import free_port
from tests.jvm.process import BackgroundProcess

pytestmark = pytest.mark.slow
DEADLINE_S = 60
SOON_S = 20


class Up:
    """The command, running."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "odradek", "cluster", "up", f"--data={folder}", "--port=0", *arguments]
        self.process = BackgroundProcess(command)

    def await_line(self, text: str) -> str:
        return self.process.stdout.wait_for(text, DEADLINE_S)

    def await_ready(self) -> str:
        """The bootstrap addresses."""
        return re.search(r" ready: cluster at (\S+), data in ", self.await_line(" ready: cluster at "))[1]  # type: ignore[index]

    def broker_pid(self, broker_id: int) -> int:
        return int(re.search(r"process (\d+)", self.await_line(f"broker {broker_id} at"))[1])  # type: ignore[index]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> list[str]:
        """Wait for the end; all lines."""
        return self.process.stdout.wait_for_end(DEADLINE_S)

    def complaints(self) -> list[str]:
        """The whole output on its standard error."""
        return self.process.stderr.wait_for_end(DEADLINE_S)


Start = Callable[..., Up]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Start]:
    started: list[Up] = []

    def start(*arguments: str) -> Up:
        started.append(Up(tmp_path / "cluster", *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()


def make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(DEADLINE_S)


def produce(bootstrap: str, topic: str, values: list[str], deadline_s: float = DEADLINE_S) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(deadline_s) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[str] = []
    try:
        while len(values) < count:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{len(values)} of {count}"
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return values


def test_a_cluster_survives_a_broker_and_a_restart(up: Start) -> None:
    first = up("--property=num.partitions=4", "--property=zookeeper.session.timeout.ms=40000")
    bootstrap = first.await_ready()
    assert bootstrap.count(",") == 2
    make_topic(bootstrap, "orders", -1)
    topic = AdminClient({"bootstrap.servers": bootstrap}).list_topics("orders", DEADLINE_S).topics["orders"]
    assert [sorted(each.replicas) for each in topic.partitions.values()] == [[1, 2, 3]] * 4
    before = [f"before {number}" for number in range(200)]
    produce(bootstrap, "orders", before)

    os.kill(first.broker_pid(2), signal.SIGKILL)
    first.await_line("broker 2 has ended by signal SIGKILL; ")
    first.await_line("broker registered broker=")  # the end of its log
    after = [f"after {number}" for number in range(200)]
    produce(bootstrap, "orders", after, SOON_S)  # its session has ended with it, not after 40 s
    first.signal(signal.SIGINT)
    lines = first.end()
    assert first.process.stop() == 0, lines
    assert sorted(line for line in lines if line.startswith("stopping")) == ["stopping broker 1", "stopping broker 3"]

    second = up()
    assert sorted(consume(second.await_ready(), "orders", 400)) == sorted(before + after)


def odradek(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def place_of(line: str) -> tuple[str, int]:
    """Address and process id in the line of a broker."""
    found = re.search(r"^broker \d+ at (\S+), process (\d+), data in ", line)
    assert found is not None, line
    return found[1], int(found[2])


def test_a_broker_is_restarted_on_its_port_with_its_data(up: Start, tmp_path: Path) -> None:
    cluster = up("--brokers=2", "--property=min.insync.replicas=1")
    bootstrap = cluster.await_ready()
    address, pid = place_of(cluster.await_line("broker 2 at"))
    make_topic(bootstrap, "orders", 2)
    produce(bootstrap, "orders", ["before"])
    data = f"--data={tmp_path / 'cluster'}"

    ended = odradek("cluster", "restart", "2", data)  # one that runs
    assert (ended.returncode, ended.stderr) == (0, "")
    again, second_pid = place_of(ended.stdout)
    assert again == address
    assert second_pid != pid
    assert (tmp_path / "cluster/2/.kafka_cleanshutdown").exists() is False  # the new process has read and removed it
    assert "stopped" in (tmp_path / "cluster/broker-2.log").read_text()

    os.kill(second_pid, signal.SIGKILL)  # one that has ended
    cluster.await_line("broker 2 has ended by signal SIGKILL; ")
    third = place_of(odradek("cluster", "restart", "2", data).stdout)
    assert third[0] == address
    produce(address, "orders", ["after"])
    assert sorted(consume(bootstrap, "orders", 2)) == ["after", "before"]

    os.kill(third[1], signal.SIGKILL)  # and the command watches the new process as it watched the first
    os.kill(cluster.broker_pid(1), signal.SIGKILL)
    cluster.end()
    assert cluster.process.stop() == 1


def test_a_broker_is_killed_and_restarted(up: Start, tmp_path: Path) -> None:
    """The other broker leads at once: the session of the dead one does not have to time out."""
    cluster = up("--brokers=2", "--property=min.insync.replicas=1", "--property=zookeeper.session.timeout.ms=40000")
    bootstrap = cluster.await_ready()
    make_topic(bootstrap, "orders", 2)
    data = f"--data={tmp_path / 'cluster'}"
    ended = odradek("cluster", "kill", "2", data)
    assert (ended.stdout, ended.stderr) == (
        "broker 2 was killed; odradek cluster restart 2 starts it again\n",
        "",
    )
    cluster.await_line("broker 2 has ended by signal SIGKILL; ")
    produce(bootstrap, "orders", ["after"], SOON_S)
    again = odradek("cluster", "kill", "2", data)
    assert (again.returncode, again.stderr) == (
        1,
        "odradek: broker 2 does not run; odradek cluster restart 2 starts it\n",
    )
    assert odradek("cluster", "kill", "7", data).stderr == "odradek: there is no broker 7; there are 1, 2\n"
    assert odradek("cluster", "restart", "2", data).returncode == 0
    assert consume(bootstrap, "orders", 1) == ["after"]


def test_the_last_broker_can_be_restarted(up: Start, tmp_path: Path) -> None:
    cluster = up("--brokers=1")
    cluster.await_ready()
    assert odradek("cluster", "restart", "1", f"--data={tmp_path / 'cluster'}").returncode == 0
    cluster.signal(signal.SIGTERM)
    cluster.end()
    assert cluster.process.stop() == 0


def test_a_restart_that_is_not_possible_is_reported(up: Start, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    ended = odradek("cluster", "restart", "1", f"--data={folder}")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert f"no cluster runs in {folder}" in ended.stderr
    cluster = up("--brokers=1")
    address = cluster.await_ready()
    ended = odradek("cluster", "restart", "7", f"--data={folder}")
    assert (ended.returncode, ended.stderr) == (1, "odradek: there is no broker 7; there are 1\n")
    assert odradek("health", address).returncode == 0
    cluster.process.kill()  # and a socket that a kill has left
    ended = odradek("cluster", "restart", "1", f"--data={folder}")
    assert ended.returncode == 1
    assert f"no cluster runs in {folder}" in ended.stderr


def test_the_registry_listens_at_its_configured_address(up: Start, tmp_path: Path) -> None:
    port = free_port()
    cluster = up("--brokers=1", f"--registry-port={port}")
    assert cluster.await_line("registry (--zookeeper) at") == f"registry (--zookeeper) at 127.0.0.1:{port}"
    cluster.await_ready()
    ended = odradek("cluster", "up", "--port=0", f"--registry-port={port}", f"--data={tmp_path / 'other'}")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f"odradek: 127.0.0.1:{port} is in use; choose another --registry-port"


def test_the_controller_is_stopped_last(up: Start) -> None:
    cluster = up()
    bootstrap = cluster.await_ready()
    controller = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S).controller_id
    cluster.signal(signal.SIGTERM)
    stopped = [line for line in cluster.end() if line.startswith("stopping")]
    others = sorted({1, 2, 3} - {controller}, reverse=True)
    assert stopped == [f"stopping broker {number}" for number in (*others, controller)]
    assert cluster.process.stop() == 0


def test_a_second_interrupt_does_not_wait(up: Start) -> None:
    cluster = up("--brokers=1")
    cluster.await_ready()
    pid = cluster.broker_pid(1)
    os.kill(pid, signal.SIGSTOP)  # it does not stop on request
    cluster.signal(signal.SIGINT)
    cluster.await_line("stopping broker 1")
    cluster.signal(signal.SIGINT)
    cluster.end()
    assert cluster.process.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_brokers_end_with_the_command_however_it_ends(up: Start) -> None:
    cluster = up("--brokers=2")
    addresses = cluster.await_ready().split(",")
    clients = [socket.create_connection(parse_address(address), timeout=DEADLINE_S) for address in addresses]
    cluster.process.kill()
    for client in clients:
        with client:
            assert client.recv(1) == b""


def test_when_no_broker_is_left_the_command_ends_with_status_1(up: Start) -> None:
    cluster = up("--brokers=1")
    cluster.await_ready()
    os.kill(cluster.broker_pid(1), signal.SIGKILL)
    cluster.end()
    assert cluster.process.stop() == 1
    assert cluster.complaints()[-1] == "odradek: no broker is left"


def test_a_broker_that_cannot_start_ends_the_command_with_its_reason(up: Start) -> None:
    cluster = up("--property=log.segment.bytes=x")
    cluster.end()
    assert cluster.process.stop() == 1
    printed = "\n".join(cluster.complaints())
    assert "odradek: broker 1 has not started; " in printed
    assert "Invalid value x for configuration log.segment.bytes" in printed


def test_a_port_in_use_is_reported(up: Start) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        cluster = up("--brokers=1", f"--port={port}")
        cluster.end()
    assert cluster.process.stop() == 1
    assert f"127.0.0.1:{port} is in use" in "\n".join(cluster.complaints())


def test_a_folder_in_use_is_reported(up: Start) -> None:
    up("--brokers=1").await_ready()
    other = up("--brokers=1")
    other.end()
    assert other.process.stop() == 1
    assert "runs in" in other.complaints()[-1]
    assert "--data" in other.complaints()[-1]


@pytest.mark.parametrize(
    ("argument", "printed"),
    [
        ("--property=x", "expected key=value"),
        ("--property=broker.id=1", "broker.id is set for each broker"),
        ("--brokers=0", "--brokers"),
        ("--port=65535", "go beyond 65535"),
    ],
)
def test_a_wrong_argument_is_reported_before_any_process_starts(up: Start, argument: str, printed: str) -> None:
    cluster = up(argument)
    assert cluster.end() == []
    assert cluster.process.stop() == 2
    assert printed in "\n".join(cluster.complaints())


def test_the_console_starts_and_ends_with_the_cluster(up: Start) -> None:
    cluster = up("--brokers=1", "--console", "--console-port=0")
    address = re.search(r"console at (http://\S+)", cluster.await_line("console at "))[1]  # type: ignore[index]
    cluster.await_ready()
    with urllib.request.urlopen(f"{address}/brokers") as answer:
        assert b"read-only" in answer.read()
    with urllib.request.urlopen(f"{address}/logs") as answer:
        assert b"Logs on disk" in answer.read()
    cluster.signal(signal.SIGINT)
    cluster.end()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{address}/brokers")
