"""Serdes of a schema registry: Confluent's wire format, checked with the Java libraries of the formats."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jpype
import pydantic
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams import (
    STRING,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    SchemaRegistry,
    Serde,
    StreamsBuilder,
    StreamsError,
    TopologyTestDriver,
    extras,
)
from odradek.streams.serdes.protobuf_schemas import ProtobufSchemaError
from tests.jvm.jars import classpath
from tests.streams.schema_registry import SchemaRegistryServer

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "pieces", "type": "long"},
            {"name": "price", "type": "double"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)


@dataclass
class Order:
    id: str
    pieces: int
    price: float
    note: str | None = None


class Customer(pydantic.BaseModel):
    name: str
    age: int = 0


ORDERS = st.builds(
    Order,
    st.text(st.characters(codec="utf-8")),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
)


def _messages() -> tuple[Any, Any, Any, bytes]:
    """Three messages of one file: the first, the second, and one within the second; and the file's descriptor."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/orders.proto", package="shop", syntax="proto3")
    first, second = file.message_type.add(name="Order"), file.message_type.add(name="Customer")
    inner = second.nested_type.add(name="Address")
    kind = descriptor_pb2.FieldDescriptorProto
    for message, name in ((first, "id"), (second, "name"), (inner, "city")):
        message.field.add(name=name, number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
        message.field.add(name="amount", number=2, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("Order", "Customer", "Customer.Address")
    ]
    return classes[0], classes[1], classes[2], file.SerializeToString()


ORDER_MESSAGE, CUSTOMER_MESSAGE, ADDRESS_MESSAGE, FILE = _messages()


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


@pytest.fixture
def clients(server: SchemaRegistryServer) -> Iterator[Callable[[], SchemaRegistry]]:
    """Makes clients of the server, which end with the test."""
    made: list[SchemaRegistry] = []

    def make() -> SchemaRegistry:
        made.append(SchemaRegistry(server.url))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def registry() -> SchemaRegistry:
    return SchemaRegistry("mock://tests")


@pytest.fixture(scope="module")
def formats(java: Any) -> Any:
    """The Java libraries of Avro, Protobuf and JSON in the JVM of the tests."""
    for jar in classpath("formats"):
        jpype.addClassPath(str(jar))
    return jpype.JClass


def framed(data: bytes) -> tuple[int, bytes]:
    """The id of the schema, and what follows it."""
    magic, number = struct.unpack_from(">bI", data)
    assert magic == 0
    return number, data[5:]


# ---- the wire format


@pytest.mark.jvm
def test_java_reads_our_avro_and_we_read_javas(formats: Any, registry: SchemaRegistry) -> None:
    schema = formats("org.apache.avro.Schema$Parser")().parse(SCHEMA)
    reader = formats("org.apache.avro.generic.GenericDatumReader")(schema)
    writer = formats("org.apache.avro.generic.GenericDatumWriter")(schema)
    decoders = formats("org.apache.avro.io.DecoderFactory").get()
    encoders = formats("org.apache.avro.io.EncoderFactory").get()
    output = formats("java.io.ByteArrayOutputStream")
    serde = registry.avro(SCHEMA, Order).for_topic("orders", False)

    @given(ORDERS)
    @settings(max_examples=25)
    def check(order: Order) -> None:
        data = serde.serialize(order)
        number, body = framed(data)
        read = reader.read(None, decoders.binaryDecoder(body, None))
        assert str(read.get("id")) == order.id
        assert int(read.get("pieces").longValue()) == order.pieces
        assert float(read.get("price").doubleValue()) == order.price
        assert (None if read.get("note") is None else str(read.get("note"))) == order.note
        stream = output()
        encoder = encoders.binaryEncoder(stream, None)
        writer.write(read, encoder)
        encoder.flush()
        assert bytes(stream.toByteArray()) == body
        assert serde.deserialize(struct.pack(">bI", 0, number) + bytes(stream.toByteArray())) == order

    check()


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("kind", "name", "indexes"),
    [
        (ORDER_MESSAGE, "Order", b"\x00"),  # the first message, alone: one byte for [0]
        (CUSTOMER_MESSAGE, "Customer", b"\x02\x02"),  # [1]: zigzag of the length, and of each index
        (ADDRESS_MESSAGE, "Customer.Address", b"\x04\x02\x00"),  # [1, 0]
    ],
)
def test_java_reads_our_protobuf_behind_its_message_indexes(
    formats: Any, registry: SchemaRegistry, kind: Any, name: str, indexes: bytes
) -> None:
    proto = formats("com.google.protobuf.DescriptorProtos$FileDescriptorProto").parseFrom(FILE)
    file = formats("com.google.protobuf.Descriptors$FileDescriptor")
    built = file.buildFrom(proto, formats("java.lang.reflect.Array").newInstance(file.class_, 0))
    outer, _, nested = name.partition(".")
    descriptor = built.findMessageTypeByName(outer)
    descriptor = descriptor.findNestedTypeByName(nested) if nested else descriptor
    message = kind(amount=-5)
    setattr(message, message.DESCRIPTOR.fields[0].name, "ž")
    serde = registry.protobuf(kind).for_topic("messages", False)
    number, body = framed(serde.serialize(message))
    assert body.startswith(indexes)
    read = formats("com.google.protobuf.DynamicMessage").parseFrom(descriptor, body[len(indexes) :])
    assert bytes(read.toByteArray()) == message.SerializeToString() == body[len(indexes) :]
    assert serde.deserialize(struct.pack(">bI", 0, number) + indexes + bytes(read.toByteArray())) == message


