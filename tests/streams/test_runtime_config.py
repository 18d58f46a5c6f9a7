"""The configuration: Kafka's names and defaults, and the messages for invalid values."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from odradek.streams.clients.properties import producer_settings
from odradek.streams.config import PROPERTIES, REQUIRED, TABLE, StreamsConfig, StreamsConfigError, as_text
from odradek.streams.errors import log_and_continue
from odradek.streams.running import client
from odradek.streams.running.client import SOCKETS, Clients
from odradek.streams.serdes import STRING
from odradek.streams.timestamps import wallclock_timestamp
from tests.streams.oracle.java import Java

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}
OBJECTS = {  # classes in Java, functions and objects here
    "default.deserialization.exception.handler",
    "default.production.exception.handler",
    "processing.exception.handler",
    "default.timestamp.extractor",
    "topology.optimization",
    "dsl.store.suppliers.class",
}
OF_CONSUMERS = {
    "client.rack",
    "group.instance.id",
    "internal.leave.group.on.close",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "default.api.timeout.ms",
    "retry.backoff.max.ms",
    "auto.offset.reset",
}


OF_LIBRDKAFKA = set(SOCKETS)
"""Properties of connections, whose defaults are those of librdkafka."""
LATER = {"errors.dead.letter.queue.topic.name", "processor.wrapper.class"}
"""Properties of releases after 3.9 (KIP-1034, KIP-1112)."""
OURS = {"client.implementation", "gc.young.objects", "rocksdb.memory.max.bytes"}
"""Properties that Kafka has not."""


def made(**given: Any) -> StreamsConfig:
    return StreamsConfig({**NEEDED, **{name.replace("_", "."): value for name, value in given.items()}})


@pytest.mark.jvm
def test_names_and_defaults_are_kafkas(java: Java) -> None:
    keys = java.StreamsConfig.configDef().configKeys()
    kafkas = {str(name): keys.get(name) for name in keys.keySet()}
    assert PROPERTIES.keys() - OF_CONSUMERS - LATER - OURS <= kafkas.keys()
    assert not (LATER | OURS) & kafkas.keys()
    for row in TABLE:
        if row.name in OBJECTS | OF_CONSUMERS | OF_LIBRDKAFKA | LATER | OURS or row.default is REQUIRED:
            continue
        theirs = kafkas[row.name].defaultValue
        shown = "" if theirs is None or str(theirs) == "[]" else str(theirs)
        ours = "" if row.default in (None, ()) else str(row.default)
        assert ours == shown, row.name


def test_text_and_values_mean_the_same() -> None:
    config = made(num_stream_threads="2", commit_interval_ms=50.0, internal_leave_group_on_close="True")
    assert (config["num.stream.threads"], config["commit.interval.ms"]) == (2, 50)
    assert config["internal.leave.group.on.close"] is True
    assert made(bootstrap_servers=["a:1", "b:2"])["bootstrap.servers"] == "a:1,b:2"
    assert made(default_key_serde=STRING)["default.key.serde"] is STRING
    assert made(default_value_serde="odradek.streams.serdes.STRING")["default.value.serde"] is STRING
    extractor = made(default_timestamp_extractor="odradek.streams.wallclock_timestamp")["default.timestamp.extractor"]
    assert extractor is wallclock_timestamp
    assert made(processing_exception_handler=log_and_continue).handlers.processing is log_and_continue


@pytest.mark.parametrize(
    ("name", "value", "notified"),
    [
        ("application.id", None, "application.id is missing"),
        ("num.stream.threads", 0, "at least 1"),
        ("num.stream.threads", "many", "a whole number"),
        ("num.stream.threads", True, "a whole number"),
        ("processing.guarantee", "exactly_once", "expected exactly_once_v2"),
        ("processing.guarantee", "twice", "one of at_least_once, exactly_once_v2"),
        ("default.key.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde", "expected a serde"),
        ("default.key.serde", "odradek.streams.StreamsBuilder", "expected a serde"),
        ("default.timestamp.extractor", "odradek.streams.serdes.absent", "expected a function"),
        ("default.timestamp.extractor", "Wallclock", "expected a function"),
        ("application.server", "here", "host:port"),
        ("heartbeat.interval.ms", 60_000, "below session.timeout.ms"),
        ("rack.aware.assignment.tags", "zone", "client.tag.zone"),
        ("topology.optimization", "some", "merge.repartition.topics"),
        ("auto.offset.reset", "middle", "one of earliest, latest, none"),
        ("rocksdb.memory.max.bytes", 1_000, "0 or a number of at least 16777216"),
        ("rocksdb.memory.max.bytes", -1, "at least 0"),
        ("replication.factor", 100_000, "from -1 to 32767"),
    ],
)
def test_invalid_values_are_rejected(name: str, value: Any, notified: str) -> None:
    with pytest.raises(StreamsConfigError, match=notified.replace(".", r"\.")) as caught:
        StreamsConfig({**NEEDED, name: value})
    assert name in str(caught.value)


def test_exactly_once_commits_often() -> None:
    assert made()["commit.interval.ms"] == 30_000
    assert made(processing_guarantee="exactly_once_v2")["commit.interval.ms"] == 100
    assert made(processing_guarantee="exactly_once_v2", commit_interval_ms=250)["commit.interval.ms"] == 250
    with pytest.raises(StreamsConfigError, match="transaction"):
        made(processing_guarantee="exactly_once_v2", commit_interval_ms=10_000)


def test_unknown_names_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made(num_stream_treads=2, producer_linger_ms=1, client_tag_zone="a", sasl_username="me")
    assert [record.getMessage() for record in caplog.records] == [
        "unknown property name=num.stream.treads closest=num.stream.threads"
    ]


def test_settings_without_effect_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made(topology_optimization="all", upgrade_from="3.4")
    assert [record.getMessage() for record in caplog.records] == ["property without effect topology_optimization=all"]


def test_prefixed_properties_reach_the_consumer_in_their_order() -> None:
    config = StreamsConfig(
        {**NEEDED, "session.timeout.ms": 1, "consumer.session.timeout.ms": 6000, "main.consumer.max.poll.records": 7,
         "heartbeat.interval.ms": 5}
    )  # fmt: skip
    assert config["session.timeout.ms"] == 6000
    assert config["max.poll.records"] == 7
    given = StreamsConfig({**NEEDED, "consumer.a": 1, "consumer.b": 1, "main.consumer.b": 2})
    assert given.prefixed("consumer.", "main.consumer.") == {"a": 1, "b": 2}


def test_properties_unknown_to_librdkafka_are_named() -> None:
    clients = Clients(StreamsConfig({**NEEDED, "producer.no.such.thing": 1}), "client")
    with pytest.raises(StreamsConfigError, match=r"no\.such\.thing"):
        clients.producer("thread", None, lambda error, message: None)


@pytest.mark.parametrize("kind", ["Consumer", "Producer", "AdminClient"])
def test_properties_of_connections_reach_every_client(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """By the names of librdkafka, whose 0 is Kafka's -1; without them librdkafka's defaults apply."""
    received: list[dict[str, Any]] = []
    monkeypatch.setattr(client, kind, received.append)
    names = ("connections_max_idle_ms", "reconnect_backoff_ms", "reconnect_backoff_max_ms")
    given = {**dict.fromkeys(names, 700), "receive_buffer_bytes": -1, "send_buffer_bytes": 65_536}
    for config in (
        made(**given, client_implementation="librdkafka"),
        made(client_implementation="librdkafka"),
    ):
        clients = Clients(config, "client")
        if kind == "Consumer":
            clients.main_consumer("thread", False)
        elif kind == "Producer":
            clients.producer("thread", None, lambda error, message: None)
        else:
            clients.admin()
    theirs = {name.replace("_", "."): 700 for name in names}
    theirs |= {"socket.receive.buffer.bytes": 0, "socket.send.buffer.bytes": 65_536}
    assert {name: received[0][name] for name in theirs} == theirs
    assert theirs.keys() & received[1].keys() <= {"reconnect.backoff.ms", "reconnect.backoff.max.ms"}


def test_properties_of_connections_reach_the_own_clients() -> None:
    settings = producer_settings(
        {
            "bootstrap.servers": "nowhere:1",
            "socket.receive.buffer.bytes": 32_768,
            "socket.send.buffer.bytes": 65_536,
            "connections.max.idle.ms": 700,
        }
    )
    network = settings.network
    assert (network.receive_buffer, network.send_buffer, network.max_idle_s) == (32_768, 65_536, 0.7)


def test_guarantees_cannot_be_disabled(caplog: pytest.LogCaptureFixture) -> None:
    config = StreamsConfig({**NEEDED, "producer.acks": "1", "consumer.enable.auto.commit": True})
    clients = Clients(config, "client")
    clients.producer("thread", None, lambda error, message: None).close()
    clients.main_consumer("thread", False).close()
    notified = [record.getMessage() for record in caplog.records if "ignoring property" in record.getMessage()]
    assert len(notified) == 2


def test_the_table_can_be_read() -> None:
    assert "application.id (required): " in as_text()
    assert all(row.doc.endswith(".") for row in TABLE)
