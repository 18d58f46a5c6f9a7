"""odradek.streams.testing: the driver with one clock, golden topologies, strategies and properties."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from odradek.pytest_plugin import StreamsDriverFactory, TopologyAssertion
from odradek.streams import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LONG,
    SHORT,
    STRING,
    UUID,
    ArgumentError,
    Consumed,
    Grouped,
    Joined,
    Materialized,
    Processor,
    Produced,
    PunctuationType,
    Record,
    Serde,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    key_value_store,
    list_serde,
    windowed_serde,
)
from odradek.streams.testing import (
    GoldenTopologyError,
    StreamsDriver,
    compare_with_golden,
    interleavings,
    no_state_leak,
    records,
    same_result_despite_disorder,
    same_result_for_any_interleaving,
    values_of,
)
from odradek.streams.testing.golden import consequences

pytest_plugins = ["pytester"]
MINUTE = timedelta(minutes=1)
QUIET = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist")


def some(examples: int) -> settings:
    """Without shrinking, which takes most of the time of a failing property."""
    return settings(max_examples=examples, phases=[Phase.generate])


def kept() -> StreamsBuilder:
    """What was bought and not returned: one table of two topics."""
    builder = StreamsBuilder()
    bought = builder.stream("bought", Consumed(STRING, LONG)).group_by_key(Grouped(STRING, LONG))
    returned = builder.stream("returned", Consumed(STRING, LONG)).group_by_key(Grouped(STRING, LONG))
    total = bought.cogroup(lambda key, pieces, total: total + pieces)
    total = total.cogroup(returned, lambda key, pieces, total: total - pieces)
    total.aggregate(lambda: 0, Materialized("kept", STRING, LONG)).to_stream().to("totals", Produced(STRING, LONG))
    return builder


def enriched() -> StreamsBuilder:
    """A join that depends on the order of its topics."""
    builder = StreamsBuilder()
    rows = builder.table("rows", Consumed(STRING, STRING))
    orders = builder.stream("orders", Consumed(STRING, STRING))
    orders.left_join(rows, lambda order, row: f"{order} {row}", joined=Joined(STRING, STRING, STRING)).to(
        "enriched", Produced(STRING, STRING)
    )
    return builder


WINDOWED = windowed_serde(STRING, 60_000)


def highest(grace: timedelta) -> StreamsBuilder:
    """The maximum of each minute."""
    builder = StreamsBuilder()
    grouped = builder.stream("readings", Consumed(STRING, LONG)).group_by_key(Grouped(STRING, LONG))
    windowed = grouped.windowed_by(TimeWindows.of_size_and_grace(MINUTE, grace))
    windowed.reduce(max, Materialized("highest", STRING, LONG)).to_stream().to("highest", Produced(WINDOWED, LONG))
    return builder


class Deduplicate(Processor[str, str, str, str]):
    """Forwards the first record of each key, and forgets keys after a minute, if `forgets`."""

    forgets = True

    def init(self, context: Any) -> None:
        self.context, self.seen = context, context.state_store("seen")
        if self.forgets:
            context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, self.forget)

    def process(self, record: Record[str, str]) -> None:
        if self.seen.put_if_absent(record.key, self.context.current_system_time_ms) is None:
            self.context.forward(record)

    def forget(self, now_ms: int) -> None:
        with self.seen.all() as rows:
            expired = [key for key, since in rows if since <= now_ms - 60_000]
        for key in expired:
            self.seen.delete(key)


class Leaking(Deduplicate):
    forgets = False


def first_events(processor: Callable[[], Deduplicate] = Deduplicate) -> StreamsBuilder:
    builder = StreamsBuilder().add_state_store(key_value_store("seen", STRING, LONG))
    events = builder.stream("events", Consumed(STRING, STRING))
    events.process(processor, "seen").to("first", Produced(STRING, STRING))
    return builder


# ---- the driver


def test_one_clock_moves_records_and_punctuators(streams_driver: StreamsDriverFactory) -> None:
    driver = streams_driver(first_events(), start=datetime(2026, 1, 1, tzinfo=UTC))
    events = driver.topic("events")
    events.send("a", "1")
    driver.advance(timedelta(seconds=30))
    events.send("a", "2")
    events.send("b", "3", at=timedelta(seconds=10))
    assert driver.read("first") == [("a", "1"), ("b", "3")]
    driver.advance(timedelta(seconds=30))
    assert driver.now == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert driver.store("seen").get("a") is None, "a minute has passed"
    assert driver.store("seen").get("b") is not None
    events.send_all([("a", "4"), ("a", "5")], every=MINUTE)
    found = driver.topic("first").read_records()
    assert [(record.value, record.timestamp) for record in found] == [
        ("4", driver.time_of(MINUTE)),
        ("5", driver.time_of(2 * MINUTE)),
    ]
    assert driver.read("first") == []
    with pytest.raises(ValueError, match="time cannot go back"):
        driver.advance(-1)


def test_a_driver_takes_the_serdes_of_the_topology_or_of_the_configuration(
    streams_driver: StreamsDriverFactory,
) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    builder.stream("numbers", Consumed(STRING, LONG)).to(lambda key, value, source: key, Produced(STRING, LONG))
    driver = streams_driver(builder, {"default.key.serde": STRING, "default.value.serde": JSON})
    driver.topic("in").send("k", {"a": 1}, headers=[("h", b"1")])
    assert driver.read_records("out") == [Record("k", {"a": 1}, 0, [("h", b"1")])]
    driver.topic("numbers").send("chosen", 7)
    assert driver.read("chosen") == [("chosen", 7)]
    driver.topic("in", BYTES, BYTES).send(b"k", b"3")
    assert driver.topic("out", BYTES, BYTES).read() == [(b"k", b"3")]
    driver.topic("in").send("k", None)
    driver.topic("in").send("j", 1)
    assert driver.read_table("out") == {"j": 1}
    without = streams_driver(kept)
    with pytest.raises(StreamsError, match="topic other of the driver, which no node of the topology names"):
        without.topic("other")


def test_drivers_are_closed_with_their_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from odradek.streams import STRING, Consumed, StreamsBuilder

        opened = []

        def topology():
            builder = StreamsBuilder()
            builder.table("rows", Consumed(STRING, STRING), "kept")
            return builder

        def test_one(streams_driver, tmp_path):
            opened.extend(streams_driver(topology, {"state.dir": str(tmp_path / name)}) for name in "ab")
            assert all(each.driver.get_state_store("kept").is_open for each in opened)

        def test_two():
            assert len(opened) == 2
            assert not any(each.driver.get_state_store("kept").is_open for each in opened)
        """
    )
    pytester.runpytest(*QUIET).assert_outcomes(passed=2)


