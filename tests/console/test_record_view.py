"""Keys and values as text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from odradek.console.record_view import SHORT, content_view, time_text


def test_content_is_json_text_bytes_nothing_or_null() -> None:
    assert content_view(None).kind == "null"
    assert content_view(b"").kind == "empty"
    assert content_view(b'{"a":[1,"\xc3\xa9"]}').text == '{\n  "a": [\n    1,\n    "é"\n  ]\n}'
    assert content_view(b"{not json").kind == "text"
    assert content_view(b"12").kind == "text"
    assert content_view(b"\xff\x00A").text == f"00000000  {'ff 00 41':<48} ..A"
    assert content_view(b"a\x00b").kind == "binary"
    assert content_view(b"[" * 100_000).kind == "text"


@given(st.binary(max_size=3000))
def test_every_content_is_cut_to_what_a_list_shows(data: bytes) -> None:
    found = content_view(data)
    assert found.size == len(data)
    assert found.kind == "binary" or len(found.text) <= SHORT


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda each: st.lists(each, max_size=3)))
def test_json_keeps_its_meaning(value: object) -> None:
    found = content_view(json.dumps([value]).encode(), longest=10**6)
    assert json.loads(found.text) == [value]


def test_a_time_is_in_utc_with_milliseconds() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert time_text(-1) == ""
    assert time_text(2**63 - 1) == "292278994-08-17 07:12:55.807Z"
