"""The two brokers of a module: Odradek, and Apache Kafka 3.9.2. Each test of a command runs on both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from odradek.broker_process import BrokerProcess
from tests.commands.running import Running
from tests.jvm.kafka import Kafka
from tests.security.authorization_oracle import RunningPair


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("odradek"), {"offsets.topic.num.partitions": "4"}) as running:
        yield running


@pytest.fixture(params=["odradek", "kafka"])
def side(request: pytest.FixtureRequest, ours: BrokerProcess, kafka: Kafka) -> Running:
    """One of the brokers, with our commands and the stock tools on it."""
    return Running((ours if request.param == "odradek" else kafka).bootstrap)


@pytest.fixture(params=["odradek", "kafka"])
def authorized_side(request: pytest.FixtureRequest, authorized: RunningPair) -> Running:
    """One of two brokers with an authorizer; clients from 127.0.0.1 may do everything."""
    port = authorized.ports.ours if request.param == "odradek" else authorized.ports.theirs
    return Running(f"127.0.0.1:{port}")


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"commands-{uuid.uuid4().hex[:12]}"
