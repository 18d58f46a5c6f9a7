"""The Processor API beside Java's: contexts, children, headers, metadata, punctuators, stores."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced
from odradek.streams.errors import log_and_continue
from odradek.streams.processor import Processor, PunctuationType
from odradek.streams.records import Record
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores.builders import key_value_store
from tests.streams.oracle.implementations import Pass, Piped, both_refuse, records, same

pytestmark = pytest.mark.jvm


def notified(context: Any) -> str:
    """The data of a context, as a value."""
    where = context.record_metadata
    return (
        f"{context.application_id} {context.task_id} {where} {context.current_stream_time_ms} "
        f"{context.current_system_time_ms}"
    )


class Teller(Processor):
    """Forwards the data of its context."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(notified(self.context)))


def one(supplier: Any) -> Any:
    """A source, one processor and a sink."""

    def build(topology: Any) -> None:
        topology.add_source("source", "in", key=STRING, value=STRING)
        topology.add_processor("processor", supplier, "source")
        topology.add_sink("sink", "out", "processor", key=STRING, value=STRING)

    return build


@given(records("in"))
@settings(max_examples=10)
def test_a_context_returns_the_same(java: Any, steps: list[Piped]) -> None:
    same(one(Teller), steps, by_hand=True)


class Router(Processor):
    """Sends to one child or to all, and changes headers and times."""

    def process(self, record: Record) -> None:
        forward = self.context.forward
        forward(record, "left")
        forward(record.with_headers([("more", b"1"), *(record.headers or [])]), "right")
        forward(record.with_key("new").with_timestamp(record.timestamp + 7))
        forward(record.with_headers(None), "right")
        forward(record.with_value(None))


def branches(topology: Any) -> None:
    topology.add_source("source", ["in", "in-too"], key=STRING, value=STRING)
    topology.add_processor("router", Router, "source")
    topology.add_processor("left", Teller, "router")
    topology.add_processor("right", Teller, "router")
    topology.add_sink("sink left", "left-out", "left", key=STRING, value=STRING)
    topology.add_sink("sink right", "right-out", "right", key=STRING, value=STRING)
    topology.add_sink("sink both", "both-out", "left", "right", key=STRING, value=STRING)


@given(records("in", "in-too"))
@settings(max_examples=10)
def test_forward_to_one_child_and_to_all(java: Any, steps: list[Piped]) -> None:
    same(branches, steps, by_hand=True)


def test_headers_and_metadata_are_forwarded(java: Any) -> None:
    step = Piped("in", "k", "v", 5, [("h", b"1"), ("h", None)])
    written = same(branches, [step, step], by_hand=True)
    assert written["right-out"][0].headers == [("more", b"1"), ("h", b"1"), ("h", None)]
    assert written["left-out"][1].timestamp == 12


class Metronome(Processor):
    """Punctuators of both clocks, which forward, cancel themselves, and schedule others."""

    def init(self, context: Any) -> None:
        super().init(context)
        for kind in PunctuationType:
            for number, interval in enumerate((7, 30, 30, 30, 60, 7)):
                context.schedule(interval, kind, self.beat(f"{kind.name} {number}"))
        self.once = context.schedule(1, PunctuationType.WALL_CLOCK_TIME, self.end)

    def beat(self, name: str) -> Any:
        return lambda now: self.context.forward(Record(name, f"{now} {notified(self.context)}", now))

    def end(self, now: int) -> None:
        self.once.cancel()
        self.beat("once")(now)
        self.context.schedule(5, PunctuationType.STREAM_TIME, self.beat("later"))

    def process(self, record: Record) -> None:
        self.context.forward(record)


def test_punctuators_of_both_clocks(java: Any) -> None:
    steps = [Piped("in", "k", "v", at) for at in (3, 3, 10, 9, 14, 100, 101)]
    passing = [Pass(ms) for ms in (1, 5, 30, 200, 0, 20)]
    mixed = [step for pair in zip(steps, [*passing, Pass(3)], strict=True) for step in pair]
    written = same(one(Metronome), mixed, by_hand=True)
    assert {str(record.key, "utf-8") for record in written["out"] if record.key} >= {"once", "later", "STREAM_TIME 1"}


class Remember(Processor):
    """Counts in a store, and forwards the old value."""

    def process(self, record: Record) -> None:
        store = self.context.state_store("seen")
        before = store.get(record.key)
        store.put(record.key, (before or 0) + 1 if record.value is not None else None)
        found = list(store.all()), list(store.range("a", "b")), list(store.reverse_all())
        self.context.forward(record.with_value(f"{before} {found}"))


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("logged", [True, False])
@given(steps=records("in", null_keys=False))
@settings(max_examples=10)
def test_a_store_and_its_changelog(java: Any, persistent: bool, logged: bool, steps: list[Piped]) -> None:
    def build(topology: Any) -> None:
        one(Remember)(topology)
        store = key_value_store("seen", STRING, LONG, persistent)
        topology.add_state_store(store if logged else store.without_logging(), "processor")

    written = same(build, steps, by_hand=True)
    assert ("app-seen-changelog" in written) == (logged and bool(steps))


