"""Listeners: how they are read, joined to protocols and advertised."""

from __future__ import annotations

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.registry.znodes import Endpoint

TWO_NAMES = "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT"


def config(**properties: str) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): value for name, value in properties.items()})


def refusal(**properties: str) -> str:
    with pytest.raises(ConfigError) as refused:
        config(**properties)
    return refused.value.message


def test_without_a_listener_property_a_broker_listens_everywhere_on_9092() -> None:
    assert config().listeners == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config().advertised_listeners == config().listeners
    assert config().inter_broker_listener == "PLAINTEXT"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://127.0.0.1:0", "127.0.0.1", 0),
        ("plaintext://localhost:65535", "localhost", 65535),
        ("PLAINTEXT://[::1]:9092", "::1", 9092),
        ("PLAINTEXT://::1:9092", "::1", 9092),
        (" PLAINTEXT://a_b.c-d%e:1 ", "a_b.c-d%e", 1),
    ],
)
def test_reads_a_listener(text: str, host: str, port: int) -> None:
    assert config(listeners=text).listeners == (Endpoint("PLAINTEXT", host, port, "PLAINTEXT"),)


@pytest.mark.parametrize(
    "text",
    [
        "9092",
        "127.0.0.1:9092",
        "PLAINTEXT:/x:1",
        "PLAINTEXT://h",
        "PLAINTEXT://h:",
        "PLAINTEXT://h:x",
        "PLAINTEXT://h:65536",
        "PLAINTEXT://h:-1",
        "PLAINTEXT://h h:1",
        "PLAINTEXT://h/1:1",
        "PLAINTEXT://h:" + "9" * 99,
        "://h:1",
    ],
)
def test_refuses_invalid_listeners(text: str) -> None:
    message = refusal(listeners=text)
    assert "configuration listeners" in message
    assert text in message
    assert "NAME://host:port" in message


def test_two_listeners_with_custom_names() -> None:
    two = config(
        listeners="EXTERNAL://0.0.0.0:9092,internal://127.0.0.1:9093",
        listener_security_protocol_map=TWO_NAMES,
        advertised_listeners="EXTERNAL://kafka.example:19092,INTERNAL://127.0.0.1:9093",
        inter_broker_listener_name="internal",
    )
    assert [str(endpoint) for endpoint in two.listeners] == ["EXTERNAL://0.0.0.0:9092", "INTERNAL://127.0.0.1:9093"]
    assert [endpoint.host for endpoint in two.advertised_listeners] == ["kafka.example", "127.0.0.1"]
    assert two.inter_broker_listener == "INTERNAL"


def test_an_open_address_is_filled_in_for_advertising() -> None:
    assert Endpoint("A", "", 0, "PLAINTEXT").advertise("host", 5) == Endpoint("A", "host", 5, "PLAINTEXT")
    assert Endpoint("A", "::1", 7, "PLAINTEXT").advertise("host", 5) == Endpoint("A", "::1", 7, "PLAINTEXT")
    assert str(Endpoint("A", "::1", 7, "PLAINTEXT")) == "A://[::1]:7"


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"listeners": "OTHER://h:1"}, ["OTHER", "listener.security.protocol.map"]),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, ["different name"]),
        ({"listeners": ""}, ["at least one advertised listener"]),
        (
            {
                "listeners": "SASL_SSL://h:1",
                "security_inter_broker_protocol": "SASL_SSL",
                "sasl_enabled_mechanisms": "PLAIN",
            },
            ["sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms"],
        ),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, ["0.0.0.0", "nonroutable"]),
        ({"advertised_listeners": "SSL://h:1"}, ["inter.broker.listener.name", "valid options"]),
        ({"inter_broker_listener_name": "X"}, ["X", "not found in listener.security.protocol.map"]),
        ({"inter_broker_listener_name": "SSL"}, ["inter.broker.listener.name must be a listener name"]),
        ({"listener_security_protocol_map": "PLAINTEXT"}, ["key:value"]),
        ({"listener_security_protocol_map": "PLAINTEXT:TLS"}, ["TLS", "PLAINTEXT, SSL"]),
        ({"control_plane_listener_name": "PLAINTEXT"}, ["control.plane.listener.name", "different value"]),
        ({"early_start_listeners": "X"}, ["early.start.listeners", "X"]),
    ],
)
def test_refuses_contradicting_listeners(properties: dict[str, str], words: list[str]) -> None:
    message = refusal(**properties)
    assert [word for word in words if word not in message] == []


def test_only_one_property_names_the_inter_broker_listener() -> None:
    both = {"inter_broker_listener_name": "PLAINTEXT", "security_inter_broker_protocol": "PLAINTEXT"}
    assert "Only one of" in refusal(**both)


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [("127.0.0.1", "[::1]", True), ("127.0.0.1", "127.0.0.2", False), ("", "[::1]", False), ("a", "b", False)],
)
def test_one_port_serves_one_address_of_each_family(first: str, second: str, fits: bool) -> None:
    properties = {
        "listeners": f"EXTERNAL://{first}:9092,INTERNAL://{second}:9092",
        "listener_security_protocol_map": TWO_NAMES,
        "inter_broker_listener_name": "INTERNAL",
    }
    if fits:
        assert len(config(**properties).listeners) == 2
    else:
        assert "different port" in refusal(**properties)


