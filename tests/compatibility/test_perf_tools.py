"""The stock tools that measure and check: performance tests, end-to-end latency, the verifiable producer and consumer.

They run on Odradek and on Apache Kafka 3.9.2; their output differs in its measurements only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compatibility.brokers import create_topic, log_end_offsets
from tests.compatibility.side_by_side import Side, Sides, both
from tests.jvm.kafka import Kafka
from tests.jvm.process import run_java
from tests.jvm.tools import VERSIONS, run_tool, tool_command

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RECORDS = 2000
DEADLINE_S = 120.0
# Release 2.8 has some of these in a jar that is not among the pinned ones.
NEWER = VERSIONS[1:]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Sides]:
    with both(tmp_path_factory.mktemp("perf-tools"), kafka) as running:
        yield running


def printed(version: str, tool: str, *arguments: str) -> list[str]:
    result = run_tool(version, tool, arguments, timeout_s=DEADLINE_S)
    return [line for line in result.stdout.splitlines() if line]


def shape(line: str) -> str:
    """A line without its numbers."""
    return re.sub(r"-?\d+([.:]\d+)*(E-?\d+)?|NaN", "#", line)


def number(pattern: str, line: str) -> int:
    found = re.search(pattern, line)
    assert found, line
    return int(found[1])


def on_both(sides: Sides, lines: dict[Side, list[str]]) -> list[str]:
    """The tool's output on Odradek, of the same shape as on Kafka."""
    ours, expected = lines[sides.ours], lines[sides.kafka]
    assert [shape(line) for line in ours] == [shape(line) for line in expected]
    return ours


@pytest.mark.parametrize("version", VERSIONS)
def test_throughput_is_measured(sides: Sides, topic: str, version: str) -> None:
    written: dict[Side, list[str]] = {}
    read: dict[Side, list[str]] = {}
    for side in sides:
        create_topic(side, topic)
        sizes = ("--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1")
        settings = ("--producer-props", f"bootstrap.servers={side.bootstrap}", "acks=all", "compression.type=lz4")
        writer = version if version in NEWER else NEWER[0]
        # A line for every five seconds comes before the last.
        written[side] = printed(writer, "kafka-producer-perf-test", "--topic", topic, *sizes, *settings)[-1:]
        assert log_end_offsets(side, topic, 1) == [RECORDS]
        limits = ("--messages", str(RECORDS), "--timeout", "60000")
        reading = ("--bootstrap-server", side.bootstrap, "--topic", topic, *limits)
        read[side] = printed(version, "kafka-consumer-perf-test", *reading)
    assert number(r"^(\d+) records sent, ", on_both(sides, written)[0]) == RECORDS
    names, values = (line.split(", ") for line in on_both(sides, read)[-2:])
    assert dict(zip(names, values, strict=True))["data.consumed.in.nMsg"] == str(RECORDS)


@pytest.mark.parametrize("version", VERSIONS)
def test_latency_from_end_to_end_is_measured(sides: Sides, topic: str, version: str) -> None:
    lines: dict[Side, list[str]] = {}
    for side in sides:
        create_topic(side, topic)
        arguments = [side.bootstrap, topic, "50", "all", "200"]
        if version.startswith("4."):
            names = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
            arguments = [part for name, value in zip(names, arguments, strict=True) for part in (f"--{name}", value)]
        lines[side] = printed(version, "kafka-e2e-latency", *arguments)
        assert log_end_offsets(side, topic, 1) == [50]
    *_, average, percentiles = on_both(sides, lines)
    assert average.startswith("Avg latency: ")
    assert percentiles.startswith("Percentiles: 50th = ")


def alone(version: str, tool: str, *arguments: str) -> list[str]:
    """The output of a tool that prints its last lines while its process ends."""
    return run_java(tool_command(version, tool, arguments), timeout_s=DEADLINE_S).stdout.splitlines()


def events(lines: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The events of a verifiable client, by name, in the order of the names' first appearance."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        event = json.loads(line)
        found.setdefault(event["name"], []).append(event)
    return found


@pytest.mark.parametrize("version", NEWER)
def test_verifiable_clients_agree_on_the_records_sent(sides: Sides, topic: str, group: str, version: str) -> None:
    kinds = []
    for side in sides:
        create_topic(side, topic, 2)
        where = ("--bootstrap-server", side.bootstrap, "--topic", topic)
        limit = ("--max-messages", "100")
        sent = events(
            alone(version, "kafka-verifiable-producer", *where, *limit, "--acks", "-1", "--value-prefix", "7")
        )
        successes = sent["producer_send_success"]
        assert sorted(event["value"] for event in successes) == sorted(f"7.{number}" for number in range(100))
        (totals,) = sent["tool_data"]
        assert (totals["sent"], totals["acked"]) == (100, 100)
        reading = ("--group-id", group, "--reset-policy", "earliest", "--verbose")
        read = events(alone(version, "kafka-verifiable-consumer", *where, *limit, *reading))
        places = sorted((event["partition"], event["offset"]) for event in successes)
        assert sorted((event["partition"], event["offset"]) for event in read["record_data"]) == places
        assert sum(event["count"] for event in read["records_consumed"]) == 100
        assert all(event["success"] for event in read["offsets_committed"])
        kinds.append((sorted(sent), sorted(read), sorted(successes[0]), sorted(read["offsets_committed"][0])))
    assert kinds[0] == kinds[1]
