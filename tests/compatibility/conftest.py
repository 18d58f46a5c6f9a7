"""The broker under test. `--broker kafka` runs the same tests on Apache Kafka, the proof that the tests are right."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from odradek.broker_process import BrokerProcess
from tests.compatibility.brokers import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("odradek", "kafka"),
        default="odradek",
        help="what the compatibility tests run on: Odradek, or Apache Kafka 3.9.2",
    )


@pytest.fixture(scope="module")
def shared_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of a file: its tests use topics and groups of their own, as on Apache Kafka."""
    if request.config.getoption("--broker") == "kafka":
        yield request.getfixturevalue("kafka")
        return
    with BrokerProcess(tmp_path_factory.mktemp("odradek")) as running:
        yield running


@pytest.fixture
def broker(request: pytest.FixtureRequest, shared_broker: Broker) -> Iterator[Broker]:
    """A running broker, started again if an earlier test left it dead."""
    if isinstance(shared_broker, BrokerProcess) and not shared_broker.running:
        shared_broker.start()
    yield shared_broker
    if isinstance(shared_broker, BrokerProcess):
        report = f"{shared_broker.log_path}\n{shared_broker.output}"
        request.node.add_report_section("teardown", "broker log", report)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses, for a topic or as the prefix of several names."""
    return f"compatibility-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A consumer group that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"
