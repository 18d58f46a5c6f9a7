"""Failures of a record, of a thread, of an instance, and the handlers that decide what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from odradek.broker_process import BrokerProcess
from odradek.streams.errors import (
    ErrorContext,
    ProcessingError,
    Response,
    SerializationError,
    ShutdownRequestedError,
    StreamsError,
    UncaughtResponse,
    Undelivered,
    log_and_continue,
    log_and_fail,
)
from odradek.streams.processor import Processor, ProcessorContext
from odradek.streams.records import Record
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import LONG, STRING
from odradek.streams.topology import Topology
from tests.streams import counting
from tests.streams.counting import read_all, word_counts
from tests.streams.stage import DEADLINE_S, Forward, Stage, passing
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(streams_broker: BrokerProcess) -> BrokerProcess:
    return streams_broker


@pytest.fixture
def stage(broker: BrokerProcess, tmp_path: Path) -> Stage:
    made = Stage(broker, tmp_path)
    made.make_topics(1)
    return made


def values(stage: Stage) -> list[bytes | None]:
    return [value for _, value in read_all(stage.bootstrap, stage.counts)]


def numbers(stage: Stage) -> Topology:
    """Copies 8-byte numbers; any other value is poison."""
    topology = Topology().add_source("words", stage.words, key=STRING, value=LONG)
    return topology.add_sink("out", stage.counts, "words", key=STRING, value=LONG)


class Picky(Forward):
    """Raises on one word."""

    def process(self, record: Record) -> None:
        if record.value == "bad":
            raise ZeroDivisionError("on purpose")
        super().process(record)


def ended(streams: KafkaStreams) -> Exception:
    """Why the client is in ERROR."""
    with streams, pytest.raises(StreamsError, match="ERROR"):
        streams.wait_until(State.NOT_RUNNING, DEADLINE_S)
    assert streams.failure is not None
    return streams.failure


# ---- records


def test_poison_ends_the_client_and_reports_its_place(stage: Stage) -> None:
    stage.write(["12345678", "poison"])
    failure = ended(KafkaStreams(numbers(stage), stage.config()))
    assert isinstance(failure, SerializationError)
    assert f"node=words, topic={stage.words}, partition=0, offset=1, task=0_0" in str(failure)


def test_poison_is_skipped(stage: Stage) -> None:
    seen: list[tuple[ErrorContext, Any]] = []

    def handler(context: ErrorContext, key: Any, value: Any, error: Exception) -> Response:
        seen.append((context, value))
        return Response.CONTINUE

    stage.write(["12345678", "poison", "87654321"])
    with stage.running(numbers(stage), default_deserialization_exception_handler=handler):
        eventually(lambda: values(stage) == [b"12345678", b"87654321"])
    assert [(context.source.offset, value) for context, value in seen] == [(1, b"poison")]
    with stage.running(numbers(stage)):  # it is committed, and not read again
        stage.write(["abcdefgh"])
        eventually(lambda: len(values(stage)) == 3)


def test_a_node_that_fails_ends_the_client_and_reports_its_place(stage: Stage) -> None:
    stage.write(["good", "bad", "good"])
    failure = ended(KafkaStreams(passing(Forward, Picky, stage=stage), stage.config()))
    assert isinstance(failure, ProcessingError)
    assert f"node=p1, topic={stage.words}, partition=0, offset=1, task=0_0" in str(failure)
    assert "on purpose" in str(failure)


def test_a_processor_that_fails_to_initialize_ends_the_client_and_closes_the_others(stage: Stage) -> None:
    closed: list[str] = []

    class Closing(Forward):
        def close(self) -> None:
            closed.append("closed")

    class Unwilling(Closing):
        def init(self, context: ProcessorContext) -> None:
            raise ZeroDivisionError("on purpose")

    failure = ended(KafkaStreams(passing(Unwilling, Closing, stage=stage), stage.config()))
    assert "on purpose" in repr(failure)
    assert closed == ["closed"]


def test_a_node_that_fails_is_skipped(stage: Stage) -> None:
    stage.write(["good", "bad", "better"])
    with stage.running(passing(Forward, Picky, stage=stage), processing_exception_handler=log_and_continue) as streams:
        eventually(lambda: values(stage) == [b"good", b"better"])
        assert streams.state is State.RUNNING


@pytest.fixture
def narrow(stage: Stage) -> Stage:
    """The output topic takes small batches only."""
    stage.counts += "-narrow"
    admin = AdminClient({"bootstrap.servers": stage.bootstrap})
    topic = NewTopic(stage.counts, 1, -1, config={"max.message.bytes": "2000"})
    admin.create_topics([topic])[stage.counts].result(DEADLINE_S)
    return stage


@pytest.mark.parametrize("size", [4_000, 3_000_000], ids=["by the broker", "by the client"])
def test_a_rejected_record_ends_the_client(narrow: Stage, size: int) -> None:
    class Blow(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value("x" * size))

    narrow.write(["w"])
    failure = ended(KafkaStreams(passing(Blow, stage=narrow), narrow.config()))
    assert f"sending record to topic={narrow.counts}, partition=" in str(failure)
    assert "MSG_SIZE_TOO_LARGE" in str(failure)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_rejected_record_is_given_up(narrow: Stage, guarantee: str) -> None:
    class BlowSome(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value("x" * 3_000_000) if record.value == "big" else record)

    seen: list[Undelivered] = []

    def handler(context: ErrorContext, record: Undelivered, error: Exception) -> Response:
        assert context.node == "out"
        seen.append(record)
        return Response.CONTINUE

    narrow.write(["a", "big", "b"])
    options: dict[str, Any] = {"default.production.exception.handler": handler, "processing.guarantee": guarantee}
    with narrow.running(passing(BlowSome, stage=narrow), **options):
        eventually(lambda: values(narrow) == [b"a", b"b"])
    assert [len(record.value) for record in seen] == [3_000_000]


@pytest.mark.parametrize("size", [4_000, 3_000_000], ids=["by the broker", "by the client"])
def test_the_production_handler_gets_the_source_of_a_rejected_record(narrow: Stage, size: int) -> None:
    """Other records, of both partitions, are in flight with it; a broker rejects a batch with all of its records."""
    narrow.words += "-two"
    counting.make_topics(narrow.bootstrap, {narrow.words: 2})

    class BlowSome(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value("x" * size) if record.value.startswith("big") else record)

    seen: list[ErrorContext] = []

    def handler(context: ErrorContext, record: Undelivered, error: Exception) -> Response:
        seen.append(context)
        return Response.CONTINUE

    producer = Producer({"bootstrap.servers": narrow.bootstrap})
    sent, rejected = {}, set()
    for at in range(6):
        for partition in (0, 1):
            big = at % (3 + partition) == 1
            value = f"{'big' if big else 'small'}-{partition}-{at}"
            headers: list[tuple[str, str | bytes | None]] = [("number", str(at).encode())]
            producer.produce(narrow.words, value, f"k{at}", partition, timestamp=1_000 + at, headers=headers)
            sent[partition, at] = (f"0_{partition}", "out", narrow.words, partition, at, 1_000 + at, headers)
            if big:
                rejected.add((partition, at))
    assert producer.flush(DEADLINE_S) == 0
    with narrow.running(passing(BlowSome, stage=narrow), default_production_exception_handler=handler):
        eventually(lambda: len(values(narrow)) + len(seen) == len(sent))
    found = {
        (each.source.partition, each.source.offset): (
            str(each.task_id),
            each.node,
            *each.source,
            each.timestamp,
            each.headers,
        )
        for each in seen
    }
    assert rejected <= found.keys()
    assert len(found) == len(seen)
    assert found == {place: sent[place] for place in found}


def test_dead_letters_are_written_in_the_transaction_of_the_task(stage: Stage) -> None:
    dead = f"{stage.counts}-dead"
    counting.make_topics(stage.bootstrap, {dead: 1})
    options: dict[str, Any] = {
        "processing.guarantee": "exactly_once_v2",
        "errors.dead.letter.queue.topic.name": dead,
        "processing.exception.handler": "odradek.streams.log_and_continue",
    }

    def letters() -> list[bytes | None]:
        return [value for _, value in read_all(stage.bootstrap, dead)]

    stage.write(["good", "bad", "better"])
    with stage.running(passing(Picky, stage=stage), **options):
        eventually(lambda: values(stage) == [b"good", b"better"])
    assert letters() == [b"bad"]
    stage.write(["bad"])
    options["processing.exception.handler"] = log_and_fail
    assert isinstance(ended(KafkaStreams(passing(Picky, stage=stage), stage.config(**options))), ProcessingError)
    assert letters() == [b"bad"]  # the transaction was aborted, and the dead letter with it


# ---- threads and instances


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_thread_is_replaced(stage: Stage, guarantee: str) -> None:
    failures: list[Exception] = []

    class Once(Forward):
        def process(self, record: Record) -> None:
            if record.value == "bad" and not failures:
                raise RuntimeError("this once")
            super().process(record)

    def handler(error: Exception) -> UncaughtResponse:
        failures.append(error)
        return UncaughtResponse.REPLACE_THREAD

    # Without transactions no offset is committed before the failure, so that all records come once more: a thread
    # commits at its first turn, and then not for a minute.
    interval_ms = 60_000 if guarantee == "at_least_once" else counting.QUICK["commit.interval.ms"]
    options: dict[str, Any] = {"processing.guarantee": guarantee, "commit.interval.ms": interval_ms}
    streams = KafkaStreams(
        passing(Once, stage=stage),
        stage.config(**options),
        uncaught_exception_handler=handler,
    )
    with streams:
        eventually(lambda: streams.stream_threads[0].idles)
        stage.write(["a", "bad", "b"])
        eventually(lambda: values(stage)[-1:] == [b"b"])
        assert len(failures) == 1
        eventually(lambda: streams.state is State.RUNNING)
        assert [thread.index for thread in streams.stream_threads] == [1]
    expected = [b"a", b"bad", b"b"]
    assert values(stage) == (expected if guarantee == "exactly_once_v2" else [b"a", *expected])


def test_a_handler_that_fails_ends_the_client(stage: Stage) -> None:
    def handler(error: Exception) -> UncaughtResponse:
        raise OSError("no")

    stage.write(["bad"])
    topology = passing(Picky, stage=stage)
    failure = ended(KafkaStreams(topology, stage.config(), uncaught_exception_handler=handler))
    assert isinstance(failure, ProcessingError)


def test_one_instance_shuts_the_application_down(broker: BrokerProcess, tmp_path: Path) -> None:
    stage = Stage(broker, tmp_path)
    stage.make_topics(2)
    streams = KafkaStreams(
        passing(Picky, stage=stage),
        stage.config(),
        uncaught_exception_handler=lambda error: UncaughtResponse.SHUTDOWN_APPLICATION,
    )
    with stage.running(passing(Picky, stage=stage), instance="b") as other, streams:
        streams.wait_until(State.RUNNING, DEADLINE_S)
        eventually(lambda: len(streams.metadata_for_local_threads()[0].active_tasks) == 1)
        partition = streams.metadata_for_local_threads()[0].active_tasks[0].task_id.partition
        write_to(stage, partition, b"bad")
        eventually(lambda: streams.state is State.ERROR)
        eventually(lambda: other.state is State.ERROR)
    assert isinstance(streams.failure, ProcessingError)
    assert isinstance(other.failure, ShutdownRequestedError)


def write_to(stage: Stage, partition: int, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    producer.produce(stage.words, value, b"k", partition)
    producer.flush()


def test_a_changelog_with_another_partition_count_ends_the_client(stage: Stage) -> None:
    counting.make_topics(stage.bootstrap, {f"{stage.application_id}-totals-changelog": 5})
    failure = ended(KafkaStreams(word_counts(stage.words, stage.counts), stage.config()))
    assert "could not be assigned" in str(failure)


def test_the_reason_of_the_leader_is_the_failure_of_every_instance(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The input gets more partitions than the internal topics have; one leader finds it."""
    often: dict[str, Any] = {"metadata_max_age_ms": 100}
    with stage.running(**often) as one, stage.running(instance="b", **often) as other:
        admin = AdminClient({"bootstrap.servers": stage.bootstrap})
        admin.create_partitions([NewPartitions(stage.words, 3)])[stage.words].result(DEADLINE_S)
        eventually(lambda: one.state is State.ERROR and other.state is State.ERROR)
    reasons = [record.args for record in caplog.records if "cannot assign tasks" in record.message]
    assert len(reasons) == 1, "the other member is not the leader of a second attempt"
    for each in (one, other):
        assert "could not be assigned: Existing internal topic" in str(each.failure)
        assert "expected: 3; actual: 1" in str(each.failure)
