"""Keys and values with schemas, in `odradek produce` and `consume`: the formats by themselves, beside the serializers
of confluent-kafka, and the commands with the small registry of the tests. tests/streams/test_serdes_apicurio.py has the
commands with a registry by others.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.commands.schema_options import DECODED
from odradek.records.consumed import ConsumedRecord, as_json, formatter
from odradek.records.filters import expression_filter
from odradek.records.schemas.avro import AvroCodec
from odradek.records.schemas.coded import SchemaReader, SchemaWriter, writer_of
from odradek.records.schemas.errors import (
    MisfitError,
    SchemaError,
    SchemaNotFoundError,
    SchemaOptionError,
    SchemaRegistryUnreachableError,
)
from odradek.records.schemas.json_schema import JsonCodec
from odradek.records.schemas.protobuf import ProtobufCodec
from odradek.records.schemas.registered import AVRO, JSON, PROTOBUF, RegisteredSchema, RegisteredSchemas, client_config
from tests.commands.running import Running
from tests.streams.schema_registry import SchemaRegistryServer

FIELDS = [
    {"name": "id", "type": "string"},
    {"name": "pieces", "type": "int"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}, "default": "OPEN"},
    {"name": "note", "type": ["null", "string", {"type": "array", "items": "long"}], "default": None},
]
ORDER = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS})
VALUE = {"id": "a", "pieces": 2, "price": "12.50", "at": "2026-01-31T12:00:00+00:00", "state": "PAID", "note": [1, 2]}
PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}},
        "required": ["name"],
    }
)
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order { string id = 1; int32 pieces = 2; google.protobuf.Timestamp at = 3; }
message Customer { string name = 1; message Address { string city = 1; } Address address = 2; }
"""
VALUE_OF = SerializationContext("orders", MessageField.VALUE)


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


@pytest.fixture
def schemas(server: SchemaRegistryServer) -> Iterator[RegisteredSchemas]:
    """A client of the server with an empty cache."""
    made = RegisteredSchemas({"url": server.url})
    yield made
    made.close()


@pytest.fixture
def client(server: SchemaRegistryServer) -> Iterator[SchemaRegistryClient]:
    """Another client, for the serializers of confluent-kafka."""
    with SchemaRegistryClient({"url": server.url}) as made:
        yield made


def record(value: bytes | None, key: bytes | None = None) -> ConsumedRecord:
    return ConsumedRecord("orders", 0, 5, 0, key, value, ())


def misfit(codec: Any, value: Any) -> str:
    with pytest.raises(MisfitError) as caught:
        codec.encode(value, "value")
    return str(caught.value)


# ---- Avro


def test_avro_is_that_of_confluents_serializer(client: SchemaRegistryClient, schemas: RegisteredSchemas) -> None:
    writer = SchemaWriter(schemas.register("avro-value", AVRO, ORDER), "value")
    data = writer.write(json.dumps(VALUE).encode())
    found: Any = AvroDeserializer(client)(data, VALUE_OF)
    assert (found["price"], found["note"]) == (Decimal("12.50"), [1, 2])
    theirs = AvroSerializer(client, ORDER, conf={"subject.name.strategy": lambda *_: "avro-value"})
    assert theirs(found, VALUE_OF) == data
    shown = SchemaReader(schemas).read(record(data))
    assert json.loads(shown.value or b"") == VALUE


@given(
    st.fixed_dictionaries(
        {
            "id": st.text(st.characters(codec="utf-8")),
            "pieces": st.integers(-(2**31), 2**31 - 1),
            "price": st.decimals(-9999, 9999, places=2).map(lambda number: f"{number:f}"),
            "at": st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}+00:00"),
            "note": st.none() | st.text(st.characters(codec="utf-8")) | st.lists(st.integers(-(2**63), 2**63 - 1)),
        },
        optional={"state": st.sampled_from(["OPEN", "PAID"])},
    )
)
@settings(max_examples=50)
def test_avro_from_json_and_back(value: dict[str, Any]) -> None:
    codec = AvroCodec(ORDER, {})
    found = codec.decode(codec.encode(value, "value"))
    for each in (found, value):  # with the same digits of the second
        each["at"] = each["at"].replace(".000+", "+").replace("000+00:00", "+00:00")
    assert found == {"state": "OPEN", **value}


