"""Hostile Avro schemas and data: each is an error with a reason, and none costs more than its size."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records.schemas.avro import AvroCodec
from odradek.records.schemas.avro_bounds import MOST_CHARACTERS, MOST_DEPTH
from odradek.records.schemas.errors import MisfitError, SchemaError


def record(title: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": title, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + '"int"' + "}" * depth


LIST = record("Node", value="int", next=["null", "Node"])
TREE = record("Tree", name="string", children={"type": "map", "values": {"type": "array", "items": "Tree"}})
EMPTY = {f"R{number}": json.dumps(record(f"R{number}", a=f"R{number + 1}", b=f"R{number + 1}")) for number in range(25)}
EMPTY["R25"] = json.dumps(record("R25"))


@pytest.mark.parametrize(
    ("schema", "references", "reason"),
    [
        (json.dumps(record("Loop", again="Loop")), {}, "without an end"),
        ('{"type":"array","items":"null"}', {}, "whose items take no bytes"),
        (json.dumps(record("T", x="R0")), EMPTY, "has more than 64 values"),
        (nested(MOST_DEPTH + 1), {}, f"nested deeper than {MOST_DEPTH} levels"),
        (nested(400), {}, "more than 300 levels of JSON"),
        (nested(30_000), {}, "more than 300 levels of JSON"),
        (json.dumps(record("A", **{"a" * MOST_CHARACTERS: "int"})), {}, "characters; allowed: 1,048,576"),
    ],
    ids=["loop", "nulls", "empty records", "deep", "levels", "many levels", "size"],
)
def test_a_hostile_schema_is_an_error(schema: str, references: dict[str, str], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        AvroCodec(schema, references)


@pytest.mark.parametrize("count", [MOST_DEPTH, 200_000])
def test_data_that_are_nested_too_deeply_do_not_end_the_process(count: int) -> None:
    """fastavro alone ends it with a segmentation fault."""
    codec = AvroCodec(json.dumps(LIST), {})
    with pytest.raises(MisfitError, match="nested deeper"):
        codec.decode(b"\x02\x02" * count + b"\x02\x00")
    assert codec.decode(b"\x02\x02" * 30 + b"\x02\x00")["next"]["value"] == 1


def test_a_type_that_is_used_again_is_encoded() -> None:
    references = {"Price": json.dumps(record("Price", amount="int"))}
    codec = AvroCodec(json.dumps(record("Order", net="Price", gross="Price")), references)
    value = {"net": {"amount": 1}, "gross": {"amount": 2}}
    assert codec.decode(codec.encode(value, "value")) == value


TREES = st.recursive(
    st.builds(lambda name: {"name": name, "children": {}}, st.text(max_size=3)),
    lambda inner: st.builds(
        lambda name, below: {"name": name, "children": below},
        st.text(max_size=3),
        st.dictionaries(st.text(max_size=2), st.lists(inner, max_size=2), max_size=2),
    ),
    max_leaves=6,
)


@given(TREES, st.integers(0, 200), st.binary(max_size=20))
def test_recursive_data_are_what_fastavro_reads(value: Any, cut: int, other: bytes) -> None:
    codec = AvroCodec(json.dumps(TREE), {})
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(TREE), value)
    data = file.getvalue()
    assert codec.encode(value, "value") == data
    assert codec.decode(data) == value
    for damaged in (data[:cut], data + b"\0", other):
        if damaged != data:
            with contextlib.suppress(MisfitError):  # the only error
                assert isinstance(codec.decode(damaged), dict)
