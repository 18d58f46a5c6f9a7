"""MockProcessorContext, compared with Java's: one processor in both, and what each captures."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from odradek.streams.errors import StreamsError
from odradek.streams.mock_processor_context import CapturedForward, MockProcessorContext
from odradek.streams.processor import Processor, ProcessorContext, PunctuationType
from odradek.streams.records import Record, RecordMetadata, TaskId
from odradek.streams.sensors import RecordingLevel
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores.builders import key_value_store
from tests.streams.oracle.java import Java
from tests.streams.oracle.java_processor import JavaContext, python_record

SECOND = timedelta(seconds=1)


class Routing(Processor[str, int, str, int]):
    """Forwards even numbers to all children and odd ones to one, and commits with each of 10 or more."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        """Schedule a punctuation by each clock."""
        self.context = context
        self.at_once = context.schedule(SECOND, PunctuationType.STREAM_TIME, self.punctuate)
        context.schedule(250, PunctuationType.WALL_CLOCK_TIME, self.punctuate)
        self.at_once.cancel()

    def process(self, record: Record[str, int]) -> None:
        """Forward by the value."""
        self.context.forward(record, "odd" if record.value % 2 else None)
        if record.value >= 10:
            self.context.commit()

    def punctuate(self, time_ms: int) -> None:
        """Forward the time."""
        self.context.forward(Record("time", time_ms, time_ms))


def ours(context: MockProcessorContext[str, int], child: str | None = None) -> list[Any]:
    return [(each.record, each.child_name) for each in context.forwarded(child)]


def theirs(java_context: Any, *child: str) -> list[Any]:
    return [
        (python_record(each.record()), str(each.childName().get()) if each.childName().isPresent() else None)
        for each in java_context.forwarded(*child)
    ]


@pytest.mark.slow
def test_it_captures_what_java_s_captures(java: Java) -> None:
    context: MockProcessorContext[str, int] = MockProcessorContext()
    java_context = java.find("org.apache.kafka.streams.processor.api.MockProcessorContext")()
    both = Routing(), Routing()
    both[0].init(context)
    its_context: Any = JavaContext(java_context, fixed_key=False)
    both[1].init(its_context)
    for value in (2, 3, 8, 11):
        for processor in both:
            processor.process(Record("k", value, value, [("h", b"v")]))
        assert context.committed == bool(java_context.committed()) == (value >= 10)
    assert ours(context) == theirs(java_context)
    assert len(ours(context)) == 4
    for child in ("odd", "even"):
        assert ours(context, child) == theirs(java_context, child)
    captured = [(each.interval, each.type.name, each.cancelled) for each in context.scheduled_punctuators]
    assert captured == [
        (timedelta(milliseconds=int(each.getInterval().toMillis())), str(each.getType().name()), bool(each.cancelled()))
        for each in java_context.scheduledPunctuators()
    ]
    assert captured == [(SECOND, "STREAM_TIME", True), (timedelta(milliseconds=250), "WALL_CLOCK_TIME", False)]
    for reset in (context.reset_forwards, context.reset_commit, java_context.resetForwards, java_context.resetCommit):
        reset()
    context.scheduled_punctuators[1].punctuator(77)
    both[1].punctuate(77)
    assert ours(context) == theirs(java_context) == [(Record("time", 77, 77), None)]
    assert not context.committed
    assert not java_context.committed()


def test_its_place_is_that_of_java_s(java: Java) -> None:
    context: MockProcessorContext[str, int] = MockProcessorContext()
    java_context = java.find("org.apache.kafka.streams.processor.api.MockProcessorContext")()
    wrapped = JavaContext(java_context, fixed_key=False)
    assert context.task_id == wrapped.task_id == TaskId(0, 0)
    assert context.record_metadata is None
    assert wrapped.record_metadata is None
    context.set_record_metadata("orders", 3, 40)
    java_context.setRecordMetadata("orders", 3, 40)
    assert context.record_metadata == wrapped.record_metadata == RecordMetadata("orders", 3, 40)
    context.current_stream_time_ms, context.current_system_time_ms = 5, 6
    java_context.setCurrentStreamTimeMs(5)
    java_context.setCurrentSystemTimeMs(6)
    assert (context.current_stream_time_ms, context.current_system_time_ms) == (5, 6)
    assert (wrapped.current_stream_time_ms, wrapped.current_system_time_ms) == (5, 6)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_processor_uses_stores_and_sensors(persistent: bool, tmp_path: Path) -> None:
    context: MockProcessorContext[str, int] = MockProcessorContext({"application.id": "orders"}, TaskId(1, 2), tmp_path)
    assert (context.application_id, context.task_id, context.state_dir) == ("orders", TaskId(1, 2), tmp_path)
    store: Any = key_value_store("seen", STRING, LONG, persistent=persistent).build()
    store.init(context.state_store_context)
    with pytest.raises(StreamsError, match="no store seen was added"):
        context.state_store("seen")
    context.add_state_store(store)
    context.state_store("seen").put("k", 7)
    assert context.state_store("seen").get("k") == 7
    store.close()
    sensor = context.metrics().add_sensor("reads", RecordingLevel.INFO)
    assert context.metrics().add_sensor("reads", RecordingLevel.INFO) is sensor
    with pytest.raises(ValueError, match="minimum supported scheduling interval"):
        context.schedule(0, PunctuationType.STREAM_TIME, print)
    assert context.forwarded() == []
    context.forward(Record("k", 1, 0), "child")
    assert context.forwarded() == [CapturedForward(Record("k", 1, 0), "child")]
