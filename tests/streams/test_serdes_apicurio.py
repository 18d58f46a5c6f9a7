"""Serdes of a schema registry, and commands with schemas, against Apicurio Registry, whose schemas are in a topic of an
Odradek broker.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from starlette.testclient import TestClient

from odradek.broker_process import BrokerProcess
from odradek.console.record_schemas import CLIENT_DEFAULTS, RecordSchemas
from odradek.console.web.application import application
from odradek.console.web.settings import ConsoleSettings
from odradek.records.schemas.registered import RegisteredSchemas
from odradek.streams import SchemaRegistry, Serde
from tests.commands.running import TIMEOUT_S, Running
from tests.jvm.apicurio import JOURNAL, Apicurio
from tests.jvm.cache import FetchError
from tests.jvm.jars import APICURIO, unpacked
from tests.streams import counting
from tests.streams.counting import read_all

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

FIELDS = [{"name": "id", "type": "string"}, {"name": "pieces", "type": "long"}]
CITY = {"name": "city", "type": "string", "default": "unknown"}


def avro(*more: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": [*FIELDS, *more]})


@dataclass
class Order:
    id: str
    pieces: int


@dataclass
class Delivery:
    id: str
    pieces: int
    city: str = "unknown"


def message(*fields: str) -> Any:
    """The class of a message with these fields, all texts."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/orders.proto", package="shop", syntax="proto3")
    made = file.message_type.add(name="Order")
    kind = descriptor_pb2.FieldDescriptorProto
    for number, name in enumerate(fields, 1):
        made.field.add(name=name, number=number, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("apicurio"), counting.BROKER) as running:
        yield running


@pytest.fixture(scope="module")
def apicurio(broker: BrokerProcess) -> Iterator[Apicurio]:
    try:
        unpacked(APICURIO)
    except FetchError as error:
        pytest.skip(str(error))
    with Apicurio(broker.bootstrap) as running:
        yield running


@pytest.fixture
def clients(apicurio: Apicurio) -> Iterator[Callable[[], SchemaRegistry]]:
    """Makes clients of the registry, each with an empty cache, which end with the test."""
    made: list[SchemaRegistry] = []

    def make() -> SchemaRegistry:
        made.append(SchemaRegistry(apicurio.url))
        return made[-1]

    yield make
    for each in made:
        each.close()


def check_evolution(make: Callable[[], SchemaRegistry], older: Serde[Any], newer: Serde[Any], *values: Any) -> None:
    """`values`: an old one, the same as a reader of the newer schema gets it, a new one, and the same for an older
    reader. Each serde belongs to a client of its own.
    """
    old, old_as_new, new, new_as_old = values
    written = older.serialize(old)
    assert newer.deserialize(written) == old_as_new
    later = newer.serialize(new)
    assert later[:1] == written[:1] == b"\0"
    assert later[1:5] > written[1:5], "the schema of the second writer has an id of its own"
    assert older.deserialize(later) == new_as_old
    assert newer.deserialize(later) == new
    registry = make().client()
    (subject,) = [each for each in registry.get_subjects() if each.endswith(older.name.partition(" of ")[2] + "-value")]
    assert registry.get_versions(subject) == [1, 2]
    ids = [registry.get_version(subject, version).schema_id for version in (1, 2)]
    assert ids == [int.from_bytes(each[1:5]) for each in (written, later)]


def test_avro_schemas_evolve(clients: Callable[[], SchemaRegistry]) -> None:
    older = clients().avro(avro(), Order).for_topic("avro", False)
    newer = clients().avro(avro(CITY), Delivery).for_topic("avro", False)
    new = Delivery("b", 2, "Rome")
    check_evolution(clients, older, newer, Order("a", 1), Delivery("a", 1), new, Order("b", 2))


def test_json_schemas_evolve(clients: Callable[[], SchemaRegistry]) -> None:
    older = clients().json_schema(Order).for_topic("json", False)
    newer = clients().json_schema(Delivery).for_topic("json", False)
    new = Delivery("b", 2, "Rome")
    check_evolution(clients, older, newer, Order("a", 1), Delivery("a", 1), new, Order("b", 2))


def test_protobuf_schemas_evolve(clients: Callable[[], SchemaRegistry]) -> None:
    small, large = message("id"), message("id", "city")
    older = clients().protobuf(small).for_topic("protobuf", False)
    newer = clients().protobuf(large).for_topic("protobuf", False)
    kept = small.FromString(large(id="b", city="Rome").SerializeToString())
    check_evolution(clients, older, newer, small(id="a"), large(id="a"), large(id="b", city="Rome"), kept)


def test_an_incompatible_schema_is_rejected(clients: Callable[[], SchemaRegistry]) -> None:
    first = clients()
    serde = first.avro(avro()).for_topic("strict", False)
    serde.serialize({"id": "a", "pieces": 1})
    first.client().set_compatibility("strict-value", "BACKWARD")
    required = {"name": "city", "type": "string"}
    incompatible = clients().avro(avro(required)).for_topic("strict", False)
    with pytest.raises(SchemaRegistryError) as caught:
        incompatible.serialize({"id": "a", "pieces": 1, "city": "Rome"})
    assert caught.value.http_status_code == 409
    assert first.client().get_versions("strict-value") == [1]


