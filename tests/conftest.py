"""Fixtures for all tests. `odradek_broker` is not here: it comes from the pytest plugin that users get too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.jvm.kafka import Kafka, running_kafka

# How long an example takes is the machine's affair; a test that says how many it wants says how long it takes.
settings.register_profile("odradek", deadline=None)
settings.load_profile("odradek")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Apache Kafka 3.9.2 with its ZooKeeper, one for the whole run: tests use topics and groups of their own."""
    with running_kafka(tmp_path_factory.mktemp("apache-kafka")) as running:
        yield running
