"""The clusters under measurement: three brokers of Apache Kafka 3.9.2, or three of Odradek, over an Apache ZooKeeper of
the same kind.

Both get the same properties and the same session timeout, so that only the brokers differ. One cluster is up at a time:
three idle JVMs would take their share of a small machine. ZooKeeper is a process of its own, and its CPU time is not
counted. Brokers connect to each other directly, not through the relays of `odradek.cluster_process`, because no case
cuts a link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.ready_process import OWN_COMMAND
from odradek.wire import Wire, parse_address
from tests.benchmarks import usage
from tests.benchmarks.cluster_cases import REPLICAS
from tests.benchmarks.contestants import PROPERTIES, READY_TIMEOUT_S
from tests.jvm.kafka import STOCK_JVM, Kafka
from tests.registry.zookeeper_server import ZooKeeperServer

IDS = (1, 2, 3)
NAMES = ("kafka", "odradek")
SESSION_TIMEOUT_MS = 6_000
TIMEOUT_S = 90.0
_POLL_S = 0.02
_CLUSTER_PROPERTIES: Mapping[str, str] = {
    **PROPERTIES,
    "default.replication.factor": str(REPLICAS),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(REPLICAS),
    "transaction.state.log.replication.factor": str(REPLICAS),  # the harness of Kafka sets 1 for single brokers
    "transaction.state.log.min.isr": "2",
    "auto.create.topics.enable": "false",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "30000",
}


class Node(Protocol):
    """The common interface of tests.jvm.kafka.Kafka and odradek.broker_process.BrokerProcess."""

    data_dir: Path

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class Cluster:
    """Three brokers and their ZooKeeper, all files under `folder`. Nothing runs before `start`; `close` ends all."""

    def __init__(self, name: str, folder: Path) -> None:
        """Raises ValueError for a name that is not in NAMES."""
        if name not in NAMES:
            raise ValueError(f"no cluster of {name!r}; there are clusters of {', '.join(NAMES)}")
        self.name = name
        folder.mkdir(parents=True)
        self._zookeeper = ZooKeeperServer(folder, folder / "zookeeper")
        self.nodes: dict[int, Node] = {number: self._make_node(folder / str(number), number) for number in IDS}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def zookeeper_connect(self) -> str:
        return self._zookeeper.connect

    @property
    def pids(self) -> list[int]:
        """The brokers' processes, all of which must run."""
        return [node.pid for node in self.nodes.values()]

    def cpu_seconds(self) -> float:
        """The CPU seconds that the brokers have used so far, all together."""
        return sum(map(usage.cpu_seconds, self.pids))

    def resident_bytes(self) -> int:
        """The memory of the brokers, all together."""
        return sum(usage.memory(pid).resident for pid in self.pids)

    def start(self) -> float:
        """Start ZooKeeper, then the brokers together; return seconds from there until each broker has all in its
        metadata.
        """
        self._zookeeper.start()
        began = time.monotonic()
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.start(), self.nodes.values()))
        self.await_brokers()
        return time.monotonic() - began

    def restart(self, broker_id: int) -> None:
        """Start a broker that was killed, and wait until each broker has all in its metadata again."""
        self.nodes[broker_id].start()
        self.await_brokers()

    def close(self) -> None:
        """Kill everything at once: the data is no longer needed."""
        for node in self.nodes.values():
            if isinstance(node, BrokerProcess):
                node.discard()  # `close` requests a controlled shutdown, which has no target
            else:
                node.close()
        self._zookeeper.stop()

    def controller(self) -> int:
        """The id of the active controller."""
        controller: int = _metadata(self.nodes[IDS[0]], []).controller_id
        return controller

    def leaders_named(self, topic: str) -> set[int]:
        """The leaders of partition 0 that the running brokers return; more than one while some have old metadata."""
        named: set[int] = set()
        for node in self.nodes.values():
            with suppress(OSError, ProtocolError):
                named |= {each.leader_id for each in _partitions(node, topic)[:1] if each.leader_id in IDS}
        return named

    def create(self, topic: str, partitions: int | list[list[int]]) -> None:
        """Request a topic with this many partitions, or with these replicas for each, and return on success."""
        if isinstance(partitions, int):
            wanted = NewTopic(topic, partitions, REPLICAS)
        else:
            wanted = NewTopic(topic, len(partitions), replica_assignment=partitions)
        admin = self._admin()
        for done in admin.create_topics([wanted], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S).values():
            done.result(TIMEOUT_S)

    def drop(self, topic: str) -> None:
        """Delete a topic. The broker deletes its files later; Kafka does so at the earliest 30 s after its start."""
        admin = self._admin()
        for done in admin.delete_topics([topic], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S).values():
            done.result(TIMEOUT_S)

    def folders(self, topic: str) -> int:
        """How many replicas of the topic lie on the disks."""
        return sum(len(list(node.data_dir.glob(f"{topic}-*"))) for node in self.nodes.values())

    def await_brokers(self) -> None:
        """Wait until every broker names every broker and a controller."""

        def knows_all(node: Node) -> bool:
            metadata = _metadata(node, [])
            return {each.node_id for each in metadata.brokers} == set(IDS) and metadata.controller_id in IDS

        self._await_each(knows_all, f"its metadata have brokers {IDS}")

    def await_leaders(self, topic: str, partitions: int) -> None:
        """Wait until every broker returns a leader for every partition; one broker after the other is polled."""

        def knows_leaders(node: Node) -> bool:
            found = _partitions(node, topic)
            return len(found) == partitions and all(each.leader_id in IDS for each in found)

        self._await_each(knows_leaders, f"its metadata have leaders for {partitions} partitions of {topic}")

    def await_in_sync(self, topic: str, partitions: int) -> None:
        """Wait until every broker returns every replica of every partition as in sync."""

        def knows_in_sync(node: Node) -> bool:
            found = _partitions(node, topic)
            return len(found) == partitions and all(len(each.isr_nodes) == REPLICAS for each in found)

        self._await_each(
            knows_in_sync, f"its metadata have {REPLICAS} replicas in sync for {partitions} partitions of {topic}"
        )

    def _make_node(self, folder: Path, broker_id: int) -> Node:
        properties = {**_CLUSTER_PROPERTIES, "broker.id": str(broker_id)}
        if self.name == "kafka":
            return Kafka(folder, properties, STOCK_JVM, zookeeper=self._zookeeper.connect)
        properties["zookeeper.connect"] = self._zookeeper.connect
        return BrokerProcess(folder, properties, command=OWN_COMMAND, timeout_s=READY_TIMEOUT_S)

    def _await_each(self, holds: Callable[[Node], bool], what: str) -> None:
        for node in self.nodes.values():
            deadline = time.monotonic() + TIMEOUT_S
            while not _holds(holds, node):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name} at {node.bootstrap}, not within {TIMEOUT_S:g} s: {what}")
                time.sleep(_POLL_S)

    def _admin(self) -> AdminClient:
        # A new client for each call, kept until the response is there: its threads must not run beside a measurement.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})


def _partitions(node: Node, topic: str) -> list[m.MetadataResponse.MetadataResponsePartition]:
    (found,) = _metadata(node, [topic]).topics
    return found.partitions if found.error_code == ErrorCode.NONE else []


def _metadata(node: Node, topics: list[str]) -> m.MetadataResponse:
    with Wire(*parse_address(node.bootstrap), timeout_s=TIMEOUT_S) as wire:
        return wire.metadata(topics)


def _holds(holds: Callable[[Node], bool], node: Node) -> bool:
    try:
        return holds(node)
    except (OSError, ProtocolError):
        return False  # it is starting
