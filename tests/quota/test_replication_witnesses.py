"""Stock tools throttle replication on Odradek and on Apache Kafka 3.9.2 at the same time: what is copied shows the
rate.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.jvm.tools import run_tool
from tests.quota.shares import TOLERANCE, check
from tests.quota.throttled_clusters import DIRECTORIES, Throttled, growth, throttled_clusters
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RATE = 300_000
BATCHES = 2_000
"""More bytes than are copied until the end of the measured time."""
BEFORE_S = 11.0
MEASURED_S = 22
KAFKAS_LEAST = 0.75
"""Kafka looks at the quota again after 500 ms or a second, and copies 0.87 to 0.96 of what its throttle allows."""
LEADS, FOLLOWS, MOVES = "leads", "follows", "moves"
SLOWLY = "slowly"
TOOL_RATE = 400_000
TOOL_BATCHES = 400
"""10 s at this rate: the first verification, which a busy machine delays, finds the move in progress."""
LED_BY = {LEADS: 1, FOLLOWS: 2, MOVES: 1}
"""The broker with the only replica of each topic at first. All throttles are those of broker 1."""


def tool(cluster: Throttled, name: str, *arguments: str) -> list[str]:
    """The lines that a stock tool prints, in a fixed order, with words for the folders of the cluster."""
    printed = run_tool("3.9.2", name, ["--bootstrap-server", cluster.bootstrap, *arguments])
    return sorted((printed.stdout + printed.stderr).replace(str(cluster.folder), "(folder)").splitlines())


def other_directory(cluster: Throttled) -> str:
    (name,) = set(DIRECTORIES) - {cluster.directory_of(MOVES, 1)}
    return name


def throttle(cluster: Throttled) -> None:
    """Three throttles of broker 1: of what it sends, of what it fetches, of what it moves."""
    rates = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
    for kind, name, added in (
        ("brokers", "1", ",".join(f"{rate}={RATE}" for rate in rates)),
        ("topics", LEADS, "leader.replication.throttled.replicas=0:1"),
        ("topics", FOLLOWS, "follower.replication.throttled.replicas=0:1"),
    ):
        tool(cluster, "kafka-configs", "--alter", "--entity-type", kind, "--entity-name", name, "--add-config", added)


def reassign(cluster: Throttled, plan: Path, to: str) -> None:
    """A replica of two topics for the other broker, and one in the other directory."""
    partitions = [
        {"topic": LEADS, "partition": 0, "replicas": [1, 2]},
        {"topic": FOLLOWS, "partition": 0, "replicas": [2, 1]},
        {"topic": MOVES, "partition": 0, "replicas": [1], "log_dirs": [str(cluster.directory(1, to))]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    tool(cluster, "kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))


def test_measured_rates_of_replication_are_within_five_percent_of_the_throttle(tmp_path: Path) -> None:
    with throttled_clusters(tmp_path) as clusters:
        copies: dict[tuple[str, str], Callable[[], int]] = {}
        least = {"odradek": 1 - TOLERANCE, "kafka": KAFKAS_LEAST}
        for side, cluster in clusters.items():
            cluster.fill(LED_BY, BATCHES)
            throttle(cluster)
            to = other_directory(cluster)
            copies[LEADS, side] = lambda cluster=cluster: cluster.copied(LEADS, 2)
            copies[FOLLOWS, side] = lambda cluster=cluster: cluster.copied(FOLLOWS, 1)
            copies[MOVES, side] = lambda cluster=cluster, to=to: cluster.copied(MOVES, 1, to)
        with ThreadPoolExecutor(len(copies)) as threads:
            growing = {
                (name, side): threads.submit(growth, copied, BEFORE_S, MEASURED_S, RATE * least[side])
                for (name, side), copied in copies.items()
            }
            for side, cluster in clusters.items():
                reassign(cluster, tmp_path / f"{side}.json", other_directory(cluster))
            rates = {case: each.result() for case, each in growing.items()}
    check(rates, dict.fromkeys(LED_BY, RATE), kafkas_least=KAFKAS_LEAST)


def move_slowly(cluster: Throttled, plan: Path) -> tuple[list[list[str]], float]:
    """Move a replica to the other directory of its broker with a throttle of the tool, until the tool removes that.
    Returns what the tools print, and the bytes a second of the copy.
    """
    cluster.fill({SLOWLY: 2}, TOOL_BATCHES)
    (there,) = set(DIRECTORIES) - {cluster.directory_of(SLOWLY, 2)}
    move = {"topic": SLOWLY, "partition": 0, "replicas": [2], "log_dirs": [str(cluster.directory(2, there))]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    how = ("--reassignment-json-file", str(plan))
    throttle = ("--replica-alter-log-dirs-throttle", str(TOOL_RATE))
    configs = ("--describe", "--entity-type", "brokers", "--entity-name", "2")
    printed = [tool(cluster, "kafka-reassign-partitions", "--execute", *how, *throttle)]
    rate = growth(lambda: cluster.copied(SLOWLY, 2, there), 1.0, 3)
    printed.append(tool(cluster, "kafka-configs", *configs))
    printed.append(tool(cluster, "kafka-reassign-partitions", "--verify", *how))
    printed.append(
        eventually(
            lambda: tool(cluster, "kafka-reassign-partitions", "--verify", *how),
            lambda lines: not any("is still in progress" in line for line in lines),
        )
    )
    printed.append(tool(cluster, "kafka-configs", *configs))
    return [[line.replace(f"/{there}", "/(there)") for line in lines] for lines in printed], rate


def test_a_move_between_directories_is_throttled_by_the_tool_until_it_verifies_the_move(tmp_path: Path) -> None:
    with throttled_clusters(tmp_path) as clusters, ThreadPoolExecutor(len(clusters)) as threads:
        running = {
            side: threads.submit(move_slowly, cluster, tmp_path / f"{side}.json") for side, cluster in clusters.items()
        }
        (ours, rate), (kafkas, kafkas_rate) = (running[side].result() for side in ("odradek", "kafka"))
    print(f"log dir throttle of the tool: {rate / TOOL_RATE:.3f} of it, Kafka {kafkas_rate / TOOL_RATE:.3f}")
    assert ours == kafkas
    assert any("Clearing broker-level throttles" in line for line in ours[3])
    assert str(TOOL_RATE) in "".join(ours[1])
    assert str(TOOL_RATE) not in "".join(ours[4])
    assert 0.85 * TOOL_RATE <= rate <= 1.15 * TOOL_RATE  # in three seconds
