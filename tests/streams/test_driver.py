"""The driver for users' tests: its topics, its clocks, its stores, and that it behaves as Java's."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from odradek.streams.driver import TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.errors import Response, SerializationError, StreamsError
from odradek.streams.nodes import NodeContext
from odradek.streams.processor import Processor, ProcessorContext, PunctuationType
from odradek.streams.records import Record, TaskId
from odradek.streams.serdes import JSON, LONG, STRING
from odradek.streams.stores.builders import key_value_store, timestamped_key_value_store
from odradek.streams.topology import Topology

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
START_MS = 1_767_323_045_000


class Count(Processor):
    """Counts keys, and forwards all counts every ten seconds of the wall clock."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.counts = context.state_store("counts")
        context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, self.tell)

    def process(self, record: Record) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count))

    def tell(self, now: int) -> None:
        for key, count in self.counts.all():
            self.context.forward(Record(key, count, now))


@pytest.fixture
def topology() -> Topology:
    """in -> counts -> out"""
    return (
        Topology()
        .add_source("source", "in", key=STRING, value=STRING)
        .add_processor("count", Count, "source")
        .add_sink("sink", "out", "count", key=STRING, value=LONG)
        .add_state_store(key_value_store("counts", STRING, LONG), "count")
    )


def test_the_example_of_the_guide(topology: Topology) -> None:
    with TopologyTestDriver(topology) as driver:
        given = driver.create_input_topic("in", STRING, STRING)
        counted = driver.create_output_topic("out", STRING, LONG)
        given.pipe_key_value_list([("a", "x"), ("b", "x"), ("a", "x")])
        assert counted.queue_size == 3
        assert counted.read_key_value() == ("a", 1)
        assert counted.read_value() == 1
        assert counted.read_key_values_to_map() == {"a": 2}
        assert counted.is_empty
        assert driver.get_state_store("counts").get("a") == 2


def test_timestamps_of_input(topology: Topology) -> None:
    with TopologyTestDriver(topology) as driver:
        given = driver.create_input_topic("in", STRING, STRING, START, timedelta(seconds=1))
        counted = driver.create_output_topic("out", STRING, LONG)
        given.pipe_input("a", "x")
        given.pipe_input("a", "x")
        given.advance_time(500)
        given.pipe_input("a", "x")
        given.pipe_input("a", "x", timestamp=7)
        given.pipe_input("a", "x", timestamp=START)
        given.pipe_input(Record("a", "x", 9, [("h", b"1")]))
        given.pipe_key_value_list([("a", "x")] * 2, 100, 10)
        given.pipe_record_list([Record("a", None, 0)])
        records = counted.read_records_to_list()
        assert [record.timestamp - START_MS for record in records[:3]] == [0, 1000, 2500]
        assert [record.timestamp for record in records[3:]] == [7, START_MS, 9, 100, 110, 0]
        assert records[5].headers == [("h", b"1")]
        with pytest.raises(ValueError, match="negative"):
            given.pipe_input("a", "x", timestamp=-1)
        with pytest.raises(ValueError, match="positive"):
            given.advance_time(-1)
        with pytest.raises(ValueError, match="non-negative"):
            driver.create_input_topic("in", STRING, STRING, auto_advance=-1)


def test_values_without_keys_and_headers() -> None:
    topology = Topology().add_source("source", "in").add_sink("sink", "out", "source")
    with TopologyTestDriver(topology, {"default.key.serde": STRING, "default.value.serde": JSON}) as driver:
        given = driver.create_input_topic("in", STRING, JSON)
        output = driver.create_output_topic("out", STRING, JSON)
        given.pipe_input({"a": 1}, headers=[("h", None)])
        given.pipe_value_list([None, [1]], 5, 5)
        first, *others = output.read_records_to_list()
        assert (first.key, first.value, first.headers) == (None, {"a": 1}, [("h", None)])
        assert [(record.value, record.timestamp, record.headers) for record in others] == [
            (None, 5, None),
            ([1], 10, None),
        ]
        given.pipe_input("no key")
        with pytest.raises(ValueError, match="Null keys"):
            output.read_key_values_to_map()
        with pytest.raises(TypeError, match="a key and a value"):
            given.pipe_input("a", "b", 5)


