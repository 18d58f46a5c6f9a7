"""The record collector of a thread with a producer that rejects records (Kafka: RecordCollectorImpl)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from odradek.streams.config import StreamsConfig
from odradek.streams.errors import StreamsError, TaskMigratedError
from odradek.streams.running.collector import RecordCollector
from tests.streams.stage import context_of


class TransactionalProducer:
    """Accepts records, unless its transaction has failed by itself."""

    def __init__(self, failed: bool) -> None:
        self._failed = failed
        self.topics: list[str] = []
        self.closed = False

    def init_transactions(self, timeout_s: float) -> None:
        """It is registered."""

    def begin_transaction(self) -> None:
        """One has begun."""

    def produce(self, topic: str, *record: Any) -> None:
        if self._failed:
            raise KafkaException(KafkaError(KafkaError._STATE, "Unable to produce message"))
        self.topics.append(topic)

    def purge(self) -> None:
        """No record is left."""

    def flush(self, timeout_s: float) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


def test_a_transaction_that_has_failed_unnoticed_is_begun_anew_by_another_producer() -> None:
    """librdkafka returns the error with the first record after it, and that record did not cause it."""
    asked: list[Any] = []
    config = StreamsConfig(
        {
            "application.id": "collector",
            "bootstrap.servers": "localhost:9092",
            "default.production.exception.handler": lambda *about: asked.append(about),
        }
    )
    producers = [TransactionalProducer(failed=True), TransactionalProducer(failed=False)]
    coming = iter(producers)
    make: Any = lambda delivered: next(coming)  # noqa: E731
    collector = RecordCollector(make, config.handlers, 5.0, transactional=True)
    context = context_of(collector, config)
    try:
        with pytest.raises(TaskMigratedError, match="the transaction had failed"):
            collector.sender(context)("out", b"k", b"v", 0, 1, None)
        collector.renew()
        assert producers[0].closed
        collector.sender(context)("out", b"k", b"v", 0, 1, None)
    finally:
        collector._close_producer()
    assert producers[1].topics == ["out"]
    assert not asked


class SlowProducer(TransactionalProducer):
    """Has this many records left after each flush."""

    def __init__(self, left: int) -> None:
        super().__init__(failed=False)
        self._left = left

    def flush(self, timeout_s: float) -> int:
        return self._left


def test_records_not_acknowledged_in_time_are_given_up_with_their_producer() -> None:
    config = StreamsConfig({"application.id": "collector", "bootstrap.servers": "localhost:9092"})
    slow, quick = SlowProducer(left=1), SlowProducer(left=0)
    coming = iter([slow, quick])
    make: Any = lambda delivered: next(coming)  # noqa: E731
    collector = RecordCollector(make, config.handlers, 5.0)
    try:
        assert not collector.settle()
        assert not slow.closed
        collector.renew()
        assert slow.closed
        assert collector.settle()
        collector.renew()
        assert not quick.closed
    finally:
        collector.close()


class FarProducer(SlowProducer):
    """Returns metadata of topics this often, of one partition more each time."""

    def __init__(self, answers: int) -> None:
        super().__init__(left=0)
        self._counts = list(range(1, answers + 1))

    def list_topics(self, topic: str, timeout: float) -> Any:
        if not self._counts:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        partitions = dict.fromkeys(range(self._counts.pop(0)))
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=partitions)})


def test_a_topic_keeps_its_partition_count_while_no_broker_answers() -> None:
    config = StreamsConfig({"application.id": "collector", "bootstrap.servers": "localhost:9092"})
    make: Any = lambda delivered: FarProducer(answers=2)  # noqa: E731
    collector = RecordCollector(make, config.handlers, 5.0, metadata_s=0.0)
    try:
        assert [collector.partitions_of("out") for _ in range(3)] == [1, 2, 2]
        with pytest.raises(StreamsError, match="cannot request metadata of the topic"):
            collector.partitions_of("other")
    finally:
        collector.close()
    lasting = RecordCollector(make, config.handlers, 5.0, metadata_s=1e9)
    try:
        assert [lasting.partitions_of("out") for _ in range(2)] == [1, 1]
    finally:
        lasting.close()
