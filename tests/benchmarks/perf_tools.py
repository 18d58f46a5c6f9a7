"""The stock Java performance tools of Kafka 3.9.2: how each is run for a case, and how its last lines are parsed.

ProducerPerformance, ConsumerPerformance and EndToEndLatency run with the Java options of their own shell scripts. Their
"MB" is 1024 x 1024 bytes. The JVM's locale is English, so that a decimal point is a point.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.cases import Case
from tests.jvm.process import QUIET, run_java
from tests.jvm.tools import tool_command

VERSION = "3.9.2"
TIMEOUT_S = 300.0
_TOOLS = "org.apache.kafka.tools"
JAVA_OPTIONS = (
    "-Xmx512M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Duser.language=en",
    "-Duser.country=US",
    *QUIET,
)
_MIB = 1024 * 1024
_TEXT_LINES = 10_000


class Outcome(NamedTuple):
    """The measurements of a tool. Latencies in ms; None where the tool does not measure them."""

    records: int
    records_per_s: float
    mib_per_s: float
    average_ms: float | None
    p50_ms: float | None
    p99_ms: float | None


class UnreadableOutputError(Exception):
    """A tool ended well, but without its summary."""


def produce(case: Case, bootstrap: str, topic: str, text_file: Path, config: Path | None = None) -> Outcome:
    """Fill `topic` with ProducerPerformance as fast as it goes; `config` has properties of the client.

    Raises ToolError and UnreadableOutputError.
    """
    payload = ["--payload-file", str(text_file)] if case.text else ["--record-size", str(case.record_bytes)]
    load = ["--topic", topic, "--num-records", str(case.records), "--throughput", "-1", *payload]
    load += ["--producer.config", str(config)] if config is not None else []
    return read_producer(
        _run("ProducerPerformance", [*load, "--producer-props", f"bootstrap.servers={bootstrap}", *case.producer])
    )


def consume(case: Case, bootstrap: str, topic: str, group: str, config: Path | None = None) -> Outcome:
    """Read all of `topic` with ConsumerPerformance in a new group. Raises ToolError and UnreadableOutputError."""
    place = ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group]
    place += ["--consumer.config", str(config)] if config is not None else []
    return read_consumer(_run("ConsumerPerformance", [*place, "--messages", str(case.records), "--timeout", "30000"]))


def latency(case: Case, bootstrap: str, topic: str) -> Outcome:
    """Send records one by one, each when the one before has been consumed, with EndToEndLatency."""
    printed = _run("EndToEndLatency", [bootstrap, topic, str(case.records), "1", str(case.record_bytes)])
    return read_latency(printed, case)


def read_producer(printed: str) -> Outcome:
    """The last summary of ProducerPerformance; the lines before it sum up five seconds each, without percentiles."""
    found = re.search(
        r"^(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, "
        r"[\d.]+ ms max latency, (\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, \d+ ms 99\.9th",
        printed,
        re.MULTILINE,
    )
    if found is None:
        raise UnreadableOutputError(f"no summary from ProducerPerformance:\n{printed[-2000:]}")
    records, records_per_s, mib_per_s, average, p50, p99 = found.groups()
    return Outcome(int(records), float(records_per_s), float(mib_per_s), float(average), float(p50), float(p99))


def read_consumer(printed: str) -> Outcome:
    """ConsumerPerformance's line of numbers; the rates are those of fetching, without the time to join the group."""
    names: list[str] = []
    for line in printed.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if cells[0] == "start.time":
            names = cells
        elif names and len(cells) == len(names):
            row = dict(zip(names, cells, strict=True))
            rates = float(row["fetch.nMsg.sec"]), float(row["fetch.MB.sec"])
            return Outcome(int(row["data.consumed.in.nMsg"]), *rates, None, None, None)
    raise UnreadableOutputError(f"no summary from ConsumerPerformance:\n{printed[-2000:]}")


def read_latency(printed: str, case: Case) -> Outcome:
    """EndToEndLatency's average and percentiles; its percentiles are whole ms only.

    With one record in flight at a time the rate is the inverse of the average latency.
    """
    average = re.search(r"^Avg latency: ([\d.]+) ms", printed, re.MULTILINE)
    percentiles = re.search(r"^Percentiles: 50th = (\d+), 99th = (\d+)", printed, re.MULTILINE)
    if average is None or percentiles is None:
        raise UnreadableOutputError(f"no summary from EndToEndLatency:\n{printed[-2000:]}")
    average_ms = float(average[1])
    rate = 1000 / average_ms
    p50, p99 = map(float, percentiles.groups())
    return Outcome(case.records, rate, rate * case.record_bytes / _MIB, average_ms, p50, p99)


def write_text_file(path: Path, line_bytes: int) -> None:
    """Write log lines of `line_bytes` each, the same at every call: JSON events, ids and text."""
    dice = random.Random(20)
    words = ["".join(dice.choices("etaoinshrdlucmfwypvbgk", k=dice.randint(2, 10))) for _ in range(2_000)]
    with path.open("w", encoding="ascii") as file:
        for number in range(_TEXT_LINES):
            line = _event(dice, number)
            room = line_bytes - len(line) - 2
            text = " ".join(dice.choices(words, k=room // 3 + 1))[:room]
            file.write(f'{line}{text}"}}\n')


def _event(dice: random.Random, number: int) -> str:
    verb = dice.choice(("created", "updated", "viewed", "removed", "shipped", "returned", "paid", "refused"))
    time = f"{dice.randint(0, 23):02d}:{dice.randint(0, 59):02d}:{dice.randint(0, 59):02d}.{dice.randint(0, 999):03d}"
    return (
        f'{{"ts":"2024-03-{dice.randint(1, 28):02d}T{time}Z","level":"INFO","service":"orders-{dice.randint(1, 12)}",'
        f'"trace":"{dice.getrandbits(128):032x}","event":"order.{verb}","customer":{dice.randint(10_000, 99_999)},'
        f'"amount":{dice.uniform(1, 900):.2f},"line":{number},"text":"'
    )


def _run(tool: str, arguments: Sequence[str]) -> str:
    command = tool_command(VERSION, f"{_TOOLS}.{tool}", arguments, JAVA_OPTIONS)
    return run_java(command, timeout_s=TIMEOUT_S).stdout
