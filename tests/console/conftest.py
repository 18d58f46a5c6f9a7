"""Brokers for the console: Odradek, and Apache Kafka 3.9.2."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from odradek.broker_process import BrokerProcess
from tests.jvm.kafka import Kafka


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker of Odradek, with few partitions of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("console"), {"offsets.topic.num.partitions": "4"}) as running:
        yield running


@pytest.fixture(params=["odradek", "kafka"])
def bootstrap(request: pytest.FixtureRequest, ours: BrokerProcess, kafka: Kafka) -> str:
    """The address of one of the brokers."""
    return ours.bootstrap if request.param == "odradek" else kafka.bootstrap


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"console-{uuid.uuid4().hex[:12]}"