def test_avro_that_does_not_fit_names_the_field_and_what_is_allowed() -> None:
    codec = AvroCodec(ORDER, {})
    for change, message in (
        ({"pieces": "x"}, 'value.pieces: "x" is not of type int'),
        ({"pieces": True}, "value.pieces: true is not of type int"),
        ({"pieces": 2**31}, "value.pieces: 2147483648 is out of range; allowed: -2147483648 to 2147483647"),
        ({"state": "LOST"}, 'value.state: "LOST" is not a symbol; allowed: OPEN, PAID'),
        ({"note": 1.5}, "value.note: 1.5 is none of null, string, array"),
        ({"price": "1.234"}, "value.price: 1.234 is out of range; allowed: 6 digits, 2 of them decimals"),
        (
            {"at": "noon"},
            'value.at: "noon" is not of type timestamp-millis; allowed: text as 2026-01-31T12:00:00+00:00, or a number',
        ),
        ({"x": 1}, "value.x: shop.Order has no such field; allowed: id, pieces, price, at, state, note"),
    ):
        assert misfit(codec, VALUE | change) == message
    assert misfit(codec, {"id": "a"}) == "value.pieces: it is missing, and has no default; its type is int"
    assert misfit(codec, [1]) == "value: [1] is not an object of shop.Order"


def test_avro_types() -> None:
    """Also the JSON of Avro's own tools, in which a union names its branch; and names of other schemas."""
    for schema, given_value, shown in (
        ('["int", "string"]', {"string": "7"}, "7"),
        ('["null", "double"]', {"double": 1}, 1.0),
        ('{"type": "map", "values": "bytes"}', {"a": "\xff\0"}, {"a": "\xff\0"}),
        ('{"type": "fixed", "name": "F", "size": 2}', "ab", "ab"),
        ('{"type": "array", "items": "float"}', ["NaN", 1.5], ["NaN", 1.5]),
        ('{"type": "string", "logicalType": "uuid"}', "6b" * 16, "6b6b6b6b-6b6b-6b6b-6b6b-6b6b6b6b6b6b"),
        ('{"type": "int", "logicalType": "date"}', 1, "1970-01-02"),
        ('{"type": "long", "logicalType": "time-micros"}', "12:00:01", "12:00:01"),
        ("boolean", True, True),
    ):
        codec = AvroCodec(schema, {})
        assert codec.decode(codec.encode(given_value, "value")) == shown, schema
    other = '{"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}'
    codec = AvroCodec('{"type": "array", "items": ["null", "City"]}', {"City": other})
    assert codec.decode(codec.encode([{"name": "Rome"}, None], "value")) == [{"name": "Rome"}, None]
    assert misfit(codec, [{"name": 1}]) == "value[0].name: 1 is not of type string"
    assert misfit(AvroCodec('{"type": "fixed", "name": "F", "size": 2}', {}), "abc") == (
        "value: it has 3 bytes; allowed: 2"
    )
    assert misfit(AvroCodec('"boolean"', {}), 1) == "value: 1 is not of type boolean"
    for wrong in ("{", '{"type": "record"}', '"Unknown"'):
        with pytest.raises(SchemaError, match="not an Avro schema"):
            AvroCodec(wrong, {})


def test_whole_texts_and_bytes_of_avro_are_as_they_are(schemas: RegisteredSchemas) -> None:
    for schema, data in (('"string"', b'not "JSON"'), ('{"type": "bytes"}', b"\xff\0")):
        writer = SchemaWriter(schemas.register("plain-key", AVRO, schema), "key")
        coded = writer.write(data)
        if schema == '"string"':
            assert coded is not None
            assert coded[5:] == b"\x14" + data
            assert SchemaReader(schemas).read(record(None, coded)).key == data
    read = SchemaReader(schemas).read(record(writer.write(None)))
    assert (read.key, read.value) == (None, None)


# ---- JSON Schema and Protobuf


