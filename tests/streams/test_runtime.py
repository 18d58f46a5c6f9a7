"""A client on a real broker: from the first record to the last commit, with the events in between."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.streams.errors import LockError, MissingSourceTopicError, StreamsError, UncaughtResponse
from odradek.streams.processor import Processor, PunctuationType
from odradek.streams.records import Record, TaskId
from odradek.streams.running import collector
from odradek.streams.running.thread_context import ThreadState
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import LONG, STRING
from odradek.streams.topology import Topology
from tests.jvm.kafka import running_kafka
from tests.streams import counting
from tests.streams.counting import all_of, await_counts, counted, read_all, word_counts
from tests.streams.stage import DEADLINE_S, Broker, Forward, Stage, passing
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def odradek(streams_broker: BrokerProcess) -> BrokerProcess:
    return streams_broker


@pytest.fixture(scope="module", params=["odradek", pytest.param("kafka", marks=pytest.mark.jvm)])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with ExitStack() as stack:
        if request.param == "kafka":
            yield stack.enter_context(running_kafka(tmp_path_factory.mktemp("kafka"), dict(counting.BROKER)))
        else:
            yield request.getfixturevalue("streams_broker")


@pytest.fixture
def stage(odradek: BrokerProcess, tmp_path: Path) -> Stage:
    made = Stage(odradek, tmp_path)
    made.make_topics()
    return made


# ---- from source to sink


@pytest.mark.parametrize(
    ("guarantee", "client"),
    [("at_least_once", "librdkafka"), ("exactly_once_v2", "librdkafka"), ("exactly_once_v2", "odradek")],
)
def test_words_are_counted_over_restarts(broker: Broker, tmp_path: Path, guarantee: str, client: str) -> None:
    stage = Stage(broker, tmp_path)
    stage.make_topics()
    words: list[str] = []
    for round_number in range(3):
        fresh = [f"word{number % 7}" for number in range(350)]
        words += fresh
        stage.write(fresh)
        with stage.running(processing_guarantee=guarantee, client_implementation=client) as streams:
            found = stage.await_counts(Counter(words))
            assert streams.state is State.RUNNING
        assert streams.state is State.NOT_RUNNING
        assert found == {word: list(range(1, count + 1)) for word, count in Counter(words).items()}
        if round_number == 1:
            shutil.rmtree(tmp_path / "a")  # the third round starts from the changelog
    changelog = dict(read_all(stage.bootstrap, f"{stage.application_id}-totals-changelog"))
    assert {key: int.from_bytes(value or b"", "big") for key, value in changelog.items()} == {
        word.encode(): count for word, count in Counter(words).items()
    }


def test_records_keep_time_headers_and_empty_fields(stage: Stage) -> None:
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    sent: list[tuple[bytes, bytes | None, int, list[tuple[str, str | bytes | None]] | None]] = [
        (b"k", b"v", 1_700_000_000_000, [("h", b"1"), ("h", None)]),
        (b"k", b"", 5, None),
        (b"k", None, 1_700_000_000_001, None),
        (b"", b"empty key", 7, None),
    ]
    for key, value, timestamp, headers in sent:
        producer.produce(stage.words, value, key, 1, timestamp=timestamp, headers=headers or [])
    producer.flush()
    with stage.running(passing(Forward, stage=stage)):
        eventually(lambda: len(read_all(stage.bootstrap, stage.counts)) == len(sent))
    consumer = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": "look"})
    consumer.assign([Position(stage.counts, partition, 0) for partition in range(2)])
    found = []
    while len(found) < len(sent):
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        found.append((message.key(), message.value(), message.timestamp()[1], message.headers()))
    consumer.close()
    assert sorted(found, key=str) == sorted(sent, key=str)


# ---- threads and instances


def test_two_instances_share_the_work_and_one_takes_over(stage: Stage) -> None:
    states: list[State] = []
    topology = word_counts(stage.words, stage.counts)
    first = KafkaStreams(topology, stage.config("a"), state_listener=lambda state, before: states.append(state))
    with first:
        first.wait_until(State.RUNNING, DEADLINE_S)
        assert len(first.metadata_for_local_threads()[0].active_tasks) == 4
        with stage.running(instance="b") as second:
            eventually(lambda: len(second.metadata_for_local_threads()[0].active_tasks) == 2)
            eventually(lambda: len(first.metadata_for_local_threads()[0].active_tasks) == 2)
            first.wait_until(State.RUNNING, DEADLINE_S)
            stage.write(["one", "two", "three"] * 100)
            stage.await_counts({"one": 100, "two": 100, "three": 100})
        eventually(lambda: len(first.metadata_for_local_threads()[0].active_tasks) == 4)
        stage.write(["one", "two", "three"] * 100)
        found = stage.await_counts({"one": 200, "two": 200, "three": 200})
    assert found == {word: list(range(1, 201)) for word in ("one", "two", "three")}
    assert states[0] is State.REBALANCING
    assert State.RUNNING in states


def test_a_static_member_comes_back_without_a_rebalance(stage: Stage) -> None:
    with stage.running(instance="a", group_instance_id="left") as stays:
        with stage.running(instance="b", group_instance_id="right") as goes:
            eventually(lambda: len(goes.metadata_for_local_threads()[0].active_tasks) == 2)
            stays.wait_until(State.RUNNING, DEADLINE_S)
            had = [task.task_id for task in goes.metadata_for_local_threads()[0].active_tasks]
        rebalances: list[State] = []
        thread = stays.stream_threads[0]
        generation = thread.generation
        with stage.running(instance="b", group_instance_id="right") as back:
            assert [task.task_id for task in back.metadata_for_local_threads()[0].active_tasks] == had
            stage.write(["x"] * 50)
            stage.await_counts({"x": 50})
        assert thread.generation == generation
        assert thread.state is ThreadState.RUNNING
        assert not rebalances


def test_threads_come_and_go(stage: Stage) -> None:
    with stage.running(num_stream_threads=2) as streams:
        assert {thread.index for thread in streams.stream_threads} == {1, 2}
        assert all(len(thread.active_tasks) == 2 for thread in streams.metadata_for_local_threads())
        name = streams.add_stream_thread()
        assert name is not None
        assert name.endswith("-StreamThread-3")
        eventually(lambda: sorted(len(each.active_tasks) for each in streams.metadata_for_local_threads()) == [1, 1, 2])
        assert streams.remove_stream_thread(DEADLINE_S) is not None
        assert streams.remove_stream_thread(DEADLINE_S) is not None
        eventually(lambda: [len(each.active_tasks) for each in streams.metadata_for_local_threads()] == [4])
        stage.write(["x"] * 50)
        stage.await_counts({"x": 50})
    assert streams.add_stream_thread() is None


def test_a_paused_client_processes_nothing(stage: Stage) -> None:
    with stage.running() as streams:
        streams.pause()
        assert streams.is_paused
        thread = streams.stream_threads[0]
        eventually(lambda: thread.idles)
        stage.write(["x"] * 20)
        with pytest.raises(AssertionError):
            await_counts(stage.bootstrap, all_of({"x": 1}), stage.counts, 0.5)
        streams.resume()
        stage.await_counts({"x": 20})


def test_two_processes_cannot_have_one_directory(stage: Stage) -> None:
    with stage.running(), pytest.raises(LockError, match=r"state\.dir"):
        KafkaStreams(word_counts(stage.words, stage.counts), stage.config())


def test_clean_up_removes_the_state(stage: Stage, tmp_path: Path) -> None:
    stage.write(["x"] * 20)
    with stage.running() as streams:
        stage.await_counts({"x": 20})
        with pytest.raises(StreamsError, match="while running"):
            streams.clean_up()
    task = tmp_path / "a" / stage.application_id / "1_0"
    assert task.is_dir()
    streams.clean_up()
    assert not task.exists()
    assert not streams.close() or streams.state is State.NOT_RUNNING
    with pytest.raises(StreamsError, match="already"):
        streams.start()


def test_state_of_a_removed_task_is_deleted_after_a_while(stage: Stage, tmp_path: Path) -> None:
    """One task moves to another instance; its directory here is deleted too, and those that are in use or were lately
    stay.
    """
    stage.write(["x", "y", "z"] * 10)
    here = tmp_path / "a" / stage.application_id
    tasks = {TaskId(1, 0), TaskId(1, 1)}

    def held(streams: KafkaStreams) -> set[TaskId]:
        active = [each.active_tasks for each in streams.metadata_for_local_threads()]
        return tasks & {task.task_id for found in active for task in found}

    with stage.running(state_cleanup_delay_ms=500) as first:
        stage.await_counts({"x": 10, "y": 10, "z": 10})
        assert held(first) == tasks
        with stage.running(instance="b"):
            eventually(lambda: len(held(first)) == 1 and first.state is State.RUNNING)
            (kept,) = held(first)
            (gone,) = tasks - {kept}
            lately = here / "9_9"
            lately.mkdir()
            future = time.time() + 10**6
            os.utime(lately, (future, future))
            os.utime(here / str(kept), (0, 0))
            eventually(lambda: not (here / str(gone)).exists())
            assert held(first) == {kept}
            assert {path.name for path in here.iterdir() if path.is_dir()} == {str(kept), "9_9"}


# ---- time


def test_punctuators_follow_the_wall_clock_and_commit_on_request(stage: Stage) -> None:
    class Clock(Processor):
        def init(self, context: Any) -> None:
            self.context = context
            context.schedule(30, PunctuationType.WALL_CLOCK_TIME, self.tick)
            self.ticks = 0

        def tick(self, now: int) -> None:
            self.ticks += 1
            if self.ticks <= 3:
                self.context.forward(Record("tick", str(self.ticks), now))
                self.context.commit()

        def process(self, record: Record) -> None:
            raise AssertionError("there are no records")

    with stage.running(passing(Clock, stage=stage), commit_interval_ms=60_000, poll_ms=1000) as streams:
        eventually(lambda: len(read_all(stage.bootstrap, stage.counts)) >= 3)
        eventually(lambda: streams.stream_threads[0].commits >= 3)


def test_tasks_wait_for_topics_with_unread_records(stage: Stage) -> None:
    """Records of two topics are taken in the order of their times, since neither is empty (KIP-695)."""
    right = f"{stage.words}-right"
    counting.make_topics(stage.bootstrap, {right: 2})
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    for number in range(2_000):
        topic = stage.words if number % 4 else right
        producer.produce(topic, str(number).encode(), b"k", 0, timestamp=1_000_000 + number)
    producer.flush()
    topology = Topology()
    topology.add_source("left", stage.words, key=STRING, value=STRING)
    topology.add_source("right", right, key=STRING, value=STRING)
    topology.add_processor("both", Forward, "left", "right")
    topology.add_sink("out", stage.counts, "both", key=STRING, value=STRING)
    with stage.running(topology, max_poll_records=50, buffered_records_per_partition=100):
        eventually(lambda: len(read_all(stage.bootstrap, stage.counts)) == 2_000)
    assert [int(value or b"") for _, value in read_all(stage.bootstrap, stage.counts)] == list(range(2_000))


# ---- topics


def test_repartition_topics_are_purged(stage: Stage) -> None:
    with stage.running(repartition_purge_interval_ms=0):
        stage.write([f"word{number}" for number in range(300)])
        stage.await_counts({f"word{number}": 1 for number in range(300)})
        consumer = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": "look"})
        topic = f"{stage.application_id}-totals-repartition"

        def cut() -> bool:
            marks = [consumer.get_watermark_offsets(Position(topic, partition)) for partition in range(2)]
            return all(mark is not None and mark[0] == mark[1] > 0 for mark in marks)

        eventually(cut)
        consumer.close()


def test_a_missing_source_topic_ends_the_client(odradek: BrokerProcess, tmp_path: Path) -> None:
    stage = Stage(odradek, tmp_path)
    streams = KafkaStreams(word_counts(stage.words, stage.counts), stage.config())
    with streams, pytest.raises(StreamsError, match="ERROR"):
        streams.wait_until(State.RUNNING, DEADLINE_S)
    assert isinstance(streams.failure, MissingSourceTopicError)


def test_a_deleted_source_topic_ends_every_instance_soon(stage: Stage) -> None:
    handled: list[Exception] = []

    def handler(error: Exception) -> UncaughtResponse:
        handled.append(error)
        return UncaughtResponse.SHUTDOWN_CLIENT

    topology = word_counts(stage.words, stage.counts)
    other = KafkaStreams(topology, stage.config("b"), uncaught_exception_handler=handler)
    with stage.running() as one, other:
        eventually(lambda: len(other.metadata_for_local_threads()[0].active_tasks) == 2)
        one.wait_until(State.RUNNING, DEADLINE_S)
        stage.write(["a", "b"])
        stage.await_counts({"a": 1, "b": 1})
        admin = AdminClient({"bootstrap.servers": stage.bootstrap})
        admin.delete_topics([stage.words])[stage.words].result(DEADLINE_S)
        # Before, the next look at the topics noticed it: after metadata.max.age.ms, five minutes.
        eventually(lambda: one.state is State.ERROR and other.state is State.ERROR, timeout_s=30.0)
    for each in (one, other):
        assert isinstance(each.failure, MissingSourceTopicError)
        assert f"source topics that do not exist: {stage.words}" in str(each.failure)
    assert handled == [other.failure]


def test_a_source_topic_that_is_deleted_in_a_transaction_is_found_before_the_commit_times_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next commit has offsets of the topic. librdkafka retries it until its timeout, or until the coordinator
    aborts the transaction; here both take longer than the test.
    """
    monkeypatch.setattr(collector, "_FIRST_TRY_S", 300.0)
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    once: dict[str, Any] = {"processing_guarantee": "exactly_once_v2", "producer_transaction_timeout_ms": 600_000}
    with stage.running(**once, commit_interval_ms=3_000) as streams:
        stage.write(["a", "b"])
        eventually(lambda: sum(thread.processed for thread in streams.stream_threads) >= 2)
        admin.delete_topics([stage.words])[stage.words].result(DEADLINE_S)
        eventually(lambda: streams.state is State.ERROR)
    assert isinstance(streams.failure, MissingSourceTopicError)


