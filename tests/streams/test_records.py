"""Records of processors: immutable, comparable, small, and typed."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from typing import Any

import pytest

from odradek.streams import Record

GIVEN = Record("k", 1, 5, [("h", b"x")])


def test_fields_are_set_by_position_and_by_name() -> None:
    assert Record(key="k", value=1, timestamp=5, headers=[("h", b"x")]) == GIVEN
    assert Record("k", None, 5).headers is None
    assert repr(Record("k", None, 5)) == "Record(key='k', value=None, timestamp=5, headers=None)"
    assert [each.name for each in dataclasses.fields(GIVEN)] == ["key", "value", "timestamp", "headers"]


def test_a_changed_record_is_another_object() -> None:
    assert GIVEN.with_key("l") == Record("l", 1, 5, GIVEN.headers)
    assert GIVEN.with_value(None) == Record("k", None, 5, GIVEN.headers)
    assert GIVEN.with_timestamp(6) == Record("k", 1, 6, GIVEN.headers)
    assert GIVEN.with_headers(None) == dataclasses.replace(GIVEN, headers=None) == Record("k", 1, 5)
    assert Record("k", 1, 5) != GIVEN
    assert {Record("k", 1, 5), Record("k", 1, 5)} == {Record("k", 1, 5)}


@pytest.mark.parametrize("name", ["key", "value", "timestamp", "headers", "other"])
def test_a_record_is_immutable(name: str) -> None:
    record = Record("k", 1, 5)
    with pytest.raises(dataclasses.FrozenInstanceError, match=name):
        setattr(record, name, 7)
    with pytest.raises(dataclasses.FrozenInstanceError, match=name):
        delattr(record, name)
    assert record == Record("k", 1, 5)


def test_a_record_can_be_copied_and_matched() -> None:
    assert copy.copy(GIVEN) == copy.deepcopy(GIVEN) == pickle.loads(pickle.dumps(GIVEN)) == GIVEN
    match GIVEN:
        case Record("k", value):
            assert value == 1
        case _:
            pytest.fail("no match")


def test_a_record_of_types_has_slots_only() -> None:
    typed: Any = Record[str, int]("k", 1, 5)
    assert typed == Record("k", 1, 5)
    assert not hasattr(typed, "__dict__")
    assert sys.getsizeof(typed) == sys.getsizeof(Record("k", 1, 5)) <= 72
