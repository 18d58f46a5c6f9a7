"""Keys and values with schemas on the console's pages: what decodes them, by the small registry of the tests, and the
pages. tests/streams/test_serdes_apicurio.py has the console with a broker and a registry by others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.console.record_schemas import CLIENT_DEFAULTS, LOOKUPS_S, RETRY_S, RecordSchemas
from odradek.console.record_view import record_view
from odradek.console.web.settings import ConsoleSettings
from odradek.records.consumed import ConsumedRecord, as_json
from odradek.records.filters import expression_filter
from odradek.records.schemas.coded import SchemaWriter
from odradek.records.schemas.errors import SchemaError
from odradek.records.schemas.registered import AVRO, JSON, PROTOBUF, RegisteredSchema, RegisteredSchemas
from tests.console.workspaces import GivenWorkspace, browser_of
from tests.streams.schema_registry import SchemaRegistryServer

ORDER = json.dumps(
    {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "text", "type": "string"}]}
)
PERSON = '{"title": "Person", "type": "object"}'
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
message Order { string text = 1; google.protobuf.Any more = 2; message Line { string text = 1; } }
"""
MESSAGES = "/topics/orders/messages"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


@pytest.fixture
def schemas(server: SchemaRegistryServer) -> Iterator[RegisteredSchemas]:
    """A client of the server with an empty cache."""
    made = RegisteredSchemas({"url": server.url, **CLIENT_DEFAULTS})
    yield made
    made.close()


def encoded(schemas: RegisteredSchemas, kind: str, schema: str, value: Any) -> bytes:
    registered = schemas.register(f"console-{kind}", kind, schema)
    if kind == PROTOBUF:  # a Line within the first message; without a writer, which would run protoc once more
        text = value["text"].encode()
        return b"\0" + registered.schema_id.to_bytes(4) + b"\4\0\0" + b"\n" + bytes([len(text)]) + text
    writer = SchemaWriter(registered, "value")
    data = writer.write(json.dumps(value).encode())
    assert data is not None
    return data


def record(value: bytes | None, key: bytes | None = None, offset: int = 5) -> ConsumedRecord:
    return ConsumedRecord("orders", 0, offset, 0, key, value, ())


@pytest.mark.parametrize(
    ("kind", "schema", "name"),
    [
        (AVRO, ORDER, "Avro shop.Order"),
        (AVRO, '"string"', "Avro string"),
        (JSON, PERSON, "JSON Schema Person"),
        (PROTOBUF, PROTO, "Protobuf shop.Order.Line"),
    ],
)
def test_a_value_is_shown_with_the_name_and_id_of_its_schema(
    schemas: RegisteredSchemas, kind: str, schema: str, name: str
) -> None:
    value = {"text": "<b>€</b>"}
    given = value if schema != '"string"' else value["text"]
    data = encoded(schemas, kind, schema, given)
    found = RecordSchemas(schemas).decoder()(record(data, key=b"plain"))
    view = record_view(found, indented=True)
    assert view.value.schema == f"{name}, schema id {int.from_bytes(data[1:5])}"
    assert view.value.size == len(data)
    assert (view.value.failure, view.key.schema, view.key.text) == ("", "", "plain")
    if schema == '"string"':
        assert view.value.text == json.dumps(given)
        return
    assert json.loads(view.value.text)["text"] == value["text"]
    assert as_json(found)["value_schema_id"] == int.from_bytes(data[1:5])
    assert expression_filter("value.text.contains('€')")(found)
    page = browser_of(GivenWorkspace(records=[found])).get(f"{MESSAGES}/0/5").text
    assert f"{name}, schema id" in page
    assert "&lt;b&gt;€&lt;/b&gt;" in page
    assert name in browser_of(GivenWorkspace(records=[found])).get(MESSAGES).text


def test_what_cannot_be_decoded_is_shown_as_bytes_with_the_reason(schemas: RegisteredSchemas) -> None:
    avro = encoded(schemas, AVRO, ORDER, {"text": "a"})
    proto = encoded(schemas, PROTOBUF, PROTO, {"text": "a"})
    deep = encoded(schemas, JSON, PERSON, {})[:5] + b"[" * 100_000
    unknown_any = proto[:5] + b"\0\x12\x05\x0a\x03a/b"
    decode = RecordSchemas(schemas).decoder()
    for data, reason in (
        (b"\0\0\0\x1b\x58abc", "schema id 7000 is not in the schema registry at http://127.0.0.1:"),
        (avro + b"x", ": the data: 1 bytes are left"),
        (avro[:-1], ": the data: "),
        (unknown_any, ": the data: "),
        (deep, ": the data are nested too deeply"),
    ):
        found = decode(record(data, key=avro))
        ((part, text),) = found.failures
        assert part == "value"
        assert reason in text
        assert (found.value, found.decoded_value) == (data, None)
        view = record_view(found)
        assert view.key.schema.startswith("Avro shop.Order, schema id ")
        assert view.value.failure == text
        client = browser_of(GivenWorkspace(records=[found]))
        assert "could not be decoded; their bytes are shown" in client.get(MESSAGES).text
        page = client.get(f"{MESSAGES}/0/5").text
        assert "Not decoded: " in page
        assert "00 00 00" in page
    for plain in (b"text", b"\0\0\0", b"", None):
        assert decode(record(plain)) == record(plain)


