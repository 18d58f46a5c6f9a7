"""The fixture `odradek_cluster`: every fault that it offers takes effect, ends, and is waited for.

Tests of faults share one cluster of three brokers, each with a topic of its own: a fault that does not end fails the
next test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.cluster_process import REGISTRY, BrokerError, ClusterProcess
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.pytest_plugin import ClusterFactory
from odradek.ready_process import ReadyProcess
from odradek.wire import Wire
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow
pytest_plugins = ["pytester"]
DEADLINE_S = 30
ALL = {1, 2, 3}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Three brokers for all tests that leave them as they were."""
    with ClusterProcess(tmp_path_factory.mktemp("shared-cluster")) as running:
        yield running


@pytest.fixture
def cluster(shared: ClusterProcess, request: pytest.FixtureRequest) -> Iterator[ClusterProcess]:
    """The shared cluster, whole again after the test, even if that failed in the middle of a fault."""
    yield shared
    try:
        shared.heal()
        processes: list[tuple[int | str, ReadyProcess]] = [(REGISTRY, shared.registry), *shared.brokers.items()]
        for node, process in processes:
            if process.running:
                process.resume()
            else:
                shared.restart(node)
        shared.await_brokers(ALL)
    finally:
        request.node.add_report_section("teardown", "cluster log", shared.output)


def make_topic(cluster: ClusterProcess, topic: str, partitions: int = 1, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(DEADLINE_S)
    cluster.await_topic(topic)


def make_topic_at_last(cluster: ClusterProcess, topic: str) -> None:
    """As a client does that retries the errors that Kafka calls retriable: the brokers are about to reconnect to the
    registry.
    """
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            make_topic(cluster, topic)
            return
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.NOT_CONTROLLER or time.monotonic() > deadline:
                raise


class Load:
    """A producer that counts acknowledged records."""

    def __init__(self, cluster: ClusterProcess, acks: str = "all") -> None:
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks, "linger.ms": 0})
        self.failures: list[object] = []

    def send(self, topic: str, partition: int, count: int = 10) -> None:
        """Send and wait for the acknowledgements."""
        for number in range(count):
            self._producer.produce(
                topic, f"{number}", partition=partition, on_delivery=lambda e, _: self.failures.append(e) if e else None
            )
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.failures == []


def controller_that_clients_see(cluster: ClusterProcess, broker_id: int) -> int:
    broker = cluster.brokers[broker_id]
    with Wire(broker.host, broker.port) as wire:
        return wire.metadata([]).controller_id


def partition_led_by(cluster: ClusterProcess, topic: str, matches: Callable[[int], bool]) -> tuple[int, int]:
    """A partition, of three, and its leader."""
    for partition in range(3):
        leader = cluster.leader_of(topic, partition)
        if matches(leader):
            return partition, leader
    raise AssertionError("no partition has such a leader")


