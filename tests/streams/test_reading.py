"""How the record loop reads keys and values: a faster deserializer of texts first, where that fails the serde's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.streams import BYTES, STRING, Consumed, Serde, StreamsBuilder, TopologyTestDriver
from odradek.streams.errors import log_and_continue
from odradek.streams.serdes.formats import strict_deserializer


def read(rows: list[tuple[bytes | None, bytes | None]], value: Serde[Any], **config: Any) -> list[tuple[Any, Any]]:
    """The records as a topology gets them."""
    seen: list[tuple[Any, Any]] = []
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, value)).foreach(lambda key, value: seen.append((key, value)))
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("in", BYTES, BYTES).pipe_key_value_list(rows)
    return seen


@given(st.binary(max_size=8))
def test_a_text_is_read_as_its_serde_reads_it(data: bytes) -> None:
    strict = strict_deserializer(STRING.deserialize)
    try:
        text = strict(data)
    except UnicodeDecodeError:
        assert "\ufffd" in STRING.deserialize(data)
    else:
        assert text == STRING.deserialize(data)


def test_keys_and_values_that_are_no_utf_8_are_read_with_replacements() -> None:
    rows = [(b"k\xff", b"v"), (b"k", b"\xfev"), (b"\xc3", b"\xc3\xa9"), (None, b"\xff"), (b"k", None)]
    expected = [("k\ufffd", "v"), ("k", "\ufffdv"), ("\ufffd", "é"), (None, "\ufffd"), ("k", None)]
    assert read(rows, STRING) == expected


@pytest.mark.parametrize(
    "error", [ValueError("no"), UnicodeDecodeError("ascii", b"bad", 0, 1, "no")], ids=["any", "text"]
)
def test_a_record_that_cannot_be_read_is_dropped_and_the_next_one_is_read(error: Exception) -> None:
    def refuse(data: bytes) -> bytes:
        if data == b"bad":
            raise error
        return data

    rows: list[Any] = [(b"\xff", b"bad"), (b"\xff", b"good")]
    found = read(rows, Serde(bytes, refuse), **{"default.deserialization.exception.handler": log_and_continue})
    assert found == [("\ufffd", b"good")]
