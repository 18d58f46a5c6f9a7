"""The znodes that an operator inspects are where Kafka puts them: ZooKeeper's own shell, and tools with --zookeeper.

Apache Kafka's tree, Odradek's below a chroot of the same Apache ZooKeeper, and Odradek's in `odradek registry`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import RegistryProcess
from tests.compatibility.brokers import create_topic
from tests.compatibility.side_by_side import SAME_PROPERTIES
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

CHROOT = "/odradek"
TOPIC = "seen-in-the-registry"


class Place(NamedTuple):
    """A cluster of one broker, and the address of its registry."""

    bootstrap: str
    zookeeper: str


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[list[Place]]:
    """Apache Kafka, Odradek in its ZooKeeper, Odradek in its own registry; each had the same operations."""
    folder: Path = tmp_path_factory.mktemp("registry-tools")
    registry = RegistryProcess(folder, tick_ms=500)
    registry.launch()
    registry.await_ready()
    brokers = []
    places = [Place(kafka.bootstrap, kafka.zookeeper_connect)]
    try:
        for number, zookeeper in enumerate((kafka.zookeeper_connect + CHROOT, f"127.0.0.1:{registry.port}")):
            overrides = {**SAME_PROPERTIES, "zookeeper.connect": zookeeper}
            broker = BrokerProcess(folder / str(number), overrides)
            brokers.append(broker)
            broker.start()
            places.append(Place(broker.bootstrap, zookeeper))
        for place in places:
            create_topic(place, TOPIC, 2, {"retention.ms": "3600000"})
        yield places
    finally:
        for broker in brokers:
            broker.close()
        registry.close()


# The children of /admin/delete_topics are not listed: other tests delete topics of the same Apache Kafka, whose
# controller removes them later, some after minutes.
SCRIPT = f"""
ls /
ls /brokers
ls /brokers/ids
get /brokers/ids/0
get /brokers/topics/{TOPIC}
ls -R /brokers/topics/{TOPIC}
get /brokers/topics/{TOPIC}/partitions/0/state
get /controller
get /controller_epoch
get /cluster/id
ls /config
get /config/topics/{TOPIC}
ls /admin
get /admin/delete_topics
ls /isr_change_notification
ls /log_dir_event_notification
ls /latest_producer_id_block
ls /brokers/seqid
getAcl /brokers/ids
quit
"""
UNSHARED = (
    (re.compile(r'"timestamp":"\d+"'), '"timestamp":(time)'),
    (re.compile(r'"(topic_)?id":"[^"]{22}"'), '"id":(id)'),
    (re.compile(r'"port":\d+|127\.0\.0\.1:\d+'), "(port)"),
    # A broker's registration has its features; the finalized features follow from all of these.
    (re.compile(r'"features":\{.*?\},"listener'), '"features":(features),"listener'),
    (re.compile(r"\bfeature, "), ""),
    (re.compile(r"\b(odradek|zookeeper)(, |(?=\]))"), ""),  # Kafka's tree is the root, and Odradek's is a branch of it
    (re.compile(r", (?=\])"), ""),
)


def printed_at(place: Place, version: str, tool: str, *arguments: str, stdin: str = "") -> list[str]:
    """The output of a tool, without values that no two clusters share."""
    result = run_tool(version, tool, arguments, stdin=stdin, check=False)
    lines = []
    for line in [*result.stdout.splitlines(), *result.stderr.splitlines()]:
        for pattern, word in UNSHARED:
            line = pattern.sub(word, line)
        lines.append(line.replace(place.zookeeper, "(zookeeper)").strip())
    talk = ("WATCHER", "WatchedEvent", "Welcome", "JLine", "Connecting", "[main")
    return [line for line in lines if line and not line.startswith(talk)]


def assert_as_kafka(places: list[Place], lines: list[list[str]]) -> list[str]:
    expected, *ours = lines
    for place, found in zip(places[1:], ours, strict=True):
        difference = difflib.unified_diff(
            expected, found, "Apache Kafka", f"ours at {place.zookeeper}", n=1, lineterm=""
        )
        assert found == expected, "\n".join(["", *difference])
    return expected


def test_the_shell_finds_every_znode_where_kafka_puts_it(places: list[Place]) -> None:
    shell = ("3.9.2", "zookeeper-shell", "-server")
    looks = [printed_at(place, *shell, place.zookeeper, stdin=SCRIPT) for place in places]
    seen = assert_as_kafka(places, looks)
    assert "[0]" in seen
    assert any('"leader":0' in line and '"isr":[0]' in line for line in seen)
    assert any('"retention.ms":"3600000"' in line for line in seen)


def test_changes_of_an_old_tool_in_zookeeper(places: list[Place]) -> None:
    user = ("--entity-type", "users", "--entity-name", "u")
    broker, stopped = (("--entity-type", "brokers", "--entity-name", id) for id in ("0", "1000"))
    secret = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    actions = (
        ["--alter", *user, "--add-config", secret],
        ["--describe", *user],
        ["--alter", *user, "--delete-config", "SCRAM-SHA-256"],
        ["--describe", *user],
        ["--alter", *broker, "--add-config", "log.cleaner.backoff.ms=20000"],  # not while the broker runs
        ["--alter", *stopped, "--add-config", "log.cleaner.backoff.ms=20000"],
        ["--describe", *stopped],  # not broker 0: other tests change its configs in the same Apache Kafka meanwhile
        ["--alter", *stopped, "--delete-config", "log.cleaner.backoff.ms"],
        ["--describe", *stopped],
        ["--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config", "retention.ms=7200000"],
    )
    found: list[list[str]] = []
    for place in places:
        lines = []
        for action in actions:
            lines += printed_at(place, "2.8.2", "kafka-configs", "--zookeeper", place.zookeeper, *action)
        found.append([re.sub(r"(salt|stored_key|server_key)=[^,]+", r"\1=(secret)", line) for line in lines])
    seen = assert_as_kafka(places, found)
    assert any("SCRAM-SHA-256" in line for line in seen)
    assert "Configs for brokers '1000' are log.cleaner.backoff.ms=20000" in seen
