"""Apache Kafka 3.9.2 ignores the address properties that it removed in 3.0, and starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.wire import Wire
from tests.jvm.kafka import running_kafka

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

REMOVED = {
    "host.name": "192.0.2.1",
    "port": "1",
    "advertised.host.name": "192.0.2.1",
    "advertised.port": "1",
}


def test_kafka_ignores_properties_that_odradek_refuses(tmp_path: Path) -> None:
    with running_kafka(tmp_path, REMOVED) as kafka:
        with Wire("127.0.0.1", kafka.port) as wire:
            (broker,) = wire.metadata([]).brokers
        assert (broker.host, broker.port) == ("127.0.0.1", kafka.port)
        properties = dict(
            line.split("=", 1) for line in (tmp_path / "server.properties").read_text().splitlines() if "=" in line
        )
    assert REMOVED.items() <= properties.items()
    with pytest.raises(ConfigError, match=r"set advertised\.listeners=PLAINTEXT://192\.0\.2\.1:1 instead"):
        BrokerConfig({name: value for name, value in properties.items() if name != "advertised.listeners"})