# ---- golden topologies


@pytest.mark.slow
def test_a_golden_topology_is_written_and_compared(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(
        """
        from odradek.streams import STRING, Consumed, StreamsBuilder

        def test_it(assert_topology_matches):
            builder = StreamsBuilder()
            builder.table("rows", Consumed(STRING, STRING), NAME)
            assert_topology_matches(builder, "golden/rows.txt")
        """.replace("NAME", "__import__('os').environ['STORE']")
    )

    def run(store: str, *options: str) -> pytest.RunResult:
        monkeypatch.setenv("STORE", store)
        return pytester.runpytest(*QUIET, *options)

    missing = run("kept")
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*there is no golden topology *rows.txt: run pytest with --update-golden once*"])
    run("kept", "--update-golden").assert_outcomes(passed=1)
    run("kept").assert_outcomes(passed=1)
    changed = run("other")
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(
        [
            "*-    Processor: KTABLE-SOURCE-0000000001 (stores: [[]kept[]])*",
            "*+    Processor: KTABLE-SOURCE-0000000001 (stores: [[]other[]])*",
            "*the state of kept is not read any more (<application.id>-kept-changelog)*",
            "*write the file again with pytest --update-golden*",
        ]
    )


def counting(**names: Any) -> str:
    builder = StreamsBuilder()
    words = builder.stream(names.get("topic", "text"), Consumed(STRING, STRING))
    for number in range(names.get("steps", 0)):
        words = words.map_values(str.upper, name=names.get("step") and f"{names['step']}{number}")
    grouped = words.group_by(lambda key, word: word, Grouped(STRING, STRING, names.get("grouped", "words")))
    grouped.count(names.get("store", "counts")).to_stream().to("out", Produced(STRING, LONG))
    return builder.build().describe()


@pytest.mark.parametrize(
    ("change", "meaning"),
    [
        ({"store": "totals"}, ["the state of counts is not read", "totals: empty after the upgrade"]),
        (
            {"grouped": "terms"},
            ["records that are in <application.id>-words-repartition at", "new internal topics: terms-repartition"],
        ),
        ({"topic": "lines"}, ["new input topics, read from auto.offset.reset on: lines", "input topics that are not"]),
        ({"steps": 1, "step": "upper"}, ["nothing is lost: stores and topics have the same names"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_a_changed_name_means_for_a_running_application(change: dict[str, Any], meaning: list[str]) -> None:
    found = consequences(counting(), counting(**change))
    assert [sentence[: len(expected)] for sentence, expected in zip(found, meaning, strict=True)] == meaning


def test_stores_that_move_to_other_tasks_are_reported() -> None:
    before = counting()
    after = before.replace("Sub-topology: 1", "Sub-topology: 2")
    (sentence,) = consequences(before, after)
    assert sentence.startswith("counts: in another sub-topology, so in tasks with other ids")


def test_a_golden_file_is_kept(tmp_path: Path, assert_topology_matches: TopologyAssertion) -> None:
    golden = tmp_path / "new" / "kept.txt"
    compare_with_golden(kept().build(), golden, update=True)
    assert_topology_matches(kept, golden)
    with pytest.raises(GoldenTopologyError, match=r"the topology is not that of kept\.txt"):
        assert_topology_matches(enriched, golden)


# ---- strategies


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_values_of_a_serde_round_trip(data: Any) -> None:
    serde: Serde[Any] = data.draw(
        st.sampled_from([STRING, LONG, INTEGER, SHORT, DOUBLE, FLOAT, BOOLEAN, BYTES, UUID, JSON])
    )
    value = data.draw(values_of(serde))
    assert serde.deserialize(serde.serialize(value)) == value


def test_serdes_without_known_values_ask_for_a_strategy() -> None:
    with pytest.raises(ArgumentError, match=r"such as st\.builds\(Order\)"):
        values_of(list_serde(LONG))


@given(records(STRING, LONG, disorder=5_000, lateness=MINUTE, tombstones=True, start=100))
@settings(max_examples=60)
def test_timestamps_are_within_their_bounds(drawn: list[Record[str, int]]) -> None:
    stream_time = None
    for record in drawn:
        assert record.timestamp >= 100
        if stream_time is not None:
            assert -60_000 <= record.timestamp - stream_time <= 10_000
        stream_time = max(record.timestamp, stream_time or 0)
    assert len({record.key for record in drawn}) <= 3


@given(records(STRING, LONG))
@settings(max_examples=20)
def test_timestamps_are_in_order_by_default(drawn: list[Record[str, int]]) -> None:
    times = [record.timestamp for record in drawn]
    assert times == sorted(times)
    assert None not in [record.value for record in drawn]


@pytest.mark.parametrize(
    "wanted",
    [
        lambda drawn: any(one.timestamp > other.timestamp + 5_000 for one, other in itertools.pairwise(drawn)),
        lambda drawn: any(0 < one.timestamp - other.timestamp <= 5_000 for one, other in itertools.pairwise(drawn)),
        lambda drawn: any(record.value is None for record in drawn),
        lambda drawn: len(drawn) > len({record.key for record in drawn}) > 1,
    ],
    ids=["late", "out of order", "tombstone", "keys that meet"],
)
def test_each_kind_of_record_is_drawn(wanted: Callable[[list[Record[Any, Any]]], bool]) -> None:
    drawn = records(STRING, LONG, disorder=5_000, lateness=MINUTE, tombstones=True)
    assert wanted(hypothesis.find(drawn, wanted, settings=some(300)))


def test_lateness_has_to_be_more_than_disorder() -> None:
    with pytest.raises(ArgumentError, match="has to be more than disorder"):
        records(STRING, LONG, disorder=10, lateness=10)


@given(st.data())
@settings(max_examples=20)
def test_an_interleaving_keeps_the_order_of_each_topic(data: Any) -> None:
    inputs = {topic: data.draw(records(STRING, LONG, max_size=4)) for topic in ("a", "b")}
    order = data.draw(interleavings(inputs))
    assert {topic: [record for name, record in order if name == topic] for topic in inputs} == inputs


# ---- properties: each holds for a right application, and fails for a wrong one

NUMBERS = st.integers(0, 100)
TWO = {"bought": records(STRING, NUMBERS, max_size=4), "returned": records(STRING, NUMBERS, max_size=4)}


def test_an_aggregation_of_two_topics_has_one_result() -> None:
    same_result_for_any_interleaving(kept, TWO, settings=some(10))


@pytest.mark.slow
def test_a_join_with_a_table_depends_on_the_order() -> None:
    inputs = {"rows": records(STRING, STRING, max_size=3), "orders": records(STRING, STRING, max_size=3)}
    with pytest.raises(AssertionError, match=r"(?s)orders <- .*has the result .*enriched"):
        same_result_for_any_interleaving(enriched, inputs, settings=some(100))


def test_a_grace_makes_windows_independent_of_disorder() -> None:
    inputs = {"readings": records(STRING, NUMBERS, max_size=5, step=MINUTE)}
    same_result_despite_disorder(highest(MINUTE), inputs, MINUTE, settings=some(15))


@pytest.mark.slow
def test_windows_without_grace_depend_on_disorder() -> None:
    inputs = {"readings": records(STRING, NUMBERS, max_size=5, step=MINUTE)}
    with pytest.raises(AssertionError, match=r"(?s)readings <- .*has the result .*highest"):
        same_result_despite_disorder(highest(timedelta()), inputs, MINUTE, settings=some(200))


def test_a_store_that_forgets_its_keys_does_not_leak() -> None:
    inputs = {"events": records(STRING, STRING, max_size=4)}
    no_state_leak(first_events, inputs, after=2 * MINUTE, settings=some(10))
    with pytest.raises(AssertionError, match=r"rows that are left, by store: \{'seen': "):
        no_state_leak(first_events(Leaking), inputs, after=2 * MINUTE, settings=some(30))


def test_rows_of_a_table_end_with_their_tombstones_and_sessions_with_later_ones() -> None:
    def rows() -> StreamsBuilder:
        builder = StreamsBuilder()
        builder.table("rows", Consumed(STRING, STRING), "kept")
        return builder

    no_state_leak(rows, {"rows": records(STRING, STRING, max_size=4, tombstones=True)}, settings=some(10))

    def sessions() -> StreamsBuilder:
        builder = StreamsBuilder()
        grouped = builder.stream("clicks", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
        grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(MINUTE)).count("sessions")
        return builder

    def one_more(driver: StreamsDriver, topic: str, key: str) -> None:
        driver.topic(topic).send(key, "later")

    clicks = {"clicks": records(STRING, STRING, max_size=4)}
    no_state_leak(sessions, clicks, closing=one_more, after=timedelta(days=2), most=3, settings=some(10))


@pytest.mark.slow
def test_without_hypothesis_the_error_names_the_extra() -> None:
    script = (
        "import sys\n"
        "sys.modules['hypothesis'] = sys.modules['hypothesis.strategies'] = None\n"
        "from odradek.streams import STRING, MissingExtraError\n"
        "from odradek.streams.testing import StreamsDriver, records, same_result_for_any_interleaving\n"
        "for call in (lambda: records(STRING, STRING), lambda: same_result_for_any_interleaving(None, {}) ):\n"
        "    try: call()\n"
        "    except MissingExtraError as error: print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.count("install odradek with its extra 'testing'") == 2
