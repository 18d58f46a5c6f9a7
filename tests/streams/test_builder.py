"""StreamsBuilder: its arguments, its error messages for invalid ones, and its types for type checkers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from mypy import api

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.graph import LONGEST_NAME, Graph
from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced, Repartitioned
from odradek.streams.errors import StreamsError, TopologyError
from odradek.streams.murmur2 import partition_of
from odradek.streams.operators.repartition import WindowedKeyPartitioner
from odradek.streams.processor import Processor
from odradek.streams.records import Record, Window, Windowed
from odradek.streams.serdes import BYTES, LONG, STRING, windowed_serde
from odradek.streams.stores.builders import key_value_store
from odradek.streams.topology import Topology
from tests.streams.oracle.implementations import Piped, both_refuse, same
from tests.streams.oracle.values import java_bytes

ROOT = Path(__file__).resolve().parents[2]


class Kept(Processor):
    """Fills a global store."""

    def process(self, record: Record) -> None:
        self.context.state_store("everywhere").put(record.key, f"{record.value}?")


class LookedUp(Processor):
    """Joins by hand with a store of its own and the global one."""

    def process(self, record: Record) -> None:
        seen = self.context.state_store("seen")
        seen.put(record.key, (seen.get(record.key) or 0) + 1)
        found = self.context.state_store("everywhere").get(record.key)
        self.context.forward(record.with_value(f"{record.value} {found} {seen.get(record.key)}"))


@pytest.mark.jvm
def test_custom_stores(java: Any) -> None:
    def build(builder: Any) -> None:
        builder.add_state_store(key_value_store("seen", STRING, LONG).with_logging({"retention.bytes": "5"}))
        builder.add_global_store(
            key_value_store("everywhere", STRING, STRING), "global", Consumed(STRING, STRING, name="filler"), Kept
        )
        builder.stream("in").process(LookedUp, "seen").to("out")

    steps = [Piped("global", "k", "v"), Piped("in", "k", "1"), Piped("in", "l", "2"), Piped("in", "k", "3")]
    written = same(build, steps)
    assert [each.value for each in written["out"]] == [b"1 v? 1", b"2 None 1", b"3 v? 2"]


@pytest.mark.jvm
def test_invalid_topologies_are_rejected_as_by_java(java: Any) -> None:
    store = key_value_store("s", STRING, LONG)
    other = key_value_store("s", STRING, STRING)
    both_refuse(lambda b: (b.add_state_store(store), b.add_state_store(other), b.stream("in").to("out")))
    both_refuse(lambda b: b.stream("in").process(LookedUp, "unknown").to("out"))
    both_refuse(lambda b: (b.stream("in", Consumed(offset_reset="latest")), b.stream("in").to("out")))
    both_refuse(lambda b: b.stream(["in", ""]).filter(lambda v: True, name="").to("out"))
    both_refuse(lambda b: b.stream("in").filter(lambda v: True, name="x" * 250).to("out"))
    both_refuse(lambda b: b.stream("in").filter(lambda v: True, name=".").to("out"))


def test_names() -> None:
    graph = Graph()
    assert graph.name(None, "KSTREAM-MAP-") == "KSTREAM-MAP-0000000000"
    assert graph.name("mine", "KSTREAM-MAP-", "-source") == "mine-source"
    assert graph.store_name("KSTREAM-REDUCE-") == "KSTREAM-REDUCE-STATE-STORE-0000000002"
    assert graph.name("x" * LONGEST_NAME, "") == "x" * LONGEST_NAME
    with pytest.raises(TopologyError, match="249"):
        graph.name("x" * LONGEST_NAME, "", "-sink")


def _refused(topology: Topology, key: Any = None, value: Any = None) -> str:
    config = {"default.key.serde": key, "default.value.serde": value}
    with pytest.raises(StreamsError) as caught:
        TopologyTestDriver(topology, {name: serde for name, serde in config.items() if serde is not None})
    return str(caught.value)


def test_a_missing_serde_is_reported_with_its_node() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(STRING, name="reader"))
    stream.map_values(len).to("out", Produced(name="writer"))
    printed = _refused(builder.build(), value=None)
    assert "writer" in printed or "reader" in printed
    assert "default.value.serde" in printed
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).map_values(len).to("out", Produced(name="writer"))
    printed = _refused(builder.build())
    assert all(word in printed for word in ("writer", "out", "Produced", "default.value.serde"))
    builder = StreamsBuilder()
    table = builder.table("rows", Consumed(STRING, STRING)).group_by(lambda key, value: (value, len(key)))
    table.reduce(max, min, "largest").to_stream().to("out", Produced(STRING, LONG))
    printed = _refused(builder.build(), key=STRING)
    assert all(word in printed for word in ("default.value.serde", "largest"))


TYPED = """
from typing import assert_type