class Globe(Processor):
    """Fills a global store."""

    def process(self, record: Record) -> None:
        self.context.state_store("globe").put(record.key, record.value)


class Look(Processor):
    """Reads a global store."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(str(self.context.state_store("globe").get(record.key or ""))))


def global_store(topology: Any) -> None:
    store = key_value_store("globe", STRING, STRING).without_logging()
    topology.add_global_store(store, "global source", "globe-topic", "filler", Globe, key=STRING, value=STRING)
    topology.add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("look", Look, "source")
    topology.add_sink("sink", "out", "look", key=STRING, value=STRING)
    topology.add_sink("back", "globe-topic", "look", key=STRING, value=STRING)


@given(records("in", "globe-topic", null_keys=False))
@settings(max_examples=10)
def test_a_global_store(java: Any, steps: list[Piped]) -> None:
    same(global_store, steps, by_hand=True)


def test_records_that_are_passed_around(java: Any) -> None:
    """Two topics that the topology writes and reads, with equal times: the order of their records."""

    def build(topology: Any) -> None:
        topology.add_source("source", "in", key=STRING, value=STRING)
        for name in ("one", "two", "three"):
            topology.add_sink(f"to {name}", name, "source", key=STRING, value=STRING)
        for name in ("three", "one", "two"):
            topology.add_source(f"from {name}", name, key=STRING, value=STRING)
            topology.add_processor(f"tell {name}", Teller, f"from {name}")
            topology.add_sink(f"out {name}", "out", f"tell {name}", key=STRING, value=STRING)

    same(build, [Piped("in", "k", "v", at) for at in (5, 5, 4, 9, 9)], by_hand=True)


@pytest.mark.parametrize("idle_ms", [-1, 0, 50])
def test_waiting_for_an_empty_topic(java: Any, idle_ms: int) -> None:
    both = Piped("in", "k", "1", 5), Piped("in-too", "k", "2", 4)
    steps = [both[0], Pass(20), both[0], both[1], both[1], Pass(49), Pass(1), both[1], Pass(100)]
    written = same(branches, steps, {"max.task.idle.ms": idle_ms}, by_hand=True)
    assert len(written["both-out"]) == 5 * 7


class Choosy(Processor):
    """Raises on some records when it has forwarded them to one child but not to the other."""

    def process(self, record: Record) -> None:
        self.context.forward(record, "left")
        if record.value in ("1", None):
            raise ValueError("this record is rejected")
        self.context.forward(record, "right")


def choosy(topology: Any) -> None:
    """Records that cannot be read, and a node that fails between others."""
    topology.add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("before", Teller, "source")
    topology.add_processor("choosy", Choosy, "source")
    topology.add_processor("left", Teller, "choosy")
    topology.add_processor("right", Teller, "choosy")
    topology.add_processor("after", Teller, "source")
    topology.add_sink("sink", "out", "before", "left", "right", "after", key=STRING, value=STRING)
    topology.add_source("numbers", "numbers", key=LONG, value=LONG)
    topology.add_sink("numbers sink", "numbers-out", "numbers", key=LONG, value=LONG)


@given(records("in", "numbers", values=st.sampled_from(["1", "2", "12345678"])))
@settings(max_examples=8)
def test_handlers_that_continue(java: Any, steps: list[Piped]) -> None:
    names = "default.deserialization.exception.handler", "processing.exception.handler"
    same(choosy, steps, dict.fromkeys(names, log_and_continue), by_hand=True)


def unfit(builder: Any) -> None:
    """An aggregator returns what the serde of its store does not take."""
    grouped = builder.stream("in", Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    totals = grouped.aggregate(
        lambda: 0, lambda key, value, total: "text" if value == "bad" else total + 1, Materialized("s", STRING, LONG)
    )
    totals.to_stream().to("out", Produced(STRING, LONG))


def test_a_value_that_a_store_does_not_take_goes_to_the_handler(java: Any) -> None:
    steps = [Piped("in", "k", value, at) for at, value in enumerate(["good", "bad", "better"])]
    written = same(unfit, steps, {"processing.exception.handler": log_and_continue})
    assert len(written["out"]) == 2
    theirs, ours = both_refuse(unfit, steps)
    assert "Exception caught in process" in theirs
    assert "node=KSTREAM-AGGREGATE-0000000001, topic=in, partition=0, offset=1" in str(ours)


def test_handlers_that_fail(java: Any) -> None:
    both_refuse(choosy, [Piped("numbers", 1, "1", 1)], by_hand=True)
    both_refuse(choosy, [Piped("numbers", b"", 1, 1)], by_hand=True)
    both_refuse(choosy, [Piped("in", "1", "1", 1)], by_hand=True)


def test_invalid_topologies_are_rejected_as_by_java(java: Any) -> None:
    class Lost(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record, "nobody")

    theirs, ours = both_refuse(one(Lost), [Piped("in", "k", "v", 1)], by_hand=True)
    assert "Exception caught in process" in theirs
    assert "nobody" in str(ours)

    class Storeless(Processor):
        def init(self, context: Any) -> None:
            context.state_store("not there")

        def process(self, record: Any) -> None:
            pass

    theirs, ours = both_refuse(one(Storeless), by_hand=True)
    assert "not there" in str(ours)
