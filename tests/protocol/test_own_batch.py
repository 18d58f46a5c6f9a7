"""Batches of the broker itself are alike in C and in Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batch import is_sound, records
from odradek.protocol.own_batch import own_batch, own_batch_in_python
from odradek.protocol.plain_batch import plain_header

BYTES = st.binary(max_size=300)
TIMES = st.sampled_from((0, 1, 1_700_000_000_000, 2**62))


@given(st.lists(st.tuples(BYTES, st.none() | BYTES), min_size=1, max_size=5), TIMES)
def test_both_make_the_same_batch(entries: list[tuple[bytes, bytes | None]], timestamp_ms: int) -> None:
    made, header = own_batch(entries, timestamp_ms)
    assert (made, header) == own_batch_in_python(entries, timestamp_ms)
    assert type(made) is bytearray
    assert is_sound(made, 0, header)
    assert [(each.key, each.value) for each in records(made)] == entries
    assert plain_header(made) == header


def test_long_records_need_longer_lengths() -> None:
    for size in (62, 63, 64, 8190, 8191, 8192, 1 << 20):
        entries = [(bytes(size), b"v" * size), (b"k", None)] * 70
        assert own_batch(entries[:3], 5) == own_batch_in_python(entries[:3], 5)
    assert own_batch(entries[-139:][::2] + [(b"", b"")] * 70, 5)[1].record_count == 140


@pytest.mark.parametrize("entries", [[(b"k",)], [b"kv"], [("k", b"v")], [(b"k", 7)], [None]])
def test_anything_but_keys_and_values_of_bytes_is_refused(entries: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        own_batch(entries, 5)  # type: ignore[arg-type]
