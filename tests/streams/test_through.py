"""KStream.through beside Java's: a topic of the user's in the middle of a stream (deprecated, KIP-221)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Produced
from odradek.streams.serdes import LONG, STRING, windowed_serde
from odradek.streams.windows import TimeWindows
from tests.streams.oracle.implementations import Piped, both_refuse, records, same, same_text

pytestmark = [pytest.mark.jvm, pytest.mark.filterwarnings("ignore:KStream.through:DeprecationWarning")]


def shapes(builder: Any) -> None:
    """A topic in the middle, by itself and beside other readers of it."""
    stream = builder.stream("in")
    stream.through("plain").to("after-plain")
    stream.map_values(lambda value: f"{value}!").through("named", Produced(name="sink")).to("after-named")
    rekeyed = stream.select_key(lambda key, value: value).through("rekeyed")
    rekeyed.group_by_key(Grouped(STRING, STRING)).count()
    stream.through("first").through("second").merge(stream).to("after-second")


def shared(builder: Any) -> None:
    """The topic is read by other streams of the application as well: each is one source node."""
    builder.stream("before").to("after-before")
    stream = builder.stream("in")
    stream.filter(lambda value: value != "1").through("before").to("once")
    stream.through("twice").to("one")
    stream.map_values(lambda value: f"{value}?").through("twice").to("two")
    stream.through("later").to("three")
    builder.stream("later", Consumed(STRING, STRING)).to("after-later")


@pytest.mark.parametrize("build", [shapes, shared])
def test_the_text_is_javas(java: Any, build: Any) -> None:
    assert "KSTREAM-SINK-" in same_text(build)


@given(records("in"))
@settings(max_examples=8)
def test_a_topic_in_the_middle(java: Any, steps: list[Piped]) -> None:
    same(shapes, steps)


@given(records("in", "before", "twice"))
@settings(max_examples=8)
def test_other_readers_of_the_topic(java: Any, steps: list[Piped]) -> None:
    same(shared, steps)


def test_serdes_and_partitioner(java: Any) -> None:
    """Serdes that are not given are those of the stream; later operators have the serdes of the topic."""

    def build(builder: Any) -> None:
        lengths = builder.stream("in", Consumed(STRING, STRING)).map_values(len)
        lengths.through("lengths", Produced(value=LONG)).map_values(lambda value: value + 1).to(
            "after-lengths", Produced(STRING, LONG)
        )
        builder.stream("in", Consumed(STRING, STRING)).through(
            "chosen", Produced(partitioner=lambda topic, key, value, partitions: 0)
        ).to("after-chosen")
        keys = windowed_serde(STRING, 10)
        counts = (
            builder.stream("in", Consumed(STRING, STRING))
            .group_by_key(Grouped(STRING, STRING))
            .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(milliseconds=10)))
            .count()
        )
        counts.to_stream().through("windows", Produced(keys, LONG)).to("after-windows", Produced(keys, LONG))

    written = same(build, [Piped("in", "a", "one", 1), Piped("in", "b", "three", 12), Piped("in", "a", "", 13)])
    assert {"lengths", "after-lengths", "chosen", "after-chosen", "windows", "after-windows"} <= written.keys()


def test_invalid_topologies_are_rejected_as_by_java(java: Any) -> None:
    both_refuse(lambda builder: builder.stream("in").through("between", Produced(name="no blanks")).to("x"))
    both_refuse(
        lambda builder: (
            builder.stream("between", Consumed(offset_reset="latest")).to("x"),
            builder.stream("in").through("between").to("y"),
        )
    )
    both_refuse(lambda builder: (builder.stream(["a", "b"]).to("x"), builder.stream("in").through("a").to("y")))


def test_it_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"KStream\.through is deprecated .*repartition\(\)") as notified:
        StreamsBuilder().stream("in").through("between")
    assert [each.filename for each in notified] == [__file__]
