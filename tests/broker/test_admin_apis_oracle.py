"""Comparison with Kafka: the admin requests of newer clients go to Apache Kafka 4.3.0 and to Odradek, and the responses
must agree; the znodes of quotas and credentials are those of Apache Kafka 3.9.2. The requests that 3.9.2 has are in
tests/comparison.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker import newest_scripts
from tests.broker.admin_scripts import alter_quotas, alter_scram, describe_quotas, describe_scram, transcript
from tests.broker.wire import Client, running_broker
from tests.jvm.kafka import Kafka
from tests.jvm.kraft import running_kraft
from tests.jvm.tools import run_tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture
def registry(kafka: Kafka) -> Iterator[KazooClient]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    yield client
    client.stop()
    client.close()


async def test_odradek_answers_as_the_newest_kafka_does(tmp_path: Path) -> None:
    name = uuid.uuid4().hex[:12]
    async with (
        running_kraft(tmp_path / "kraft") as port,
        running_broker(tmp_path / "data", {"broker.id": "1"}) as broker,
    ):
        for play in newest_scripts.SCRIPTS:
            assert await transcript(play, broker.port, name) == await transcript(play, port, name), play.__name__


# ---- the stock tool


async def test_kafka_configs_sets_and_shows_client_settings(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:

        async def configs(*arguments: str) -> str:
            at = ["--bootstrap-server", f"127.0.0.1:{broker.port}", *arguments]
            return (await asyncio.to_thread(run_tool, "3.9.2", "kafka-configs", at)).stdout

        user, client = ("--entity-type", "users", "--entity-name", "al ice"), ("--entity-type", "clients")
        await configs("--alter", *user, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
        await configs("--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
        await configs("--alter", *user, *client, "--entity-name", "app", "--add-config", "consumer_byte_rate=2048")
        await configs("--alter", *client, "--entity-default", "--add-config", "controller_mutation_rate=0.5")
        await configs(
            "--alter",
            "--entity-type",
            "ips",
            "--entity-name",
            "127.0.0.1",
            "--add-config",
            "connection_creation_rate=5",
        )
        shown = await configs("--describe", *user)
        assert "producer_byte_rate=1024.0" in shown
        assert "request_percentage=12.5" in shown
        assert "SCRAM-SHA-256=iterations=8192" in shown
        assert "consumer_byte_rate=2048.0" in await configs("--describe", *user, *client, "--entity-name", "app")
        assert "controller_mutation_rate=0.5" in await configs("--describe", *client)
        assert "connection_creation_rate=5.0" in await configs("--describe", "--entity-type", "ips")
        await configs("--alter", *user, "--delete-config", "producer_byte_rate,request_percentage")
        await configs("--alter", *user, "--delete-config", "SCRAM-SHA-256")
        shown = await configs("--describe", *user)
        assert "producer_byte_rate" not in shown
        assert "SCRAM" not in shown


# ---- one registry, two brokers


@pytest.fixture
async def both(kafka: Kafka, tmp_path: Path) -> AsyncIterator[tuple[Client, Client]]:
    """A client of an Odradek and one of the Kafka that share a ZooKeeper."""
    properties = {"broker.id": "1", "zookeeper.connect": kafka.zookeeper_connect}
    async with running_broker(tmp_path / "data", properties) as broker:
        ours, theirs = await Client.connect(broker.port), await Client.connect(kafka.port)
        yield ours, theirs
        ours.close()
        theirs.close()


async def test_quotas_are_stored_where_kafka_stores_them(both: tuple[Client, Client], registry: KazooClient) -> None:
    """Byte for byte; each broker reads the nodes that the other wrote, and removing the last setting leaves no node
    behind.
    """
    ours, theirs = both
    entities = (
        ({"user": "ä & %/", "client-id": "c+*~"}, {"producer_byte_rate": 1e9, "request_percentage": 0.1}),
        ({"user": None}, {"controller_mutation_rate": 1e8}),
        ({"client-id": None}, {"consumer_byte_rate": 1.0}),
        ({"ip": "192.0.2.9"}, {"connection_creation_rate": 3.0}),
        ({"user": "of-this-test", "client-id": None}, {"request_percentage": 1234567.0}),
    )
    written = []
    for client in both:
        before = _tree(registry)
        answer = await client.ask(alter_quotas(*entities))
        assert [each.error_code for each in answer.entries] == [ErrorCode.NONE] * len(entities)
        written.append(_tree(registry))
        notified = [await each.ask(describe_quotas()) for each in both]
        assert _entries(notified[0]) == _entries(notified[1])
        assert len(notified[0].entries) == len(entities)
        other = theirs if client is ours else ours
        removal = [(entity, dict.fromkeys(values)) for entity, values in entities]
        assert all(each.error_code == ErrorCode.NONE for each in (await other.ask(alter_quotas(*removal))).entries)
        assert _tree(registry) == before
    assert written[0] == written[1]


async def test_credentials_are_stored_as_kafka_stores_them(both: tuple[Client, Client], registry: KazooClient) -> None:
    """Salted and hashed the same way, so that either can check them."""
    ours, theirs = both
    controller = (await theirs.ask(m.MetadataRequest(topics=[]), 7)).controller_id
    assert controller == 0, "the Kafka that was there first is the controller"
    requested = alter_scram(("someone", 1, 4096), ("someone", 2, 8192))
    (refused,) = (await ours.ask(requested)).results
    assert refused.error_code == ErrorCode.NOT_CONTROLLER
    (result,) = (await theirs.ask(requested)).results
    assert result.error_code == ErrorCode.NONE
    notified = await ours.ask(describe_scram())
    assert [(each.user, each.error_code) for each in notified.results] == [("someone", ErrorCode.NONE)]
    assert [(each.mechanism, each.iterations) for each in notified.results[0].credential_infos] == [
        (1, 4096),
        (2, 8192),
    ]


def _tree(registry: KazooClient) -> dict[str, bytes]:
    """Every node below /config for users, clients and addresses, with its data."""
    found: dict[str, bytes] = {}

    def walk(path: str) -> None:
        for name in registry.get_children(path):
            found[f"{path}/{name}"] = registry.get(f"{path}/{name}")[0]
            walk(f"{path}/{name}")

    for kind in ("users", "clients", "ips"):
        walk(f"/config/{kind}")
    return found


def _entries(answer: m.DescribeClientQuotasResponse) -> list[str]:
    for entry in answer.entries or ():
        entry.values.sort(key=lambda value: value.key)
    return sorted(map(repr, answer.entries or ()))
