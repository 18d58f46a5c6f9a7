"""Backup and restore by copying directories, with the very commands of docs/operations.md.

`systemctl` is the test's own broker; paths and ports differ from those on the page, and the shell runs the rest
unchanged.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import ClusterProcess
from odradek.ports import free_port
from odradek.ready_process import ReadyProcess
from tests.compatibility.brokers import create_topic
from tests.compatibility.turns import DEADLINE_S, Name, Stored, alter_topic, led, read
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
SMALL: Final = {"segment.bytes": "20000"}


def blocks(heading: str) -> list[list[str]]:
    """The lines of each shell block below a heading of the page."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found: list[str] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found, f"the page has no commands below {heading}"
    return [each.splitlines() for each in found]


class Machine:
    """The prerequisites of the page: its folders, its properties, its port and its service, all elsewhere."""

    def __init__(self, folder: Path, service: BrokerProcess) -> None:
        self._service = service
        self._bin = folder / "bin"
        self.port = free_port()
        self.restored = folder / "restored"
        backup, properties = folder / "backup", folder / "server.properties"
        for each in (backup, self._bin):
            each.mkdir(parents=True)
        properties.write_text("broker.id=0\noffsets.topic.replication.factor=1\n")
        own = self._bin / "odradek"
        own.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m odradek "$@"\n')
        own.chmod(0o755)
        self._places = {
            "/var/lib/odradek": str(service.data_dir),
            "/var/lib/restored": str(self.restored),
            "/backup": str(backup),
            "/etc/odradek/server.properties": str(properties),
            ":9192": f":{self.port}",
        }
        self._log = folder / "restored.log"

    def run(self, heading: str) -> Started | None:
        """Every line below the heading, in its only block."""
        (lines,) = blocks(heading)
        return self.run_lines(lines)

    def run_lines(self, lines: list[str]) -> Started | None:
        """Runs every line; returns the broker that the last one is to start, if it is to start one."""
        for line in lines:
            for place, here in self._places.items():
                line = line.replace(place, here)
            match shlex.split(line):
                case ["systemctl", "stop", "odradek"]:
                    self._service.stop()
                case ["systemctl", "start", "odradek"]:
                    self._service.start()
                case ["odradek", "broker", *arguments]:
                    return Started(self._log, self.port, arguments)
                case _:
                    command = f"PATH={shlex.quote(str(self._bin))}:$PATH; {line}"
                    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
                    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return None


