"""Brokers for the console: Odradek, and Apache Kafka 3.9.2."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from odradek.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker of Odradek, with few partitions of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("console"), {"offsets.topic.num.partitions": "4"}) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"console-{uuid.uuid4().hex[:12]}"