def test_the_schemas_are_in_a_topic_of_the_broker(
    broker: BrokerProcess, apicurio: Apicurio, clients: Callable[[], SchemaRegistry]
) -> None:
    """Another registry over the same topic returns the same schemas under the same ids."""
    written = clients().avro(avro(), Order).for_topic("kept", False).serialize(Order("a", 1))
    assert any(b"kept-value" in (value or b"") for _, value in read_all(broker.bootstrap, JOURNAL))
    with Apicurio(broker.bootstrap) as another:
        reader = SchemaRegistry(another.url)
        try:
            assert reader.avro(avro(CITY), Delivery).for_topic("kept", False).deserialize(written) == Delivery("a", 1)
        finally:
            reader.close()


PROTO = 'syntax = "proto3"; package shop; message Order { string id = 1; string city = 2; }'
PERSON = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'
FILES = {"avro": ("order.avsc", avro(CITY)), "json": ("person.json", PERSON), "protobuf": ("order.proto", PROTO)}
NAMES = {"avro": "Avro shop.Order", "json": "JSON Schema", "protobuf": "Protobuf shop.Order"}
VALUES: dict[str, Any] = {
    "avro": {"id": "a", "pieces": 1, "city": "Rome"},
    "json": {"age": 7},
    "protobuf": {"id": "a", "city": "Rome"},
}


@pytest.mark.parametrize("kind", FILES)
def test_commands_and_serdes_read_each_other(
    kind: str, broker: BrokerProcess, apicurio: Apicurio, clients: Callable[[], SchemaRegistry], tmp_path: Path
) -> None:
    """`odradek produce` registers the schema of a file, and `consume` reads what a serde of the runtime wrote."""
    side, registry = Running(broker.bootstrap), ("--schema-registry", apicurio.url)
    ours, theirs = f"commands-{kind}", f"serdes-{kind}"
    for topic in (ours, theirs):
        side.done("topic", "create", topic)
    name, text = FILES[kind]
    (tmp_path / name).write_text(text)
    for schema in (f"@{tmp_path / name}", f"{ours}-value"):
        side.done("produce", ours, *registry, "--value-schema", schema, stdin=json.dumps(VALUES[kind]))
    ((_, first), (_, second)) = read_all(broker.bootstrap, ours)
    assert first is not None
    assert first == second

    streams = clients()
    order = message("id", "city")
    serde: Serde[Any] = {
        "avro": lambda: streams.avro(text),
        "json": lambda: streams.json_schema(schema=text),
        "protobuf": lambda: streams.protobuf(order),
    }[kind]()
    value = order(**VALUES[kind]) if kind == "protobuf" else VALUES[kind]
    assert serde.for_topic(ours, False).deserialize(first) == value
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(theirs, serde.for_topic(theirs, False).serialize(value))
    assert producer.flush(TIMEOUT_S) == 0
    lines = side.done("consume", ours, theirs, *registry, "--exit", "--output", "json").splitlines()
    shown = [json.loads(line) for line in lines]
    assert sorted(each["topic"] for each in shown) == [ours, ours, theirs]
    assert [each["value"] for each in shown] == [VALUES[kind]] * 3
    check_console(broker.bootstrap, apicurio.url, theirs, VALUES[kind], NAMES[kind])


def check_console(bootstrap: str, url: str, topic: str, value: dict[str, Any], name: str) -> None:
    """The pages of the console have the decoded value of the only record of a topic, and its bytes on request."""
    schemas = RecordSchemas(RegisteredSchemas({"url": url, **CLIENT_DEFAULTS}))
    app = application(ConsoleSettings(bootstrap, schemas=schemas))
    page = f"/topics/{topic}/messages"
    with TestClient(app, base_url="http://127.0.0.1:8080") as console:
        (found,) = [json.loads(each) for each in console.get(f"{page}/download").text.splitlines()]
        assert found["value"] == value
        record = console.get(f"{page}/{found['partition']}/{found['offset']}").text
        assert f"{name}, schema id {found['value_schema_id']}" in record
        assert html.escape(json.dumps(value, indent=2), quote=True).replace("&quot;", "&#34;") in record
        raw = console.get(f"{page}/{found['partition']}/{found['offset']}?raw=on").text
        assert "00000000  00 00 00 00" in raw
        ((field, content),) = list(value.items())[-1:]
        for text, matches in ((f"value.{field} == {json.dumps(content)}", True), (f"value.{field} == 'none'", False)):
            assert (name in console.get(page, params={"where": text}).text) is matches, text


def test_a_registry_rejects_an_incompatible_schema_of_a_command(
    broker: BrokerProcess, apicurio: Apicurio, clients: Callable[[], SchemaRegistry], tmp_path: Path
) -> None:
    side, registry = Running(broker.bootstrap), ("--schema-registry", apicurio.url)
    side.done("topic", "create", "rejected")
    for number, fields in enumerate(([], [{"name": "city", "type": "string"}])):
        (tmp_path / f"{number}.avsc").write_text(avro(*fields))
    line = json.dumps({"id": "a", "pieces": 1})
    side.done("produce", "rejected", *registry, "--value-schema", f"@{tmp_path}/0.avsc", stdin=line)
    clients().client().set_compatibility("rejected-value", "BACKWARD")
    code, text = side.failure("produce", "rejected", *registry, "--value-schema", f"@{tmp_path}/1.avsc", stdin=line)
    assert code == 1
    assert "subject rejected-value: " in text
    assert "(HTTP 409)" in text
    assert side.failure("produce", "rejected", *registry, "--value-schema", "77000", stdin=line)[0] == 3
    assert len(side.done("consume", "rejected", *registry, "--exit").splitlines()) == 1
