"""Kafka Connect 3.9.2 standalone with a file source and a file sink: lines go through a topic of the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from odradek.ports import free_port
from tests.compatibility.brokers import Broker, create_topic, log_end_offsets
from tests.compatibility.connect import JVM, RELEASE, write_properties
from tests.jvm.process import QUIET, BackgroundProcess, java_command
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

LINES: Final = 300


def connect(broker: Broker, topic: str, folder: Path) -> BackgroundProcess:
    """The worker with both connectors: from source.txt to the topic, from the topic to sink.txt."""
    strings = "org.apache.kafka.connect.storage.StringConverter"
    files = "org.apache.kafka.connect.file"
    worker = write_properties(
        folder / "worker.properties",
        bootstrap_servers=broker.bootstrap,
        listeners=f"http://127.0.0.1:{free_port()}",
        key_converter=strings,
        value_converter=strings,
        offset_storage_file_filename=str(folder / "offsets"),
        offset_flush_interval_ms="500",
        plugin_discovery="service_load",
    )
    source = write_properties(
        folder / "source.properties",
        name="source",
        connector_class=f"{files}.FileStreamSourceConnector",
        file=str(folder / "source.txt"),
        topic=topic,
    )
    sink = write_properties(
        folder / "sink.properties",
        name=f"sink-{topic}",
        connector_class=f"{files}.FileStreamSinkConnector",
        file=str(folder / "sink.txt"),
        topics=topic,
    )
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    return BackgroundProcess(java_command(RELEASE, main, [worker, source, sink], (*JVM, *QUIET)))


def await_lines(path: Path, expected: list[str], process: BackgroundProcess) -> None:
    """Until the file holds these lines and nothing else."""

    def lines() -> list[str]:
        assert process.running, f"Connect has ended: {process.stderr.lines()[-5:]}"
        return path.read_text().splitlines() if path.exists() else []

    eventually(lines, lambda found: found == expected, lambda: f"Connect printed {process.stderr.lines()[-5:]}")


def test_lines_go_from_file_to_file_over_a_restart_of_the_broker(broker: Broker, topic: str, tmp_path: Path) -> None:
    create_topic(broker, topic)
    lines = [f"line {number} of the spool" for number in range(LINES)]
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"

    def append(some: list[str]) -> None:
        with open(source, "a") as file:
            file.writelines(f"{line}\n" for line in some)

    append(lines[:100])
    with connect(broker, topic, tmp_path) as process:
        await_lines(sink, lines[:100], process)
        broker.restart()
        append(lines[100:])
        await_lines(sink, lines, process)
        process.stop()

    assert log_end_offsets(broker, topic, 1) == [LINES]
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"connect-sink-{topic}"}
    consumer = Consumer(settings)
    try:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        assert committed.offset == LINES  # printed at its end
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = [message.value() for message in consumer.consume(LINES, timeout=30)]
        assert values == [line.encode() for line in lines]
    finally:
        consumer.close()
