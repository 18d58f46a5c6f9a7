"""`odradek streams init`: topics of an application on real brokers, Odradek's and Apache Kafka's."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from odradek.ready_process import OWN_COMMAND
from odradek.streams_init_cli import DIFFERS
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

def broken():
    raise ValueError("of the user")
"""


@pytest.fixture(params=["streams_broker", pytest.param("kafka", marks=pytest.mark.jvm)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker without these topics: one of Odradek, and Apache Kafka."""
    return str(request.getfixturevalue(request.param).bootstrap)


class Shop:
    """The module, and the command for it."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        (folder / "shop.py").write_text(textwrap.dedent(SHOP))
        self.folder = folder
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def init(self, topology: str, *options: str, answer: str = "") -> subprocess.CompletedProcess[str]:
        command = [
            *OWN_COMMAND,
            "streams",
            "init",
            f"shop:{topology}",
            f"--bootstrap-server={self.bootstrap}",
            *options,
        ]
        return subprocess.run(
            command, input=answer, capture_output=True, text=True, cwd=self.folder, timeout=TIMEOUT_S, check=False
        )

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
def shop(tmp_path: Path, bootstrap: str) -> Shop:
    return Shop(tmp_path, bootstrap)


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if re.match(r"[a-z-]+ +(input|output|both|changelog) ", line)]


@pytest.mark.slow
def test_topics_are_created_as_declared_after_the_plan_is_shown(shop: Shop) -> None:
    config = "--config=application.id=shop"
    planned = shop.init("topology", config, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert rows(planned.stdout) == [
        ["init-customers", "input", "create", "3", "1"],
        ["init-orders", "input", "create", "3", "1"],
        ["init-joined", "output", "create", "1", "1", "cleanup.policy=compact"],
        ["shop-rows-changelog", "changelog", "at", "the", "start", "3", "1", *LOGGED],
    ]
    assert shop.topics() == {}

    declined = shop.init("topology", config, answer="n\n")
    assert declined.returncode == 1
    assert f"Create 3 topics at {shop.bootstrap}?" in declined.stdout
    assert shop.topics() == {}

    rejected = shop.init("impossible", config, "--yes")
    assert rejected.returncode == DIFFERS
    assert "the cluster rejects init-orders: " in rejected.stdout
    assert "no.such.config" in rejected.stdout
    assert shop.topics() == {}, "a topic that would be accepted is not created either"

    apart = shop.init("apart", config, "--yes")
    assert apart.returncode == DIFFERS
    assert (
        "Topics not co-partitioned: [init-customers,init-orders]: init-customers has 3, init-orders has 4"
        in apart.stdout
    )
    assert shop.topics() == {}

    created = shop.init("topology", config, answer="y\n")
    assert created.returncode == 0, created.stderr
    assert re.findall(r"created (\S+)", created.stdout) == ["init-customers", "init-orders", "init-joined"]
    eventually(shop.topics, lambda found: found == {"init-customers": 3, "init-orders": 3, "init-joined": 1})
    assert shop.configs("init-joined")["cleanup.policy"] == "compact"

    again = shop.init("topology", config)
    assert (again.returncode, {row[2] for row in rows(again.stdout)}) == (0, {"exists", "at"})

    differing = shop.init("other", "--application-id=shop", "--yes")
    assert differing.returncode == DIFFERS
    assert "init-orders has 3 partitions, declared 6: --add-partitions adds them" in differing.stdout
    assert "declared 2000: --alter-configs sets it" in differing.stdout
    assert shop.topics()["init-orders"] == 3

    changed = shop.init("other", config, "--add-partitions", "--alter-configs", "--yes")
    assert changed.returncode == 0, changed.stdout + changed.stderr
    assert "changed init-orders" in changed.stdout
    eventually(shop.topics, lambda found: found == {"init-customers": 6, "init-orders": 6, "init-joined": 1})
    eventually(lambda: shop.configs("init-orders"), lambda found: found["retention.ms"] == "2000")

    shrunk = shop.init("topology", config, "--add-partitions", "--alter-configs", "--yes")
    assert shrunk.returncode == DIFFERS
    assert "init-orders has 6 partitions, declared 3: a topic cannot lose partitions" in shrunk.stdout

    missing = shop.init("undeclared", "--yes")
    assert missing.returncode == DIFFERS
    assert "nowhere does not exist and is not declared" in missing.stdout
    assert "created somewhere" in missing.stdout


def test_an_application_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "127.0.0.1:1")
    (tmp_path / "client.properties").write_text("application.id=shop\nrequest.timeout.ms=300\n")
    for topology, options, status, message in (
        ("absent", (), 2, "module 'shop' has no attribute 'absent'"),
        ("broken", (), 2, "cannot load shop:broken: ValueError: of the user"),
        ("topology", ("--config=processing.guarantee=never",), 2, "processing.guarantee"),
        ("topology", ("--config=@client.properties",), 1, "cannot list the topics of the cluster: "),
        ("topology", ("--config=@absent.properties",), 1, "cannot read absent.properties"),
    ):
        ended = shop.init(topology, *options)
        assert (ended.returncode, message in ended.stderr) == (status, True), (topology, ended.stderr)
