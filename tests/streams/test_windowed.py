"""Aggregations by windows, beside Java's: every kind of window, late records, emission, and stores."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Grouped, Materialized, Produced
from odradek.streams.errors import TopologyError
from odradek.streams.records import Window
from odradek.streams.serdes import STRING
from odradek.streams.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from tests.streams.oracle.implementations import Pass, Piped, both_refuse, records, same
from tests.streams.windowed_topologies import STRINGS, aggregated

pytestmark = [pytest.mark.jvm]

TUMBLING = TimeWindows.of_size_and_grace(20, 30)
HOPPING = TimeWindows.of_size_and_grace(20, 5).advance_by(7)
SLIDING = SlidingWindows.of_time_difference_and_grace(15, 40)
SESSIONS = SessionWindows.of_inactivity_gap_and_grace(10, 15)
ALIGNED = [TUMBLING, HOPPING, TimeWindows.of_size_with_no_grace(10), UnlimitedWindows.of().start_on(5)]
ALL = [*ALIGNED, SLIDING, SlidingWindows.of_time_difference_with_no_grace(1), SESSIONS]
CLOSE_TOGETHER = [TimeWindows.of_size_with_no_grace(5).advance_by(each) for each in (1, 2, 5)]
CLOSING = [each for each in ALL if not isinstance(each, UnlimitedWindows)]


def by_windows(windows: Any, emit: EmitStrategy | None = None, caching: bool = True) -> Any:
    def build(b: Any) -> None:
        windowed = b.stream("in", STRINGS).group_by_key().windowed_by(windows)
        if emit is not None:
            windowed = windowed.emit_strategy(emit)
        table = aggregated(windowed, windows, Materialized(value=STRING, caching=caching))
        table.to_stream().to("out")

    return build


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("windows", ALL, ids=str)
def test_every_kind_of_window(java: None, windows: Any, caching: bool) -> None:
    build = by_windows(windows, caching=caching)

    @settings(max_examples=7, deadline=None)
    @given(records("in"))
    def run(steps: list[Piped]) -> None:
        same(build, steps)

    run()


@pytest.mark.parametrize("emit", EmitStrategy)
@pytest.mark.parametrize("windows", [HOPPING, SLIDING, SESSIONS], ids=str)
def test_stores_in_memory_and_no_caches(java: None, windows: Any, emit: EmitStrategy) -> None:
    build = by_windows(windows, emit)

    @settings(max_examples=4, deadline=None)
    @given(records("in"))
    def run(steps: list[Piped]) -> None:
        same(build, steps, {"default.dsl.store": "in_memory", "statestore.cache.max.bytes": 0})

    run()


@pytest.mark.parametrize("windows", CLOSING, ids=str)
def test_results_are_emitted_once_when_windows_close(java: None, windows: Any) -> None:
    build = by_windows(windows, EmitStrategy.ON_WINDOW_CLOSE)
    steps = st.lists(st.one_of(records("in", most=4), st.just([Pass(1500)])), max_size=6)

    @settings(max_examples=7, deadline=None)
    @given(steps)
    def run(parts: list[list[Any]]) -> None:
        same(build, [step for part in parts for step in part])

    run()


@pytest.mark.parametrize("windows", CLOSE_TOGETHER, ids=str)
def test_an_emitted_window_is_not_emitted_again(java: None, windows: Any) -> None:
    """The last window of one check is not the first of the next."""
    for grace in range(4):
        build = by_windows(replace(windows, grace_ms=grace), EmitStrategy.ON_WINDOW_CLOSE)
        same(build, [("in", "k", str(at), at) for at in (0, 4, 5, 6, 12, 13, 14, 30, 31, 50)])


@pytest.mark.parametrize("windows", ALL, ids=str)
def test_count_and_reduce_and_operators_after_them(java: None, windows: Any) -> None:
    def build(b: Any) -> None:
        grouped = b.stream("in", STRINGS).group_by(
            lambda key, value: value or "none", Grouped(STRING, STRING, name="by-value")
        )
        counts = grouped.windowed_by(windows).count("counts")
        counts.filter(lambda key, value: value is not None and value > 1).to_stream().to("counted")
        reduced = grouped.windowed_by(windows).reduce(lambda one, other: one + other)
        reduced.map_values(lambda value: value + "!").to_stream(lambda key, value: str(key.key)).to("reduced")

    written = same(build, [("in", "k", value, 3 * at) for at, value in enumerate("abababccaab")])
    assert written["reduced"]


def test_one_window_after_the_other(java: None) -> None:
    steps = [("in", "a", "1", 0), ("in", "a", "2", 19), ("in", "a", "3", 20), ("in", "a", "late", 5)]
    written = same(by_windows(TUMBLING), steps)
    assert [each.value for each in written["out"]] == [b",1", b",1,2", b",3", b",1,2,late"]


def test_invalid_windows_are_rejected(java: None) -> None:
    for refused in (
        lambda b: b.stream("in", STRINGS).group_by_key().windowed_by(TUMBLING).count(Materialized("c", retention=10)),
        lambda b: b.stream("in", STRINGS).group_by_key().windowed_by(SESSIONS).count(Materialized("c", retention=10)),
        lambda b: by_windows(UnlimitedWindows.of(), EmitStrategy.ON_WINDOW_CLOSE)(b),
    ):
        _, ours = both_refuse(refused)
        assert isinstance(ours, TopologyError)
    for wrong in (
        lambda: TimeWindows.of_size_with_no_grace(0),
        lambda: TUMBLING.advance_by(21),
        lambda: SlidingWindows.of_time_difference_and_grace(1, -1),
        lambda: SessionWindows.of_inactivity_gap_with_no_grace(0),
    ):
        with pytest.raises(ValueError, match=r"must|should|cannot"):
            wrong()


class Aligned(Windows):
    """The windows of TimeWindows, as a user's own."""

    size_ms = 20
    grace_ms = 5

    def windows_for(self, timestamp: int) -> list[Window]:
        return HOPPING.windows_for(timestamp)


