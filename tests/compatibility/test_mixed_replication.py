"""A cluster of Apache Kafka 3.9.2 becomes one of Odradek, a broker at a time and under load, and Kafka comes back.

There are two ways. Brokers of Odradek join with ids of their own and take the replicas over by reassignment; or each
starts with the id, the address and the directory of the Kafka that it replaces. The operator's tools are the stock
ones. An idempotent producer with acks=all and a reader run through all of it; at the end the checker of `tests.cluster`
finds no contradiction, and the copies of a partition hold the same bytes and epochs, whichever broker wrote them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from odradek.broker.registry import znodes
from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from tests.compatibility.registry_nodes import DEADLINE_S, await_node
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.checker import report
from tests.support.eventually import eventually
from tests.support.workload import PRODUCERS, Workload

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC = "moving"
OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 2
GROUP = "who-stays"
COMMITTED = 7
SETTINGS = {
    "auto.leader.rebalance.enable": "false",  # leaders move only on the request of a test
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.replication.factor": "2",
    "zookeeper.session.timeout.ms": "6000",
}
"""The properties of every broker, Kafka's and Odradek's."""
TOPIC_CONFIG = {"min.insync.replicas": "2", "segment.bytes": "1024"}
ONCE = {"once": PRODUCERS["once"]}
Plan = Mapping[str, Sequence[Sequence[int]]]
"""The replicas of every partition, by topic."""


class Addresses:
    """The address of the broker of an id, of either kind."""

    def __init__(self, broker_ids: Sequence[int]) -> None:
        self.port = {broker_id: free_port() for broker_id in broker_ids}
        self._for_peers = {broker_id: free_port() for broker_id in broker_ids}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.port.values())

    def properties(self, broker_id: int) -> dict[str, str]:
        """The properties of a broker of Odradek there."""
        address = f"PLAINTEXT://127.0.0.1:{self.port[broker_id]},PEERS://127.0.0.1:{self._for_peers[broker_id]}"
        return {
            **SETTINGS,
            "broker.id": str(broker_id),
            "listeners": address,
            "advertised.listeners": address,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PEERS:PLAINTEXT",
            "inter.broker.listener.name": "PEERS",  # as a gated Kafka has it
        }


class Operator:
    """An operator that reads the state from the registry, and uses the stock tools of 3.9.2."""

    def __init__(self, addresses: Addresses, registry: KazooClient, plans: Path) -> None:
        self._bootstrap, self._registry, self._plans = addresses.bootstrap, registry, plans

    def create(self, assignment: Sequence[Sequence[int]]) -> None:
        """The topic, with exactly these replicas, all of them in sync."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        replicas = [list(each) for each in assignment]
        topic = NewTopic(TOPIC, len(replicas), replica_assignment=replicas, config=TOPIC_CONFIG)
        admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        self.await_in_sync({TOPIC: assignment})

    def move(self, plan: Plan) -> None:
        """Reassign, and wait until that is done in the registry and in the tool's output."""
        moves = [
            {"topic": topic, "partition": index, "replicas": list(replicas)}
            for topic, assignment in plan.items()
            for index, replicas in enumerate(assignment)
        ]
        self._plans.write_text(json.dumps({"version": 1, "partitions": moves}))
        how = ("--reassignment-json-file", str(self._plans))
        assert "Successfully started" in self._tool("kafka-reassign-partitions", "--execute", *how)
        for topic, assignment in plan.items():
            await_node(self._registry, znodes.topic_path(topic), lambda data, to=assignment: _assigned(data, to))
        self.await_in_sync(plan)
        # The tool compares with a broker's metadata from the controller, which follows the registry.
        eventually(
            lambda: self._tool("kafka-reassign-partitions", "--verify", *how),
            lambda verified: verified.count("is completed.") == len(moves),
            "all brokers have the completed reassignment",
        )

    def let_preferred_lead(self, plan: Plan) -> None:
        """The first replica of each partition leads."""
        self._tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
        for topic, assignment in plan.items():
            for partition, (first, *_) in enumerate(assignment):
                path = znodes.partition_state_path(topic, partition)
                await_node(self._registry, path, lambda data, leader=first: _state(data).leader == leader)

    def await_in_sync(self, plan: Plan) -> None:
        """Every replica is in the ISR."""
        for topic, assignment in plan.items():
            for partition, replicas in enumerate(assignment):
                path = znodes.partition_state_path(topic, partition)
                await_node(
                    self._registry,
                    path,
                    lambda data, wanted=set(replicas): data is not None and set(_state(data).isr) == wanted,
                )

    def controller(self) -> int:
        """The id of the active controller; waits until there is one."""
        await_node(self._registry, znodes.CONTROLLER, lambda data: data is not None)
        return znodes.ControllerZNode.decode(self._registry.get(znodes.CONTROLLER)[0]).broker_id

    def assignment(self, topic: str) -> list[tuple[int, ...]]:
        """The replicas of each partition."""
        partitions = znodes.TopicAssignment.decode(self._registry.get(znodes.topic_path(topic))[0]).partitions
        return [tuple(partitions[index].replicas) for index in range(len(partitions))]

    def _tool(self, name: str, *arguments: str) -> str:
        result = run_tool("3.9.2", name, ["--bootstrap-server", self._bootstrap, *arguments], timeout_s=DEADLINE_S)
        return result.stdout + result.stderr


