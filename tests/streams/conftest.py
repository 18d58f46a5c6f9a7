"""Fixtures of the streams tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.broker_process import BrokerProcess
from odradek.streams import config
from tests.streams import counting
from tests.streams.forced_client import force_client
from tests.streams.oracle.java import Java
from tests.streams.oracle.java import java as start_java

force_client(config)


@pytest.fixture(scope="session")
def java() -> Java:
    """Kafka Streams 3.9.2 in this process: Java's classes by their short names. One JVM for all tests of a worker."""
    return start_java()


@pytest.fixture(scope="session")
def streams_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of a worker that neither stop it nor need other properties.

    Topics, groups and applications are a test's own: their names identify the test.
    """
    with BrokerProcess(tmp_path_factory.mktemp("streams"), counting.BROKER) as running:
        yield running
