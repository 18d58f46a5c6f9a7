"""sessions: both engines beside plain Python over the same batches; gaps that are exactly as long as a gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import sessions
from odradek.spark_jobs.session_state import Sessions, merged
from odradek.streams import BYTES, Consumed, Produced, SessionWindows, StreamsBuilder
from odradek.streams.driver import TopologyTestDriver
from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.copies import SCHEMA
from tests.spark_jobs.event_oracles import EPOCH_MS, Event, numbered
from tests.spark_jobs.sessions_job import GAP_MS, KEYS, LATENESS_MS, arguments, drawn, written
from tests.spark_jobs.topics import make_topics, unique, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ENGINES: Final = (sessions.SESSION_WINDOW, sessions.STATE)
STEPS: Final = st.sampled_from([0, 1, GAP_MS - 1, GAP_MS, GAP_MS + 1, 2 * GAP_MS])
"""From one click to the next: around a gap, and exactly one."""
CLICK: Final = st.tuples(st.sampled_from(KEYS), STEPS)
CLICKS: Final = st.lists(CLICK, max_size=25)


def by_steps(clicks: list[tuple[bytes, int]]) -> list[Event]:
    """Each click this many ms after the one before of its key."""
    times = dict.fromkeys(KEYS, 60_000)
    rows = []
    for key, step in clicks:
        times[key] += step
        rows.append((0, key, times[key]))
    return numbered(rows)


def test_both_engines_write_each_session_once_as_the_oracle_does(
    spark: SparkSession, spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    """test_kills shows that a session outlives the run that has begun it."""
    events = drawn(135, 1)
    topic, bootstrap = unique("sessions"), spark_broker.bootstrap
    make_topics(bootstrap, {topic: 2})
    write(bootstrap, oracle.records(topic, events))
    counts = []
    for engine in ENGINES:
        folder = tmp_path / engine
        assert sessions.main(arguments(bootstrap, topic, folder, engine)) == 0
        batches = oracle.batches_of(folder / "checkpoint", events, LATENESS_MS)
        assert sum(len(batch.events) for batch in batches) == len(events)
        expected = Counter(oracle.closed_sessions(batches, GAP_MS))
        assert written(folder) == expected, engine
        counts.append(expected)
    assert counts[0] == counts[1]
    assert expected != Counter(oracle.all_sessions(events, GAP_MS)), "no click was late"


@settings(max_examples=2)
@given(clicks=st.lists(CLICK, min_size=20, max_size=60))
def test_session_window_equals_plain_python(spark: SparkSession, clicks: list[tuple[bytes, int]]) -> None:
    events = by_steps(clicks)
    frame = spark.createDataFrame([each.row for each in oracle.records("t", events)], SCHEMA)
    rows = sessions.transform(frame, gap_ms=GAP_MS).collect()
    found = Counter((oracle.plain(key), oracle.ms(start), oracle.ms(end), count) for key, start, end, count in rows)
    assert found == Counter(oracle.all_sessions(events, GAP_MS))


@settings(max_examples=60)
@given(clicks=CLICKS, cuts=st.sets(st.integers(1, 24)), lateness_ms=st.sampled_from([0, 1, GAP_MS, 3 * GAP_MS]))
def test_the_state_processor_equals_plain_python(
    clicks: list[tuple[bytes, int]], cuts: set[int], lateness_ms: int
) -> None:
    """PySpark's own tester runs the processor without Spark: batches of any size, and a watermark that moves."""
    events = by_steps(clicks)
    borders = [0, *sorted(cut for cut in cuts if cut < len(events)), len(events)]
    parts = [events[begin:end] for begin, end in pairwise(borders)]
    batches = oracle.in_batches(parts, lateness_ms)
    assert Counter(by_tester(batches)) == Counter(oracle.closed_sessions(batches, GAP_MS))


