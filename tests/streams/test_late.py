"""Streams of late records: each record that Java counts as dropped, once for each of its closed windows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given, settings

from odradek.streams import (
    JSON,
    LONG,
    STRING,
    Consumed,
    EmitStrategy,
    Grouped,
    Materialized,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    TopologyTestDriver,
    Window,
    Windowed,
    Windows,
    session_windowed_serde,
    windowed_serde,
)
from odradek.streams.operators.emission import LateRecords
from odradek.streams.windows import UnlimitedWindows
from tests.streams.oracle.implementations import Pair, Piped, records
from tests.streams.windowed_topologies import STRINGS, aggregated

HOPPING: Final = TimeWindows.of_size_and_grace(20, 5).advance_by(7)


class Own(Windows):
    """Windows of a user's own."""

    size_ms = 20
    grace_ms = 5

    def windows_for(self, timestamp: int) -> list[Window]:
        return HOPPING.windows_for(timestamp)

    def __repr__(self) -> str:
        return "Own()"  # the name of a test is the same in every process


KINDS: Final[list[Any]] = [
    TimeWindows.of_size_and_grace(20, 30),
    HOPPING,
    SlidingWindows.of_time_difference_and_grace(15, 10),
    SlidingWindows.of_time_difference_with_no_grace(5),
    SessionWindows.of_inactivity_gap_and_grace(10, 15),
    UnlimitedWindows.of(),
]


@pytest.mark.jvm
@pytest.mark.parametrize("emit", EmitStrategy)
@pytest.mark.parametrize("windows", KINDS, ids=str)
def test_late_records_are_those_that_java_drops(java: Any, windows: Any, emit: EmitStrategy) -> None:
    if isinstance(windows, UnlimitedWindows) and emit is EmitStrategy.ON_WINDOW_CLOSE:
        return  # they never close, and Java rejects it
    late: list[tuple[Windowed[str], str]] = []

    def build(builder: Any) -> None:
        windowed = builder.stream("in", STRINGS).group_by_key().windowed_by(windows).emit_strategy(emit)
        aggregated(windowed, windows, Materialized(value=STRING)).to_stream().to("out")
        if isinstance(builder, StreamsBuilder):
            windowed.late().foreach(lambda windowed, value: late.append((windowed, value)))

    @settings(max_examples=6, deadline=None)
    @given(records("in", null_keys=False, null_values=False))
    def run(steps: list[Piped]) -> None:
        late.clear()
        with Pair(build) as both:
            for step in steps:
                both.step(step)
            both.written()
            both.assert_same_stores()
            both.assert_same_drops()
            assert len(late) == both.ours.dropped_records
        assert {(windowed.key, value) for windowed, value in late} <= {(step.key, step.value) for step in steps}

    run()


def late_of(windows: Any, *times: int) -> list[tuple[Windowed[str], str, int, Any]]:
    """The late records of one key with these timestamps; values are their numbers."""
    builder = StreamsBuilder()
    windowed = builder.stream("in", Consumed(STRING, JSON)).group_by_key().windowed_by(windows)
    windowed.count()
    windowed.late().to("late")
    keys = session_windowed_serde(STRING) if isinstance(windows, SessionWindows) else windowed_serde(STRING, 20)
    config = {"default.key.serde": STRING, "default.value.serde": JSON}
    with TopologyTestDriver(builder.build(), config) as driver:
        piped = driver.create_input_topic("in", STRING, JSON)
        for number, time in enumerate(times):
            piped.pipe_input("k", number, timestamp=time, headers=[("n", b"%d" % number)])
        found = driver.create_output_topic("late", keys, JSON).read_records_to_list()
    return [(each.key, each.value, each.timestamp, each.headers) for each in found]


@pytest.mark.parametrize(
    ("windows", "times", "late"),
    [
        (TimeWindows.of_size_and_grace(20, 5), (24, 19, 25, 19), [(3, 0, 20)]),
        (TimeWindows.of_size_with_no_grace(20).advance_by(10), (39, 15, 25), [(1, 0, 20), (1, 10, 30), (2, 10, 30)]),
        (Own(), (40, 20), [(1, 7, 27), (1, 14, 34)]),
        (SlidingWindows.of_time_difference_with_no_grace(20), (100, 79, 80), [(1, 79, 99), (2, 60, 80)]),
        (SessionWindows.of_inactivity_gap_with_no_grace(5), (10, 16, 10, 12), [(2, 10, 10)]),
        (SessionWindows.of_inactivity_gap_with_no_grace(5), (10, 30, 12), [(2, 10, 12)]),
    ],
    ids=str,
)
def test_a_late_record_has_the_window_that_missed_it(
    windows: Any, times: tuple[int, ...], late: list[tuple[int, int, int]]
) -> None:
    wanted = [
        (Windowed("k", Window(start, end)), number, times[number], [("n", b"%d" % number)])
        for number, start, end in late
    ]
    assert late_of(windows, *times) == wanted


def test_a_result_follows_the_late_records_of_its_record_with_its_own_headers() -> None:
    """A node after the late records cannot change what the windows that are open write and forward."""
    builder = StreamsBuilder()
    windowed = builder.stream("in", Consumed(STRING, LONG)).group_by_key(Grouped(STRING, LONG)).windowed_by(HOPPING)
    counts = windowed.count(Materialized("counts", caching=False))
    windowed.late().map(lambda windowed, value: (windowed.key, value)).to_table(Materialized("late", STRING, LONG))
    counts.to_stream(lambda windowed, count: windowed.key).to("counts", Produced(STRING, LONG))
    with TopologyTestDriver(builder.build(), {"application.id": "app", "statestore.cache.max.bytes": 0}) as driver:
        piped = driver.create_input_topic("in", STRING, LONG)
        piped.pipe_input("k", 1, timestamp=45)
        piped.pipe_input("k", 2, timestamp=22, headers=[("h", b"1")])
        counted = driver.create_output_topic("counts", STRING, LONG).read_records_to_list()
        assert [(each.timestamp, each.headers) for each in counted[-1:]] == [(22, [("h", b"1")])]
        late = driver.get_timestamped_key_value_store("late")
        assert late is not None
        assert late.get("k") == (2, 22)
        logged = []
        while (record := driver.read("app-counts-changelog")) is not None:
            logged.append(record.timestamp)
        assert logged == [45, 45, 45, 22]


def test_the_late_records_are_those_of_the_first_aggregation() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in", STRINGS).group_by_key().windowed_by(HOPPING)
    with pytest.raises(TopologyError, match=r"late\(\) follows an aggregation"):
        windowed.late()
    windowed.count(name="first")
    windowed.count(name="second")
    late = windowed.late(name="too-late")
    assert windowed.late() is late
    topology = builder.build()
    assert topology.nodes["first"].children == ["too-late"]
    assert topology.nodes["second"].children == []


def test_the_record_stays_the_current_one_after_nodes_downstream_have_set_another() -> None:
    task: Any = SimpleNamespace(topic="in", partition=0, offset=1, timestamp=5, headers=[("h", b"1")])

    def forward(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        task.timestamp, task.headers = 99, None

    dropped: list[int] = []
    node: Any = SimpleNamespace(task=task, child={"late": forward}.__getitem__, dropped=lambda: dropped.append(1))
    LateRecords(node, "late").drop(Windowed("k", Window(0, 10)), "v", 5, [("h", b"1")], 20, 20)
    assert (task.timestamp, task.headers, len(dropped)) == (5, [("h", b"1")], 1)