from odradek.streams import (
    LONG, STRING, Consumed, Grouped, KGroupedStream, KStream, KTable, Materialized, Produced, StreamsBuilder, Topology
)

builder = StreamsBuilder()
lines: KStream[str, str] = builder.stream("text", Consumed(STRING, STRING))
assert_type(lines.map_values(len), KStream[str, int])
assert_type(lines.filter(lambda key, value: key < value), KStream[str, str])
assert_type(lines.map(lambda key, value: (len(key), b"x")), KStream[int, bytes])
words = lines.flat_map_values(str.split)
assert_type(words, KStream[str, str])
counts = words.group_by(lambda word: str(word), Grouped(STRING, STRING)).count("counts")
assert_type(counts, KTable[str, int])
assert_type(counts.map_values(float), KTable[str, float])
lengths = lines.group_by_key().aggregate(lambda: 0.5, lambda key, value, total: total + len(value))
assert_type(lengths, KTable[str, float])
counts.to_stream().to("out", Produced(STRING, LONG))
assert_type(builder.build(), Topology)
lines.to("typo", Produced(STRING, LONG))  # error
"""


@pytest.mark.slow
def test_types_are_inferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odradek").mkdir()  # the installed names, for mypy, which does not support editable installs
    for package in ("streams", "protocol"):
        (tmp_path / "odradek" / package).symlink_to(ROOT / package)
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    monkeypatch.chdir(tmp_path)
    out, errors, _ = api.run(["--strict", "--follow-imports=silent", "--explicit-package-bases", file.name])
    assert errors == ""
    wrong = [line for line in out.splitlines() if ": error:" in line]
    expected = TYPED.splitlines().index(next(line for line in TYPED.splitlines() if line.endswith("# error"))) + 1
    assert [int(line.split(":")[1]) for line in wrong] == [expected], out


@pytest.mark.jvm
@given(st.binary(max_size=40), st.integers(1, 1000))
def test_partitions_of_keys_are_javas(java: Any, key: bytes, partitions: int) -> None:
    utils = java.Utils
    theirs = utils.toPositive(utils.murmur2(java_bytes(key))) % partitions
    assert partition_of(key, partitions) == theirs
    windowed = Windowed(key, Window(5, 10))
    assert WindowedKeyPartitioner(windowed_serde(BYTES, 5))("topic", windowed, None, partitions) == theirs


def test_a_store_by_its_name_alone() -> None:
    for printed in ("rows", Materialized("rows")):
        builder = StreamsBuilder()
        table = builder.table("in", Consumed(STRING, STRING), printed)
        table.filter(lambda value: True)
        assert table.queryable_store_name == "rows"
        assert "stores: [rows]" in builder.build().describe()
    grouped = StreamsBuilder().stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    assert grouped.count().queryable_store_name is None


def test_options_can_be_created_with_their_types() -> None:
    """At run time, too, where Python notes the types on the object."""
    assert Consumed[str, int](key=STRING) == Consumed(key=STRING)
    assert Produced[str, int](key=STRING) == Produced(key=STRING)
    assert Grouped[str, int](key=STRING) == Grouped(key=STRING)
    assert Materialized[str, int](key=STRING) == Materialized(key=STRING)
    assert Repartitioned[str, int](key=STRING) == Repartitioned(key=STRING)