def test_a_start_does_not_wait_for_the_membership_of_a_closed_or_failed_run(stage: Stage) -> None:
    """A session of the former membership would last for all of the deadline."""
    config = stage.config()
    del config["internal.leave.group.on.close"]
    config["session.timeout.ms"] = 300_000
    stage.write(["a"])
    for expected in ({"a": 1}, {"a": 2}):
        with KafkaStreams(word_counts(stage.words, stage.counts), config) as streams:
            streams.wait_until(State.RUNNING, DEADLINE_S)
            stage.await_counts(expected)
        stage.write(["a"])

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    topology = Topology().add_source("in", stage.words, key=STRING, value=STRING)
    topology.add_sink("out", fail, "in", key=STRING, value=STRING)
    for _ in range(2):
        with KafkaStreams(topology, config) as failing, pytest.raises(StreamsError, match="ERROR"):
            failing.wait_until(State.NOT_RUNNING, DEADLINE_S)
        assert "on purpose" in str(failing.failure)


@pytest.mark.parametrize("paused", [False, True])
def test_a_topic_that_grows_gets_another_task(stage: Stage, paused: bool) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewPartitions

    topology = passing(Forward, stage=stage)
    with stage.running(topology, metadata_max_age_ms=100) as streams:
        assert len(streams.metadata_for_local_threads()[0].active_tasks) == 2
        if paused:
            streams.pause()
        admin = AdminClient({"bootstrap.servers": stage.bootstrap})
        admin.create_partitions([NewPartitions(stage.words, 3)])[stage.words].result(DEADLINE_S)
        eventually(lambda: len(streams.metadata_for_local_threads()[0].active_tasks) == 3)


