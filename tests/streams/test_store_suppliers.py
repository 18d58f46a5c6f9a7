"""Suppliers of the DSL's stores (KIP-954), compared with Java's, and stores of bytes of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from odradek.streams.config import StreamsConfigError
from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced, StreamJoined
from odradek.streams.errors import TopologyError
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores.builders import StoreBuilder, session_store
from odradek.streams.stores.maps import BytesMap, Cells, MemoryMap
from odradek.streams.stores.suppliers import (
    DslKeyValueParams,
    DslSessionParams,
    DslStoreSuppliers,
    DslWindowParams,
    InMemoryDslStoreSuppliers,
    RocksDBDslStoreSuppliers,
)
from odradek.streams.topology import Topology
from odradek.streams.windows import EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, TimeWindows
from tests.streams.oracle.java import Java

HERE = "tests.streams.test_store_suppliers"


class PythonMap:
    """A store of bytes of a user's own, which refuses anything else."""

    opened: ClassVar[dict[str, PythonMap]] = {}

    def __init__(self, name: str, folder: Path | None) -> None:
        self.rows = MemoryMap()
        self.folder = folder
        self.opened[name] = self

    def get(self, key: bytes) -> Any:
        return self.rows.get(key)

    def put(self, key: bytes, cell: Any) -> None:
        assert type(key) is bytes
        assert cell is None or type(cell) is bytes
        self.rows.put(key, cell)

    def write(self, rows: Iterable[tuple[bytes, Any]]) -> None:
        for key, cell in rows:
            self.put(key, cell)

    def range(
        self, low: bytes | None = None, high: bytes | None = None, inclusive: bool = True, reverse: bool = False
    ) -> Cells:
        return self.rows.range(low, high, inclusive, reverse)

    def delete_range(self, low: bytes, high: bytes) -> None:
        self.rows.delete_range(low, high)

    def __len__(self) -> int:
        return len(self.rows)

    def flush(self) -> None:
        self.rows.flush()

    def close(self) -> None:
        self.rows.close()


def python_map(name: str, folder: Path | None) -> BytesMap:
    return PythonMap(name, folder)


class OwnSuppliers(InMemoryDslStoreSuppliers):
    """Every store in a PythonMap."""

    configured: ClassVar[list[str]] = []

    def configure(self, config: Any) -> None:
        """Note the application."""
        self.configured.append(config["application.id"])

    def key_value_store(self, params: DslKeyValueParams) -> StoreBuilder:
        """Rows of a table."""
        return replace(super().key_value_store(params), bytes_map=python_map)

    def window_store(self, params: DslWindowParams) -> StoreBuilder:
        """Windows."""
        return replace(super().window_store(params), bytes_map=python_map)

    def session_store(self, params: DslSessionParams) -> StoreBuilder:
        """Sessions."""
        return replace(super().session_store(params), bytes_map=python_map)


def everything(store_type: Any = None) -> Topology:
    """A store of each kind, without names of types of stores unless one is given."""
    builder = StreamsBuilder()
    source = builder.stream("in", Consumed(STRING, STRING))
    grouped = source.group_by_key(Grouped(STRING, STRING))
    tumbling = TimeWindows.of_size_and_grace(10, 0)

    def stored(name: str) -> Materialized[Any, Any]:
        return Materialized(name, store_type=store_type)

    grouped.count(stored("counts")).to_stream().to("out", Produced(STRING, LONG))
    counted = grouped.windowed_by(tumbling).count(stored("windows"))
    counted.to_stream(lambda window, count: f"tumbling{window.window.start}").to("out", Produced(STRING, LONG))
    sliding = grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(5, 9)).count(stored("sliding"))
    sliding.to_stream(lambda window, count: f"sliding{window.window.start}").to("out", Produced(STRING, LONG))
    final = grouped.windowed_by(tumbling).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(stored("final"))
    final.to_stream(lambda window, count: f"final{window.window.start}").to("out", Produced(STRING, LONG))
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).count(stored("sessions"))
    sessions.to_stream(lambda window, count: f"session{window.window.end}").to("out", Produced(STRING, LONG))
    near = JoinWindows.of_time_difference_and_grace(4, 20)
    options = StreamJoined(STRING, STRING, STRING, store_name="join", store_type=store_type)
    other = builder.stream("other", Consumed(STRING, STRING))
    joined = source.outer_join(other, lambda left, right: len(f"{left}{right}"), near, options)
    joined.to("out", Produced(STRING, LONG))
    return builder.build()


