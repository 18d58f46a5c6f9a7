"""A broker for each test, a client of it, and Apache Kafka's own classes, the oracle of quotas."""

from __future__ import annotations

import pytest

from tests.broker.conftest import broker, client
from tests.security.kafka_classes import KafkaClasses, kafka_classes

__all__ = ["broker", "classes", "client"]


@pytest.fixture(scope="session")
def classes() -> KafkaClasses:
    """The classes of Apache Kafka 3.9.2 in the JVM of this process."""
    return kafka_classes()
