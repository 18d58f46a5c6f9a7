"""The origin of a record's time, records without one, and the limits of a suppress buffer."""

from __future__ import annotations

import time

import pytest

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Produced
from odradek.streams.dsl.suppress import BufferConfig
from odradek.streams.errors import StreamsError
from odradek.streams.records import RecordMetadata
from odradek.streams.serdes import STRING
from odradek.streams.timestamps import (
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp,
)

SOURCE = RecordMetadata("in", 2, 7)


def test_a_time_below_zero(caplog: pytest.LogCaptureFixture) -> None:
    assert log_and_skip_on_invalid_timestamp("k", "v", 5, 3, SOURCE) == 5
    assert not caplog.records
    assert log_and_skip_on_invalid_timestamp("k", "v", -2, 3, SOURCE) == -2
    assert "topic=in partition=2 offset=7" in caplog.text
    assert use_partition_time_on_invalid_timestamp("k", "v", 5, 3, SOURCE) == 5
    assert use_partition_time_on_invalid_timestamp("k", "v", -2, 3, SOURCE) == 3
    with pytest.raises(StreamsError, match="in-2 at offset 7"):
        use_partition_time_on_invalid_timestamp("k", "v", -2, -1, SOURCE)


def test_processing_time() -> None:
    builder = StreamsBuilder()
    consumed = Consumed(STRING, STRING, timestamp_extractor=wallclock_timestamp)
    builder.stream("in", consumed).to("out", Produced(STRING, STRING))
    before = time.time_ns() // 1_000_000
    with TopologyTestDriver(builder.build(), {"application.id": "clock"}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "v", timestamp=1)
        [record] = driver.create_output_topic("out", STRING, STRING).read_records_to_list()
    assert before <= record.timestamp <= time.time_ns() // 1_000_000


def test_limits_of_a_buffer() -> None:
    both = BufferConfig.max_records(3).with_max_bytes(9).shut_down_when_full()
    assert both == BufferConfig(3, 9, emits_when_full=False)
    assert both.with_max_records(4) == BufferConfig(4, 9)
    assert both.with_no_bound() == BufferConfig.unbounded()
    quiet = BufferConfig.unbounded().with_logging_disabled()
    assert not quiet.logging
    assert quiet.with_logging_enabled({"segment.ms": "1"}) == BufferConfig(log_config=(("segment.ms", "1"),))