def test_the_wall_clock_stands_still_until_it_is_advanced(topology: Topology) -> None:
    with TopologyTestDriver(topology, initial_wall_clock=START) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x", timestamp=1)
        counted = driver.create_output_topic("out", STRING, LONG)
        counted.read_value()
        driver.advance_wall_clock_time(9_999)
        assert counted.is_empty
        driver.advance_wall_clock_time(timedelta(milliseconds=1))
        assert counted.read_records_to_list() == [Record("a", 1, START_MS + 10_000)]
        driver.advance_wall_clock_time(timedelta(minutes=1))
        assert counted.queue_size == 1, "a late punctuator is called once"


def test_topics_and_their_output(topology: Topology) -> None:
    with TopologyTestDriver(topology, {"application.id": "mine"}) as driver:
        output = driver.create_output_topic("out", STRING, LONG)
        assert driver.produced_topic_names() == set()
        with pytest.raises(LookupError, match="Uninitialized topic: out"):
            output.read_record()
        driver.pipe("in", b"a", None, 3)
        assert driver.produced_topic_names() == {"mine-counts-changelog", "out"}
        changelog = driver.read("mine-counts-changelog")
        assert changelog is not None
        assert (changelog.key, changelog.value, changelog.timestamp) == (b"a", b"\0" * 7 + b"\1", 3)
        output.read_record()
        with pytest.raises(LookupError, match="Empty topic: out"):
            output.read_record()
        with pytest.raises(ValueError, match="Unknown topic: elsewhere"):
            driver.pipe("elsewhere", None, None, 0)
        assert driver.get_state_store("elsewhere") is None
        assert set(driver.get_all_state_stores()) == {"counts"}


def test_output_to_a_source_topic_is_read() -> None:
    class Shorten(Processor):
        def process(self, record: Record) -> None:
            if record.value:
                self.context.forward(record.with_value(record.value[1:]))

    topology = (
        Topology()
        .add_source("source", re.compile("loop.*"), key=STRING, value=STRING)
        .add_processor("shorten", Shorten, "source")
        .add_sink("sink", "loop", "shorten", key=STRING, value=STRING)
    )
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("loop-start", STRING, STRING).pipe_input("k", "abc")
        assert driver.create_output_topic("loop", STRING, STRING).read_values_to_list() == ["bc", "c", ""]


def test_unreadable_records(topology: Topology) -> None:
    numbers = Topology().add_source("source", "in", key=STRING, value=LONG).add_sink("sink", "out", "source")
    config: dict[str, Any] = {"default.key.serde": STRING, "default.value.serde": LONG}
    with TopologyTestDriver(numbers, config) as driver, pytest.raises(SerializationError, match="topic=in"):
        driver.pipe("in", b"k", b"short", 0)
    config["default.deserialization.exception.handler"] = lambda *about: Response.CONTINUE
    with TopologyTestDriver(numbers, config) as driver:
        driver.pipe("in", b"k", b"short", 0)
        driver.pipe("in", b"k", b"\0" * 8, 0)
        assert driver.create_output_topic("out", STRING, LONG).read_values_to_list() == [0]
        assert driver.dropped_records == 1


class Idle(Processor):
    """Owns stores, and does nothing."""

    def process(self, record: Record) -> None:
        pass


def test_stores_by_their_kind() -> None:
    topology = Topology().add_source("source", "in", key=STRING, value=STRING).add_processor("none", Idle, "source")
    topology.add_state_store(key_value_store("plain", STRING, LONG), "none")
    topology.add_state_store(timestamped_key_value_store("stamped", STRING, LONG), "none")
    with TopologyTestDriver(topology) as driver:
        plain, stamped = driver.get_key_value_store("plain"), driver.get_key_value_store("stamped")
        with_times = driver.get_timestamped_key_value_store("stamped")
        assert plain is not None
        assert stamped is not None
        assert with_times is not None
        plain.put("a", 1)
        with_times.put("a", (1, 5))
        assert plain.get("a") == stamped.get("a") == 1
        assert stamped.put_if_absent("a", 2) == 1
        stamped.put("b", 3)
        assert with_times.get("b") == (3, -1)
        assert list(stamped.range("a", None)) == list(stamped.all()) == [("a", 1), ("b", 3)]
        assert list(stamped.reverse_all()) == list(stamped.reverse_range(None, "b")) == [("b", 3), ("a", 1)]
        assert list(stamped.prefix_scan("b", str.encode)) == [("b", 3)]
        assert stamped.approximate_num_entries() == 2
        assert (stamped.delete("a"), stamped.get("a")) == (1, None)
        assert driver.get_window_store("nothing") is None
        with pytest.raises(ValueError, match="no timestamped key-value store"):
            driver.get_timestamped_key_value_store("plain")
        with pytest.raises(ValueError, match="no session store"):
            driver.get_session_store("plain")