def by_tester(batches: list[oracle.Batch]) -> Iterator[oracle.Session]:
    from pyspark.sql import Row
    from pyspark.sql.streaming.tws_tester import TwsTester

    tester = TwsTester(Sessions(GAP_MS), timeMode="EventTime", eventTimeExtractor=lambda row: int(row.end_ms))
    reached = 0
    for rows, _, closed in batches:
        found: list[Row] = []
        for key in dict.fromkeys(each.key for each in rows):
            ends = [EPOCH_MS + each.at + GAP_MS for each in rows if each.key == key]
            found += tester.test(key, [Row(end_ms=end) for end in ends])
        if EPOCH_MS + closed > reached:
            reached = EPOCH_MS + closed
            found += tester.setWatermark(reached)
        for key, start, end, count in found:
            yield key, start - EPOCH_MS, end - EPOCH_MS, count


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)), max_size=12))
def test_sessions_merge_as_far_as_they_touch(spans: list[tuple[int, int]]) -> None:
    given_sessions = [(start, start + length, 1) for start, length in spans]
    found = merged(given_sessions)
    assert sum(count for _, _, count in found) == len(spans)
    assert all(first[1] < second[0] for first, second in pairwise(found))
    covered = {2 * at for start, end, _ in found for at in range(start, end + 1)}
    covered |= {2 * at + 1 for start, end, _ in found for at in range(start, end)}
    wanted = {2 * at for start, end, _ in given_sessions for at in range(start, end + 1)}
    wanted |= {2 * at + 1 for start, end, _ in given_sessions for at in range(start, end)}
    assert covered == wanted


def test_clicks_exactly_a_gap_apart(spark: SparkSession) -> None:
    """One session for Spark and for Kafka Streams, where it ends at its last click; one ms more makes two for both."""
    events = numbered([(0, b"a", 0), (0, b"a", GAP_MS), (0, b"b", 0), (0, b"b", GAP_MS + 1)])
    frame = spark.createDataFrame([each.row for each in oracle.records("t", events)], SCHEMA)
    rows = sessions.transform(frame, gap_ms=GAP_MS).collect()
    found = {(oracle.plain(key), oracle.ms(start), oracle.ms(end), count) for key, start, end, count in rows}
    assert found == {
        (b"a", 0, 2 * GAP_MS, 2),
        (b"b", 0, GAP_MS, 1),
        (b"b", GAP_MS + 1, 2 * GAP_MS + 1, 1),
    }
    assert by_streams(events) == {(key, start, end - GAP_MS, count) for key, start, end, count in found}


def test_a_click_a_gap_later_than_a_closed_session_is_another_one_and_streams_still_adds_it() -> None:
    """Spark's session is closed when time has reached its end; that of streams when time has gone beyond it."""
    batches = [[Event(0, 0, b"a", 0)], [Event(0, 1, b"b", GAP_MS)], [Event(0, 2, b"c", GAP_MS)]]
    last = Event(0, 3, b"a", GAP_MS)
    done = oracle.in_batches([*batches, [last], [Event(0, 4, b"b", 9 * GAP_MS)]], 0)
    found = set(by_tester(done))
    assert found == set(oracle.closed_sessions(done, GAP_MS))
    assert {each for each in found if each[0] == b"a"} == {(b"a", 0, GAP_MS, 1), (b"a", GAP_MS, 2 * GAP_MS, 1)}
    assert (b"a", 0, GAP_MS, 2) in by_streams([*(each for batch in batches for each in batch), last])


def by_streams(events: list[Event]) -> set[tuple[bytes, int, int, int]]:
    """The sessions of the streams runtime after all records: key, first click, last click, count."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(BYTES, BYTES)).group_by_key().windowed_by(
        SessionWindows.of_inactivity_gap_with_no_grace(GAP_MS)
    ).count().to_stream().map(
        lambda key, value: (
            f"{key.key.decode()},{key.window.start},{key.window.end}".encode(),
            None if value is None else str(value).encode(),
        )
    ).to("out", Produced[Any, Any](BYTES, BYTES))
    with TopologyTestDriver(builder.build()) as driver:
        piped = driver.create_input_topic("in", BYTES, BYTES)
        for each in events:
            piped.pipe_input(each.key, b"", timestamp=EPOCH_MS + each.at)
        table = driver.create_output_topic("out", BYTES, BYTES).read_key_values_to_map()
    found = set()
    for name, count in table.items():
        key, start, end = name.split(b",")
        if count is not None:
            found.add((key, int(start) - EPOCH_MS, int(end) - EPOCH_MS, int(count)))
    return found
