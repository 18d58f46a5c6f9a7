"""Fixtures of the security tests."""

from __future__ import annotations

import pytest

from tests.security.kafka_classes import KafkaClasses, kafka_classes


@pytest.fixture(scope="session")
def classes() -> KafkaClasses:
    """The classes of Apache Kafka 3.9.2 in the JVM of this process."""
    return kafka_classes()
