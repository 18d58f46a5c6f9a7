"""The broker under test. `--broker kafka` runs the same tests on Apache Kafka, the proof that the tests are right."""

from __future__ import annotations

import uuid

import pytest

from tests.compatibility.brokers import Broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("odradek", "kafka"),
        default="odradek",
        help="what the compatibility tests run on: Odradek, or Apache Kafka 3.9.2",
    )


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Broker:
    """A running broker, started again if an earlier test left it dead."""
    which = request.config.getoption("--broker")
    running: Broker = request.getfixturevalue("odradek_broker" if which == "odradek" else "kafka")
    return running


@pytest.fixture
def topic() -> str:
    """A name that no other test uses, for a topic or as the prefix of several names."""
    return f"compatibility-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    """A consumer group that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"
