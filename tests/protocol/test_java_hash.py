"""String.hashCode, and its definition as the witness: s[0] * 31^(n-1) + ... + s[n-1] over UTF-16 units."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.java_hash import signed, string_hash


def definition(text: str) -> int:
    code = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code


@given(
    st.text(st.characters(exclude_categories=()), max_size=4),
    st.sampled_from((0, 1, 31, 32, 62, 63, 64, 65, 127, 128, 129, 1000)),
)
def test_a_hash_follows_the_definition_for_every_length(text: str, repeated: int) -> None:
    whole = text + text[:1] * repeated
    assert string_hash(whole) == definition(whole)


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)]
)
def test_hashes_that_java_prints(text: str, code: int) -> None:
    assert signed(string_hash(text)) == code