def test_json_schema(client: SchemaRegistryClient, schemas: RegisteredSchemas) -> None:
    schema = schemas.register("json-value", JSON, PERSON)
    data = SchemaWriter(schema, "value").write(b'{"name": "Anna", "tags": ["a"]}')
    theirs = JSONSerializer(PERSON, client, conf={"subject.name.strategy": lambda *_: "json-value"})
    assert theirs({"name": "Anna", "tags": ["a"]}, VALUE_OF) == data
    assert as_json(SchemaReader(schemas).read(record(data)))["value"] == {"name": "Anna", "tags": ["a"]}
    codec = JsonCodec(PERSON, {})
    assert misfit(codec, {"name": "Anna", "tags": ["c"]}) == "value.tags[0]: 'c' is not one of ['a', 'b']"
    assert misfit(codec, {}) == "value: 'name' is a required property"
    refers = JsonCodec('{"type": "array", "items": {"$ref": "person.json"}}', {"person.json": PERSON})
    assert misfit(refers, [{"name": 5}]) == "value[0].name: 5 is not of type 'string'"
    assert JsonCodec('{"type": "string"}', {}).is_text
    with pytest.raises(SchemaError, match="not a JSON Schema: 5 is not valid"):
        JsonCodec('{"type": 5}', {})
    with pytest.raises(MisfitError, match="not JSON"):
        codec.decode(b"{")


@pytest.mark.slow
def test_protobuf(schemas: RegisteredSchemas) -> None:
    """The schema as text, compiled by protoc, and as Confluent's serializer registers it."""
    schema = schemas.register("proto-value", PROTOBUF, PROTO)
    value = {"id": "a", "pieces": 2, "at": "2026-01-31T12:00:00Z"}
    data = SchemaWriter(schema, "value").write(json.dumps(value).encode())
    assert data is not None
    noon = Timestamp(seconds=1_769_860_800).SerializeToString()
    assert data[5:] == b"\0\n\x01a\x10\x02\x1a" + bytes([len(noon)]) + noon
    assert as_json(SchemaReader(schemas).read(record(data)))["value"] == value
    nested = SchemaWriter(schema, "value", "shop.Customer.Address").write(b'{"city": "Rome"}')
    assert nested is not None
    assert nested[5:8] == b"\x04\x02\0"
    assert as_json(SchemaReader(schemas).read(record(nested)))["value"] == {"city": "Rome"}

    codec = ProtobufCodec(PROTO, {})
    assert misfit(codec, {"pieces": "x"}).startswith("value: Failed to parse pieces field: ")
    unknown = misfit(codec, {"peices": 1})
    assert "no field named" in unknown
    assert "['id', 'pieces', 'at']" in unknown
    assert "\n" not in unknown
    with pytest.raises(SchemaOptionError, match=r"it has shop\.Order, shop\.Customer, shop\.Customer\.Address$"):
        ProtobufCodec(PROTO, {}, "Order")
    with pytest.raises(SchemaError, match=r"schema\.proto:1:1: Expected top-level statement"):
        ProtobufCodec("record {}", {})
    with pytest.raises(MisfitError, match=r"no message at the indexes \[7\]"):
        codec.decode(b"", [7])
    with pytest.raises(MisfitError, match="the data"):
        codec.decode(b"\xff", [0])


def test_protobuf_of_confluents_serializer(client: SchemaRegistryClient, schemas: RegisteredSchemas) -> None:
    """Its schemas are descriptors, one of them imported by the other."""
    kind = descriptor_pb2.FieldDescriptorProto
    city = descriptor_pb2.FileDescriptorProto(name="city.proto", package="shop", syntax="proto3")
    city.message_type.add(name="City").field.add(name="name", number=1, type=kind.TYPE_STRING, label=1)
    order = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["city.proto"]
    )
    order.message_type.add(name="Order").field.add(
        name="to", number=1, type=kind.TYPE_MESSAGE, type_name=".shop.City", label=1
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(city)
    pool.Add(order)
    message: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))()
    message.to.name = "Rome"
    settings_of = {"use.deprecated.format": False, "subject.name.strategy": lambda *_: "imported-value"}
    data = ProtobufSerializer(type(message), client, settings_of)(message, VALUE_OF)
    assert as_json(SchemaReader(schemas).read(record(data)))["value"] == {"to": {"name": "Rome"}}
    text = 'syntax = "proto3"; package shop; import "city.proto"; message Order { City to = 1; }'
    again = ProtobufCodec(text, {"city.proto": 'syntax = "proto3"; package shop; message City { string name = 1; }'})
    assert again.encode({"to": {"name": "Rome"}}, "value") == message.SerializeToString()
    for name in ("city.proto", "google/none.proto"):
        with pytest.raises(SchemaError):
            ProtobufCodec(f'syntax = "proto3"; import "{name}"; message Order {{}}', {})