def test_it_is_one_replicated_cluster(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(racks=["a", "b", "c"], min_insync_replicas=2, auto_create_topics_enable=False)
    make_topic(cluster, "orders", 3)
    Load(cluster).send("orders", 0)
    for partition in range(3):
        assert cluster.leader_of("orders", partition) in ALL
        assert cluster.isr_of("orders", partition) == ALL
    assert {cluster.leader_of("orders", partition) for partition in range(3)} == ALL
    for broker_id, broker in cluster.brokers.items():
        assert broker.bootstrap in cluster.bootstrap_servers.split(",")
        assert (broker.data_dir / "orders-0").is_dir()
        with Wire(broker.host, broker.port) as wire:
            metadata = wire.metadata([])
        assert {each.node_id: each.rack for each in metadata.brokers} == {1: "a", 2: "b", 3: "c"}
        assert {each.port for each in metadata.brokers} == {each.port for each in cluster.brokers.values()}
        assert metadata.controller_id == cluster.controller(), broker_id


@pytest.mark.slow
def test_a_killed_leader_is_replaced_and_comes_back_into_the_isr(cluster: ClusterProcess) -> None:
    make_topic(cluster, "killed")
    load = Load(cluster)
    load.send("killed", 0)
    leader, port = cluster.leader_of("killed"), cluster.brokers[cluster.leader_of("killed")].port
    cluster.kill(leader)
    assert cluster.await_leader("killed", other_than=leader) in ALL - {leader}
    cluster.await_isr("killed", 0, ALL - {leader})
    load.send("killed", 0)
    cluster.restart(leader)
    cluster.await_isr("killed", 0, ALL)
    assert cluster.brokers[leader].port == port


def test_a_stopped_leader_moves_its_leadership_at_once(cluster: ClusterProcess) -> None:
    make_topic(cluster, "stopped")
    leader = cluster.leader_of("stopped")
    cluster.stop(leader)
    assert cluster.leader_of("stopped") != leader
    cluster.restart(leader)
    cluster.await_isr("stopped", 0, ALL)


@pytest.mark.slow
def test_a_killed_controller_is_replaced(cluster: ClusterProcess) -> None:
    controller = cluster.controller()
    cluster.kill(controller)
    cluster.await_brokers(ALL - {controller})
    successor = cluster.controller()
    assert successor != controller
    assert {controller_that_clients_see(cluster, each) for each in ALL - {controller}} == {successor}


@pytest.mark.slow
def test_a_paused_broker_loses_its_leaderships_until_it_is_resumed(cluster: ClusterProcess) -> None:
    make_topic(cluster, "paused", 3)
    partition, leader = partition_led_by(cluster, "paused", lambda leader: leader != cluster.controller())
    cluster.pause(leader)
    cluster.await_leader("paused", partition, other_than=leader)
    Load(cluster).send("paused", partition)
    cluster.resume(leader)
    cluster.await_isr("paused", partition, ALL)


@pytest.mark.slow
def test_a_follower_cut_from_its_leader_leaves_the_isr_until_it_heals(cluster: ClusterProcess) -> None:
    make_topic(cluster, "cut", 3)
    controller = cluster.controller()
    partition, leader = partition_led_by(cluster, "cut", lambda leader: leader == controller)
    follower = min(ALL - {leader})
    cluster.cut(leader, follower)
    load = Load(cluster)
    load.send("cut", partition)  # acknowledged once the follower is out
    cluster.await_isr("cut", partition, ALL - {follower})
    cluster.heal()
    cluster.await_isr("cut", partition, ALL)
    load.send("cut", partition)


def test_a_topic_request_is_not_held_while_the_controller_is_unreachable(
    odradek_cluster: ClusterFactory,
) -> None:
    cluster = odradek_cluster(2)
    controller = cluster.controller()
    other = 3 - controller
    cluster.cut(controller, other)
    request = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True
    )
    broker = cluster.brokers[other]
    with Wire(broker.host, broker.port, timeout_s=DEADLINE_S / 2) as wire:  # half the timeout of a lost request
        (topic,) = wire.ask(request).topics
        assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        cluster.heal()
        eventually(lambda: wire.ask(request).topics[0].error_code, lambda error: error == ErrorCode.NONE)


@pytest.mark.slow
def test_a_one_way_cut_removes_a_follower_from_the_isr(cluster: ClusterProcess) -> None:
    make_topic(cluster, "cut-one-way", 3)
    partition, leader = partition_led_by(cluster, "cut-one-way", lambda leader: leader == cluster.controller())
    follower = min(ALL - {leader})
    cluster.cut(follower, leader, one_way=True)
    Load(cluster).send("cut-one-way", partition)
    cluster.await_isr("cut-one-way", partition, ALL - {follower})
    cluster.heal()
    cluster.await_isr("cut-one-way", partition, ALL)


@pytest.mark.slow
def test_a_broker_cut_from_the_registry_loses_its_session(cluster: ClusterProcess) -> None:
    make_topic(cluster, "cut-registry", 3)
    controller = cluster.controller()
    partition, leader = partition_led_by(cluster, "cut-registry", lambda leader: leader == controller)
    cluster.cut(leader, REGISTRY)
    cluster.await_leader("cut-registry", partition, other_than=leader)
    assert cluster.controller() != controller
    cluster.heal()
    cluster.await_brokers(ALL)
    cluster.await_isr("cut-registry", partition, ALL)
    Load(cluster).send("cut-registry", partition)


