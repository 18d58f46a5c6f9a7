"""Exactly once over crashes: processes are killed at random moments, and each record is counted once."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.streams.config import StreamsConfig
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Produced
from odradek.streams.errors import TaskMigratedError
from odradek.streams.running import checkpoints
from odradek.streams.running.client import Clients, high_watermarks
from odradek.streams.running.collector import RecordCollector
from odradek.streams.running.thread import StreamThread
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import LONG, STRING
from odradek.streams.topology import Topology
from tests.streams import counting
from tests.streams.counting import COUNTS, QUICK, WORDS
from tests.streams.stage import DEADLINE_S, Stage, context_of
from tests.support.eventually import eventually


@pytest.fixture
def broker(streams_broker: BrokerProcess) -> BrokerProcess:
    counting.make_topics(streams_broker.bootstrap, {WORDS: 2, COUNTS: 2})
    return streams_broker


def config(broker: BrokerProcess, tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        **QUICK,
        "application.id": "once",
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(tmp_path / "state"),
        "processing.guarantee": "exactly_once_v2",
        **more,
    }


@pytest.mark.slow
def test_a_killed_process_counts_no_record_twice(broker: BrokerProcess, tmp_path: Path) -> None:
    chance = random.Random(9)
    vocabulary = [f"word{number}" for number in range(20)]
    words: list[str] = []
    for _ in range(3):
        fresh = chance.choices(vocabulary, k=2_000)
        words += fresh
        process = counting.start_process(config(broker, tmp_path))
        before = sum(map(len, counting.counted(broker.bootstrap).values()))
        counting.write_words(broker.bootstrap, fresh)
        moment = before + chance.randrange(1, 2_000)
        counting.await_counts(broker.bootstrap, lambda found: sum(map(len, found.values())) >= moment)  # noqa: B023
        process.kill()
    process = counting.start_process(config(broker, tmp_path))
    try:
        counting.await_counts(broker.bootstrap, counting.all_of(Counter(words)))
        counting.assert_exactly_once(broker.bootstrap, words, "once")
    finally:
        process.stop()


@pytest.mark.slow
def test_a_corrupt_store_does_not_abort_the_open_transaction(
    streams_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One task runs, in a transaction, when the checkpoint of another proves wrong: that one is restored, once."""
    stage = Stage(streams_broker, tmp_path)
    stage.make_topics(2)
    changelog = f"{stage.application_id}-n-changelog"
    producer = Producer({"bootstrap.servers": stage.bootstrap})

    def write(word: str, partition: int) -> None:
        producer.produce(stage.words, b"w", word.encode(), partition)
        assert producer.flush(DEADLINE_S) == 0

    def counts() -> Topology:
        builder = StreamsBuilder()
        words = builder.stream(stage.words, Consumed(STRING, STRING)).group_by_key(Grouped(STRING, STRING))
        words.count("n").to_stream().to(stage.counts, Produced(STRING, LONG))
        return builder.build()

    more: dict[str, Any] = {
        "processing.guarantee": "exactly_once_v2",
        "producer.transaction.timeout.ms": 120_000,
        "commit.interval.ms": 60_000,
    }
    write("x", 0)
    write("y", 1)
    with stage.running(counts(), **more) as streams:
        eventually(lambda: streams.stream_threads[0].processed == 2)
    checkpoints.write(tmp_path / "a" / stage.application_id / "0_1", {(changelog, 1): 300})

    threads: list[StreamThread] = []

    def notified(admin: Any, places: Any, timeout_s: float) -> dict[tuple[str, int], int]:
        """The fake returns no end of the second changelog, as long as there is no transaction."""
        found = high_watermarks(admin, places, timeout_s)
        if not any(thread.run_loop and thread.run_loop.tasks.collector.in_transaction for thread in threads):
            found.pop((changelog, 1), None)
        return found

    monkeypatch.setattr("odradek.streams.running.run_loop.high_watermarks", notified)
    with KafkaStreams(counts(), stage.config(**more)) as streams:
        thread = streams.stream_threads[0]
        threads.append(thread)
        eventually(
            lambda: thread.run_loop and thread.run_loop.executor.last_commit > 0
        )  # the next one is a minute away
        generation = thread.generation
        write("x", 0)
        eventually(lambda: "is at offset 300" in caplog.text)
        streams.wait_until(State.RUNNING, DEADLINE_S)
        write("y", 1)
        eventually(lambda: thread.processed == 2)
        assert thread.generation == generation
    assert caplog.text.count("is at offset 300") == 1
    assert counting.counted(stage.bootstrap, stage.counts) == {"x": [1, 2], "y": [1, 2]}


@pytest.mark.slow
@pytest.mark.parametrize("received_by", ["send", "poll", "flush", "settle", "close"])
def test_a_fenced_member_with_records_in_flight_loses_its_tasks_only(
    streams_broker: BrokerProcess, tmp_path: Path, received_by: str
) -> None:
    """librdkafka's fatal error is raised by the call that returns the records' outcomes, and Python rejects their
    callbacks.

    Records sent after it are rejected, too. Odradek's own producer sends and receives within its other calls only, so
    that no record is rejected at "send".
    """
    stage = Stage(streams_broker, tmp_path)
    stage.make_topics(2)
    more: dict[str, Any] = {"processing.guarantee": "exactly_once_v2", "producer.linger.ms": 1_000}
    if received_by == "send":
        more["client.implementation"] = "librdkafka"
    settings = StreamsConfig(stage.config(**more))
    clients = Clients(settings, received_by)
    make = partial(clients.producer, "t", stage.application_id)

    def write(collector: RecordCollector, value: bytes, partition: int = 0) -> None:
        collector.sender(context_of(collector, settings))(stage.counts, b"k", value, partition, 1, None)

    old = RecordCollector(make, settings.handlers, DEADLINE_S, transactional=True)
    for number in range(100):
        write(old, b"old", number % 2)
    new = RecordCollector(make, settings.handlers, DEADLINE_S, transactional=True)
    write(new, b"new")
    if received_by == "send":
        with pytest.raises(TaskMigratedError, match="fenced"):
            eventually(lambda: write(old, b"old"))
    elif received_by == "poll":
        with pytest.raises(TaskMigratedError, match="fenced"):
            eventually(old.poll)
    elif received_by == "flush":
        with pytest.raises(TaskMigratedError, match="fenced"):
            old.flush()
    elif received_by == "settle":
        assert not old.settle()
    else:
        old.close()
    new.commit({}, b"")
    new.close()
    expected = [(b"k", b"new")]
    if received_by != "close":
        old.renew()
        write(old, b"renewed")
        old.commit({}, b"")
        old.close()
        expected.append((b"k", b"renewed"))
    assert counting.read_all(stage.bootstrap, stage.counts) == expected
