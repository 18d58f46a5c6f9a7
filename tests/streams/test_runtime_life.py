"""A client's life with others: slow processors, listeners, a close while it starts."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.protocol.errors import ErrorCode
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Produced
from odradek.streams.errors import StreamsError
from odradek.streams.group.committed_offsets import CommittingMember
from odradek.streams.group.coordinator_thread import CoordinatorThread
from odradek.streams.group.group_protocol import MembershipError
from odradek.streams.group.membership import GroupMember
from odradek.streams.processor import Processor, ProcessorContext, PunctuationType
from odradek.streams.records import Record
from odradek.streams.running.restoration import RestoreListener
from odradek.streams.running.state_directory import PROCESS_FILE
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import LONG, STRING
from odradek.streams.stores.builders import key_value_store
from odradek.streams.topology import Topology
from tests.streams import counting
from tests.streams.counting import read_all, word_counts
from tests.streams.keeping import Keeping
from tests.streams.stage import DEADLINE_S, Forward, Stage, passing
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {**counting.BROKER, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with BrokerProcess(tmp_path_factory.mktemp("life"), settings) as running:
        yield running


@pytest.fixture
def stage(broker: BrokerProcess, tmp_path: Path) -> Stage:
    made = Stage(broker, tmp_path)
    made.make_topics(1)
    return made


def values(stage: Stage) -> list[int]:
    return [int(value or b"-1") for _, value in read_all(stage.bootstrap, stage.counts)]


# ---- slow processors


class Slow(Forward):
    """Takes 15 ms for a record, as one that calls another service."""

    def process(self, record: Record) -> None:
        threading.Event().wait(0.015)
        super().process(record)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_slow_records_cost_neither_membership_nor_transaction(stage: Stage, guarantee: str) -> None:
    """A batch takes longer than max.poll.interval.ms and transaction.timeout.ms; no record does."""
    stage.write([str(number) for number in range(150)])
    more: dict[str, Any] = {
        "max.poll.interval.ms": 600,
        "producer.transaction.timeout.ms": 1_000,
        "processing.guarantee": guarantee,
    }
    with stage.running(passing(Slow, stage=stage), **more) as streams:
        eventually(lambda: len(values(stage)) >= 150)
        generation = streams.stream_threads[0].generation
        assert generation == 1
    assert values(stage) == list(range(150))


def test_punctuators_run_between_slow_records(stage: Stage) -> None:
    class Ticking(Slow):
        calls = 0
        seen = 0
        at: ClassVar[list[int]] = []

        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule(50, PunctuationType.WALL_CLOCK_TIME, lambda now: self.at.append(Ticking.seen))

        def process(self, record: Record) -> None:
            Ticking.seen += 1
            super().process(record)

    stage.write([str(number) for number in range(60)])
    with stage.running(passing(Ticking, stage=stage)):
        eventually(lambda: len(values(stage)) == 60)
    assert sum(0 < seen < 60 for seen in Ticking.at) >= 3


def test_a_task_that_waits_for_a_topic_does_not_delay_the_processor(stage: Stage) -> None:
    """max.task.idle.ms is awaited without polling all the time."""
    right = f"{stage.words}-right"
    counting.make_topics(stage.bootstrap, {right: 1})
    topology = Topology()
    topology.add_source("left", stage.words, key=STRING, value=STRING)
    topology.add_source("right", right, key=STRING, value=STRING)
    topology.add_processor("both", Forward, "left", "right")
    topology.add_sink("out", stage.counts, "both", key=STRING, value=STRING)
    stage.write(["1"])
    with stage.running(topology, max_task_idle_ms=1_000) as streams:
        eventually(lambda: values(stage) == [1])
        polls = streams.stream_threads[0].metrics.poll.total
    assert polls < 400


def test_a_thread_logs_its_progress_periodically(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.write([str(number) for number in range(30)])
    with caplog.at_level(logging.INFO), stage.running(passing(Forward, stage=stage), log_summary_interval_ms=10):
        eventually(lambda: any("processed_records=30 punctuators=0" in record.message for record in caplog.records))


def test_the_time_of_a_record_with_log_append_time(stage: Stage) -> None:
    """LogAppendTime: the broker's time is the record's, even if its producer has set one."""
    topic = NewTopic(f"{stage.words}-in", 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    admin.create_topics([topic])[topic.topic].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    before = time.time_ns() // 1_000_000
    producer.produce(topic.topic, b"x", timestamp=1)
    assert producer.flush(DEADLINE_S) == 0
    times: list[int] = []
    builder = StreamsBuilder()
    builder.stream(topic.topic, Consumed(STRING, STRING)).process(lambda: Timing(times))
    with stage.running(builder.build()):
        eventually(lambda: times)
    assert before <= times[0] <= time.time_ns() // 1_000_000


class Timing(Processor):
    """Records the times of records."""

    def __init__(self, times: list[int]) -> None:
        self._times = times

    def process(self, record: Record) -> None:
        self._times.append(record.timestamp)


# ---- listeners


def test_a_listener_may_wait_for_others(stage: Stage) -> None:
    answered = []

    def listener(state: State, before: State) -> None:
        asked = threading.Thread(target=lambda: streams.stream_threads)
        asked.start()
        asked.join(5)
        answered.append(not asked.is_alive())

    streams = KafkaStreams(word_counts(stage.words, stage.counts), stage.config(), state_listener=listener)
    with streams:
        streams.wait_until(State.RUNNING, DEADLINE_S)
    assert len(answered) >= 4
    assert all(answered)


def test_a_failing_listener_is_ignored(stage: Stage) -> None:
    def listener(state: State, before: State) -> None:
        raise ZeroDivisionError(state.name)

    streams = KafkaStreams(word_counts(stage.words, stage.counts), stage.config(), state_listener=listener)
    with streams:
        streams.wait_until(State.RUNNING, DEADLINE_S)
        assert streams.close(DEADLINE_S)
    assert streams.state is State.NOT_RUNNING


# ---- start and end


class Broken(Processor):
    """Cannot be closed."""

    def process(self, record: Record) -> None:
        """Keep nothing."""

    def close(self) -> None:
        raise ZeroDivisionError("on purpose")


def with_global_store(stage: Stage) -> Topology:
    store = key_value_store("everything", STRING, STRING).without_logging()
    topology = passing(Forward, stage=stage)
    return topology.add_global_store(store, "all", f"{stage.words}-all", "fill", Broken, key=STRING, value=STRING)


def test_an_error_of_a_global_store_does_not_prevent_the_end_of_the_client(stage: Stage) -> None:
    counting.make_topics(stage.bootstrap, {f"{stage.words}-all": 1})
    with stage.running(with_global_store(stage)) as streams:
        state = streams.global_state
        assert state is not None
        store = state.stores["everything"]
        assert streams.close(DEADLINE_S)
    assert streams.state is State.NOT_RUNNING
    assert not store.is_open
    KafkaStreams(with_global_store(stage), stage.config()).close()  # the directory is free


def test_a_client_that_is_closed_while_it_starts_starts_no_threads(stage: Stage) -> None:
    topic = f"{stage.words}-all"
    counting.make_topics(stage.bootstrap, {topic: 1})
    counting.write_words(stage.bootstrap, ["a", "b"], topic)

    class Closing(RestoreListener):
        def on_restore_start(self, changelog: tuple[str, int], store: str, start: int, end: int) -> None:
            closer.start()
            eventually(lambda: streams.state is not State.REBALANCING)

    streams = KafkaStreams(with_global_store(stage), stage.config(), restore_listener=Closing())
    closer = threading.Thread(target=streams.close)
    streams.start()
    closer.join(DEADLINE_S)
    assert not closer.is_alive()
    assert streams.state is State.NOT_RUNNING
    assert streams.stream_threads == ()
    assert not [each for each in threading.enumerate() if each.name.startswith(f"{streams.client_id}-StreamThread")]


@pytest.mark.parametrize("deadline_ms", [300_000, 0], ids=["long timeout", "no timeout"])
def test_committed_offsets_are_awaited_while_the_coordinator_does_not_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, deadline_ms: int
) -> None:
    """Up to task.timeout.ms; the thread goes on meanwhile."""
    untold = [None] * 3
    asked = GroupMember.fetch_committed

    def fetch(member: GroupMember, *about: Any) -> Any:
        if untold:
            untold.pop()
            raise MembershipError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator answers")
        return asked(member, *about)

    monkeypatch.setattr(GroupMember, "fetch_committed", fetch)
    stage.write(["x"])
    with KafkaStreams(passing(Forward, stage=stage), stage.config(task_timeout_ms=deadline_ms)) as streams:
        if deadline_ms:
            streams.wait_until(State.RUNNING, DEADLINE_S)
            eventually(lambda: read_all(stage.bootstrap, stage.counts))
            assert not untold
        else:
            with pytest.raises(StreamsError, match="ERROR"):
                streams.wait_until(State.NOT_RUNNING, DEADLINE_S)
            assert "no coordinator answers" in str(streams.failure)


def test_a_processor_that_would_end_the_process_ends_the_client(stage: Stage) -> None:
    class Leaving(Processor):
        def process(self, record: Record) -> None:
            sys.exit(3)

    stage.write(["x"])
    with (
        KafkaStreams(passing(Leaving, stage=stage), stage.config()) as streams,
        pytest.raises(StreamsError, match="ERROR"),
    ):
        streams.wait_until(State.NOT_RUNNING, DEADLINE_S)
    assert "SystemExit(3)" in str(streams.failure)


def test_the_cache_is_shared_with_threads_that_come(stage: Stage) -> None:
    with stage.running(statestore_cache_max_bytes=1_200) as streams:
        assert [thread.cache.limit for thread in streams.stream_threads] == [1_200]
        streams.add_stream_thread()
        assert [thread.cache.limit for thread in streams.stream_threads] == [600, 600]
        streams.remove_stream_thread(DEADLINE_S)
        eventually(lambda: [thread.cache.limit for thread in streams.stream_threads] == [1_200])


def test_a_paused_client_commits_as_a_running_one(stage: Stage) -> None:
    """Rows that leave the caches in a pause do so while queries wait, as always."""
    held = []

    class Pausing(Forward):
        def process(self, record: Record) -> None:
            streams.pause()
            super().process(record)

    class Watching(Forward):
        def process(self, record: Record) -> None:
            held.append(streams.stream_threads[0].lock._lock.locked())
            super().process(record)

    topology = Topology().add_source("words", stage.words, key=STRING, value=STRING)
    topology.add_processor("pause", Pausing, "words")
    topology.add_processor("keep", Keeping, "pause")
    topology.add_processor("watch", Watching, "keep")
    topology.add_state_store(key_value_store("kept", STRING, STRING).with_caching(), "keep")
    topology.add_sink("out", stage.counts, "watch", key=STRING, value=STRING)
    more: dict[str, Any] = {"statestore.cache.max.bytes": 100_000, "commit.interval.ms": 300}
    with stage.running(topology, **more) as streams:
        stage.write(["1"])
        eventually(lambda: values(stage) == [1])
        assert streams.is_paused
    assert held == [True]


def test_a_pause_holds_a_restoration_and_keeps_the_membership(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java's (KIP-834). It continues where it was, and no record is restored twice."""
    stage.write(["x"])
    with stage.running():
        eventually(lambda: read_all(stage.bootstrap, stage.counts))
    changelog = f"{stage.application_id}-{counting.STORE}-changelog"
    rows = {f"word{number}": number for number in range(20_000)}
    producer = Producer({"bootstrap.servers": stage.bootstrap, "queue.buffering.max.messages": 100_000})
    for word, count in rows.items():
        producer.produce(changelog, LONG.serialize(count), word.encode(), 0)
    assert producer.flush(DEADLINE_S) == 0
    looks: list[int] = []
    poll = GroupMember.poll

    def look(member: GroupMember, timeout_s: float) -> Any:
        looks.append(member.generation)
        return poll(member, timeout_s)

    class Pausing(RestoreListener):
        restored, ends = 0, 0

        def on_batch_restored(self, changelog: Any, store: str, batch_end: int, count: int) -> None:
            if not self.restored:
                streams.pause()
            self.restored += count

        def on_restore_end(self, changelog: Any, store: str, total: int) -> None:
            self.ends += 1

    monkeypatch.setattr(GroupMember, "poll", look)
    monkeypatch.setattr("odradek.streams.running.restoration.BATCH", 100)
    monkeypatch.setattr("odradek.streams.running.task_manager.RESTORE_STEP_S", 0.0)
    listener = Pausing()
    topology = word_counts(stage.words, stage.counts)
    with KafkaStreams(topology, stage.config("b", commit_interval_ms=100), restore_listener=listener) as streams:
        eventually(lambda: streams.is_paused)
        begun = len(looks) + 2  # the step in which it was paused is over
        eventually(lambda: len(looks) > begun)
        restored = listener.restored
        eventually(lambda: len(looks) > begun + 10)
        assert listener.restored == restored < len(rows)
        assert streams.state is State.REBALANCING
        assert not listener.ends
        streams.resume()
        streams.wait_until(State.RUNNING, DEADLINE_S)
        assert len(set(looks[begun:])) == 1, "no rebalance"
        assert listener.restored == len(rows) + 1
        with streams.store(counting.STORE, "key-value").all() as found:
            assert dict(found) == {**rows, "x": 1}