@pytest.mark.jvm
def test_jackson_reads_our_json_and_we_read_jacksons(formats: Any, registry: SchemaRegistry) -> None:
    mapper = formats("com.fasterxml.jackson.databind.ObjectMapper")()
    serde = registry.json_schema(Order).for_topic("orders", False)
    order = Order("ž", 2, 1.5)
    number, body = framed(serde.serialize(order))
    written = bytes(mapper.writeValueAsBytes(mapper.readTree(body)))
    assert written.decode() == '{"id":"ž","pieces":2,"price":1.5,"note":null}'
    assert serde.deserialize(struct.pack(">bI", 0, number) + written) == order


# ---- classes, schemas and subjects


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda registry: registry.avro(SCHEMA), {"id": "a", "pieces": 1, "price": 2.5, "note": "n"}),
        (lambda registry: registry.avro(SCHEMA, Order), Order("a", 1, 2.5)),
        (lambda registry: registry.json_schema(Order), Order("a", 1, 2.5)),
        (lambda registry: registry.json_schema(Customer), Customer(name="Anna")),
        (lambda registry: registry.protobuf(ORDER_MESSAGE), ORDER_MESSAGE(id="a", amount=3)),
    ],
)
def test_another_process_reads_values_by_the_ids_of_a_registry(
    server: SchemaRegistryServer, clients: Any, make: Any, value: Any
) -> None:
    """Over HTTP, with a client for the writer and another for the reader."""
    data = make(clients()).for_topic("shared", False).serialize(value)
    assert make(clients()).for_topic("shared", False).deserialize(data) == value
    number, _ = framed(data)
    assert number in server.store.subjects["shared-value"]


@pytest.mark.slow
def test_protobuf_schemas_that_a_registry_keeps_as_text(server: SchemaRegistryServer, clients: Any) -> None:
    """One that imports another; they are requested once."""
    money = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
    text = 'syntax = "proto3"; package shop; import "money.proto"; message Order { string id = 1; Money price = 2; }'
    server.store.register("money", {"schema": money, "schemaType": "PROTOBUF"})
    reference = {"name": "money.proto", "subject": "money", "version": 1}
    schema = {"schema": text, "schemaType": "PROTOBUF", "references": [reference]}
    number = server.store.register("texts-value", schema)
    body = ORDER_MESSAGE(id="a").SerializeToString()
    serde = clients().protobuf(ORDER_MESSAGE).for_topic("texts", False)
    data = struct.pack(">bIb", 0, number, 0) + body
    assert serde.deserialize(data).id == "a"
    before = len(server.store.requests)
    assert serde.deserialize(data).id == "a"
    assert len(server.store.requests) == before
    wrong = server.store.register("wrong-value", {"schema": "message {", "schemaType": "PROTOBUF"})
    with pytest.raises(ProtobufSchemaError, match=r"not a Protobuf schema: schema\.proto:1:9"):
        serde.deserialize(struct.pack(">bIb", 0, wrong, 0) + body)


def test_each_value_costs_no_request(server: SchemaRegistryServer, clients: Any) -> None:
    serde: Serde[Any] = clients().avro(SCHEMA, Order).for_topic("many", False)
    before = len(server.store.requests)
    for pieces in range(20):
        assert serde.deserialize(serde.serialize(Order("a", pieces, 0.0))).pieces == pieces
    assert 1 <= len(server.store.requests) - before <= 3


def test_a_reader_with_a_newer_schema_reads_older_data(clients: Any) -> None:
    """A field that the writer does not have gets the default of the reader's schema."""
    old = json.loads(SCHEMA)
    old["fields"].pop()
    data = clients().avro(json.dumps(old)).for_topic("grown", False).serialize({"id": "a", "pieces": 1, "price": 0.5})
    reader = clients().avro(SCHEMA, Order).for_topic("grown", False)
    assert reader.deserialize(data) == Order("a", 1, 0.5, None)


def test_a_topology_registers_topics_and_changelogs(server: SchemaRegistryServer, clients: Any) -> None:
    """Subjects have the names of topics, those of stores the names of changelogs: as Java's."""
    orders = clients().avro(SCHEMA, Order)
    builder = StreamsBuilder()
    (
        builder.stream("placed", Consumed(STRING, orders))
        .group_by_key(Grouped(STRING, orders))
        .reduce(
            lambda one, other: Order(one.id, one.pieces + other.pieces, one.price),
            Materialized("totals", STRING, orders),
        )
        .to_stream()
        .to("totals", Produced(STRING, orders))
    )
    with TopologyTestDriver(builder.build(), {"application.id": "shop"}) as driver:
        placed = driver.create_input_topic("placed", STRING, orders)
        for pieces in (2, 3):
            placed.pipe_input("a", Order("a", pieces, 1.5))
        values = driver.create_output_topic("totals", STRING, orders).read_values_to_list()
    assert values == [Order("a", 2, 1.5), Order("a", 5, 1.5)]
    assert {"placed-value", "shop-totals-changelog-value", "totals-value"} <= server.store.subjects.keys()


def test_wrong_uses_are_errors(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StreamsError, match="needs a topic"):
        registry.avro(SCHEMA, Order).serialize(Order("a", 1, 0.5))
    with pytest.raises(ValueError, match="a class or the text of a schema"):
        registry.json_schema()
    with pytest.raises(Exception, match="magic byte"):
        registry.avro(SCHEMA).for_topic("t", False).deserialize(b"\x07abcdefg")
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka.schema_registry.avro", None)
    with pytest.raises(extras.MissingExtraError, match="odradek with its extra 'schema-registry'"):
        registry.avro(SCHEMA)
