"""`odradek cluster status` and `odradek health`: against a cluster of Odradek, Apache Kafka, and a port without a
server.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.admin.controllers import KRAFT, NO_CONTROLLER
from odradek.admin.quorum import MetadataQuorum, QuorumReplica
from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.cluster_status import BrokerStatus, ClusterStatus, PartitionStatus, render
from odradek.pytest_plugin import ClusterFactory
from odradek.top.panes import quorum_text
from odradek.wire import parse_address
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow
DEADLINE_S = 30


def odradek(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def make_topic(bootstrap: str, topic: str, partitions: int, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(DEADLINE_S)


def produce(bootstrap: str, topic: str, count: int, acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    for number in range(count):
        producer.produce(topic, f"{number}", partition=0)
    assert producer.flush(DEADLINE_S) == 0


def control_requests_at(bootstrap: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The printed line of the one partition of `orders`, once it is as wanted; a slow machine drops followers for a
    while.
    """

    def shown() -> dict[str, Any]:
        status = json.loads(odradek("cluster", "status", "--json", "--bootstrap-server", bootstrap).stdout)
        (partition,) = [each for each in status["partitions"] if each["topic"] == "orders"]
        return dict(partition)

    return eventually(shown, wanted)


# A cluster


def test_a_follower_that_stops_fetching_is_behind_and_then_out_of_sync(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(3, racks=["a", "b"], replica_lag_time_max_ms=1500)
    make_topic(cluster.bootstrap_servers, "orders", 1, 3)
    produce(cluster.bootstrap_servers, "orders", 100)
    leader, controller = cluster.leader_of("orders"), cluster.controller()
    follower = next(each for each in cluster.brokers if each not in (leader, controller))
    others = sorted(set(cluster.brokers) - {leader})

    shown = json.loads(odradek("cluster", "status", "--json", f"--bootstrap-server={cluster.bootstrap_servers}").stdout)
    assert shown["controller"] == controller
    assert [(each["id"], each["rack"], each["controller"]) for each in shown["brokers"]] == [
        (number, "ab"[(number - 1) % 2], number == controller) for number in cluster.brokers
    ]
    assert [each["address"] for each in shown["brokers"]] == [each.bootstrap for each in cluster.brokers.values()]
    partition = control_requests_at(cluster.bootstrap_servers, lambda each: set(each["isr"]) == set(cluster.brokers))
    assert partition["leader"] == leader
    assert set(partition["isr"]) == set(cluster.brokers)
    assert partition["lag"] == {str(each): 0 for each in others}
    assert not partition["under_replicated"]

    cluster.cut(follower, leader)
    produce(cluster.brokers[leader].bootstrap, "orders", 50, acks="1")
    cluster.await_isr("orders", 0, set(cluster.brokers) - {follower})
    lag = {str(each): 50 if each == follower else 0 for each in others}
    assert control_requests_at(cluster.brokers[leader].bootstrap, lambda each: each["lag"] == lag)["lag"] == lag
    ended = odradek("cluster", "status", "--bootstrap-server", cluster.brokers[leader].bootstrap)
    (row,) = [line for line in ended.stdout.splitlines() if line.startswith("orders")]
    assert "under-replicated" in row
    assert f"{follower}:50" in row.split()
    assert all(f"{other}:0" in row.split() for other in others if other != follower)
    assert "1 under-replicated" in ended.stdout.splitlines()[-1]


def test_one_topic_can_be_shown_and_internal_topics_come_last(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(1, {"offsets.topic.num.partitions": "1"})
    server = f"--bootstrap-server={cluster.bootstrap_servers}"
    for topic in ("zebras", "Zoos", "__by_a_user"):
        make_topic(cluster.bootstrap_servers, topic, 2, 1)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("zebras", 0, 0)], asynchronous=False)
    consumer.close()

    every = json.loads(odradek("cluster", "status", "--json", server).stdout)["partitions"]
    assert [each["topic"] for each in every] == [
        *("Zoos", "Zoos", "__by_a_user", "__by_a_user", "zebras", "zebras", "__consumer_offsets"),
    ]
    table = odradek("cluster", "status", server).stdout.splitlines()
    assert table[-3].startswith("__consumer_offsets ")

    shown = odradek("cluster", "status", server, "--topic=zebras")
    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.endswith("-")] == ["zebras", "zebras"]
    assert lines[-1] == "2 partitions, all replicas in sync"
    two = json.loads(odradek("cluster", "status", "--json", server, "--topic=zebras", "--topic=Zoos").stdout)
    assert [each["topic"] for each in two["partitions"]] == ["Zoos", "Zoos", "zebras", "zebras"]

    for missing in ("nowhere", "no/topic"):
        ended = odradek("cluster", "status", server, f"--topic={missing}")
        assert (ended.exit_code, ended.stdout, ended.stderr) == (3, "", f"odradek: there is no topic {missing}\n")
    assert "nowhere" not in odradek("cluster", "status", server).stdout


def test_a_broker_that_is_gone_or_does_not_answer_is_reported(odradek_cluster: ClusterFactory) -> None:
    cluster = odradek_cluster(2)
    make_topic(cluster.bootstrap_servers, "orders", 1, 2)
    cluster.pause(2)
    ended = odradek("cluster", "status", "--timeout=0.3", "--bootstrap-server", cluster.brokers[1].bootstrap)
    assert ended.exit_code == 0
    (row,) = [line for line in ended.stdout.splitlines() if line.startswith("2 ")]
    assert "no answer: timed out" in row
    cluster.kill(2)
    cluster.await_brokers([1])
    ended = odradek("cluster", "status", "--bootstrap-server", cluster.brokers[1].bootstrap)
    (row,) = [line for line in ended.stdout.splitlines() if line.startswith("2 ")]
    assert "not in the cluster" in row


