"""The stock tools that manage a cluster, against three brokers over Apache ZooKeeper below a chroot.

Tools of 3.9.2 send requests to the brokers. Those of 2.8.2 with --zookeeper, and brokers of Kafka's, write znodes
themselves, which the controller has to notice.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from odradek.broker.registry import znodes
from odradek.cluster_process import ClusterProcess
from tests.compatibility.registry_nodes import DEADLINE_S, await_node
from tests.jvm.tools import run_tool, start_tool
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

CHROOT = "/a/chroot"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Three brokers and a ZooKeeper for all tests of this module."""
    folder: Path = tmp_path_factory.mktemp("cluster-tools")
    zookeeper = ZooKeeperServer(folder, folder / "zookeeper")
    zookeeper.start()
    try:
        overrides = {"auto.leader.rebalance.enable": "false"}  # leaders move only on the request of a test
        with ClusterProcess(folder / "cluster", 3, overrides, zookeeper=zookeeper.connect + CHROOT) as cluster:
            yield cluster
    finally:
        zookeeper.stop()


@pytest.fixture
def cluster(running: ClusterProcess) -> ClusterProcess:
    """The cluster with all of its brokers."""
    running.heal()
    for broker_id, broker in running.brokers.items():
        if not broker.running:
            running.restart(broker_id)
    running.await_brokers(running.brokers)
    return running