def test_free_ports_do_not_clash() -> None:
    both_free = config(
        listeners="EXTERNAL://h:0,INTERNAL://h:0",
        listener_security_protocol_map=TWO_NAMES,
        inter_broker_listener_name="INTERNAL",
    )
    assert [endpoint.port for endpoint in both_free.listeners] == [0, 0]


# Names that Kafka 3.9 does not read


@pytest.mark.parametrize(
    ("removed", "instead"),
    [
        ({"host.name": "127.0.0.1", "port": "9093"}, ["listeners=PLAINTEXT://127.0.0.1:9093"]),
        ({"port": "9093"}, ["listeners=PLAINTEXT://:9093"]),
        ({"host.name": "127.0.0.1"}, ["listeners=PLAINTEXT://127.0.0.1:9092"]),
        ({"host.name": "::1"}, ["listeners=PLAINTEXT://[::1]:9092"]),
        (
            {"port": "9093", "advertised.host.name": "kafka.example.org"},
            ["listeners=PLAINTEXT://:9093", "advertised.listeners=PLAINTEXT://kafka.example.org:9093"],
        ),
        (
            {"advertised.host.name": "kafka.example.org", "advertised.port": "19092"},
            ["advertised.listeners=PLAINTEXT://kafka.example.org:19092"],
        ),
        ({"advertised.port": "19092"}, ["advertised.listeners=PLAINTEXT://HOST:19092"]),
        (
            {"listeners": "PLAINTEXT://:9092", "advertised.host.name": "kafka.example.org"},
            ["advertised.listeners=PLAINTEXT://kafka.example.org:9092"],
        ),
    ],
)
def test_a_removed_address_is_refused_with_its_replacement(removed: dict[str, str], instead: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(removed)
    given, _, advice = refused.value.message.partition(": removed in Kafka 3.0")
    assert set(given.split(", ")) == {f"{name}={value}" for name, value in removed.items() if name != "listeners"}
    assert advice.endswith(f"; set {' and '.join(instead)} instead")
    replacements = dict(each.split("=", 1) for each in instead if "HOST" not in each)
    # the suggested properties are sufficient
    BrokerConfig({**removed, "advertised.listeners": "PLAINTEXT://h:1", **replacements})


def test_a_removed_address_beside_its_replacement_is_ignored_as_in_kafka_2() -> None:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:9093",
        "advertised.listeners": "PLAINTEXT://h:1",
        "host.name": "0.0.0.0",
        "port": "9092",
        "advertised.host.name": "other",
        "advertised.port": "2",
    }
    read = BrokerConfig(properties)
    assert read.listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9093, "PLAINTEXT"),)
    assert read.advertised_listeners == (Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),)
    assert read.unknown() == {}
    assert set(read.replaced()) == {"host.name", "port", "advertised.host.name", "advertised.port"}


@pytest.mark.parametrize("misspelt", ["listener", "listners", "Listeners", "listeners."])
def test_a_misspelled_listeners_property_does_not_open_every_interface(misspelt: str) -> None:
    with pytest.raises(ConfigError, match=r"did you mean listeners\? .* every interface"):
        BrokerConfig({misspelt: "PLAINTEXT://127.0.0.1:9092"})
    BrokerConfig({misspelt: "PLAINTEXT://127.0.0.1:9092", "listeners": "PLAINTEXT://127.0.0.1:0"})


def test_a_mechanism_of_a_listener_has_properties_of_its_own() -> None:
    name = "connections.max.reauth.ms"
    found = BrokerConfig(
        {
            "listeners": "SASL_PLAINTEXT://h:1,PLAINTEXT://h:2",
            name: "1",
            f"listener.name.sasl_plaintext.{name}": "2",
            f"listener.name.sasl_plaintext.scram-sha-256.{name}": "3",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": "secret",
            "sasl.jaas.config": "of no listener",
        }
    )
    assert found.of_listener("SASL_PLAINTEXT", name, "SCRAM-SHA-256") == 3
    assert found.of_listener("SASL_PLAINTEXT", name, "PLAIN") == 2
    assert found.of_listener("PLAINTEXT", name, "PLAIN") == 1
    assert found.only_of_listener("SASL_PLAINTEXT", "sasl.jaas.config", "PLAIN").value == "secret"
    assert found.only_of_listener("SASL_PLAINTEXT", "sasl.jaas.config", "SCRAM-SHA-256") is None
    shown = {each.name: each for each in found.describe_broker()}
    described = shown["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert (described.value, described.sensitive) == (None, True)
