"""docs/streams-tutorial.md: each of its programs runs as a file, passes its test, and writes what its session shows."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import confluent_kafka
import pytest

from odradek.broker_process import BrokerProcess
from tests.streams import counting, guide, tutorial

TIMEOUT_S: Final = 60.0
APPLICATIONS: Final = tutorial.applications()
each_application: Final = pytest.mark.parametrize("application", APPLICATIONS, ids=lambda each: each.name)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("tutorial"), counting.BROKER) as running:
        yield running


def test_there_are_four_applications() -> None:
    assert len(APPLICATIONS) == 4
    assert all(each.written and each.read for each in APPLICATIONS)


@each_application
def test_its_test_passes(application: tutorial.Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{application.name}.py").write_text(application.program)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        names: dict[str, object] = {}
        exec(compile(application.test, f"test_{application.name}.py", "exec"), names)
        tests = [each for name, each in names.items() if name.startswith("test_")]
        assert tests
        for test in tests:
            assert callable(test)
            test()
    finally:
        sys.modules.pop(application.name, None)


@pytest.mark.slow
@each_application
def test_its_program_writes_what_the_session_shows(
    application: tutorial.Application, broker: BrokerProcess, tmp_path: Path
) -> None:
    for topic in {step.topic for step in (*application.written, *application.read)}:
        counting.make_topics(broker.bootstrap, {topic: 1})
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for topic, key, value in application.written:
        producer.produce(topic, value.encode(), key.encode())
        producer.flush()  # a later line has a later timestamp

    program = tmp_path / f"{application.name}.py"
    assert guide.BROKER in application.program
    program.write_text(application.program.replace(guide.BROKER, broker.bootstrap))
    environment = {"TMPDIR": str(tmp_path), "PATH": ""}
    with subprocess.Popen([sys.executable, str(program)], env=environment, cwd=tmp_path) as running:
        try:
            for topic in dict.fromkeys(step.topic for step in application.read):
                expected = [(step.key, step.value) for step in application.read if step.topic == topic]
                assert sorted(read(broker.bootstrap, topic, len(expected))) == sorted(expected)
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait(TIMEOUT_S) == 0


def read(bootstrap: str, topic: str, count: int) -> list[tuple[str, str]]:
    """The first records of a topic, committed ones only."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "tutorial",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(config)
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        records = []
        while len(records) < count:
            batch = consumer.consume(count - len(records), TIMEOUT_S)
            assert batch, f"{topic} has {len(records)} of {count} records after {TIMEOUT_S} s"
            records += batch
        assert not any(record.error() for record in records)
        return [(_text(record.key()), _text(record.value())) for record in records]
    finally:
        consumer.close()


def _text(data: bytes | None) -> str:
    assert data is not None
    return data.decode()
