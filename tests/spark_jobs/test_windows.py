"""windows: beside plain Python over the same batches, beside a recomputation, and beside the streams runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import windows
from odradek.streams import BYTES, Consumed, Produced, StreamsBuilder, TimeWindows
from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.suppress import BufferConfig, Suppressed
from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.checkpoints import forget_last_commit
from tests.spark_jobs.copies import SCHEMA
from tests.spark_jobs.event_oracles import EPOCH_MS, Event, numbered
from tests.spark_jobs.topics import make_topics, unique, write
from tests.spark_jobs.windows_job import ADVANCE_MS, LATENESS_MS, SIZE_MS, arguments, as_rows, drawn, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

CALM: Final = 140


def calm_then_wild() -> list[Event]:
    """CALM events, none of them late, and half as many, some of which are."""
    calm = [(each.partition, each.key or b"c", each.at) for each in drawn(CALM, 2, disorder_ms=1_000)]
    wild = [(each.partition, each.key, each.at) for each in drawn(CALM + CALM // 2, 1, disorder_ms=60_000)[CALM:]]
    return numbered([*calm, *wild])


def test_windows_are_written_once_and_equal_the_oracle_a_recomputation_and_streams(
    spark: SparkSession, spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    """The job ends, continues with late records, and repeats the last batch, whose end was not recorded."""
    events = calm_then_wild()
    calm = events[:CALM]
    recomputed = oracle.all_windows(calm, SIZE_MS, ADVANCE_MS)
    reached = max(each.at for each in calm) - LATENESS_MS
    expected = as_rows({window: count for window, count in recomputed.items() if window[2] <= reached})
    assert len(expected) > 10
    assert Counter(by_streams(calm)) == expected
    topic, bootstrap, folder = unique("windows"), spark_broker.bootstrap, tmp_path
    make_topics(bootstrap, {topic: 2})
    write(bootstrap, oracle.records(topic, calm))
    assert windows.main(arguments(bootstrap, topic, folder)) == 0
    assert written(folder) == expected

    write(bootstrap, oracle.records(topic, events[CALM:]))
    assert windows.main(arguments(bootstrap, topic, folder)) == 0
    batches = oracle.batches_of(folder / "checkpoint", events, LATENESS_MS)
    assert sum(len(batch.events) for batch in batches) == len(events)
    assert len([batch for batch in batches if batch.events]) == 3
    expected = as_rows(oracle.closed_windows(batches, SIZE_MS, ADVANCE_MS))
    assert written(folder) == expected
    late = oracle.all_windows(events, SIZE_MS, ADVANCE_MS)
    assert any(late[row[:3]] != row[3] for row in expected), "no record was late"
    forget_last_commit(folder / "checkpoint")
    assert windows.main(arguments(bootstrap, topic, folder)) == 0
    assert written(folder) == expected


def by_streams(events: list[Event]) -> list[tuple[Any, ...]]:
    """The windows that the streams runtime writes when they are closed."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(BYTES, BYTES)).group_by_key().windowed_by(
        TimeWindows.of_size_and_grace(SIZE_MS, LATENESS_MS).advance_by(ADVANCE_MS)
    ).count().suppress(Suppressed.until_window_closes(BufferConfig.unbounded())).to_stream().map(
        lambda key, value: (b"", f"{key.key.decode()},{key.window.start},{key.window.end},{value}".encode())
    ).to("out", Produced(BYTES, BYTES))
    with TopologyTestDriver(builder.build()) as driver:
        piped = driver.create_input_topic("in", BYTES, BYTES)
        for each in events:
            piped.pipe_input(each.key, b"", timestamp=EPOCH_MS + each.at)
        values = driver.create_output_topic("out", BYTES, BYTES).read_values_to_list()
        lines = [line.split(b",") for line in values if line is not None]
    return [(key, int(start) - EPOCH_MS, int(end) - EPOCH_MS, int(count)) for key, start, end, count in lines]


@settings(max_examples=2)
@given(
    events=st.lists(
        st.tuples(st.just(0), st.sampled_from([b"a", b"b", None]), st.integers(0, 40_000)), min_size=20, max_size=60
    ),
    steps=st.sampled_from([(10_000, 10_000), (10_000, 5_000), (10_000, 4_000), (7_500, 2_500)]),
)
def test_a_batch_of_any_records_is_counted_as_in_plain_python(
    spark: SparkSession, events: list[tuple[int, bytes | None, int]], steps: tuple[int, int]
) -> None:
    size_ms, advance_ms = steps
    frame = spark.createDataFrame([each.row for each in oracle.records("t", numbered(events))], SCHEMA)
    found = windows.transform(frame, size_ms=size_ms, advance_ms=advance_ms).collect()
    counted = {(oracle.plain(key), oracle.ms(start), oracle.ms(end)): count for key, start, end, count in found}
    assert len(counted) == len(found)
    assert counted == oracle.all_windows(numbered(events), size_ms, advance_ms)
