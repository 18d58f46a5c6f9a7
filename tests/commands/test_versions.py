"""Every noun of the commands on the oldest and the newest Apache Kafka: 2.8.2 with ZooKeeper, 4.3.0 with KRaft."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from starlette.testclient import TestClient

from odradek.console.web.application import application
from odradek.console.web.settings import ConsoleSettings
from tests.commands.running import Running
from tests.jvm.kafka import Kafka
from tests.jvm.kraft import running_kraft
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def use_every_noun(side: Running, folder: Path, *, transactions: bool) -> None:
    side.done("topic", "create", "orders", "-p", "2", "-c", "retention.ms=-1")
    eventually(lambda: side.run("topic", "describe", "orders"), lambda result: result.exit_code == 0)
    side.produce("orders", map(str, range(10)))
    (topic,) = side.data("topic", "describe", "orders")
    (broker,) = [each["broker"] for each in side.data("broker", "list")]
    assert [each["replicas"] for each in topic["partitions"]] == [[broker]] * 2
    side.done("topic", "alter", "orders", "-p", "3", "--set", "max.message.bytes=2000000")
    assert side.data("config", "get", "topic", "orders", "max.message.bytes")[0]["value"] == "2000000"
    assert side.data("broker", "configs", str(broker))[0]["configs"]
    assert side.data("broker", "log-dirs", "--topic", "orders")[0]["replicas"]
    consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
    consumer.close()
    assert side.data("group", "lag", "readers")[0]["lag"] == 6
    assert [each["group"] for each in side.data("group", "list")] == ["readers"]
    side.done("group", "reset", "readers", "--topic", "orders:0", "--to-latest", "--yes")
    (described,) = side.data("group", "describe", "readers")
    assert (described["state"], described["offsets"][0]["committed_offset"]) == ("Empty", 10)
    side.done("group", "delete", "readers", "--yes")
    side.done("records", "delete", "orders:0", "--before-offset", "3", "--yes")
    assert side.data("get-offsets", "orders:0")[0]["earliest"] == 3
    side.done("user", "set", "alice", "--mechanism", "SCRAM-SHA-256", "--password-stdin", stdin="secret\n")
    eventually(lambda: side.run("user", "delete", "alice", "--yes"), lambda result: result.exit_code == 0)
    side.done("quota", "set", "producer_byte_rate=1024", "--user", "alice")
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "orders", "partition": 0, "replicas": [broker]}]}))
    side.done("reassign", "run", str(plan), "--yes")
    eventually(lambda: side.data("reassign", "status", str(plan)), lambda rows: rows[0]["status"] == "complete")
    assert side.data("leader", "elect", "orders:0")[0]["result"] == "unchanged"
    assert side.failure("acl", "list")[1].endswith("(SECURITY_DISABLED)\n")
    if transactions:
        assert side.data("transaction", "list") == []
    else:
        assert "supports ListTransactionsRequest in no version" in side.failure("transaction", "list")[1]
    status = side.data("cluster", "status")
    assert "orders" in side.done("cluster", "status")
    assert (status["kraft"], status["controller"]) == ((True, None) if transactions else (False, broker))
    assert [each["controller"] for each in status["brokers"]] == [not status["kraft"]]
    assert (status["quorum"] is not None) is transactions
    open_every_page(side.bootstrap, str(broker), transactions=transactions)
    side.done("topic", "delete", "orders", "--yes")


def open_every_page(bootstrap: str, broker: str, *, transactions: bool) -> None:
    """The console, which takes the same requests."""
    with TestClient(application(ConsoleSettings(bootstrap)), base_url="http://127.0.0.1:8080") as console:
        pages = [
            "/",
            "/topics",
            "/topics/orders",
            "/topics/orders/configs?all=on",
            "/topics/orders/messages",
            "/groups",
        ]
        pages += ["/brokers", f"/brokers/{broker}", "/access", "/timeline"]
        for page in pages:
            answer = console.get(page)
            assert (answer.status_code, "is not shown" in answer.text) == (200, False), (page, answer.text)
        assert "1–1 of 1" in console.get("/topics").text
        assert console.get("/transactions").status_code == (200 if transactions else 502)
        assert ("controllers in a quorum" in console.get("/").text) is transactions


def test_apache_kafka_2_8(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka", version="2.8.2")
    try:
        kafka.start()
        use_every_noun(Running(kafka.bootstrap), tmp_path, transactions=False)
    finally:
        kafka.close()


async def test_apache_kafka_4_3(tmp_path: Path) -> None:
    async with running_kraft(tmp_path / "kafka", {"offsets.topic.replication.factor": "1"}) as port:
        use_every_noun(Running(f"127.0.0.1:{port}"), tmp_path, transactions=True)
        await asyncio.to_thread(compare_quorum, Running(f"127.0.0.1:{port}"))


def compare_quorum(side: Running) -> None:
    """The quorum as the stock tool prints it."""
    stock = dict(re.findall(r"(\w+): +(.*)", side.stock("kafka-metadata-quorum", "describe", "--status")))
    replicas = side.stock("kafka-metadata-quorum", "describe", "--replication").splitlines()
    quorum = side.data("cluster", "status")["quorum"]
    assert (quorum["leader"], quorum["leader_epoch"]) == (int(stock["LeaderId"]), int(stock["LeaderEpoch"]))
    assert quorum["high_watermark"] >= int(stock["HighWatermark"])
    rows = [line.split() for line in replicas[1:]]
    ours = [(each["id"], each["lag"], "Leader") for each in quorum["voters"]]
    assert ours == [(int(row[0]), int(row[-4]), row[-1]) for row in rows]
    assert quorum["observers"] == []
    assert f"quorum: leader {quorum['leader']}, epoch {quorum['leader_epoch']}" in side.done("cluster", "status")
    with TestClient(application(ConsoleSettings(side.bootstrap)), base_url="http://127.0.0.1:8080") as console:
        assert f"controllers in a quorum, {quorum['leader']} leads" in console.get("/").text
        assert "Quorum of controllers" in console.get("/brokers").text