# ---- a generation of the group that passes without this member


def test_a_member_that_has_missed_a_generation_discards_the_state_of_its_tasks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not receive its assignment; the temporary owner of its task leaves, and it gets the task back."""
    topics = [f"{stage.words}-two", f"{stage.counts}-two"]
    counting.make_topics(stage.bootstrap, dict.fromkeys(topics, 2))
    producer = Producer({"bootstrap.servers": stage.bootstrap})

    def write(count: int) -> None:
        for _ in range(count):
            producer.produce(topics[0], b"w", b"x", 0)
        assert producer.flush(DEADLINE_S) == 0

    def counted() -> list[int]:
        return counting.counted(stage.bootstrap, topics[1]).get("x", [])

    def instance(name: str, number: int) -> KafkaStreams:
        builder = StreamsBuilder()
        words = builder.stream(topics[0], Consumed(STRING, STRING))
        counts = words.group_by_key(Grouped(STRING, STRING)).count("n")
        counts.to_stream().to(topics[1], Produced(STRING, LONG))
        folder = stage.folder / name / stage.application_id
        folder.mkdir(parents=True)
        (folder / PROCESS_FILE).write_text(json.dumps({"processId": str(UUID(int=number))}))
        more = {"processing.guarantee": "exactly_once_v2", "session.timeout.ms": 30_000}
        return KafkaStreams(builder.build(), stage.config(name, **more))

    received = CoordinatorThread._handle_assignment

    def miss(coordinator: CoordinatorThread, identity: CommittingMember, assignment: bytes) -> None:
        if threading.current_thread().name.startswith(one.client_id) and not missed:
            missed.append(identity.generation)
            write(3)
            eventually(lambda: counted() == [1, 2, 3, 4, 5])
            assert other.close(DEADLINE_S)
            raise ConnectionError("the answer is lost")
        received(coordinator, identity, assignment)

    missed: list[int] = []
    with instance("a", 1) as one:
        one.wait_until(State.RUNNING, DEADLINE_S)
        write(2)
        eventually(lambda: counted() == [1, 2])
        monkeypatch.setattr(CoordinatorThread, "_handle_assignment", miss)
        with instance("b", 2) as other:
            eventually(lambda: missed and one.stream_threads[0].generation > missed[0] and one.state is State.RUNNING)
            write(2)
            eventually(lambda: len(counted()) >= 7)
    assert counted() == list(range(1, 8))


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_cached_rows_are_committed_before_the_end(stage: Stage, guarantee: str) -> None:
    words: list[str] = []
    changelog = f"{stage.application_id}-{counting.STORE}-changelog"
    more: dict[str, Any] = {
        "statestore.cache.max.bytes": 1_000_000,
        "commit.interval.ms": 700,
        "processing.guarantee": guarantee,
    }
    for _ in range(2):
        fresh = [f"word{number % 5}" for number in range(200)]
        words += fresh
        stage.write(fresh)
        with stage.running(**more) as streams:
            eventually(lambda: sum(thread.processed for thread in streams.stream_threads) >= 400)
        expected = Counter(words)
        assert {
            word: max(counts) for word, counts in counting.counted(stage.bootstrap, stage.counts).items()
        } == expected
        found = {
            key.decode(): int.from_bytes(value, "big")
            for key, value in read_all(stage.bootstrap, changelog)
            if key and value
        }
        assert found == expected