# ---- the registry and the options


def test_where_schemas_come_from(schemas: RegisteredSchemas, tmp_path: Path, server: SchemaRegistryServer) -> None:
    first = schemas.register("sources-value", AVRO, '"long"')
    second = schemas.register("sources-value", AVRO, '"string"')
    for reference, wanted in (
        (str(first.schema_id), first),
        ("sources-value", second),
        ("sources-value:latest", second),
        ("sources-value:1", first),
    ):
        assert writer_of(schemas, reference, "t", "value").schema_id == wanted.schema_id, reference
    for name, text in (("o.avsc", ORDER), ("p.json", PERSON), ("q.proto", PROTO)):
        (tmp_path / name).write_text(text)
        made = writer_of(schemas, f"@{tmp_path / name}", f"file-{name[0]}", "key")
        assert server.store.subjects[f"file-{name[0]}-key"] == [made.schema_id]
    (tmp_path / "wrong.avsc").write_text("{")
    for reference, kind, message in (
        ("400", SchemaNotFoundError, "schema id 400 is not in the schema registry at http://127"),
        ("none", SchemaNotFoundError, "subject none is not in"),
        ("sources-value:9", SchemaNotFoundError, "version 9 of subject sources-value is not in"),
        ("sources-value#Order", SchemaOptionError, "#Order is for Protobuf; the schema is of type AVRO"),
        (f"@{tmp_path}/none.avsc", SchemaOptionError, "cannot read"),
        (f"@{tmp_path}/none.txt", SchemaOptionError, "one of .avsc, .avro, .json, .proto"),
        (f"@{tmp_path}/wrong.avsc", SchemaError, "not an Avro schema"),
    ):
        with pytest.raises(kind, match=message):
            writer_of(schemas, reference, "t", "value")
    with pytest.raises(SchemaError, match="has rules for serializers"):
        SchemaWriter(RegisteredSchema(1, AVRO, '"long"', {}, has_rules=True), "value")


def test_schemas_refer_to_others(client: SchemaRegistryClient, schemas: RegisteredSchemas) -> None:
    city = '{"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}'
    schemas.register("city", AVRO, city)
    cities = Schema('{"type": "array", "items": "City"}', AVRO, [SchemaReference("City", "city", 1)])
    client.register_schema("cities-value", cities)
    data = writer_of(schemas, "cities-value", "t", "value").write(b'[{"name": "Rome"}]')
    assert as_json(SchemaReader(schemas).read(record(data)))["value"] == [{"name": "Rome"}]


def test_what_is_decoded(schemas: RegisteredSchemas) -> None:
    data = SchemaWriter(schemas.register("parts-value", AVRO, ORDER), "value").write(json.dumps(VALUE).encode())
    assert data is not None
    shown = SchemaReader(schemas).read(record(data, data))
    assert formatter("%k")(shown) == formatter("%s")(shown) == json.dumps(VALUE).encode()
    found = as_json(shown)
    assert found["key"] == found["value"] == VALUE
    assert found["key_schema_id"] == found["value_schema_id"] == int.from_bytes(data[1:5])
    assert expression_filter("value.pieces == 2 && value.note[1] == 2")(shown)
    for decode, parts in zip(DECODED, ({"key", "value"}, {"key"}, {"value"}), strict=True):
        read = SchemaReader(schemas, keys=decode != "value", values=decode != "key").read(record(data, data))
        assert {part for part in ("key", "value") if f"{part}_schema_id" in as_json(read)} == parts
    for plain in (b"text", b"\0\0\0", b"", None):
        assert SchemaReader(schemas).read(record(plain)) == record(plain)
    with pytest.raises(SchemaNotFoundError, match=r"^value of orders-0 at offset 5: schema id 7000 is not in"):
        SchemaReader(schemas).read(record(b"\0\0\0\x1b\x58abc"))
    with pytest.raises(MisfitError, match=r"^value of orders-0 at offset 5 with schema id \d+: the data: 1 bytes"):
        SchemaReader(schemas).read(record(data + b"x"))


