"""Constructors in C: equal to the compiled constructors of the classes, without leaks."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import pytest

from odradek.protocol import constructors
from odradek.protocol import messages as m
from tests.protocol.codec_differences import classes_of, is_same
from tests.protocol.samples import definitions

_constructors = pytest.importorskip("odradek.protocol._constructors", reason="no C compiler when Odradek was installed")

PARTITION: Any = m.ProduceResponse.PartitionProduceResponse


def in_python(cls: Any, **fields: Any) -> Any:
    made = cls.__new__(cls)
    made.__init__(**fields)
    return made


def test_any_class_with_any_fields_is_constructed_as_by_its_constructor() -> None:
    rng, number = random.Random(61), 0
    for name in definitions():
        for cls in classes_of(name).values():
            names = [*cls.ATTRIBUTES, "unknown_tagged_fields"]  # type: ignore[attr-defined]
            for _ in range(3):
                fields = {each: object() for each in rng.sample(names, rng.randint(0, len(names)))}
                made, expected = cls(**fields), in_python(cls, **fields)
                for each in names:
                    left, right = getattr(made, each), getattr(expected, each)
                    assert (left is right) if each in fields else is_same(left, right), (cls, each)
                number += 1
    assert number > 1000


def test_a_list_or_structure_is_new_for_each_object() -> None:
    first, second = PARTITION(), PARTITION()
    assert first.record_errors == []
    assert first.record_errors is not second.record_errors


def test_a_name_that_is_no_constant_is_found_too() -> None:
    assert PARTITION(**{"".join(["in", "dex"]): 7}).index == 7


@pytest.mark.parametrize(("arguments", "keywords"), [((1,), {}), ((), {"nothing": 1}), ((1,), {"index": 1})])
def test_other_arguments_are_refused_as_by_the_constructor(arguments: Any, keywords: dict[str, Any]) -> None:
    PARTITION.__init__(PARTITION.__new__(PARTITION))  # compiled from now on
    with pytest.raises(TypeError) as found:
        PARTITION(*arguments, **keywords)
    with pytest.raises(TypeError) as expected:
        PARTITION.__init__(PARTITION.__new__(PARTITION), *arguments, **keywords)
    assert str(found.value) == str(expected.value)


def test_constructors_leave_no_objects_behind() -> None:
    def blocks() -> int:
        for _ in range(200):
            PARTITION(index=3, record_errors=[1])
            PARTITION(**{"".join(["in", "dex"]): 7})
            with pytest.raises(TypeError):
                PARTITION(index=1, nothing=2)
        gc.collect()
        return sys.getallocatedblocks()

    blocks()
    assert abs(blocks() - blocks()) < 50


def test_a_class_that_does_not_fit_is_refused() -> None:
    class Plain:
        __slots__ = ("a",)

    for cls, defaults in ((int, ()), (Plain, (("b", 0, None),)), (Plain, (("a", 0),)), (3, ())):
        with pytest.raises((TypeError, AttributeError)):
            _constructors.install(cls, defaults)
    constructors.in_python(Plain, ())
    constructors.in_c(Plain, (("a", 1, None),))
    assert Plain().a == []  # type: ignore[attr-defined]