@pytest.mark.jvm
def test_apache_kafka_can_be_inspected_too(kafka: Kafka) -> None:
    make_topic(kafka.bootstrap, "looked-at", 2, 1)
    ended = odradek("cluster", "status", "--json", "--bootstrap-server", kafka.bootstrap)
    shown = json.loads(ended.stdout)
    assert [each["id"] for each in shown["brokers"]] == [kafka.broker_id]
    assert [each["error"] for each in shown["brokers"]] == [None]
    assert shown["controller"] == kafka.broker_id
    rows = [each for each in shown["partitions"] if each["topic"] == "looked-at"]
    assert [(each["partition"], each["leader"], each["isr"]) for each in rows] == [
        (number, kafka.broker_id, [kafka.broker_id]) for number in (0, 1)
    ]
    assert odradek("health", kafka.bootstrap).exit_code == 0


# Health


def test_a_broker_that_serves_is_healthy_and_one_that_does_not_is_not(odradek_broker: BrokerProcess) -> None:
    assert odradek("health", odradek_broker.bootstrap).exit_code == 0
    odradek_broker.pause()
    ended = odradek("health", "--timeout=0.3", odradek_broker.bootstrap)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"odradek: no answer from {odradek_broker.bootstrap}: ")
    odradek_broker.stop()
    assert odradek("health", odradek_broker.bootstrap).exit_code == 1


def test_health_finds_the_broker_of_the_environment(
    odradek_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_LISTENERS", f"PLAINTEXT://127.0.0.1:{odradek_broker.port}")
    assert odradek("health", "--from-environment").exit_code == 0
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://:none")
    ended = odradek("health", "--from-environment")
    assert ended.exit_code == 1
    assert "'localhost:none' is not host:port" in ended.stderr


def test_a_server_that_is_no_broker_is_detected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        pending = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        pending.close()
        accepted.close()
        listener.close()
        ended = odradek("cluster", "status", "--bootstrap-server", address)
    assert ended.exit_code == 5
    assert ended.stderr.startswith(f"odradek: no broker answers at {address}: ")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9093", ("localhost", 9093)),
        ("broker", ("broker", 9092)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        (" a:1 ", ("a", 1)),
    ],
)
def test_addresses_are_parsed_as_kafka_parses_them(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":9092", "a:", "a:x", "a:0", "a:65536"])
def test_an_invalid_address_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        parse_address(text)
    ended = odradek("health", text)
    assert ended.exit_code == 1
    assert "is not host:port" in ended.stderr


# The table


def test_the_table_is_aligned() -> None:
    status = ClusterStatus(
        "kk4wN8L1",
        2,
        (
            BrokerStatus(1, "10.0.0.1:9092", "a", False, ""),
            BrokerStatus(2, "10.0.0.2:9092", None, True, "no answer: timed out"),
            BrokerStatus(10, "-", None, False, "not in the cluster"),
        ),
        (
            PartitionStatus("orders", 0, 1, 5, (1, 2, 10), (1, 2), {2: None, 10: None}),
            PartitionStatus("orders", 1, -1, 5, (10,), (10,), {10: None}),
            PartitionStatus("payments", 0, 1, 0, (1, 2), (1, 2), {2: 1042}),
        ),
    )
    assert render(status).splitlines() == [
        "cluster kk4wN8L1, 3 brokers",
        "",
        "BROKER  ADDRESS        RACK  LEADS  HOLDS",
        "1       10.0.0.1:9092  a     2      2",
        "2       10.0.0.2:9092  -     0      2      controller, no answer: timed out",
        "10      -              -     0      2      not in the cluster",
        "",
        "TOPIC     PARTITION  LEADER  ISR  REPLICAS  LAG",
        "orders    0          1       1,2  1,2,10    2:? 10:?  under-replicated",
        "orders    1          none    10   10        10:?      offline",
        "payments  0          1       1,2  1,2       2:1042",
        "",
        "3 partitions, 1 offline, 1 under-replicated, 2 brokers without an answer",
    ]


@pytest.mark.parametrize(
    ("controller", "head", "last"),
    [(KRAFT, ", controllers in a quorum (KRaft)", "all replicas in sync"), (NO_CONTROLLER, "", "no controller")],
)
def test_a_cluster_with_kraft_lacks_no_controller(controller: int, head: str, last: str) -> None:
    found = render(ClusterStatus("kk4wN8L1", controller, (BrokerStatus(1, "a:9092", None, False, ""),), ()))
    assert found.splitlines()[0] == f"cluster kk4wN8L1, 1 broker{head}"
    assert found.splitlines()[-1] == f"0 partitions, {last}"


def test_a_quorum_has_a_leader_voters_and_observers_with_lag() -> None:
    voters = (QuorumReplica(3, 120, 0, None, None), QuorumReplica(4, 118, 2, 1, 1))
    quorum = MetadataQuorum(3, 7, 118, voters, (QuorumReplica(1, -1, None, None, None),))
    broker = BrokerStatus(1, "a:9092", None, False, "")
    assert render(ClusterStatus("kk4wN8L1", KRAFT, (broker,), (), quorum)).splitlines()[5:10] == [
        "quorum: leader 3, epoch 7, high watermark 118",
        "NODE  ROLE      LOG END  LAG",
        "3     leader    120      0",
        "4     voter     118      2",
        "1     observer  ?        ?",
    ]
    assert quorum_text(quorum) == "3 leads, epoch 7, lag of 4 (voter) 2, lag of 1 (observer) ?"