@pytest.mark.slow
def test_an_isolated_broker_is_unregistered_for_the_others(cluster: ClusterProcess) -> None:
    make_topic(cluster, "isolated")
    leader = cluster.leader_of("isolated")
    cluster.isolate(leader)
    cluster.await_leader("isolated", other_than=leader)
    cluster.heal()
    cluster.await_brokers(ALL)
    cluster.await_isr("isolated", 0, ALL)


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_brokers_serve_without_the_registry(cluster: ClusterProcess, fault: str) -> None:
    before, after = f"before-{fault}", f"after-{fault}"
    make_topic(cluster, before)
    load = Load(cluster)
    getattr(cluster, fault)(REGISTRY)
    load.send(before, 0, 1000)
    if fault == "kill":
        cluster.restart(REGISTRY)
    else:
        cluster.resume(REGISTRY)
    load.send(before, 0)
    make_topic_at_last(cluster, after)
    assert cluster.isr_of(after) == ALL


def test_clusters_of_one_and_of_five_brokers_start(odradek_cluster: ClusterFactory) -> None:
    one, five = odradek_cluster(1), odradek_cluster(5)
    make_topic(one, "orders", replicas=1)
    make_topic(five, "orders", replicas=5)
    assert one.isr_of("orders") == {1}
    assert five.isr_of("orders") == {1, 2, 3, 4, 5}


@pytest.mark.jvm
def test_the_registry_can_be_a_real_zookeeper(odradek_cluster: ClusterFactory, tmp_path: Path) -> None:
    zookeeper = ZooKeeperServer(tmp_path, tmp_path / "zookeeper")
    zookeeper.start()
    try:
        cluster = odradek_cluster(2, zookeeper=f"{zookeeper.connect}/one/two")
        make_topic(cluster, "orders", replicas=2)
        assert cluster.isr_of("orders") == {1, 2}
        with pytest.raises(BrokerError, match="is not a process of this cluster"):
            cluster.kill(REGISTRY)
        leader = cluster.leader_of("orders")
        cluster.cut(leader, REGISTRY)
        cluster.await_leader("orders", other_than=leader)
    finally:
        zookeeper.stop()


# Error messages


def test_a_timeout_names_the_condition_and_the_state(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(1)
    make_topic(cluster, "orders", replicas=1)
    cluster.timeout_s = 0.2
    with pytest.raises(BrokerError, match=r"not the ISR \[1, 2\] for orders-0 within 0.2 s; there is PartitionState"):
        cluster.await_isr("orders", 0, {1, 2})
    with pytest.raises(BrokerError, match=r"not a leader for nothing-0 within 0.2 s; there is nothing"):
        cluster.leader_of("nothing")
    with pytest.raises(BrokerError, match=r"does not return brokers \[1, 2\] after 0.2 s, but brokers \[1\]"):
        cluster.await_brokers([1, 2])


@pytest.mark.parametrize("act", ["kill", "stop", "restart", "pause", "resume", "isolate"])
def test_a_broker_that_does_not_exist_is_rejected(odradek_cluster: ClusterFactory, act: str) -> None:
    cluster = odradek_cluster(2, start=False)
    with pytest.raises(BrokerError, match="there is no broker 7; there are 1, 2"):
        getattr(cluster, act)(7)


def test_a_cluster_that_cannot_start_reports_why_and_leaves_nothing(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(2, start=False, log_segment_bytes="x")
    with pytest.raises(BrokerError, match=r"Invalid value x for configuration log.segment.bytes"):
        cluster.start()
    assert not cluster.registry.running
    assert not any(broker.running for broker in cluster.brokers.values())


@pytest.mark.slow
def test_a_broker_that_dies_by_itself_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, signal

        def test_it(odradek_cluster):
            cluster = odradek_cluster(2)
            os.kill(cluster.brokers[2].pid, signal.SIGABRT)
            cluster.await_brokers([1])
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*it ended by itself with exit status -6*", "*Captured cluster log teardown*"])
