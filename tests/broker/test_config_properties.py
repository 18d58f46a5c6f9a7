"""The .properties format: examples of Java's reading, and round trips of writing and reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.config.properties import parse_properties
from odradek.broker.config.types import ConfigError


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", {}),
        (b"Truth = Beauty", {"Truth": "Beauty"}),
        (b" Truth:Beauty", {"Truth": "Beauty"}),
        (b"Truth                    :Beauty", {"Truth": "Beauty"}),
        (b"fruits  apple, banana, \\\n        pear", {"fruits": "apple, banana, pear"}),
        (b"cheeses", {"cheeses": ""}),
        (b"# a comment\n  ! another\n\n a=1", {"a": "1"}),
        (b"# no continuation \\\na=1", {"a": "1"}),
        (b"a=1\r\nb=2\rc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=b=c:d", {"a": "b=c:d"}),
        (b"a = = b", {"a": "= b"}),
        (b"a=trailing blanks stay  ", {"a": "trailing blanks stay  "}),
        (b"a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        (b"a=\\t\\n\\r\\f\\\\\\z", {"a": "\t\n\r\f\\z"}),
        (b"a=\\u0041\\u00e4\\ud83d\\ude00", {"a": "Aä😀"}),
        (b"a=\xe4", {"a": "ä"}),
        (b"a=even \\\\\nb=1", {"a": "even \\", "b": "1"}),
        (b"a=1\\\n\\\n  2", {"a": "12"}),
        (b"a=1\\\n# part of the value", {"a": "1# part of the value"}),
        (b"\\\n# still a comment\nb=1", {"b": "1"}),
        (b"=1", {"": "1"}),
    ],
)
def test_reads_as_java_does(content: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(content) == expected


@pytest.mark.parametrize("content", [b"a=\\u12", b"a=\\u", b"a=\\uXYZ0", b"\\u 041=1"])
def test_a_broken_escape_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="Malformed"):
        parse_properties(content)


@given(st.binary(max_size=200))
def test_any_bytes_give_properties_or_one_error(content: bytes) -> None:
    try:
        properties = parse_properties(content)
    except ConfigError:
        return
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in properties.items())


def written(text: str) -> str:
    """`text` with every character as an escape, as java.util.Properties.store may write it."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=5))
def test_written_properties_read_back(properties: dict[str, str]) -> None:
    lines = [f"{written(name)}={written(value)}" for name, value in properties.items()]
    assert parse_properties("\n".join(lines).encode("latin-1")) == properties