def test_a_registry_that_is_none() -> None:
    with pytest.raises(
        SchemaRegistryUnreachableError, match=r"the schema registry at http://127\.0\.0\.1:1 does not answer"
    ):
        RegisteredSchemas({"url": "http://user:secret@127.0.0.1:1", "max.retries": 0}).by_id(1)


def test_properties_of_a_registry() -> None:
    java = {
        "schema.registry.url": "https://registry:8081",
        "basic.auth.credentials.source": "USER_INFO",
        "schema.registry.basic.auth.user.info": "a:b",
        "schema.registry.timeout": "3",
        "security.protocol": "SSL",
        "bearer.auth.token": "t",
    }
    found = client_config(java)
    assert found is not None
    wanted = {"url": "https://registry:8081", "basic.auth.user.info": "a:b", "bearer.auth.token": "t", "timeout": 3.0}
    assert {name: found[name] for name in found if "retries" not in name} == wanted
    assert (client_config(java, "http://other") or {})["url"] == "http://other"
    assert client_config({}) is None
    for wrong in ({"schema.registry.timeout": "x"}, {"basic.auth.credentials.source": "SASL_INHERIT"}):
        with pytest.raises(SchemaOptionError):
            client_config(wrong)
    with pytest.raises(SchemaOptionError, match=r"Unrecognized properties: ssl\.truststore\.location"):
        RegisteredSchemas({"url": "http://127.0.0.1:1", "ssl.truststore.location": "x"})
    assert Schema("x").schema_type == "AVRO"


# ---- the commands


