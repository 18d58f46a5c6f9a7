"""The two brokers of a module: Odradek, and Apache Kafka 3.9.2. Each test of a command runs on both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from odradek.broker_process import BrokerProcess
from tests.commands.running import Running
from tests.jvm.kafka import Kafka


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("odradek"), {"offsets.topic.num.partitions": "4"}) as running:
        yield running


@pytest.fixture(params=["odradek", "kafka"])
def side(request: pytest.FixtureRequest) -> Running:
    """One of the brokers, with our commands and the stock tools on it."""
    broker: BrokerProcess | Kafka = request.getfixturevalue("ours" if request.param == "odradek" else "kafka")
    return Running(broker.bootstrap)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"commands-{uuid.uuid4().hex[:12]}"
