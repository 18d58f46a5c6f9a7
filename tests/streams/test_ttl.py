"""Tables whose rows expire: what they forward downstream, what they accept, and that an application keeps all of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.streams import (
    LONG,
    STRING,
    ArgumentError,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyError,
    TopologyTestDriver,
    key_value_store,
)
from odradek.streams.processor import Processor
from odradek.streams.records import Record
from odradek.streams.runtime import KafkaStreams, State
from tests.streams import counting
from tests.streams.stage import DEADLINE_S, Stage
from tests.support.eventually import eventually

TTL = timedelta(milliseconds=20)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 100)), max_size=15)


def with_followers(builder: StreamsBuilder) -> None:
    """Rows with a TTL, how many each value has, and a table and a join that follow them."""
    rows = builder.table("in", Consumed(STRING, STRING), Materialized("rows", ttl=TTL))
    rows.group_by(lambda key, value: (value, key), Grouped(STRING, STRING)).count("by-value")
    rows.map_values(str.upper, Materialized("loud", STRING, STRING))
    rows.to_stream().to("out", Produced(STRING, STRING))
    names = builder.table("names", Consumed(STRING, STRING), "names")
    rows.left_join(names, lambda row, name: f"{row}{name}", Materialized("joined", STRING, STRING))


def test_tables_downstream_lose_the_rows_that_expire() -> None:
    @given(STEPS)
    @settings(max_examples=20, deadline=None)
    def run(steps: list[tuple[str, str, int]]) -> None:
        builder = StreamsBuilder()
        with_followers(builder)
        rows: dict[str, tuple[str, int]] = {}
        now = 0
        with TopologyTestDriver(builder.build()) as driver:
            piped = driver.create_input_topic("in", STRING, STRING)
            for key, value, time in steps:
                piped.pipe_input(key, value, timestamp=time)
                rows[key] = value, time
                now = max(now, time)
            live = {key: value for key, (value, time) in rows.items() if time + 20 >= now}
            stores: dict[str, Any] = {
                name: dict(driver.get_key_value_store(name).all())  # type: ignore[union-attr]
                for name in ("rows", "loud", "joined", "by-value")
            }
            out = driver.create_output_topic("out", STRING, STRING).read_key_values_to_map()
        assert stores["rows"] == {key: value for key, value in out.items() if value is not None} == live
        assert stores["loud"] == {key: value.upper() for key, value in live.items()}
        assert stores["joined"] == {key: f"{value}None" for key, value in live.items()}
        counts = {value: count for value, count in stores["by-value"].items() if count}
        assert counts == {value: list(live.values()).count(value) for value in live.values()}

    run()


def test_an_aggregate_begins_again_after_its_ttl() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(STRING, LONG)).group_by_key(Grouped(STRING, LONG))
    grouped.sum(materialized=Materialized("sums", ttl=TTL)).to_stream().to("sums", Produced(STRING, LONG))
    other = builder.stream("other", Consumed(STRING, LONG)).group_by_key(Grouped(STRING, LONG))
    cogrouped = grouped.cogroup(lambda key, value, total: total + value)
    cogrouped.cogroup(other, lambda key, value, total: total - value).aggregate(
        lambda: 0, Materialized("both", STRING, LONG, ttl=TTL)
    ).to_stream().to("both", Produced(STRING, LONG))
    with TopologyTestDriver(builder.build()) as driver:
        piped = driver.create_input_topic("in", STRING, LONG)
        for time, number in ((0, 1), (20, 2), (41, 4)):
            piped.pipe_input("k", number, timestamp=time)
        for topic in ("sums", "both"):
            found = driver.create_output_topic(topic, STRING, LONG).read_records_to_list()
            assert [(each.value, each.timestamp) for each in found] == [(1, 0), (3, 20), (None, 41), (4, 41)]


class Seen(Processor[str, str, str, str]):
    """Forwards whether a key was seen before."""

    def process(self, record: Record[str, str]) -> None:
        store = self.context.state_store("seen")
        before = store.put_if_absent(record.key, record.value)
        self.context.forward(record.with_value("new" if before is None else "again"))


def test_a_store_of_a_processor_forgets() -> None:
    topology = Topology().add_source("source", "in", key=STRING, value=STRING)
    topology.add_processor("seen?", Seen, "source").add_sink("sink", "out", "seen?", key=STRING, value=STRING)
    topology.add_state_store(key_value_store("seen", STRING, STRING).with_ttl(TTL), "seen?")
    with TopologyTestDriver(topology) as driver:
        piped = driver.create_input_topic("in", STRING, STRING)
        for time in (0, 20, 21, 30):
            piped.pipe_input("k", "v", timestamp=time)
        out = driver.create_output_topic("out", STRING, STRING).read_values_to_list()
        assert out == ["new", "again", "new", "again"]


def windowed(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in").group_by_key()
    grouped.windowed_by(TimeWindows.of_size_with_no_grace(5)).count(Materialized("windows", ttl=TTL))


def everywhere(builder: StreamsBuilder) -> None:
    builder.global_table("in", materialized=Materialized("all", ttl=TTL))
    builder.build()


def without_a_store(builder: StreamsBuilder) -> None:
    builder.table("in").filter(bool, Materialized(ttl=TTL))


@pytest.mark.parametrize(
    ("describe", "message"),
    [
        (windowed, "only key-value stores have a TTL; windows is a window store"),
        (everywhere, "StateStore all for global table has the rows of its topic, and no TTL"),
        (without_a_store, "KTABLE-FILTER-0000000004 has a TTL and no store: give its store a name"),
    ],
)
def test_what_cannot_expire_is_rejected(describe: Callable[[StreamsBuilder], None], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        describe(StreamsBuilder())


def test_a_ttl_is_a_duration_and_makes_a_store_of_its_table() -> None:
    for wrong in (0, -1, timedelta(0), "1h", True, 1.5):
        with pytest.raises(ArgumentError, match=r"Materialized\(ttl=…\) at .*test_ttl.py:\d+ is"):
            Materialized("s", ttl=wrong)  # type: ignore[arg-type]
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized(ttl=TTL))
    builder.stream("other").to_table(Materialized(ttl=TTL))
    assert len(builder.build().stores) == 2


# ---- an application


def expiring_counts(stage: Stage) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(stage.words, Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
    counts = grouped.count(Materialized(counting.STORE, ttl=1_000))
    counts.to_stream().to(stage.counts, Produced(STRING, LONG))
    return builder.build()


def write(stage: Stage, *records: tuple[str, int]) -> None:
    """Records with these keys and timestamps."""
    producer = Producer({"bootstrap.servers": stage.bootstrap, "linger.ms": 0})
    for key, time in records:
        producer.produce(stage.words, b"v", key.encode(), timestamp=time)
    assert producer.flush(DEADLINE_S) == 0


def written(stage: Stage, topic: str) -> list[tuple[str, int | None]]:
    """The committed records of a topic."""
    rows = counting.read_all(stage.bootstrap, topic)
    return [((key or b"").decode(), None if value is None else int.from_bytes(value, "big")) for key, value in rows]


@pytest.mark.slow
def test_rows_expire_exactly_once_over_a_takeover_and_a_restoration(
    streams_broker: BrokerProcess, tmp_path: Path
) -> None:
    stage = Stage(streams_broker, tmp_path)
    stage.make_topics(1)
    more: dict[str, Any] = {"num_standby_replicas": 1, "processing_guarantee": "exactly_once_v2"}
    expected: list[tuple[str, int | None]] = [("a", 1), ("b", 1), ("b", 2)]

    def run(instance: str) -> KafkaStreams:
        streams = KafkaStreams(expiring_counts(stage), stage.config(instance, **more))
        return instances.enter_context(streams)

    def await_output() -> None:
        eventually(lambda: len(written(stage, stage.counts)) >= len(expected), timeout_s=DEADLINE_S)
        assert written(stage, stage.counts) == expected

    with ExitStack() as instances:
        both = [run("one"), run("two")]
        for each in both:
            each.wait_until(State.RUNNING, DEADLINE_S)
        write(stage, ("a", 10_000), ("b", 10_500), ("b", 10_600))
        await_output()
        write(stage, ("c", 11_001))
        expected += [("c", 1), ("a", None)]
        await_output()
        owner = next(
            each for each in both if any(thread.tasks and thread.tasks.tasks for thread in each.stream_threads)
        )
        view = owner.store(counting.STORE)
        assert (view.get("a"), view.get("b"), view.get("c")) == (None, 2, 1)
        owner.close(DEADLINE_S, leave_group=True)
        write(stage, ("a", 11_002), ("b", 11_003), ("d", 12_004))  # the other continues with its copy
        expected += [("a", 1), ("b", 3), ("d", 1), ("c", None), ("a", None), ("b", None)]
        await_output()
    with ExitStack() as instances:
        third = run("three")  # without local state: restored from the changelog
        third.wait_until(State.RUNNING, DEADLINE_S)
        eventually(lambda: dict(third.store(counting.STORE).all()) == {"d": 1}, timeout_s=DEADLINE_S)
        write(stage, ("a", 12_005))
        expected.append(("a", 1))
        await_output()
    changelog = f"{stage.application_id}-{counting.STORE}-changelog"
    assert sorted(dict(written(stage, changelog)).items()) == [("a", 1), ("b", None), ("c", None), ("d", 1)]