@pytest.mark.parametrize("emit", EmitStrategy)
@pytest.mark.parametrize("caching", [True, False])
def test_windows_of_a_users_own(java: None, emit: EmitStrategy, caching: bool) -> None:
    """Java's windows on one side, the same windows written by hand on the other."""

    def build(b: Any) -> None:
        windows = Aligned() if isinstance(b, StreamsBuilder) else HOPPING
        windowed = b.stream("in", STRINGS).group_by_key().windowed_by(windows).emit_strategy(emit)
        table = windowed.reduce(lambda one, other: f"{one}+{other}", Materialized(value=STRING, caching=caching))
        table.to_stream().map(lambda key, value: (str(key), value)).to("out")

    @settings(max_examples=8, deadline=None)
    @given(records("in"))
    def run(steps: list[Piped]) -> None:
        same(build, steps)

    run()


class Months(Windows):
    """Windows of different lengths."""

    size_ms = 31
    grace_ms = 0

    def windows_for(self, timestamp: int) -> list[Window]:
        starts = (0, 31, 59, 90)
        return [Window(start, end) for start, end in itertools.pairwise(starts) if start <= timestamp < end]


def test_windows_of_different_lengths_close_at_their_own_end() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in", STRINGS).group_by_key().windowed_by(Months()).count(Materialized(caching=False))
    table.to_stream().map(lambda key, count: (str(key), str(count))).to("out", Produced(STRING, STRING))
    with TopologyTestDriver(builder.build()) as driver:
        lines = driver.create_input_topic("in", STRING, STRING)
        for at in (30, 31, 58, 59, 58):  # the last is late: its window ended at 59
            lines.pipe_input("k", "v", timestamp=at)
        found = driver.create_output_topic("out", STRING, STRING).read_key_values_to_list()
        assert found == [("[k@0/31]", "1"), ("[k@31/59]", "1"), ("[k@31/59]", "2"), ("[k@59/90]", "1")]
        assert driver.dropped_records == 1