def test_all_partitions_of_a_grown_sink_topic_are_written(stage: Stage) -> None:
    """With Java's partitioner, which is the client's, and with one of the application's own."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewPartitions

    chosen = f"{stage.counts}-chosen"
    counting.make_topics(stage.bootstrap, {chosen: 1})
    topology = Topology().add_source("words", stage.words, key=STRING, value=STRING)
    topology.add_sink("out", stage.counts, "words", key=STRING, value=STRING)
    modulo = lambda topic, key, value, count: int(key) % count  # noqa: E731
    topology.add_sink("chosen", chosen, "words", key=STRING, value=STRING, partitioner=modulo)
    producer = Producer({"bootstrap.servers": stage.bootstrap})

    def written(topic: str) -> set[int]:
        """The partitions that have records; after a round of records more."""
        for number in range(50):
            producer.produce(stage.words, b"v", str(number).encode())
        assert producer.flush(DEADLINE_S) == 0
        with counting.reading(stage.bootstrap, topic) as (consumer, partitions):
            marks = {each: consumer.get_watermark_offsets(Position(topic, each)) for each in partitions}
        return {each for each, mark in marks.items() if mark is not None and mark[1] > 0}

    with stage.running(topology, metadata_max_age_ms=100) as streams:
        eventually(lambda: written(stage.counts) == {0, 1} and written(chosen) == {0})
        admin = AdminClient({"bootstrap.servers": stage.bootstrap})
        grown = admin.create_partitions([NewPartitions(stage.counts, 4), NewPartitions(chosen, 3)])
        for future in grown.values():
            future.result(DEADLINE_S)
        eventually(lambda: written(stage.counts) == {0, 1, 2, 3})
        eventually(lambda: written(chosen) == {0, 1, 2})
        assert streams.state is State.RUNNING


@pytest.mark.parametrize(("policy", "sees_all"), [("earliest", True), ("latest", False)])
def test_where_a_source_begins(stage: Stage, policy: Any, sees_all: bool) -> None:
    stage.write(["before"] * 2)
    topology = Topology().add_source("words", stage.words, key=STRING, value=STRING, offset_reset=policy)
    topology.add_sink("out", stage.counts, "words", key=STRING, value=STRING)

    def seen() -> list[bytes | None]:
        stage.write(["after"])  # repeatedly: the end is requested once the thread runs, and may be after the first
        return [value for _, value in read_all(stage.bootstrap, stage.counts)]

    with stage.running(topology):
        eventually(lambda: b"after" in seen())
        if sees_all:  # the records of another partition may come later
            eventually(lambda: b"before" in seen())
    assert (b"before" in seen()) is sees_all


def test_a_client_without_an_offset_and_a_policy_ends(stage: Stage) -> None:
    streams = KafkaStreams(passing(Forward, stage=stage), stage.config(**{"auto.offset.reset": "none"}))
    with streams, pytest.raises(StreamsError, match="ERROR"):
        streams.wait_until(State.NOT_RUNNING, DEADLINE_S)
    assert "No valid committed offset found" in str(streams.failure)


def test_sequence_numbers_of_a_store_follow_the_restored_ones(stage: Stage) -> None:
    """A store in memory is restored from its changelog at each start."""
    topology = word_counts(stage.words, stage.counts, in_memory=True)
    for expected in (40, 80):
        stage.write(["x"] * 40)
        with stage.running(topology):
            stage.await_counts({"x": expected})
    assert counted(stage.bootstrap, stage.counts) == {"x": list(range(1, 81))}
    assert (
        LONG.deserialize(dict(read_all(stage.bootstrap, f"{stage.application_id}-totals-changelog"))[b"x"] or b"") == 80
    )
