"""Stores as mappings: they behave as a dictionary does, with keys in the order of their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams import (
    LONG,
    STRING,
    Consumed,
    Grouped,
    Materialized,
    Processor,
    Produced,
    ReadOnlyStoreMap,
    Record,
    StoreMap,
    StreamsBuilder,
    TopologyTestDriver,
    key_value_store,
)


class Sums(Processor[str, int, str, int]):
    """Sums in a mapping."""

    def init(self, context: Any) -> None:
        self.context = context
        self.sums = StoreMap[str, int](context.state_store("sums"))

    def process(self, record: Record[str, int]) -> None:
        self.sums[record.key] = self.sums.get(record.key, 0) + record.value
        self.context.forward(record.with_value(self.sums[record.key]))


@pytest.fixture(scope="module")
def driver() -> Iterator[TopologyTestDriver]:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("sums", STRING, LONG))
    numbers = builder.stream("numbers", Consumed(STRING, LONG))
    numbers.process(Sums, "sums").to("sums", Produced(STRING, LONG))
    numbers.group_by_key(Grouped(STRING, LONG)).count(Materialized("counts", STRING, LONG))
    with TopologyTestDriver(builder.build()) as made:
        yield made


STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "delete", "pop", "default"]), st.sampled_from("abcd"), st.integers(1, 9))
)


@given(STEPS)
@settings(max_examples=40)
def test_a_store_is_a_dictionary(driver: TopologyTestDriver, steps: list[tuple[str, str, int]]) -> None:
    store, model = StoreMap[str, int](driver.get_state_store("sums")), dict[str, int]()
    store.clear()
    for what, key, value in steps:
        match what:
            case "set":
                store[key] = model[key] = value
            case "pop":
                assert store.pop(key, None) == model.pop(key, None)
            case "default":
                assert store.setdefault(key, value) == model.setdefault(key, value)
            case _ if key in model:
                del store[key], model[key]
            case _:
                with pytest.raises(KeyError):
                    del store[key]
        assert store == model
    assert list(store) == sorted(model)
    assert list(store.items()) == sorted(model.items())
    assert list(store.values()) == [model[key] for key in sorted(model)]
    assert len(store) == len(model)
    assert list(store.between("b", "c")) == [(key, model[key]) for key in sorted(model) if "b" <= key <= "c"]
    assert ("a" in store) == ("a" in model)


def test_a_processor_and_a_test_use_stores_as_mappings(driver: TopologyTestDriver) -> None:
    numbers = driver.create_input_topic("numbers", STRING, LONG)
    StoreMap[str, int](driver.get_state_store("sums")).clear()
    numbers.pipe_key_value_list([("a", 2), ("b", 1), ("a", 5)])
    sums = driver.create_output_topic("sums", STRING, LONG)
    assert sums.read_key_values_to_list()[-3:] == [("a", 2), ("b", 1), ("a", 7)]
    counts = driver.get_key_value_store("counts")
    assert counts is not None
    assert dict(ReadOnlyStoreMap[str, int](counts)) == {"a": 2, "b": 1}
    with pytest.raises(KeyError):
        ReadOnlyStoreMap[str, int](counts)["z"]
    with pytest.raises(ValueError, match="no null values"):
        StoreMap[str, Any](driver.get_state_store("sums"))["a"] = None
