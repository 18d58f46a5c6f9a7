"""The two brokers of a module: Odradek, and Apache Kafka 3.9.2. Each test of a command runs on both."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from odradek.commands import profiles
from tests.commands.running import Running
from tests.jvm.kafka import Kafka
from tests.security.authorization_oracle import RunningPair


@pytest.fixture(autouse=True)
def without_a_configuration_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither variables nor profiles of the user choose another cluster."""
    for name in [name for name in os.environ if name.startswith("ODRADEK_")]:
        if name not in ("ODRADEK_SEED", "ODRADEK_SOAK_ROUNDS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv(profiles.VARIABLE, str(tmp_path / "no-config.toml"))


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