class Started(ReadyProcess):
    """A broker that a line of the page starts; it runs within the `with` block."""

    KIND = "broker"

    def __init__(self, log: Path, port: int, arguments: list[str]) -> None:
        super().__init__(log, (sys.executable, "-m", "odradek"), timeout_s=30)
        self._port = port
        self._line = ["broker", *arguments]

    def _arguments(self) -> list[str]:
        return self._line

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Started:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The broker that the page is about."""
    frequent = {"log.flush.offset.checkpoint.interval.ms": "50", "log.retention.check.interval.ms": "100"}
    with BrokerProcess(tmp_path / "service", frequent) as broker:
        yield broker


class Load:
    """Writes numbers to a partition until the end of the block; `acknowledged` is how many the broker has acknowledged,
    in order.
    """

    def __init__(self, bootstrap: str, name: Name) -> None:
        self.acknowledged = 0
        self._name = name
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()

    def await_progress(self, count: int) -> int:
        """Wait until this many more are acknowledged; returns how many are."""
        with self._moved:
            goal = self.acknowledged + count
            assert self._moved.wait_for(lambda: self.acknowledged >= goal, DEADLINE_S)
            return self.acknowledged

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(self._name[0], b"%d" % number, b"k", self._name[1], on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(DEADLINE_S)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        with self._moved:
            self.acknowledged += 1
            self._moved.notify_all()


def write(bootstrap: str, name: Name, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "batch.size": 2000, "linger.ms": 1})
    for number in range(count):
        producer.produce(name[0], b"%d " % number * 20, b"key %d" % number, name[1])
    assert producer.flush(DEADLINE_S) == 0


def commit(bootstrap: str, group: str, at: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(offsets=[at], asynchronous=False)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str) -> dict[Name, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in answer.result(DEADLINE_S).topic_partitions or ()}


def await_leaders(bootstrap: str, names: set[Name]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    eventually(lambda: names - led(admin), lambda missing: not missing, "every partition has a leader")


def values(records: dict[Name, list[Stored]], name: Name) -> list[bytes | None]:
    return [record.value for record in records[name]]


# -- one broker --------------------------------------------------------------------------------------------------------


def test_a_stopped_broker_is_restored_elsewhere(service: BrokerProcess, tmp_path: Path) -> None:
    names = {("orders", 0), ("orders", 1)}
    create_topic(service, "orders", 2, {**SMALL, "retention.ms": "123456789"})
    for name in names:
        write(service.bootstrap, name, 500)
    commit(service.bootstrap, "readers", TopicPartition("orders", 1, 321))
    before = read(service.bootstrap, names)
    machine = Machine(tmp_path / "machine", service)
    machine.run("Backup of a broker at rest")
    write(service.bootstrap, ("orders", 0), 10)  # the original goes on, independent of the copy
    started = machine.run("Restore")
    assert started is not None
    with started:
        await_leaders(started.bootstrap, names)
        assert read(started.bootstrap, names) == before
        assert committed(started.bootstrap, "readers") == {("orders", 1): 321}
        described = AdminClient({"bootstrap.servers": started.bootstrap}).list_topics(timeout=DEADLINE_S)
        assert len(described.topics["orders"].partitions) == 2
        alter_topic(started.bootstrap, "orders", segment_bytes=30_000)
        write(started.bootstrap, ("orders", 0), 10)
        assert len(read(started.bootstrap, names)["orders", 0]) == 510


def test_a_copy_of_a_running_broker_is_as_after_a_power_loss(service: BrokerProcess, tmp_path: Path) -> None:
    name = ("orders", 0)
    create_topic(service, "orders", 1, SMALL)
    machine = Machine(tmp_path / "machine", service)
    copy, verify = blocks("Backup of a running broker")
    with Load(service.bootstrap, name) as load:
        load.await_progress(2000)
        commit(service.bootstrap, "readers", TopicPartition(*name, 100))
        known = load.await_progress(1)
        machine.run_lines(copy)
        load.await_progress(100)
    written = values(read(service.bootstrap, [name]), name)
    restore = [line.replace("odradek.tar", "hot.tar") for line in blocks("Restore")[0] if "--verify" not in line]
    started = machine.run_lines(restore)
    assert started is not None
    assert not (machine.restored / ".kafka_cleanshutdown").exists()
    with started:
        await_leaders(started.bootstrap, {name})
        found = values(read(started.bootstrap, [name]), name)
        assert found == written[: len(found)], "the first records written"
        assert len(found) >= known, "all records acknowledged before the copy"
        assert committed(started.bootstrap, "readers") == {name: 100}
        write(started.bootstrap, name, 10)
        machine.run_lines(verify)
        assert len(read(started.bootstrap, [name])[name]) == len(found) + 10
    machine.run_lines(verify)


def test_checkpoints_that_are_newer_than_the_logs_of_a_copy_do_no_harm(service: BrokerProcess, tmp_path: Path) -> None:
    """tar reads a log first and the checkpoints seconds later: they cover records that are not in the copy."""
    name = ("orders", 0)
    create_topic(service, "orders", 1, SMALL)
    write(service.bootstrap, name, 600)
    written = read(service.bootstrap, [name])[name]
    machine = Machine(tmp_path / "machine", service)
    machine.run("Backup of a broker at rest")
    machine.run_lines(blocks("Restore")[0][:2])
    logs = sorted((machine.restored / "orders-0").glob("*.log"))
    assert len(logs) > 2
    logs[-1].unlink()
    with logs[-2].open("r+b") as log:
        log.truncate(logs[-2].stat().st_size // 2 + 7)
    (machine.restored / ".kafka_cleanshutdown").unlink()
    started = machine.run_lines(blocks("Restore")[0][3:])
    assert started is not None
    with started:
        await_leaders(started.bootstrap, {name})
        found = read(started.bootstrap, [name])[name]
        assert int(logs[-2].stem) <= len(found) < int(logs[-1].stem)
        assert found == written[: len(found)]
        write(started.bootstrap, name, 10)
        assert [record.offset for record in read(started.bootstrap, [name])[name]] == list(range(len(found) + 10))
    machine.run_lines(blocks("Backup of a running broker")[1])


# -- one of several ----------------------------------------------------------------------------------------------------


def test_one_broker_of_three_catches_up_from_an_old_copy(tmp_path: Path) -> None:
    name = ("orders", 0)
    with ClusterProcess(tmp_path / "cluster", 3, {"min.insync.replicas": "2"}) as cluster:
        bootstrap = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 1, 3, config=SMALL)])["orders"].result(DEADLINE_S)
        cluster.await_isr(*name, {1, 2, 3})
        write(bootstrap, name, 500)
        old = cluster.leader_of(*name)
        machine = Machine(tmp_path / "machine", cluster.brokers[old])
        machine.run("Backup of a broker at rest")
        cluster.await_isr(*name, {1, 2, 3})
        write(bootstrap, name, 700)
        before = read(bootstrap, [name])
        assert cluster.leader_of(*name) != old
        machine.run("One broker of several from an old copy")
        cluster.await_isr(*name, {1, 2, 3})
        write(bootstrap, name, 50)
        folders = [broker.data_dir / "orders-0" for broker in cluster.brokers.values()]
        eventually(
            lambda: {b"".join(path.read_bytes() for path in sorted(each.glob("*.log"))) for each in folders},
            lambda contents: len(contents) == 1,
            "all replicas hold the same bytes",
        )
        # The brokers from which it caught up may stop: the logs it leads now are complete.
        cluster.stop(next(each for each in cluster.brokers if each not in (old, cluster.leader_of(*name))))
        after = read(bootstrap, [name])
        assert after[name][: len(before[name])] == before[name]
        assert len(after[name]) == 1250
