"""Clients that write and read while faults hit a cluster, each in a thread, with a history for the checker.

A producer gets every outcome; a value whose outcome is not known at the end counts as not acknowledged, whether it is
in the log or not. The reader has no group and starts over every few seconds, so that it requests records again that it
has received once. The workload does not wait for a fault to pass: the clients retry requests that fail or time out.
"""

from __future__ import annotations

import operator
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.checker import Assignment, History, Log, Value
from tests.support.nemesis import ROUNDS

DEADLINE_S: Final = 60.0
PACE_S: Final = 0.03 if ROUNDS else 0.1
"""The pause between two writes of a producer to a partition. In the suite other tests run beside."""
START_OVER_S: Final = 10.0
MOST_OUTSTANDING: Final = 200
BATCH: Final = 500

CONNECTION: Final[Mapping[str, Any]] = {
    "socket.timeout.ms": 5000,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
    # A broker never returns that an existing topic is missing: a client with that error at once fails its writes to it.
    "topic.metadata.propagation.max.ms": 1,
    "log_level": 0,
}
PRODUCER: Final[Mapping[str, Any]] = {
    **CONNECTION,
    "acks": "all",
    "linger.ms": 5,
    "request.timeout.ms": 3000,
    "message.timeout.ms": 180_000,
    "retry.backoff.ms": 50,
}
CONSUMER: Final[Mapping[str, Any]] = {
    **CONNECTION,
    "group.id": "nobody",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
}
PRODUCERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "once": {**PRODUCER, "enable.idempotence": True, "max.in.flight": 1},
    "pipelined": {**PRODUCER, "enable.idempotence": True},
    "again": {**PRODUCER, "enable.idempotence": False},
}
CARELESS: Final[Mapping[str, Mapping[str, Any]]] = {"careless": {**PRODUCER, "acks": "1"}}
"""A history for the checker."""
_LOST_PLACE: Final = {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}


class Workload:
    """Producers, and a reader, of one topic; from the start of the `with` to the end of `finish`."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        producers: Mapping[str, Mapping[str, Any]] = PRODUCERS,
    ) -> None:
        """`producers` have librdkafka's configuration each, by name."""
        self._address = {"bootstrap.servers": bootstrap_servers}
        self._topic = topic
        self._stopping = threading.Event()
        self._failures: list[str] = []
        self._producers = producers
        idempotent = {name for name, config in producers.items() if config.get("enable.idempotence")}
        once = frozenset(name for name in idempotent if producers[name].get("max.in.flight") == 1)
        self.history: History = History(partitions, once, frozenset(idempotent - once))
        self.errors: Counter[str] = Counter()
        """The errors that clients received, for the log."""
        self._threads = [threading.Thread(target=self._run, args=(self._read,), name="reader")]
        for name in producers:
            self._threads.append(threading.Thread(target=self._run, args=(partial(self._write, name),), name=name))

    def __enter__(self) -> Workload:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def await_progress(self, partitions: Sequence[int] | None = None) -> None:
        """Wait until each of these partitions, or all, took a write and returned it to a reader. Raises
        TimeoutError.
        """
        self.history.await_more(self.history.partitions if partitions is None else partitions, DEADLINE_S)
        assert not self._failures, self._failures

    def progress_for(self, seconds: float) -> None:
        """As `await_progress`, repeatedly for this long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.await_progress()

    def finish(self) -> Sequence[Log]:
        """Once all faults have ended: await every outcome, end the clients, and read everything from the start."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * DEADLINE_S)
            assert not thread.is_alive(), f"{thread.name} does not end"
        assert not self._failures, self._failures
        return self._read_all()

    # ---- in the threads

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as failure:
            self._failures.append(f"{threading.current_thread().name}: {failure!r}")
            raise

    def _write(self, name: str) -> None:
        producer = Producer({**self._address, **self._producers[name], "error_cb": partial(self._note, name)})
        outstanding: Counter[int] = Counter()

        def conclude(partition: int, value: Value, error: KafkaError | None, message: Message) -> None:
            outstanding[partition] -= 1
            if error is None:
                offset = message.offset()
                self.history.acknowledge(partition, -1 if offset is None else offset, value)
            else:
                self._note(name, error)

        while not self._stopping.wait(PACE_S):
            for partition in self.history.partitions:
                if outstanding[partition] < MOST_OUTSTANDING:
                    value = self.history.next_value(partition, name)
                    outstanding[partition] += 1
                    notified = partial(conclude, partition, value)
                    producer.produce(self._topic, value.encode(), partition=partition, on_delivery=notified)
            producer.poll(0)
        if producer.flush(DEADLINE_S):
            raise TimeoutError(f"{sum(outstanding.values())} values have no outcome after {DEADLINE_S:g} s")

    def _read(self) -> None:
        consumer = Consumer({**self._address, **CONSUMER, "error_cb": partial(self._note, "reader")})
        try:
            while not self._stopping.is_set():
                assignment = self._assign(consumer)
                deadline = time.monotonic() + START_OVER_S
                while not self._stopping.is_set() and (time.monotonic() < deadline or self._behind(assignment)):
                    self._poll(consumer, assignment)
        finally:
            consumer.close()

    # ---- helpers

    def _read_all(self) -> Sequence[Log]:
        consumer = Consumer({**self._address, **CONSUMER})
        try:
            deadline = time.monotonic() + DEADLINE_S
            ends = [self._end(consumer, partition, deadline) for partition in self.history.partitions]
            assignment = self._assign(consumer)
            logs: list[dict[int, Value]] = [{} for _ in self.history.partitions]
            while any(map(operator.lt, assignment, ends)):
                assert time.monotonic() < deadline, f"not all is readable: {assignment} of {ends}"
                for partition, offset, value in self._poll(consumer, assignment):
                    logs[partition][offset] = value
        finally:
            consumer.close()
        return logs

    def _end(self, consumer: Consumer, partition: int, deadline: float) -> int:
        """The high watermark. A leader that has just been elected does not have it yet, and returns an error
        (KIP-207).
        """
        while True:
            try:
                return consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=DEADLINE_S)[1]
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE or time.monotonic() > deadline:
                    raise

    def _behind(self, assignment: Assignment) -> bool:
        """Whether an earlier reader received more."""
        return any(offset < self.history.read_below(partition) for partition, offset in enumerate(assignment))

    def _assign(self, consumer: Consumer) -> Assignment:
        consumer.assign([TopicPartition(self._topic, partition, 0) for partition in self.history.partitions])
        return self.history.assign()

    def _poll(self, consumer: Consumer, assignment: Assignment) -> list[tuple[int, int, Value]]:
        records: list[tuple[int, int, Value]] = []
        for message in consumer.consume(BATCH, timeout=0.1):
            if (error := message.error()) is not None:
                self._note("reader", error)
                continue
            partition, offset, data = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert isinstance(data, bytes)
            records.append((partition, offset, Value.decode(data)))
        self.history.poll(assignment, records)
        return records

    def _note(self, client: str, error: KafkaError) -> None:
        self.errors[f"{client}: {error.name()}"] += 1
        if error.fatal() or error.code() in _LOST_PLACE:
            raise KafkaException(error)