def test_closing(topology: Topology, tmp_path: Path) -> None:
    driver = TopologyTestDriver(topology, {"application.id": "app", "state.dir": str(tmp_path)})
    driver.pipe("in", b"a", None, 3)
    assert (tmp_path / "app" / "0_0").is_dir()
    store = driver.get_state_store("counts")
    driver.close()
    driver.close()
    assert not store.is_open
    with pytest.raises(StreamsError):
        store.get("a")


def test_processors_are_closed_even_if_one_fails() -> None:
    closed = []

    class Fails(Idle):
        def close(self) -> None:
            closed.append(self)
            raise RuntimeError("it cannot be closed")

    topology = Topology().add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("one", Fails, "source").add_processor("two", Fails, "source")
    driver = TopologyTestDriver(topology)
    with pytest.raises(RuntimeError, match="cannot be closed"):
        driver.close()
    assert len(closed) == 2


def test_initialized_processors_are_closed_where_another_fails() -> None:
    notified: list[tuple[str, str]] = []

    class Telling(Idle):
        def __init__(self, name: str) -> None:
            self._name = name

        def init(self, context: ProcessorContext) -> None:
            if self._name == "bad":
                raise RuntimeError("it cannot be initialized")
            notified.append(("begins", self._name))

        def close(self) -> None:
            notified.append(("ends", self._name))
            if self._name == "first":
                raise RuntimeError("it cannot be closed")

    topology = Topology().add_source("source", "in", key=STRING, value=STRING)
    before = "source"
    for name in ("never", "bad", "second", "first"):  # the last processor of the topology is initialized first
        topology.add_processor(name, lambda name=name: Telling(name), before)
        before = name
    with pytest.raises(RuntimeError, match="it cannot be initialized") as caught:
        TopologyTestDriver(topology)
    assert notified == [("begins", "first"), ("begins", "second"), ("ends", "first"), ("ends", "second")]
    assert "cannot be closed" in caught.value.__notes__[0]


def test_created_operators_are_closed_where_another_fails(tmp_path: Path) -> None:
    opened: list[Any] = []

    class Opening:
        """As print() with a file."""

        def bind(self, node: NodeContext) -> Any:
            file = (tmp_path / "printed").open("a")
            opened.append(file)
            node.on_close(file.close)
            return node.forward

    def unwilling() -> Processor:
        raise RuntimeError("it cannot be created")

    topology = Topology().add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("bad", unwilling, "source").add_processor("opening", Opening(), "bad")
    with pytest.raises(RuntimeError, match="it cannot be created"):
        TopologyTestDriver(topology)
    assert [file.closed for file in opened] == [True]


def test_an_error_has_the_id_of_its_task() -> None:
    def fail(value: str) -> str:
        raise ValueError(value)

    builder = StreamsBuilder()
    builder.stream("in").map_values(fail).to("out")
    settings = {"default.key.serde": STRING, "default.value.serde": STRING}
    with TopologyTestDriver(builder.build(), settings) as driver:
        with pytest.raises(StreamsError) as raised:
            driver.create_input_topic("in", STRING, STRING).pipe_input("bad")
        assert raised.value.task_id == TaskId(0, 0)


def test_an_error_of_a_punctuator_has_the_id_of_its_task() -> None:
    class Punctual(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.schedule(5, PunctuationType.WALL_CLOCK_TIME, self.fail)

        def fail(self, now: int) -> None:
            raise ValueError(now)

        def process(self, record: Record) -> None:
            """Nothing."""

    topology = Topology().add_source("source", "in").add_processor("punctual", Punctual, "source")
    settings = {"default.key.serde": STRING, "default.value.serde": STRING}
    with TopologyTestDriver(topology, settings) as driver, pytest.raises(StreamsError) as raised:
        driver.advance_wall_clock_time(5)
    assert raised.value.task_id == TaskId(0, 0)
