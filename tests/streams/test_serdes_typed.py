"""Serdes of classes: dataclasses, msgspec structs and pydantic models, as JSON that Jackson reads and writes."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict

import jpype
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams import (
    STRING,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    Serde,
    StreamsBuilder,
    TopologyTestDriver,
    extras,
    json_serde,
    msgpack_serde,
    pydantic_serde,
)
from tests.jvm.jars import classpath


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    color: Color
    price: Decimal


@dataclass
class Order:
    id: int
    items: list[Item] = field(default_factory=list)
    at: datetime | None = None


class Account(msgspec.Struct, frozen=True):
    owner: str
    balance: int = 0


class Point(NamedTuple):
    x: float
    y: float


class Row(TypedDict):
    name: str


class Customer(pydantic.BaseModel):
    name: str
    city: str = pydantic.Field("Prague", alias="homeTown")


ORDER = Order(7, [Item("spool", Color.RED, Decimal("1.10"))], datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
VALUES: list[tuple[Any, Any, bytes]] = [
    (
        Order,
        ORDER,
        b'{"id":7,"items":[{"name":"spool","color":"red","price":"1.10"}],"at":"2026-01-02T03:04:05Z"}',
    ),
    (Account, Account("Anna", 5), b'{"owner":"Anna","balance":5}'),
    (Point, Point(1.5, -2.0), b"[1.5,-2.0]"),
    (Row, {"name": "ž"}, '{"name":"ž"}'.encode()),
    (Customer, Customer(name="Anna", homeTown="Vienna"), b'{"name":"Anna","homeTown":"Vienna"}'),
    (list[Account], [Account("Anna")], b'[{"owner":"Anna","balance":0}]'),
]


@pytest.mark.parametrize(("kind", "value", "data"), VALUES, ids=lambda each: getattr(each, "__name__", None))
def test_values_become_json_and_values_of_their_class_again(kind: Any, value: Any, data: bytes) -> None:
    serde = json_serde(kind)
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


@pytest.mark.parametrize("kind", [Order, Customer])
def test_data_of_another_shape_is_rejected_with_its_place(kind: Any) -> None:
    serde: Serde[Any] = json_serde(kind)
    with pytest.raises((msgspec.ValidationError, pydantic.ValidationError), match=r"id|name"):
        serde.deserialize(b'{"id": "seven", "name": 7}')


ACCOUNTS = json_serde(Account)
PACKED = msgpack_serde(Account)


@given(st.builds(Account, st.text(max_size=8), st.integers(-(2**63), 2**63 - 1)))
@settings(max_examples=30)
def test_message_pack_and_json_give_back_every_value(account: Account) -> None:
    assert ACCOUNTS.deserialize(ACCOUNTS.serialize(account)) == account
    assert PACKED.deserialize(PACKED.serialize(account)) == account


def test_pydantic_validates_types_that_are_no_models() -> None:
    serde = pydantic_serde(Order)
    assert serde.deserialize(serde.serialize(ORDER)) == ORDER


def test_a_topology_works_on_objects_from_topic_to_store_to_topic() -> None:
    builder = StreamsBuilder()
    accounts = json_serde(Account)
    (
        builder.stream("payments", Consumed(STRING, accounts))
        .group_by_key(Grouped(STRING, accounts))
        .reduce(
            lambda one, other: Account(one.owner, one.balance + other.balance),
            Materialized("sums", STRING, accounts),
        )
        .to_stream()
        .to("sums", Produced(STRING, accounts))
    )
    with TopologyTestDriver(builder.build()) as driver:
        payments = driver.create_input_topic("payments", STRING, accounts)
        payments.pipe_input("a", Account("Anna", 2))
        payments.pipe_input("a", Account("Anna", 3))
        sums = driver.get_key_value_store("sums")
        assert sums is not None
        assert sums.get("a") == Account("Anna", 5)
        values = driver.create_output_topic("sums", STRING, accounts).read_values_to_list()
    assert values == [Account("Anna", 2), Account("Anna", 5)]


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [
        (json_serde, "msgspec", "msgspec"),
        (msgpack_serde, "msgspec", "msgspec"),
        (pydantic_serde, "pydantic", "pydantic"),
    ],
)
def test_without_its_library_a_serde_names_the_extra(
    make: Callable[[Any], Serde[Any]], module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)  # an import of it fails
    with pytest.raises(extras.MissingExtraError, match=f"odradek with its extra '{extra}'") as caught:
        make(Order)
    assert isinstance(caught.value, ImportError)


@pytest.mark.jvm
@pytest.mark.parametrize(("kind", "value", "data"), VALUES, ids=lambda each: getattr(each, "__name__", None))
def test_jackson_reads_the_bytes_and_writes_the_same(java: Any, kind: Any, value: Any, data: bytes) -> None:
    for jar in classpath("formats"):
        jpype.addClassPath(str(jar))
    mapper = jpype.JClass("com.fasterxml.jackson.databind.ObjectMapper")()
    tree = mapper.readTree(json_serde(kind).serialize(value))
    written = bytes(mapper.writeValueAsBytes(tree))
    assert written == data
    assert json_serde(kind).deserialize(written) == value
    assert json.loads(str(tree.toString())) == json.loads(data)
