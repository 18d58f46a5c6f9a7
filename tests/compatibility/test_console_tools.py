"""The console producers and consumers of three releases, each with each: 10,000 lines, none lost, order kept."""

from __future__ import annotations

import time
from itertools import groupby
from pathlib import Path

import pytest

from tests.compatibility.brokers import Broker, create_topic, log_end_offsets
from tests.compatibility.console import (
    Consumed,
    assert_complete,
    consume,
    formatter_option,
    include_option,
    produce,
    reader_option,
    write_lines,
)
from tests.jvm.tools import VERSIONS, run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

LINES = range(10_000)
PARTITIONS = 3


def test_each_producer_with_each_consumer_over_restart_and_kill(broker: Broker, topic: str, tmp_path: Path) -> None:
    topics = {version: f"{topic}-{version}" for version in VERSIONS}
    for version, name in topics.items():
        create_topic(broker, name, PARTITIONS)
        lines = tmp_path / f"{version}.txt"
        write_lines(lines, version, LINES)
        produce(version, broker.bootstrap, name, lines)
        assert sum(log_end_offsets(broker, name, PARTITIONS)) == len(LINES)

    for consumer in VERSIONS:
        for producer, name in topics.items():
            selection = ["--topic", name, "--from-beginning", "--group", f"{name}-read-by-{consumer}"]
            records = consume(consumer, broker.bootstrap, selection, len(LINES), tmp_path / "printed.txt")
            assert_complete(records, producer, LINES)

    broker.restart()
    _assert_all_topics_complete(broker, topic, tmp_path)
    broker.kill()
    broker.start()
    _assert_all_topics_complete(broker, topic, tmp_path)


def _assert_all_topics_complete(broker: Broker, stem: str, scratch: Path) -> None:
    """Every consumer version reads all the producers' topics in one run, by a pattern."""
    for consumer in VERSIONS:
        selection = [include_option(consumer), f"{stem}-.*", "--from-beginning"]
        total = len(LINES) * len(VERSIONS)
        records = consume(consumer, broker.bootstrap, selection, total, scratch / "printed.txt")
        by_producer = groupby(sorted(records, key=_producer), key=_producer)  # a stable sort: order within stays
        for producer, its_records in by_producer:
            assert_complete(list(its_records), producer, LINES)


def _producer(record: Consumed) -> str:
    return record.value.split()[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_continues_at_its_offset_after_restart_and_kill(
    broker: Broker, topic: str, group: str, version: str, tmp_path: Path
) -> None:
    create_topic(broker, topic)
    lines, printed = tmp_path / "lines.txt", tmp_path / "printed.txt"
    selection = ["--topic", topic, "--from-beginning", "--group", group]

    def send_and_read(numbers: range) -> list[str]:
        write_lines(lines, version, numbers)
        produce(version, broker.bootstrap, topic, lines)
        return [record.value for record in consume(version, broker.bootstrap, selection, len(numbers), printed)]

    def sent(numbers: range) -> list[str]:
        return [f"{version} line {number} of the spool" for number in numbers]

    assert send_and_read(range(100)) == sent(range(100))
    broker.restart()
    assert send_and_read(range(100, 150)) == sent(range(100, 150))
    broker.kill()
    broker.start()
    assert send_and_read(range(150, 175)) == sent(range(150, 175))


@pytest.mark.parametrize("version", VERSIONS)
def test_formatter_and_deserializer_options(broker: Broker, topic: str, version: str) -> None:
    create_topic(broker, topic)
    deserializers = "org.apache.kafka.common.serialization"
    option = reader_option(version)
    run_tool(
        version,
        "kafka-console-producer",
        [
            *("--bootstrap-server", broker.bootstrap, "--topic", topic),
            *("--compression-codec", "lz4", "--request-required-acks", "1"),
            *(option, "parse.key=true", option, "key.separator=|"),
        ],
        stdin="abcdefgh|12345678\n",
    )
    formatter = formatter_option(version)
    properties = (
        "print.key=true",
        "print.value=true",
        "print.timestamp=true",
        "print.offset=true",
        "key.separator= -> ",
        f"key.deserializer={deserializers}.LongDeserializer",
        f"value.deserializer={deserializers}.StringDeserializer",
    )
    result = run_tool(
        version,
        "kafka-console-consumer",
        [
            *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--offset", "0"),
            *("--max-messages", "1", "--timeout-ms", "30000", "--isolation-level", "read_committed"),
            *(part for each in properties for part in (formatter, each)),
        ],
    )
    (line,) = result.stdout.splitlines()
    timestamp, offset, key, value = line.split(" -> ")
    age_ms = time.time() * 1000 - int(timestamp.removeprefix("CreateTime:"))
    assert 0 <= age_ms < 120_000
    assert (offset, key, value) == ("Offset:0", str(int.from_bytes(b"abcdefgh")), "12345678")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_producer_creates_its_topic(broker: Broker, topic: str, version: str) -> None:
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    run_tool(version, "kafka-console-producer", arguments, stdin="first\nsecond\n")
    reading = [*arguments, "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000"]
    assert run_tool(version, "kafka-console-consumer", reading).stdout == "first\nsecond\n"