def _state(data: bytes | None) -> znodes.PartitionState:
    return znodes.PartitionState.decode(data)


def _assigned(data: bytes | None, assignment: Sequence[Sequence[int]]) -> bool:
    """Whether these are the replicas, and none is about to come or go."""
    partitions = znodes.TopicAssignment.decode(data).partitions
    return all(
        partitions[index] == znodes.ReplicaAssignment(tuple(replicas)) for index, replicas in enumerate(assignment)
    )


@contextlib.contextmanager
def session_with(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    client.start(timeout=DEADLINE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[str]:
    """The address of Apache ZooKeeper, and a chroot in it."""
    server = ZooKeeperServer(tmp_path, tmp_path / "zookeeper")
    server.start()
    yield server.connect + "/migration"
    server.stop()


@contextlib.contextmanager
def ended(*kafkas: Kafka) -> Iterator[None]:
    """None of them runs afterwards."""
    try:
        yield
    finally:
        for kafka in kafkas:
            kafka.close()


def make_kafka(folder: Path, addresses: Addresses, broker_id: int, connect: str) -> Kafka:
    kafka = Kafka(folder, {**SETTINGS, "broker.id": str(broker_id)}, zookeeper=connect, gated=True)
    kafka.port = addresses.port[broker_id]
    return kafka


def make_ours(
    folder: Path, addresses: Addresses, broker_id: int, connect: str, data: Path | None = None
) -> BrokerProcess:
    """A broker of Odradek, over the existing directory `data` if that is given."""
    overrides = {**addresses.properties(broker_id), "zookeeper.connect": connect}
    if data is not None:
        overrides["log.dirs"] = str(data)
    return BrokerProcess(folder, overrides, timeout_s=DEADLINE_S)


def commit(bootstrap: str) -> None:
    """The group has come as far as COMMITTED."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, COMMITTED)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str) -> int:
    """The group's committed offset, as its coordinator returns it.

    Kafka leads the offsets' partition in the metadata of the others before it has taken over its groups, and
    answers NOT_COORDINATOR in between, which librdkafka raises.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})

    def ask() -> list[TopicPartition]:
        try:
            return consumer.committed([TopicPartition(TOPIC, 0)], timeout=DEADLINE_S)
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return []

    try:
        (found,) = eventually(ask)
    finally:
        consumer.close()
    return int(found.offset)


def conclude(workload: Workload, copies: Sequence[Sequence[Path]], epochs: int) -> None:
    """The verdict; `copies` are the folders of each partition's replicas, `epochs` how many there are at least."""
    final = workload.finish()
    assert not (found := workload.history.anomalies(final)), report(found)
    assert workload.history.acknowledged() == sum(map(len, final)), "every record in the log was acknowledged"
    for folders in copies:
        eventually(  # a follower is a fetch behind
            lambda folders=folders: {str(folder): hash(_content(folder)) for folder in folders},
            lambda contents: len(set(contents.values())) == 1,
        )
        log, checkpoint = _content(folders[0])
        assert log
        assert len(checkpoint.splitlines()) >= 2 + epochs, checkpoint
        assert all(len(list(folder.glob("*.log"))) > 1 for folder in folders), "segments have rolled"


def _content(folder: Path) -> tuple[bytes, bytes]:
    log = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    return log, (folder / "leader-epoch-checkpoint").read_bytes()


