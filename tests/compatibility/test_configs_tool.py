"""kafka-configs of three releases: every kind of entity is described and altered, printed as against Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from tests.compatibility.brokers import create_topic
from tests.compatibility.side_by_side import Side, Sides, Tools, assert_the_same, both
from tests.compatibility.turns import DEADLINE_S
from tests.jvm.kafka import Kafka
from tests.jvm.tools import VERSIONS
from tests.support.eventually import eventually

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

DYNAMIC: Final = frozenset({ConfigSource.DYNAMIC_BROKER_CONFIG.value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value})


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[Sides]:
    with both(tmp_path_factory.mktemp("configs-tool"), kafka) as running:
        yield running


def configs(tools: Tools, *arguments: str, about: str = "") -> list[str]:
    return tools("kafka-configs", *arguments, about=about, unordered=True)


def await_dynamic(broker: Side, expected: dict[str, str]) -> None:
    """Broker 0 has exactly these: Kafka applies a change after ZooKeeper's notification, some time after its
    response.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def obeyed() -> dict[str, str | None]:
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "0")]).values()
        return {name: entry.value for name, entry in answer.result(DEADLINE_S).items() if entry.source in DYNAMIC}

    eventually(obeyed, lambda found: found == expected, "the broker has received the change")


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_configured(sides: Sides, topic: str, version: str) -> None:
    def scenario(tools: Tools) -> None:
        create_topic(tools.broker, topic, config={"retention.ms": "3600000"})
        one = ("--entity-type", "topics", "--entity-name", topic)
        configs(tools, "--describe", *one)
        configs(tools, "--describe", "--topic", topic)
        configs(tools, "--alter", *one, "--add-config", "max.message.bytes=1000,cleanup.policy=[compact,delete]")
        configs(tools, "--describe", *one)
        configs(tools, "--describe", *one, "--all", about="DYNAMIC_TOPIC_CONFIG")
        configs(tools, "--alter", *one, "--add-config", "max.message.bytes=soon")
        configs(tools, "--alter", *one, "--add-config", "no.such.setting=1")
        configs(tools, "--alter", *one, "--delete-config", "max.message.bytes,cleanup.policy")
        configs(tools, "--alter", *one, "--delete-config", "max.message.bytes")
        configs(tools, "--describe", *one)
        configs(tools, "--describe", "--entity-type", "topics", about=topic)
        configs(tools, "--describe", "--entity-type", "topics", "--entity-name", f"{topic}-none")

    transcript = "\n".join(assert_the_same(sides, version, scenario))
    assert f"Completed updating config for topic {topic}." in transcript
    assert "cleanup.policy=compact,delete" in transcript


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_are_configured(sides: Sides, version: str) -> None:
    def scenario(tools: Tools) -> None:
        one, everyone = (
            ("--entity-type", "brokers", "--entity-name", "0"),
            ("--entity-type", "brokers", "--entity-default"),
        )
        configs(tools, "--alter", *one, "--add-config", "log.cleaner.backoff.ms=20000")
        configs(tools, "--alter", *everyone, "--add-config", "log.retention.ms=7200000,log.segment.bytes=1048576")
        everywhere = {"log.retention.ms": "7200000", "log.segment.bytes": "1048576"}
        await_dynamic(tools.broker, {"log.cleaner.backoff.ms": "20000", **everywhere})
        configs(tools, "--describe", *one)
        configs(tools, "--describe", *everyone)
        configs(tools, "--describe", "--entity-type", "brokers")
        configs(tools, "--describe", *one, "--all", about="log.segment.bytes=")
        configs(tools, "--alter", *one, "--add-config", "broker.id=7")  # cannot be changed while it runs
        configs(tools, "--alter", *one, "--add-config", "log.segment.bytes=soon")
        configs(tools, "--alter", *one, "--delete-config", "log.cleaner.backoff.ms")
        await_dynamic(tools.broker, everywhere)
        configs(tools, "--alter", *everyone, "--delete-config", "log.retention.ms,log.segment.bytes")
        await_dynamic(tools.broker, {})
        configs(tools, "--describe", "--entity-type", "brokers")

    transcript = "\n".join(assert_the_same(sides, version, scenario))
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.segment.bytes=1048576" in transcript


@pytest.mark.parametrize("version", VERSIONS)
def test_clients_users_and_addresses_are_configured(sides: Sides, topic: str, version: str) -> None:
    def scenario(tools: Tools) -> None:
        user, client = (
            ("--entity-type", "users", "--entity-name", topic),
            ("--entity-type", "clients", "--entity-name", topic),
        )
        rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
        for entity in (user, client, (*user, *client), (*user, "--entity-type", "clients", "--entity-default")):
            configs(tools, "--alter", *entity, "--add-config", rates)
            configs(tools, "--describe", *entity)
            configs(tools, "--alter", *entity, "--delete-config", "consumer_byte_rate")
            configs(tools, "--describe", *entity)
        configs(tools, "--describe", "--entity-type", "users", "--entity-type", "clients", about=topic)
        address = ("--entity-type", "ips", "--entity-name", "192.0.2.7")
        configs(tools, "--alter", *address, "--add-config", "connection_creation_rate=5")
        configs(tools, "--describe", *address)
        configs(tools, "--describe", "--entity-type", "ips")
        configs(tools, "--alter", *address, "--delete-config", "connection_creation_rate")
        configs(tools, "--alter", *client, "--add-config", "no_such_rate=1")
        configs(tools, "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=secret]")
        configs(tools, "--describe", *user)
        configs(tools, "--alter", *user, "--delete-config", "SCRAM-SHA-256")
        configs(tools, "--describe", *user)

    transcript = "\n".join(assert_the_same(sides, version, scenario))
    assert "producer_byte_rate=1024" in transcript
    assert "SCRAM-SHA-256=iterations=4096" in transcript


@pytest.mark.parametrize("version", VERSIONS)
def test_loggers_are_configured(sides: Sides, version: str) -> None:
    """Their names are each broker's own, and so the tool gets one of Odradek's."""
    tools = Tools(sides.ours, version)
    one = ("--entity-type", "broker-loggers", "--entity-name", "0")
    before = {line.split()[0] for line in configs(tools, "--describe", *one) if "=" in line}
    assert any(line.startswith("odradek.") for line in before)
    configs(tools, "--alter", *one, "--add-config", "odradek.broker.controller.controller=DEBUG")
    assert "odradek.broker.controller.controller=DEBUG" in "\n".join(configs(tools, "--describe", *one))
    refused = "\n".join(configs(tools, "--alter", *one, "--add-config", "no.such.logger=DEBUG"))
    assert "Invalid broker logger(s): no.such.logger" in refused
    configs(tools, "--alter", *one, "--delete-config", "odradek.broker.controller.controller")
    assert before == {line.split()[0] for line in configs(tools, "--describe", *one) if "=" in line}