def results(topology: Topology, **config: Any) -> tuple[list[Any], dict[str, bool]]:
    """The output, and which stores are persistent."""
    with TopologyTestDriver(topology, {name.replace("_", "."): value for name, value in config.items()}) as driver:
        topics = [driver.create_input_topic(name, STRING, STRING) for name in ("in", "other")]
        for at in range(0, 90, 3):
            topics[at % 2].pipe_input("ab"[at % 5 < 2], f"{at}", timestamp=100 + at - 6 * (at % 4 == 3))
        out = driver.create_output_topic("out", STRING, LONG).read_records_to_list()
        return out, {name: store.persistent for name, store in driver.get_all_state_stores().items()}


def test_suppliers_choose_the_place_and_change_no_result() -> None:
    expected, kinds = results(everything())
    assert len(expected) > 50
    assert len(kinds) == 8
    for config, persistent in (
        ({"dsl_store_suppliers_class": InMemoryDslStoreSuppliers}, False),
        ({"dsl_store_suppliers_class": RocksDBDslStoreSuppliers(), "default_dsl_store": "in_memory"}, True),
        ({"dsl_store_suppliers_class": f"{HERE}.OwnSuppliers"}, False),
    ):
        found, places = results(everything(), **config)
        assert set(places.values()) == {persistent}, places
        assert sorted(found, key=str) == sorted(expected, key=str)
    assert PythonMap.opened.keys() == kinds.keys()
    assert OwnSuppliers.configured


def test_an_operator_s_suppliers_are_its_own() -> None:
    PythonMap.opened.clear()
    expected, kinds = results(everything())
    found, _ = results(everything(OwnSuppliers()), dsl_store_suppliers_class=RocksDBDslStoreSuppliers)
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert PythonMap.opened.keys() == kinds.keys()


def test_the_kinds_are_java_s(java: Java) -> None:
    """Java's built-in suppliers choose persistent stores, or stores in memory, for the same parameters."""
    for ours, name in ((RocksDBDslStoreSuppliers(), "RocksDB"), (InMemoryDslStoreSuppliers(), "InMemory")):
        theirs = java.find(f"org.apache.kafka.streams.state.BuiltInDslStoreSuppliers${name}DslStoreSuppliers")()
        stores = theirs.keyValueStore(java.DslKeyValueParams("s", True)).get()
        assert ours.key_value_store(DslKeyValueParams("s", True)).persistent == bool(stores.persistent())
        millis, update = java.Duration.ofMillis, java.EmitStrategy.onWindowUpdate()
        window = java.DslWindowParams("s", millis(100), millis(10), False, update, False, True)
        java_window = theirs.windowStore(window)
        our_window = ours.window_store(DslWindowParams("s", 100, 10, False, True, False))
        assert our_window.persistent == bool(java_window.get().persistent())
        assert our_window.retention_ms == int(java_window.retentionPeriod())
        assert our_window.window_size_ms == int(java_window.windowSize())
        java_session = theirs.sessionStore(java.DslSessionParams("s", millis(100), update))
        our_session = ours.session_store(DslSessionParams("s", 100, False))
        assert our_session.persistent == bool(java_session.get().persistent())
        assert our_session.retention_ms == int(java_session.retentionPeriod())


def test_java_s_names_and_wrong_values() -> None:
    name = "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"
    _, places = results(everything(), dsl_store_suppliers_class=name)
    assert set(places.values()) == {False}
    for wrong in (5, "no.such.module", StoreBuilder):
        with pytest.raises((StreamsConfigError, TypeError)):
            results(everything(), dsl_store_suppliers_class=wrong)


def test_a_supplier_of_the_wrong_kind_is_an_error() -> None:
    class Wrong(InMemoryDslStoreSuppliers):
        def key_value_store(self, params: DslKeyValueParams) -> StoreBuilder:
            return session_store(params.name, 10, None, None)

    suppliers: DslStoreSuppliers = Wrong()
    with pytest.raises(TopologyError, match="Wrong returned a session store for counts, a key-value store"):
        results(everything(), dsl_store_suppliers_class=suppliers)
