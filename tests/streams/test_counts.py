"""Counts, which take ways of their own with a cache and without: their results are those of the same count as an
aggregation, whose results tests compare with Java's.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.streams import INTEGER, LONG, STRING, Consumed, Grouped, Materialized, StreamsBuilder, TopologyTestDriver
from odradek.streams.dsl.options import Produced
from odradek.streams.errors import StreamsError
from odradek.streams.operators.windowed import windows_around
from odradek.streams.serdes import Serde
from odradek.streams.serdes.windowed import windowed_serde
from odradek.streams.topology import Topology
from odradek.streams.windows import TimeWindows
from tests.streams.stores.implementations import IN_MEMORY

RECORDS = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b", "ab"]),
        st.sampled_from(["x", None]),
        st.integers(0, 60),
        st.sampled_from([[], [("h", b"")]]),
    ),
    max_size=25,
)
WINDOWS = st.builds(
    lambda size, share, grace: TimeWindows.of_size_and_grace(size, grace).advance_by(max(1, size * share // 6)),
    st.integers(1, 30),
    st.integers(1, 6),
    st.integers(0, 20),
)


def counted(windows: TimeWindows | None, rows: list[Any], how: str, cache_bytes: int, value: Serde[int]) -> Any:
    """All written records by topic, and the number of dropped ones. `how` is the operator."""
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    if windows is not None:
        grouped = grouped.windowed_by(windows)
    stored = Materialized("counts", STRING, value)
    if how == "count":
        table = grouped.count(stored)
    else:
        table = grouped.aggregate(lambda: 0, lambda key, word, so_far: so_far + 1, stored)
    keys: Any = STRING if windows is None else windowed_serde(STRING, windows.size_ms)
    table.to_stream().to("out", Produced(keys, value))
    config: dict[str, Any] = {"application.id": "counts", "statestore.cache.max.bytes": cache_bytes}
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        if not cache_bytes:  # counts of a store on disk have a way of their own without a cache, too
            config["state.dir"] = folder
        return run(builder.build(), config, rows)


def run(topology: Topology, config: dict[str, Any], rows: list[Any]) -> Any:
    """The same of a topology."""
    with TopologyTestDriver(topology, config) as driver:
        pipe = driver.create_input_topic("in", STRING, STRING)
        for key, word, timestamp, headers in rows:
            pipe.pipe_input(key, word, timestamp=timestamp, headers=headers)
        topics = sorted(driver.produced_topic_names())
        written = {topic: list(iter(functools.partial(driver.read, topic), None)) for topic in topics}
        dropped = [each for name, each in driver.metrics().items() if name.name == "dropped-records-total"]
    return written, dropped


@given(st.one_of(st.none(), WINDOWS), RECORDS, st.sampled_from([0, 150, 400, 10_000]), st.sampled_from([LONG, INTEGER]))
@settings(max_examples=60, deadline=None)
@example(
    TimeWindows.of_size_with_no_grace(10).advance_by(5), [("a", "x", time, []) for time in (9, 10, 9, 15, 9)], 400, LONG
)
@example(None, [("a", "x", time, []) for time in (9, 10, 9)], 0, LONG)
def test_a_count_is_an_aggregation(
    windows: TimeWindows | None, rows: list[Any], cache_bytes: int, value: Serde[int]
) -> None:
    found, expected = (counted(windows, rows, how, cache_bytes, value) for how in ("count", "aggregate"))
    assert found == expected


@given(WINDOWS, st.integers(0, 200))
def test_windows_are_those_of_all_timestamps_between(windows: TimeWindows, timestamp: int) -> None:
    found, first, last = windows_around(windows, timestamp)
    starts = [start for start, _ in found]
    assert first <= timestamp <= last
    assert all(list(windows.starts_for(each)) == starts for each in range(first, last + 1))
    assert list(windows.starts_for(last + 1)) != starts
    assert first == 0 or list(windows.starts_for(first - 1)) != starts


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
@pytest.mark.parametrize("windows", [None, TimeWindows.of_size_with_no_grace(10)], ids=["table", "windows"])
def test_an_error_of_the_serializer_names_the_store(
    windows: TimeWindows | None, cache_bytes: int, tmp_path: Path
) -> None:
    def refuse(key: str) -> bytes:
        raise ValueError("not this key")

    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", Consumed(STRING, STRING)).group_by_key()
    if windows is not None:
        grouped = grouped.windowed_by(windows)
    grouped.count(Materialized("counts", Serde(refuse, bytes.decode), LONG))
    config = {"statestore.cache.max.bytes": cache_bytes, "state.dir": str(tmp_path)}
    with TopologyTestDriver(builder.build(), config) as driver:
        pipe = driver.create_input_topic("in", STRING, STRING)
        with pytest.raises(StreamsError, match=r"counts.*not this key"):
            pipe.pipe_input("a", "x", timestamp=1)


@pytest.mark.parametrize("cache_bytes", [0, 10_000])
def test_a_count_that_does_not_fit_names_the_store(cache_bytes: int, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in", Consumed(STRING, STRING)).group_by_key()
    grouped.count(Materialized("counts", STRING, LONG))
    config = {"statestore.cache.max.bytes": cache_bytes, "state.dir": str(tmp_path)}
    with TopologyTestDriver(builder.build(), config) as driver:
        store: Any = driver.get_timestamped_key_value_store("counts")
        store.put("a", (2**63 - 1, 1))
        pipe = driver.create_input_topic("in", STRING, STRING)
        with pytest.raises(StreamsError, match=r"counts: the value serde cannot take this value of type int"):
            pipe.pipe_input("a", "x", timestamp=2)
        assert store.get("a") == (2**63 - 1, 1)