@pytest.fixture
def schema_side(ours: BrokerProcess, server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A broker of Odradek, and the registry of the tests as that of the environment."""
    monkeypatch.setenv("ODRADEK_SCHEMA_REGISTRY", server.url)
    return Running(ours.bootstrap)


@pytest.mark.slow
def test_a_copy_of_a_topic_has_the_same_bytes(schema_side: Running, name: str, tmp_path: Path) -> None:
    side = schema_side
    (tmp_path / "order.avsc").write_text(ORDER)
    (tmp_path / "key.avsc").write_text('"string"')
    side.done("topic", "create", name)
    line = json.dumps({"key": "k 1", "value": VALUE})
    report = side.data(
        *("produce", name, "--input", "json", "--value-schema", f"@{tmp_path}/order.avsc"),
        *("--key-schema", f"@{tmp_path}/key.avsc"),
        stdin=line,
    )
    (found,) = (json.loads(each) for each in side.done("consume", name, "-e", "-o", "json").splitlines())
    assert (found["key"], found["value"]) == ("k 1", VALUE)
    assert {part: report[part] for part in report if part.endswith("_id")} == {
        part: found[part] for part in found if part.endswith("_id")
    }
    assert side.done("consume", name, "-e", "-f", "%k %s") == f"k 1 {json.dumps(VALUE)}"
    assert side.done("consume", name, "-e", "--where", "value.pieces > 2") == ""
    side.done("topic", "create", f"{name}-copy")
    schemas = ("--value-schema", f"{name}-value", "--key-schema", str(report["key_schema_id"]))
    side.done("produce", f"{name}-copy", "--input", "json", *schemas, stdin=json.dumps(found))
    raw, copy = (
        side.run("consume", each, "-e", "--raw", "-f", "%k|%s").stdout_bytes for each in (name, f"{name}-copy")
    )
    assert raw == copy
    assert raw.startswith(b"\0\0\0\0")
    side.done("produce", f"{name}-copy", *schemas, "-Z", stdin="\n")
    lines = side.done("consume", f"{name}-copy", "-e", "-o", "json").splitlines()
    assert json.loads(lines[-1])["value"] is None


@pytest.mark.slow
def test_what_ends_the_commands(
    schema_side: Running, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = schema_side
    (tmp_path / "order.avsc").write_text(ORDER)
    side.done("topic", "create", name)
    schema = ("--value-schema", f"@{tmp_path}/order.avsc")
    lines = f"{json.dumps(VALUE)}\n{json.dumps(VALUE | {'pieces': 'x'})}\n"
    assert side.failure("produce", name, *schema, stdin=lines) == (
        1,
        'odradek: record 2: value.pieces: "x" is not of type int; 1 records are written\n',
    )
    for reference, code in (("none", 3), ("7000", 3), ("@none.avsc", 2), ("none#Order", 3), (f"{name}-value#Order", 2)):
        assert side.failure("produce", name, "--value-schema", reference, stdin="{}")[0] == code, reference
    side.done("produce", name, stdin="\0\0\0\x1b\x58abc")
    code, text = side.failure("consume", name, "-e", "--offset", "1")
    assert code == 3
    assert text.startswith(f"odradek: value of {name}-0 at offset 1: schema id 7000 is not in the ")
    assert side.done("consume", name, "-e", "--offset", "1", "--decode", "key") == "\0\0\0\x1b\x58abc\n"
    code, text = side.failure("consume", name, "-e", "--schema-registry", "http://127.0.0.1:1")
    assert (code, text.count("\n")) == (5, 1)
    assert "the schema registry at http://127.0.0.1:1 does not answer" in text
    assert side.failure("consume", name, "-e", "--schema-registry", "ftp://127.0.0.1")[0] == 2
    monkeypatch.delenv("ODRADEK_SCHEMA_REGISTRY")
    code, text = side.failure("produce", name, *schema, stdin="{}")
    assert code == 2
    assert "--value-schema needs --schema-registry, or a profile with schema.registry.url" in text
    assert side.done("consume", name, "-e", "--count", "1").startswith("\0\0\0\0")


@pytest.mark.slow
def test_a_profile_has_a_registry(
    ours: BrokerProcess, server: SchemaRegistryServer, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user and password are sent to it, and not shown. A variable does not replace it."""
    monkeypatch.setenv("ODRADEK_SCHEMA_REGISTRY", "http://127.0.0.1:1")
    side = Running(ours.bootstrap)
    side.done("topic", "create", name)
    (tmp_path / "long.avsc").write_text('"long"')
    address = server.url.removeprefix("http://")
    imported = tmp_path / "client.properties"
    imported.write_text(
        f"schema.registry.url={server.url}\nbasic.auth.user.info=anna:secret\nbootstrap.servers={ours.bootstrap}\n"
    )
    invoked = CliRunner().invoke(main, ["profile", "import", str(imported), "--name", "with"])
    assert invoked.exit_code == 0, invoked.output
    added = f"http://anna:secret@{address}"
    CliRunner().invoke(main, ["profile", "add", "added", "-b", ours.bootstrap, "--schema-registry", added])
    for profile in ("with", "added"):
        server.store.users.clear()
        side.done("produce", name, "--profile", profile, "--value-schema", f"@{tmp_path}/long.avsc", stdin="7\n")
        assert server.store.users == {"Basic " + b64encode(b"anna:secret").decode()}
        assert side.done("consume", name, "--profile", profile, "-e", "--count", "1") == "7\n"
        shown = CliRunner().invoke(main, ["profile", "show", profile]).stdout
        assert "schema.registry.url" in shown
        assert "secret" not in shown
    server.store.rejected = server.store.users
    code, text = side.failure("consume", name, "--profile", "added", "-e")
    assert code == 4
    assert text.startswith(f"odradek: value of {name}-0 at offset 0: schema id ")
    assert text.endswith(": Unauthorized (HTTP 401)\n")
