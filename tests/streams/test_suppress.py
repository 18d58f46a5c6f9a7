"""suppress() and co-groups, beside Java's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from odradek.streams.dsl.options import Grouped, Materialized
from odradek.streams.dsl.suppress import BufferConfig, Suppressed
from odradek.streams.serdes import STRING
from odradek.streams.windows import SessionWindows, SlidingWindows, TimeWindows
from tests.streams.oracle.implementations import Piped, both_refuse, records, same
from tests.streams.windowed_topologies import STRINGS, aggregated, joined, merged

pytestmark = [pytest.mark.jvm]

TUMBLING = TimeWindows.of_size_and_grace(20, 10)
SLIDING = SlidingWindows.of_time_difference_and_grace(15, 10)
SESSIONS = SessionWindows.of_inactivity_gap_and_grace(10, 15)
UNTIL_CLOSED = Suppressed.until_window_closes(BufferConfig.unbounded())


def check(build: Any, *topics: str, examples: int = 10) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(records(*topics))
    def run(steps: list[Piped]) -> None:
        same(build, steps)

    run()


@pytest.mark.parametrize("windows", [TUMBLING, SLIDING, SESSIONS], ids=str)
def test_one_result_for_each_window(java: None, windows: Any) -> None:
    def build(b: Any) -> None:
        table = aggregated(b.stream("in", STRINGS).group_by_key().windowed_by(windows), windows)
        table.suppress(UNTIL_CLOSED.with_name("final")).to_stream().to("out")
        table.filter(lambda key, value: value != ",1").suppress(UNTIL_CLOSED).map_values(str.upper).to_stream().to(
            "more"
        )

    check(build, "in")


@pytest.mark.parametrize(
    "buffer",
    [
        BufferConfig.unbounded().emit_early_when_full(),
        BufferConfig.max_records(2),
        BufferConfig.max_bytes(120),
        BufferConfig.max_records(1).with_logging_disabled(),
        BufferConfig.max_records(0),
    ],
    ids=str,
)
def test_at_most_one_change_in_an_interval(java: None, buffer: BufferConfig) -> None:
    def build(b: Any) -> None:
        table = b.table("in", STRINGS, materialized=Materialized("rows"))
        table.suppress(Suppressed.until_time_limit(15, buffer)).to_stream().to("out")

    check(build, "in")


def test_downstream_nodes_see_the_last_emitted_value(java: None) -> None:
    def build(b: Any) -> None:
        held = b.table("in", STRINGS).suppress(Suppressed.until_time_limit(10, BufferConfig.max_records(3)))
        held.group_by(lambda key, value: (value, value), Grouped(name="by-value")).count("counts").to_stream().to("out")

    check(build, "in")


def test_a_buffer_that_is_full_ends_the_application(java: None) -> None:
    def build(b: Any) -> None:
        bounded = BufferConfig.max_records(1).shut_down_when_full()
        table = b.table("in", STRINGS, Materialized("rows", caching=False))
        table.suppress(Suppressed.until_time_limit(10, bounded)).to_stream().to("out")

    theirs, ours = both_refuse(build, [("in", "a", "1", 0), ("in", "b", "1", 1)])
    assert "processor=KSTREAM-SOURCE-0000000000, topic=in, partition=0, offset=1" in theirs
    assert "exceeded its max capacity. Currently [2/1] records" in str(ours)


def test_unsupported_suppressions_are_rejected(java: None) -> None:
    _, ours = both_refuse(lambda b: b.table("in", STRINGS).suppress(UNTIL_CLOSED))
    assert "until_time_limit" in str(ours)
    with pytest.raises(ValueError, match="shut_down_when_full"):
        Suppressed.until_window_closes(BufferConfig.max_records(3))


def shout(key: str, value: str | None, so_far: str) -> str:
    return so_far + ";" + (value or "-").upper()


def cogrouped(b: Any, repartitioned: bool = False) -> Any:
    left, right = b.stream("left", STRINGS), b.stream("right", STRINGS)
    if repartitioned:
        right = right.select_key(lambda key, value: value or "none")
    return left.group_by_key().cogroup(joined).cogroup(right.group_by_key(), shout)


@pytest.mark.parametrize("repartitioned", [False, True])
@pytest.mark.parametrize(
    "materialized", [Materialized(value=STRING), Materialized("totals", value=STRING, caching=False)]
)
def test_cogroup(java: None, repartitioned: bool, materialized: Any) -> None:
    def build(b: Any) -> None:
        cogrouped(b, repartitioned).aggregate(lambda: "", materialized).to_stream().to("out")

    check(build, "left", "right")


@pytest.mark.parametrize("windows", [TUMBLING, SLIDING, SESSIONS], ids=str)
def test_cogroup_by_windows(java: None, windows: Any) -> None:
    def build(b: Any) -> None:
        windowed, printed = cogrouped(b).windowed_by(windows), Materialized(key=STRING, value=STRING)
        if isinstance(windows, SessionWindows):
            table = windowed.aggregate(lambda: "", merged, printed)
        else:
            table = windowed.aggregate(lambda: "", printed, name="both")
        table.to_stream().to("out")

    check(build, "left", "right")
