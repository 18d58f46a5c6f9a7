"""`odradek streams init`: topics of an application on real brokers, Odradek's and Apache Kafka's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from odradek.broker_process import BrokerProcess
from odradek.streams_cli import streams
from odradek.streams_init_cli import DIFFERS
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually

TIMEOUT_S: Final = 60.0
LOGGED: Final = ("cleanup.policy=compact", "message.timestamp.type=CreateTime")
SHOP: Final = """
from odradek.streams import *

def topology(orders=3, customers=3, **config):
    builder = StreamsBuilder()
    rows = builder.table(topic("init-customers", customers), Consumed(STRING, STRING), "rows")
    orders = builder.stream(topic("init-orders", orders, 1, config), Consumed(STRING, STRING))
    orders.join(rows, lambda order, row: order, joined=Joined(STRING, STRING, STRING)).to(
        topic("init-joined", config={"cleanup.policy": "compact"}), Produced(STRING, STRING)
    )
    return builder

def other():
    return topology(orders=6, customers=6, **{"retention.ms": 2000})

def apart():
    return topology(orders=4)

def impossible():
    return topology(**{"no.such.config": 1})

def undeclared():
    builder = StreamsBuilder()
    builder.stream("nowhere", Consumed(STRING, STRING)).to(topic("somewhere", 1), Produced(STRING, STRING))
    return builder

def invalid():
    builder = StreamsBuilder()
    builder.stream("no name")
    return builder

def broken():
    raise ValueError("of the user")
"""


class Shop:
    """The module, and the command for it."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.module = f"shop_{folder.name}"  # no other test has imported it
        (folder / f"{self.module}.py").write_text(SHOP)
        self.folder = folder
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def init(self, topology: str, *options: str, answer: str = "") -> tuple[int, str]:
        """Run the command. Returns its exit status and its output."""
        arguments = [f"{self.module}:{topology}", f"--app-dir={self.folder}", f"--bootstrap-server={self.bootstrap}"]
        ended = CliRunner().invoke(streams, ["init", *arguments, *options], input=answer)
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended.exit_code, ended.output

    def topics(self) -> dict[str, int]:
        found = self.admin.list_topics(timeout=TIMEOUT_S).topics
        return {
            name: len(each.partitions)
            for name, each in found.items()
            if name in ("init-customers", "init-orders", "init-joined")
        }

    def configs(self, topic: str) -> Mapping[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        described = self.admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return {name: entry.value for name, entry in described.items()}


@pytest.fixture
def make_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Shop]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    return lambda bootstrap: Shop(tmp_path, bootstrap)


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if re.match(r"[a-z-]+ +(input|output|both|changelog) ", line)]


@pytest.mark.slow
def test_topics_are_created_as_declared(make_shop: Callable[[str], Shop], streams_broker: BrokerProcess) -> None:
    create_and_change(make_shop(streams_broker.bootstrap))


@pytest.mark.jvm
def test_topics_of_apache_kafka_are_created_as_declared(make_shop: Callable[[str], Shop], kafka: Kafka) -> None:
    create_and_change(make_shop(kafka.bootstrap))


def create_and_change(shop: Shop) -> None:
    """The plan is shown first; differing topics change only where that is allowed."""
    config = "--config=application.id=shop"
    status, planned = shop.init("topology", config, "--dry-run")
    assert (status, rows(planned)) == (
        0,
        [
            ["init-customers", "input", "create", "3", "1"],
            ["init-orders", "input", "create", "3", "1"],
            ["init-joined", "output", "create", "1", "1", "cleanup.policy=compact"],
            ["shop-rows-changelog", "changelog", "at", "the", "start", "3", "1", *LOGGED],
        ],
    )
    assert shop.topics() == {}

    status, declined = shop.init("topology", config, answer="n\n")
    assert (status, shop.topics()) == (1, {})
    assert f"Create 3 topics at {shop.bootstrap}?" in declined

    status, rejected = shop.init("impossible", config, "--yes")
    assert (status, shop.topics()) == (DIFFERS, {}), "a topic that would be accepted is not created either"
    assert "the cluster rejects init-orders: " in rejected
    assert "no.such.config" in rejected

    status, apart = shop.init("apart", config, "--yes")
    assert (status, shop.topics()) == (DIFFERS, {})
    assert "Topics not co-partitioned: [init-customers,init-orders]: init-customers has 3, init-orders has 4" in apart

    status, created = shop.init("topology", config, answer="y\n")
    assert (status, re.findall(r"created (\S+)", created)) == (0, ["init-customers", "init-orders", "init-joined"])
    eventually(shop.topics, lambda found: found == {"init-customers": 3, "init-orders": 3, "init-joined": 1})
    assert shop.configs("init-joined")["cleanup.policy"] == "compact"

    status, again = shop.init("topology", config)
    assert (status, {row[2] for row in rows(again)}) == (0, {"exists", "at"})

    status, differing = shop.init("other", "--application-id=shop", "--yes")
    assert (status, shop.topics()["init-orders"]) == (DIFFERS, 3)
    assert "init-orders has 3 partitions, declared 6: --add-partitions adds them" in differing
    assert "declared 2000: --alter-configs sets it" in differing

    status, changed = shop.init("other", config, "--add-partitions", "--alter-configs", "--yes")
    assert (status, "changed init-orders" in changed) == (0, True), changed
    eventually(shop.topics, lambda found: found == {"init-customers": 6, "init-orders": 6, "init-joined": 1})
    eventually(lambda: shop.configs("init-orders"), lambda found: found["retention.ms"] == "2000")

    status, shrunk = shop.init("topology", config, "--add-partitions", "--alter-configs", "--yes")
    assert status == DIFFERS
    assert "init-orders has 6 partitions, declared 3: a topic cannot lose partitions" in shrunk

    status, missing = shop.init("undeclared", "--yes")
    assert status == DIFFERS
    assert "nowhere does not exist and is not declared" in missing
    assert "created somewhere" in missing


def test_an_application_that_cannot_be_used_is_explained(make_shop: Callable[[str], Shop]) -> None:
    shop = make_shop("127.0.0.1:1")
    (shop.folder / "client.properties").write_text("application.id=shop\nrequest.timeout.ms=300\n")
    for topology, options, status, message in (
        ("absent", (), 2, "has no attribute 'absent'"),
        ("broken", (), 2, ":broken: ValueError: of the user"),
        ("broken", (), 2, 'raise ValueError("of the user")'),
        ("invalid", (), 2, "Invalid topology: source KSTREAM-SOURCE-0000000000: 'no name' is no name of a topic"),
        ("topology", ("--config=processing.guarantee=never",), 2, "processing.guarantee"),
        ("topology", ("--config=@client.properties",), 1, "cannot list the topics of the cluster: "),
        ("topology", ("--config=@absent.properties",), 1, "cannot read absent.properties"),
        ("topology", ("--config=x",), 2, "must be NAME=VALUE, or @FILE"),
    ):
        ended, output = shop.init(topology, *options)
        assert (ended, message in output) == (status, True), (topology, output)
