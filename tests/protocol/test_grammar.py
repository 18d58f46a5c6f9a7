"""The language of the definition texts: its meaning, and its refusals with the line."""

from __future__ import annotations

import pytest

from odradek.protocol.grammar import DefinitionError, Versions, parse, snake_case

TEXT = """
# A comment.
request ExampleRequest key 99 versions 0-7 flexible 5+
    TimeoutMs    int32                   = 60000
    GroupId      string?     2+          = null
    Topics       [Topic]?1+              ignorable  # in the middle of a line
        Name     string
        Ids      [int32]     3-6
        Parts    [Shared]            preencoded
    Rack         string?     5+          tag 0
    Old          bool        0           = true
    struct Shared
        Id       uuid
        Client   string      inflexible

record ExampleValue versions 3
    Size         float64
"""


def test_a_text_defines_its_fields() -> None:
    messages = parse(TEXT)
    assert list(messages) == ["ExampleRequest", "ExampleValue"]
    request = messages["ExampleRequest"]
    assert (request.kind, request.key, str(request.versions), str(request.flexible)) == ("request", 99, "0-7", "5+")
    timeout, group, topics, rack, old = request.root.fields
    assert (timeout.type, timeout.attribute, timeout.default, str(timeout.versions)) == (
        "int32",
        "timeout_ms",
        60000,
        "0+",
    )
    assert (group.default, group.default_is_null, str(group.nullable)) == (None, True, "2+")
    assert (topics.is_array, topics.is_struct, topics.ignorable, str(topics.nullable)) == (True, True, True, "1+")
    assert (rack.tag, rack.default, str(rack.nullable)) == (0, "", "5+")
    assert (old.default, str(old.versions), bool(old.nullable)) == (True, "0", False)
    assert not topics.preencoded
    name, ids, parts = request.structs["Topic"].fields
    assert (name.type, str(ids.versions), ids.is_array, parts.type) == ("string", "3-6", True, "Shared")
    assert parts.preencoded
    id_, client = request.structs["Shared"].fields
    assert (id_.default, client.inflexible) == (bytes(16), True)
    value = messages["ExampleValue"]
    assert (value.key, str(value.versions), str(value.flexible)) == (None, "3", "none")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("    Name string", "line 1: a field before the first heading"),
        ("request X", "line 1: not a heading"),
        ("record X versions 0\n    Name", "line 2: not a field"),
        ("record X versions 0\n    Name [string", "line 2: not a field"),
        ("record X versions 0\n    Name string tag x", "line 2: not a field"),
        ("record X versions 0\n    Name string optional", "line 2: not a field"),
        ("record X versions 0\n   Name string", "line 2: indented by 3 spaces"),
        ("record X versions 0\n        Name string", "line 2: indented by 8 spaces"),
        ("record X versions 0\n    A int8\n        Name string", "line 3: indented by 8 spaces"),
        ("record X versions 0\n    A int8\n    A int8", "line 3: X has two fields A"),
        ("record X versions 0\n    A int8 = x", "line 2: invalid literal"),
        ("record X versions 0\n    A [int8] = 1", "line 2: the default of an array"),
        ("record X versions 0\n    A [int8] preencoded", "line 2: only an array of structures can be preencoded"),
        ("record X versions 0\n    A Missing", "X: structure Missing has no fields"),
        (
            "record X versions 0\n    A S\n        B int8\n    struct S\n        B int8",
            "line 4: structure S is declared twice",
        ),
    ],
)
def test_a_syntax_error_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(DefinitionError, match=reason.replace("[", r"\[")) as caught:
        parse(text, "example.txt")
    assert str(caught.value).startswith("example.txt")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HighWatermark", "high_watermark"),
        ("topicId", "topic_id"),
        ("ISR", "isr"),
        ("isKRaftController", "is_k_raft_controller"),
        ("V0Host", "v0_host"),
        ("LastKnownElr", "last_known_elr"),
    ],
)
def test_names_in_python(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_versions() -> None:
    assert list(Versions.parse("3-5")) == [3, 4, 5]
    assert 4 in Versions.parse("4+")
    assert 3 not in Versions.parse("4+")
    assert not Versions.parse("none")
    assert str(Versions.parse("2+") & Versions.parse("0-6")) == "2-6"
    assert not Versions.parse("0-1") & Versions.parse("2+")