def test_an_error_holds_for_a_while_and_a_schema_for_good(
    schemas: RegisteredSchemas, server: SchemaRegistryServer
) -> None:
    clock = Clock()
    shared = RecordSchemas(schemas, clock)
    known = encoded(schemas, AVRO, ORDER, {"text": "a"})
    for _ in range(2):  # two requests to the console
        decode = shared.decoder()
        server.store.requests.clear()
        for number in range(3):
            assert decode(record(known, offset=number)).decoded_value is not None
            assert decode(record(b"\0\0\0\x1b\x58abc", offset=number)).failures
        assert len(server.store.requests) <= 2
    assert not server.store.requests
    clock.now_s += RETRY_S
    shared.decoder()(record(b"\0\0\0\x1b\x58abc"))
    assert len(server.store.requests) == 1


def test_one_request_waits_for_a_registry_that_does_not_answer() -> None:
    schemas = RegisteredSchemas({"url": "http://127.0.0.1:1", **CLIENT_DEFAULTS})
    asked: list[int] = []
    by_id = schemas.by_id

    def counted(schema_id: int) -> RegisteredSchema:
        asked.append(schema_id)
        return by_id(schema_id)

    schemas.by_id = counted  # type: ignore[method-assign]
    clock = Clock()
    shared = RecordSchemas(schemas, clock)
    for number in range(4):
        found = shared.decoder()(record(bytes([0, 0, 0, 0, number]), key=b"k"))
        assert "the schema registry at http://127.0.0.1:1 does not answer" in found.failures[0][1]
    assert asked == [0]
    clock.now_s += RETRY_S
    shared.decoder()(record(b"\0\0\0\0\7"))
    assert asked == [0, 7]
    shared.close()


def test_a_request_does_not_wait_for_one_new_schema_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("odradek.console.record_schemas.time.monotonic", clock)

    class Slow:
        def by_id(self, schema_id: int) -> Any:
            clock.now_s += LOOKUPS_S
            raise SchemaError(f"schema id {schema_id} is of type XML")

    decode = RecordSchemas(Slow(), clock).decoder()  # type: ignore[arg-type]
    reasons = [decode(record(bytes([0, 0, 0, 0, number]))).failures[0][1] for number in range(4)]
    assert [each.endswith("of type XML") for each in reasons] == [True, True, False, False]
    assert reasons[2] == "schema id 2 is one of too many new ones; load the page again"


@pytest.mark.parametrize("answer", [[], {}, {"schema": 5}, {"schema": "{}", "schemaType": "XML"}])
def test_what_is_no_schema_registry(schemas: RegisteredSchemas, server: SchemaRegistryServer, answer: Any) -> None:
    server.store.schemas.insert(0, answer)
    try:
        found = RecordSchemas(schemas).decoder()(record(b"\0\0\0\0\1x"))
    finally:
        del server.store.schemas[0]
    assert found.failures


def test_the_registry_is_that_of_the_option_or_of_the_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: SchemaRegistryServer
) -> None:
    served: list[ConsoleSettings] = []
    monkeypatch.setattr("odradek.console.web.serving.serve", served.append)
    (tmp_path / "client.properties").write_text(f"schema.registry.url={server.url}\n")
    for options in (
        ("--schema-registry", server.url),
        ("--command-config", str(tmp_path / "client.properties")),
        (),
    ):
        assert CliRunner().invoke(main, ["console", *options]).exit_code == 0
    assert [each.schemas is not None for each in served] == [True, True, False]
    for each in served:
        if each.schemas is not None:
            each.schemas.close()


def test_options_that_cannot_be_used() -> None:
    result = CliRunner().invoke(main, ["console", "--schema-registry", "ftp://127.0.0.1"])
    assert result.exit_code == 2
    assert "the properties of the schema registry: " in result.output
