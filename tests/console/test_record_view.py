"""Keys and values as text."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from odradek.console.kept_records import KeptRecords, size_of
from odradek.console.record_view import SHORT, content_view, time_text
from odradek.records.consumed import ConsumedRecord


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


def record(number: int, size: int) -> ConsumedRecord:
    return ConsumedRecord("t", number % 3, number, 1000 + number, None, b"x" * size, ())


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 10), st.integers(1, 200), st.randoms())
def test_a_request_keeps_the_newest_records_within_its_number_and_size(
    sizes: list[int], limit: int, most_bytes: int, random: Random
) -> None:
    records = [record(number, size) for number, size in enumerate(sizes)]
    kept = KeptRecords(limit, newest=True, most_bytes=most_bytes)
    for each in random.sample(records, len(records)):
        kept.add(each)
        assert not kept.is_full
    found = kept.records()
    assert list(found) == sorted(found, key=lambda each: -each.timestamp)
    assert len(found) <= limit
    assert len(found) <= 1 or sum(size_of(each) for each in found) <= most_bytes
    if sum(sizes) <= most_bytes:
        assert list(found) == records[::-1][:limit]


def test_a_request_that_goes_forward_is_full_at_its_number_or_size() -> None:
    by_number, by_size = KeptRecords(2, newest=False), KeptRecords(9, newest=False, most_bytes=10)
    for number, (few, small) in enumerate(((False, False), (True, True))):
        by_number.add(record(1 - number, 1))
        by_size.add(record(number, 5))
        assert (by_number.is_full, by_size.is_full) == (few, small)
    assert [each.offset for each in by_number.records()] == [0, 1]


def test_a_time_is_in_utc_with_milliseconds() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert time_text(-1) == ""
    assert time_text(2**63 - 1) == "292278994-08-17 07:12:55.807Z"