def test_replicas_move_from_kafka_to_odradek_and_one_moves_back(connect: str, tmp_path: Path) -> None:
    addresses = Addresses([8, 9, 1, 2])
    kafkas = {each: make_kafka(tmp_path / str(each), addresses, each, connect) for each in (8, 9)}
    ours = {each: make_ours(tmp_path / str(each), addresses, each, connect) for each in (1, 2)}
    with ended(*kafkas.values()), contextlib.ExitStack() as stack:
        for kafka in kafkas.values():
            kafka.start()
        operator = Operator(addresses, stack.enter_context(session_with(connect)), tmp_path / "plan.json")
        operator.create([[8, 9], [9, 8]])
        workload = stack.enter_context(Workload(addresses.bootstrap, TOPIC, 2, ONCE))
        workload.await_progress()
        commit(addresses.bootstrap)

        def replace(old: int, new: int) -> None:
            stack.enter_context(ours[new])
            plan = {
                topic: [[new if each == old else each for each in replicas] for replicas in operator.assignment(topic)]
                for topic in (TOPIC, OFFSETS)
            }
            operator.move(plan)
            workload.await_progress()
            operator.let_preferred_lead(plan)
            workload.await_progress()
            kafkas[old].stop()
            workload.await_progress()

        replace(9, 1)
        assert operator.controller() == 8
        replace(8, 2)
        assert operator.controller() in ours
        assert committed(addresses.bootstrap) == COMMITTED
        kafkas[9].start()
        back = {TOPIC: [[9, 1], [1, 9]], OFFSETS: [[9, 2]] * OFFSETS_PARTITIONS}
        operator.move(back)
        operator.let_preferred_lead(back)
        workload.await_progress()
        assert committed(addresses.bootstrap) == COMMITTED
        folders = {1: ours[1].data_dir, 9: kafkas[9].data_dir}
        conclude(workload, [[folder / f"{TOPIC}-{index}" for folder in folders.values()] for index in (0, 1)], 3)


def test_odradek_takes_over_the_directories_of_kafka_and_gives_one_back(connect: str, tmp_path: Path) -> None:
    addresses = Addresses([1, 2, 3])
    kafkas = {each: make_kafka(tmp_path / str(each), addresses, each, connect) for each in (1, 2)}
    data = {each: kafka.data_dir for each, kafka in kafkas.items()}
    ours = {
        each: make_ours(tmp_path / "ours" / str(each), addresses, each, connect, data.get(each)) for each in (1, 2, 3)
    }
    plan: dict[str, Sequence[Sequence[int]]] = {TOPIC: [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}
    with ended(*kafkas.values()), contextlib.ExitStack() as stack:
        for kafka in kafkas.values():
            kafka.start()
        stack.enter_context(ours[3])
        operator = Operator(addresses, stack.enter_context(session_with(connect)), tmp_path / "plan.json")
        operator.create(plan[TOPIC])
        workload = stack.enter_context(Workload(addresses.bootstrap, TOPIC, 3, ONCE))
        workload.await_progress()
        commit(addresses.bootstrap)
        plan[OFFSETS] = operator.assignment(OFFSETS)

        def settle(broker_id: int, was: Mapping[Path, int]) -> None:
            """It continued with the logs that it found, and leads again."""
            operator.await_in_sync(plan)
            assert was, "there were logs before"
            assert was.items() <= inodes(data[broker_id]).items()
            operator.let_preferred_lead(plan)
            workload.await_progress()

        for each in kafkas:
            kafkas[each].stop()
            workload.await_progress()
            was = inodes(data[each])
            stack.enter_context(ours[each])
            settle(each, was)
        assert operator.controller() in ours
        assert committed(addresses.bootstrap) == COMMITTED
        ours[1].stop()
        workload.await_progress()
        was = inodes(data[1])
        kafkas[1].start()
        settle(1, was)
        assert committed(addresses.bootstrap) == COMMITTED
        folders = [*data.values(), ours[3].data_dir]
        conclude(workload, [[folder / f"{TOPIC}-{index}" for folder in folders] for index in range(3)], 3)


def inodes(data: Path) -> dict[Path, int]:
    """The topic's segment files; a file that is created anew is a different one."""
    return {path: path.stat().st_ino for path in data.glob(f"{TOPIC}-*/*.log")}