@contextlib.contextmanager
def session_with(cluster: ClusterProcess) -> Iterator[KazooClient]:
    """A session of the test with the cluster's registry."""
    client = KazooClient(cluster.zookeeper_connect)
    client.start(timeout=DEADLINE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def registry(running: ClusterProcess) -> Iterator[KazooClient]:
    with session_with(running) as client:
        yield client


def tool(cluster: ClusterProcess, name: str, *arguments: str, version: str = "3.9.2", check: bool = True) -> str:
    """The output of a tool."""
    result = run_tool(
        version, name, ["--bootstrap-server", cluster.bootstrap_servers, *arguments], check=check, timeout_s=DEADLINE_S
    )
    return result.stdout + result.stderr


def topics(cluster: ClusterProcess, *arguments: str, check: bool = True) -> str:
    return tool(cluster, "kafka-topics", *arguments, check=check)


def old_topics(cluster: ClusterProcess, *arguments: str, check: bool = True) -> str:
    """kafka-topics of 2.8.2, which connects to ZooKeeper."""
    arguments = ("--zookeeper", cluster.zookeeper_connect, *arguments)
    result = run_tool("2.8.2", "kafka-topics", arguments, check=check, timeout_s=DEADLINE_S)
    return result.stdout + result.stderr


def create(cluster: ClusterProcess, topic: str, assignment: str, **configs: str) -> None:
    """A topic with exactly these replicas, as "1:2:3,2:3:1"."""
    options = [
        option for name, value in configs.items() for option in ("--config", f"{name.replace('_', '.')}={value}")
    ]
    topics(cluster, "--create", "--topic", topic, "--replica-assignment", assignment, *options)
    for partition, replicas in enumerate(assignment.split(",")):
        cluster.await_isr(topic, partition, map(int, replicas.split(":")))


def described(text: str) -> dict[int, dict[str, Any]]:
    """Leader, replicas and ISR by partition, from `kafka-topics --describe`."""
    found = {}
    for line in text.splitlines():
        match = re.search(r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", line)
        if match:
            found[int(match[1])] = {
                "leader": None if match[2] == "none" else int(match[2]),
                "replicas": [int(each) for each in match[3].split(",")],
                "isr": {int(each) for each in match[4].split(",") if each},
            }
    return found


def describe(cluster: ClusterProcess, topic: str) -> dict[int, dict[str, Any]]:
    return described(topics(cluster, "--describe", "--topic", topic))


def await_described(cluster: ClusterProcess, topic: str, partitions: int) -> dict[int, dict[str, Any]]:
    """The described partitions, once there are this many."""
    return eventually(lambda: describe(cluster, topic), lambda found: len(found) == partitions)


def produce(cluster: ClusterProcess, topic: str, partition: int, count: int) -> None:
    """Records with acks=all, all of them acknowledged."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    # A broker that does not have a new partition yet is a reason for librdkafka to fail its records at once.
    eventually(lambda: partition in producer.list_topics(topic, DEADLINE_S).topics[topic].partitions)
    for number in range(count):
        producer.produce(
            topic,
            f"{partition}-{number}".encode(),
            partition=partition,
            on_delivery=lambda error, message: failures.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert not failures


def plan(topic: str, *replicas: list[int]) -> str:
    """A reassignment as the tool reads it."""
    moves = [{"topic": topic, "partition": index, "replicas": ids} for index, ids in enumerate(replicas)]
    return json.dumps({"version": 1, "partitions": moves})


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[str], str]:
    """Puts a text into a file and gives its path."""

    def save(text: str) -> str:
        path = tmp_path / "input.json"
        path.write_text(text)
        return str(path)

    return save


# ---- kafka-topics


def test_topics_are_created_spread_grown_and_deleted(cluster: ClusterProcess, topic: str) -> None:
    topics(cluster, "--create", "--topic", topic, "--partitions", "6", "--replication-factor", "3")
    found = describe(cluster, topic)
    assert len(found) == 6
    for partition, state in found.items():
        assert state["leader"] == state["replicas"][0]
        assert set(state["replicas"]) == {1, 2, 3}
        cluster.await_isr(topic, partition, {1, 2, 3})
    assert {broker: [state["leader"] for state in found.values()].count(broker) for broker in (1, 2, 3)} == {
        1: 2,
        2: 2,
        3: 2,
    }
    topics(cluster, "--alter", "--topic", topic, "--partitions", "9")
    for partition in range(6, 9):
        cluster.await_isr(topic, partition, {1, 2, 3})
    # Each broker receives a new topic a moment later, and the tool connects to any of them.
    grown = await_described(cluster, topic, 9)
    assert {partition: state["replicas"] for partition, state in grown.items() if partition < 6} == {
        partition: state["replicas"] for partition, state in found.items()
    }
    produce(cluster, topic, 8, 10)
    fewer = topics(cluster, "--alter", "--topic", topic, "--partitions", "3", check=False)
    assert "currently has 9 partition" in fewer
    assert not described(topics(cluster, "--describe", "--under-replicated-partitions"))
    assert not described(topics(cluster, "--describe", "--unavailable-partitions"))
    topics(cluster, "--delete", "--topic", topic)
    assert topic not in topics(cluster, "--list").split()


def test_topics_are_managed_in_zookeeper_by_an_old_tool(
    cluster: ClusterProcess, registry: KazooClient, topic: str
) -> None:
    use_the_old_tool(cluster, registry, topic)


def test_an_old_tool_accepts_odradeks_registry_as_zookeeper(tmp_path: Path, topic: str) -> None:
    with ClusterProcess(tmp_path, 2) as cluster, session_with(cluster) as registry:
        use_the_old_tool(cluster, registry, topic)


def use_the_old_tool(cluster: ClusterProcess, registry: KazooClient, topic: str) -> None:
    """Create, show, grow, configure and delete a topic with a tool that writes znodes."""
    sizes = ("--partitions", "3", "--replication-factor", "2")
    old_topics(cluster, "--create", "--topic", topic, *sizes, "--config", "retention.ms=3600000")
    for partition in range(3):
        cluster.await_leader(topic, partition)
    assert topic in old_topics(cluster, "--list").split()
    found = described(old_topics(cluster, "--describe", "--topic", topic))
    assert found == describe(cluster, topic)
    assert all(len(state["isr"]) == 2 for state in found.values())
    old_topics(cluster, "--alter", "--topic", topic, "--partitions", "5")
    cluster.await_leader(topic, 4)
    produce(cluster, topic, 4, 10)
    old_topics(cluster, "--alter", "--topic", topic, "--config", "max.message.bytes=3000")
    configs = tool(cluster, "kafka-configs", "--describe", "--topic", topic)
    assert "max.message.bytes=3000" in configs
    assert "retention.ms=3600000" in configs
    old_topics(cluster, "--delete", "--topic", topic)
    for path in (znodes.topic_path(topic), znodes.delete_topic_path(topic), znodes.config_path(f"topics/{topic}")):
        await_node(registry, path, lambda data: data is None)


# ---- kafka-reassign-partitions


def test_partitions_are_moved_as_generated_with_a_throttle_that_is_removed(
    cluster: ClusterProcess, topic: str, saved: Callable[[str], str]
) -> None:
    create(cluster, topic, "1:2,2:1", retention_ms="3600000")
    produce(cluster, topic, 0, 500)
    requested = saved(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    printed = tool(
        cluster,
        "kafka-reassign-partitions",
        "--generate",
        "--topics-to-move-json-file",
        requested,
        "--broker-list",
        "2,3",
    )
    proposal = printed.rpartition("Proposed partition reassignment configuration")[2].strip().splitlines()[0]
    moves = {each["partition"]: each["replicas"] for each in json.loads(proposal)["partitions"]}
    assert all(set(replicas) == {2, 3} for replicas in moves.values())
    how = ("--reassignment-json-file", saved(proposal))
    started = tool(cluster, "kafka-reassign-partitions", "--execute", *how, "--throttle", "10000000")
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started
    for partition, replicas in moves.items():
        cluster.await_isr(topic, partition, replicas)
    done = await_verified(cluster, how)
    assert f"Reassignment of partition {topic}-0 is completed." in done
    assert "Clearing topic-level throttles" in done
    found = describe(cluster, topic)
    assert {partition: state["replicas"] for partition, state in found.items()} == moves
    configs = tool(cluster, "kafka-configs", "--describe", "--topic", topic)
    assert "throttled" not in configs
    assert "retention.ms=3600000" in configs
    brokers = tool(cluster, "kafka-configs", "--describe", "--entity-type", "brokers")
    assert "throttled" not in brokers
    produce(cluster, topic, 0, 10)


def test_a_throttled_reassignment_copies_as_many_bytes_a_second_as_the_tool_allows(
    cluster: ClusterProcess, topic: str, saved: Callable[[str], str]
) -> None:
    rate, size, value = 1_000_000, 8_000_000, bytes(10_000)
    create(cluster, topic, "1")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 100_000})
    for _ in range(size // len(value)):
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    how = ("--reassignment-json-file", saved(plan(topic, [2])))
    started = time.monotonic()
    printed = tool(cluster, "kafka-reassign-partitions", "--execute", *how, "--throttle", str(rate))
    assert f"The inter-broker throttle limit was set to {rate} B/s" in printed
    cluster.await_isr(topic, 0, {2})
    assert 0.75 * size / rate <= time.monotonic() - started <= 2 * size / rate
    assert "Clearing broker-level throttles" in await_verified(cluster, how)


def await_verified(cluster: ClusterProcess, how: tuple[str, ...]) -> str:
    """Repeat the tool until it prints that nothing is in progress."""
    return eventually(
        lambda: tool(cluster, "kafka-reassign-partitions", "--verify", *how),
        lambda printed: "is still in progress" not in printed,
    )


def test_a_move_that_cannot_finish_is_cancelled(
    cluster: ClusterProcess, topic: str, saved: Callable[[str], str]
) -> None:
    create(cluster, topic, "1:2")
    produce(cluster, topic, 0, 10)
    for other in (1, 2):
        cluster.cut(3, other)  # broker 3 runs and gets no records
    how = ("--reassignment-json-file", saved(plan(topic, [3, 1])))
    tool(cluster, "kafka-reassign-partitions", "--execute", *how)
    listed = tool(cluster, "kafka-reassign-partitions", "--list")
    assert re.search(rf"{topic}-0: replicas: [123,]+\. adding: 3\. removing: 2\.", listed), listed
    verified = tool(cluster, "kafka-reassign-partitions", "--verify", *how)
    assert f"Reassignment of partition {topic}-0 is still in progress." in verified
    grow = topics(cluster, "--alter", "--topic", topic, "--partitions", "2", check=False)
    assert "A partition reassignment is in progress for the topic" in grow
    cancelled = tool(cluster, "kafka-reassign-partitions", "--cancel", *how)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    assert "No partition reassignments found." in tool(cluster, "kafka-reassign-partitions", "--list")
    cluster.heal()
    (state,) = describe(cluster, topic).values()
    assert set(state["replicas"]) == {1, 2}
    cluster.await_isr(topic, 0, {1, 2})
    produce(cluster, topic, 0, 10)


def test_the_number_of_replicas_changes(cluster: ClusterProcess, topic: str, saved: Callable[[str], str]) -> None:
    create(cluster, topic, "1")
    produce(cluster, topic, 0, 100)
    for replicas in ([1, 2, 3], [3, 2], [2]):
        how = ("--reassignment-json-file", saved(plan(topic, replicas)))
        tool(cluster, "kafka-reassign-partitions", "--execute", *how)
        cluster.await_isr(topic, 0, replicas)
        assert f"Reassignment of partition {topic}-0 is completed." in await_verified(cluster, how)
        produce(cluster, topic, 0, 100)
    assert describe(cluster, topic)[0]["leader"] == 2


# ---- kafka-leader-election


def test_preferred_leaders_lead_again(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "1:2:3,2:3:1,3:1:2")
    cluster.stop(2)
    assert cluster.await_leader(topic, 1, other_than=2) == 3
    cluster.restart(2)
    cluster.await_isr(topic, 1, {1, 2, 3})
    election = ("--election-type", "preferred")
    printed = tool(cluster, "kafka-leader-election", *election, "--topic", topic, "--partition", "1")
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-1" in printed
    assert [state["leader"] for _, state in sorted(describe(cluster, topic).items())] == [1, 2, 3]
    again = tool(cluster, "kafka-leader-election", *election, "--topic", topic, "--partition", "1")
    assert f"Valid replica already elected for partitions {topic}-1" in again
    produce(cluster, topic, 1, 10)
    tool(cluster, "kafka-leader-election", *election, "--all-topic-partitions")


def test_an_unclean_leader_is_elected_where_no_isr_member_is_left(
    cluster: ClusterProcess, registry: KazooClient, topic: str
) -> None:
    create(cluster, topic, "1:2")
    cluster.kill(2)
    cluster.await_isr(topic, 0, {1})
    produce(cluster, topic, 0, 10)
    cluster.kill(1)
    await_node(
        registry, znodes.partition_state_path(topic, 0), lambda data: znodes.PartitionState.decode(data).leader == -1
    )
    cluster.restart(2)
    assert described(topics(cluster, "--describe", "--unavailable-partitions", "--topic", topic)).keys() == {0}
    where = ("--topic", topic, "--partition", "0")
    preferred = tool(cluster, "kafka-leader-election", "--election-type", "preferred", *where, check=False)
    assert "PreferredLeaderNotAvailable" in preferred
    printed = tool(cluster, "kafka-leader-election", "--election-type", "unclean", *where)
    assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in printed
    assert cluster.leader_of(topic, 0) == 2
    cluster.restart(1)
    cluster.await_isr(topic, 0, {1, 2})
    produce(cluster, topic, 0, 10)


# ---- kafka-replica-verification, kafka-log-dirs, kafka-configs


def test_replicas_are_the_same_byte_for_byte(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "1:2:3,2:3:1")
    for partition in (0, 1):
        produce(cluster, topic, partition, 1000)
    arguments = ["--broker-list", cluster.bootstrap_servers, "--topics-include", topic, "--report-interval-ms", "200"]
    with start_tool("3.9.2", "kafka-replica-verification", arguments) as verification:
        verification.stdout.wait_for("verification process is started", DEADLINE_S)
        lines = verification.stdout.wait_until(
            lambda lines: sum("max lag is 0 for partition" in line for line in lines) >= 3, DEADLINE_S
        )
        assert "among 2 partitions" in lines[-1]
        assert not any("differ" in line or "not the same" in line for line in lines + verification.stderr.lines())


def test_log_dirs_show_the_replicas_of_each_directory(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "1:2:3")
    produce(cluster, topic, 0, 100)
    printed = tool(cluster, "kafka-log-dirs", "--describe", "--topic-list", topic)
    (line,) = [line for line in printed.splitlines() if line.startswith("{")]
    brokers = {each["broker"]: each["logDirs"] for each in json.loads(line)["brokers"]}
    assert brokers.keys() == {1, 2, 3}
    sizes = set()
    for broker_id, ((log_dir,)) in brokers.items():
        assert log_dir["logDir"] == str(cluster.brokers[broker_id].data_dir)
        assert log_dir["error"] is None
        ((partition),) = log_dir["partitions"]
        assert (partition["partition"], partition["offsetLag"], partition["isFuture"]) == (f"{topic}-0", 0, False)
        sizes.add(partition["size"])
    assert len(sizes) == 1
    assert sizes.pop() > 500


@pytest.mark.parametrize("version", ["3.9.2", "4.3.0"])
def test_configurations_reach_every_broker(cluster: ClusterProcess, topic: str, version: str) -> None:
    create(cluster, topic, "1:2:3,2:3:1,3:1:2")

    def configs(*arguments: str) -> str:
        return tool(cluster, "kafka-configs", *arguments, version=version)

    one = ("--entity-type", "topics", "--entity-name", topic)
    configs("--alter", *one, "--add-config", "max.message.bytes=1000,cleanup.policy=[compact,delete]")
    assert "max.message.bytes=1000" in configs("--describe", *one)
    all_brokers = ("--entity-type", "brokers", "--entity-default")
    configs("--alter", *all_brokers, "--add-config", "log.segment.bytes=1048576")
    for broker_id in (1, 2, 3):
        shown = configs("--describe", "--entity-type", "brokers", "--entity-name", str(broker_id), "--all")
        assert re.search(r"log\.segment\.bytes=1048576 .*DYNAMIC_DEFAULT_BROKER_CONFIG", shown)
    configs("--alter", *one, "--delete-config", "max.message.bytes,cleanup.policy")
    assert "max.message.bytes" not in configs("--describe", *one)
    configs("--alter", *all_brokers, "--delete-config", "log.segment.bytes")


# ---- kafka-get-offsets, kafka-delete-records, kafka-consumer-groups, kafka-cluster


def test_offsets_of_several_brokers_are_merged(
    cluster: ClusterProcess, topic: str, group: str, saved: Callable[[str], str]
) -> None:
    create(cluster, topic, "1:2:3,2:3:1,3:1:2")  # a leader on each
    for partition in range(3):
        produce(cluster, topic, partition, 10)
    assert tool(cluster, "kafka-get-offsets", "--topic", topic).split() == [f"{topic}:{each}:10" for each in range(3)]
    partitions = [{"topic": topic, "partition": each, "offset": each + 2} for each in range(3)]
    plan_of_deletion = saved(json.dumps({"version": 1, "partitions": partitions}))
    deleted = tool(cluster, "kafka-delete-records", "--offset-json-file", plan_of_deletion)
    for each in range(3):
        assert f"partition: {topic}-{each}\tlow_watermark: {each + 2}" in deleted
    begins = tool(cluster, "kafka-get-offsets", "--topic", topic, "--time", "earliest").split()
    assert begins == [f"{topic}:{each}:{each + 2}" for each in range(3)]
    where = ("--group", group, "--timeout", "60000")
    tool(cluster, "kafka-consumer-groups", "--reset-offsets", *where, "--topic", topic, "--to-earliest", "--execute")
    described = tool(cluster, "kafka-consumer-groups", "--describe", *where)
    for each in range(3):
        assert re.search(rf"{topic} +{each} +{each + 2} +10 +{8 - each} ", described), described
    ids = {
        run_tool("3.9.2", "kafka-cluster", ["cluster-id", "--bootstrap-server", broker.bootstrap]).stdout
        for broker in cluster.brokers.values()
    }
    assert len(ids) == 1
    assert ids.pop().startswith("Cluster ID: ")
