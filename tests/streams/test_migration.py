"""docs/streams-migration.md: the programs in other libraries and those here have the same results."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import confluent_kafka
import jpype
import pytest

from odradek.broker_process import BrokerProcess
from odradek.streams import BYTES, STRING, TopologyTestDriver
from tests.benchmarks.streams_fetch import interpreter, is_fetched
from tests.jvm.programs import compiled
from tests.streams import counting, guide
from tests.streams.oracle.java import RELEASE
from tests.streams.oracle.java_driver import JavaDriver, Written

PAGE: Final = guide.DOCS / "streams-migration.md"
PROGRAMS: Final = {
    name: text
    for text, name in re.findall(r"^```(?:java|python)\n((?:#|//) (\S+)\n.*?)^```$", PAGE.read_text(), re.M | re.S)
}
TIMEOUT_S: Final = 60.0
LINES: Final = [
    ("names", "a", "Anna", 0),
    ("text", "a", "Spool and thread", 1_000),
    ("text", "b", "no name", 2_000),
    ("names", "b", "Boris", 3_000),
    ("text", "b", "a spool", 59_999),
    ("text", "a", "spool", 60_000),
]
ORDERS: Final = [
    ("anna", {"country": "CZ", "total": 30}),
    ("boris", {"country": "AT", "total": 5}),
    ("boris", {"country": "AT", "total": -5}),
    ("clara", {"country": "CZ", "total": 12}),
]
TOTALS: Final = [("AT", 5), ("CZ", 30), ("CZ", 42)]


def test_the_page_has_these_programs() -> None:
    assert set(PROGRAMS) == {"Words.java", "words.py", "totals_quix.py", "totals.py", "totals_faust.py"}


def load(name: str, folder: Path) -> ModuleType:
    """A program of the page as a module."""
    path = folder / name
    path.write_text(PROGRAMS[name])
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.jvm
def test_the_program_in_java(java: Any, tmp_path: Path) -> None:
    source = tmp_path / "Words.java"
    source.write_text(PROGRAMS["Words.java"])
    jpype.addClassPath(str(compiled(RELEASE, source)))
    topologies = jpype.JClass("Words").topology(), load("words.py", tmp_path).topology()
    assert str(topologies[0].describe().toString()) == topologies[1].describe()

    with JavaDriver(topologies[0]) as driver:
        for topic, key, value, at in LINES:
            driver.pipe(topic, key.encode(), value.encode(), at)
        expected = driver.produced()
    with TopologyTestDriver(topologies[1], {"application.id": "app"}) as ours:
        for topic, key, value, at in LINES:
            ours.create_input_topic(topic, STRING, STRING).pipe_input(key, value, timestamp=at)
        records = {
            topic: [
                Written(each.key, each.value, each.timestamp, list(each.headers or ()))
                for each in ours.create_output_topic(topic, BYTES, BYTES).read_records_to_list()
            ]
            for topic in expected
        }
    assert len(expected) == 4, "the output, a repartition topic, two changelogs"
    assert records == expected


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {**counting.BROKER, "auto.create.topics.enable": "true"}  # faust expects it of its broker
    with BrokerProcess(tmp_path_factory.mktemp("migration"), settings) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "library", "prefix", "arguments"),
    [
        ("totals.py", None, "", ()),
        ("totals_quix.py", "quix", "quix-", ()),
        ("totals_faust.py", "faust", "faust-", ("worker", "-l", "warn")),
    ],
)
def test_totals_by_country(
    name: str, library: str | None, prefix: str, arguments: Sequence[str], broker: BrokerProcess, tmp_path: Path
) -> None:
    if library is not None and not is_fetched(library):  # it costs as much as fifty tests
        pytest.skip(f"{library} is not installed: python -m tests.benchmarks.streams_fetch")
    python = Path(sys.executable) if library is None else interpreter(library)
    counting.make_topics(broker.bootstrap, {f"{prefix}orders": 1, f"{prefix}totals": 1})
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for customer, order in ORDERS:
        producer.produce(f"{prefix}orders", json.dumps(order).encode(), customer.encode())
    producer.flush()

    program = tmp_path / name
    assert guide.BROKER in PROGRAMS[name]
    program.write_text(PROGRAMS[name].replace(guide.BROKER, broker.bootstrap))
    environment = {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "PATH": ""}
    with subprocess.Popen([str(python), str(program), *arguments], env=environment, cwd=tmp_path) as running:
        try:
            assert sorted(read(broker.bootstrap, f"{prefix}totals")) == TOTALS
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(TIMEOUT_S)


def read(bootstrap: str, topic: str) -> list[tuple[str, int]]:
    """The first records of the totals."""
    config = {"bootstrap.servers": bootstrap, "group.id": "migration", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(config)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[tuple[str, int]] = []
        while len(found) < len(TOTALS):
            batch = consumer.consume(len(TOTALS) - len(found), TIMEOUT_S)
            assert batch, f"{found} after {TIMEOUT_S} s"
            for record in batch:
                key, value = record.key(), record.value()
                assert key is not None
                assert value is not None
                found.append((key.decode(), json.loads(value)))
        return found
    finally:
        consumer.close()
