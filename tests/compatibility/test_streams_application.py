"""A Java Kafka Streams 3.9.2 application with processing.guarantee=exactly_once_v2: its counts are right over kills.

One of 1.1.1, the oldest release that Odradek serves, does the same with exactly_once.

It groups by word, so that records go through a repartition topic, and keeps counts in RocksDB with a changelog topic.
The application is killed in the middle, then the broker. Since its output is the count so far, the output of a word
must be 1, 2, 3, … with no number missing, doubled or out of order: what Apache Kafka gives (--broker kafka).
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compatibility.brokers import Broker, create_topic
from tests.jvm.process import QUIET, BackgroundProcess, java_command

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

NEW: Final = ("streams-3.9.2", "WordCount.java")
OLD: Final = ("streams-1.1.1", "OldWordCount.java")
JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx384m")
WORDS: Final = ["odradek", "stairs", "spool", "thread", "star", "lung", "laughter", "attic", "corridor", "hall", "wood"]
LINES: Final = 1500
PARTITIONS: Final = 2
TIMEOUT_S: Final = 60.0


class Counting:
    """The application, and its successors on the same state directory."""

    def __init__(
        self, broker: Broker, application: str, topics: tuple[str, str], folder: Path, which: tuple[str, str] = NEW
    ) -> None:
        release, name = which
        program = str(Path(__file__).with_name(name))
        where = [broker.bootstrap, application, *topics, str(folder)]
        self._command = java_command(release, program, where, [*JVM, *QUIET])
        self.process = BackgroundProcess(self._command)

    def await_running(self) -> None:
        self.process.stdout.wait_for("running", TIMEOUT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process = BackgroundProcess(self._command)


class Counts:
    """The output so far, as a read_committed reader finds it."""

    def __init__(self, broker: Broker, topic: str) -> None:
        settings = {"group.id": "counts", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.of: dict[str, list[int]] = defaultdict(list)

    def read_until(self, holds: Callable[[], bool], process: BackgroundProcess) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            for message in self._consumer.consume(500, timeout=0.2):
                key, value = message.key(), message.value()
                if message.error() is None:
                    assert isinstance(key, bytes)
                    assert isinstance(value, bytes)
                    self.of[key.decode()].append(int(value))
            printed = [*process.stdout.lines()[-5:], *process.stderr.lines()[-5:]]
            assert time.monotonic() < deadline, f"{sum(map(len, self.of.values()))} counts came; it printed {printed}"

    def close(self) -> None:
        self._consumer.close()


def test_words_are_counted_exactly_once_over_kills(broker: Broker, topic: str, tmp_path: Path) -> None:
    topics = f"{topic}-lines", f"{topic}-counts"
    for name in topics:
        create_topic(broker, name, PARTITIONS)
    chance = random.Random(9)
    lines = [" ".join(chance.choices(WORDS, k=4)) for _ in range(LINES)]
    expected = Counter(word for line in lines for word in line.split())
    total = sum(expected.values())
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})

    def send(some: list[str]) -> None:
        for number, line in enumerate(some):
            producer.produce(topics[0], line.encode(), partition=number % PARTITIONS)
        assert producer.flush(30) == 0

    counts = Counts(broker, topics[1])
    counting = Counting(broker, topic, topics, tmp_path)
    try:
        counting.await_running()
        send(lines[: LINES // 3])
        counts.read_until(lambda: sum(map(len, counts.of.values())) > total // 10, counting.process)
        counting.kill()
        send(lines[LINES // 3 : 2 * LINES // 3])
        counts.read_until(lambda: sum(map(len, counts.of.values())) > total // 2, counting.process)
        broker.kill()
        broker.start()
        send(lines[2 * LINES // 3 :])
        counts.read_until(lambda: {word: of[-1] for word, of in counts.of.items()} == expected, counting.process)
    finally:
        counting.process.kill()
        counts.close()
    assert counts.of == {word: list(range(1, count + 1)) for word, count in expected.items()}


def test_words_are_counted_exactly_once_by_the_oldest_release(broker: Broker, topic: str, tmp_path: Path) -> None:
    topics = f"{topic}-lines", f"{topic}-counts"
    for name in topics:
        create_topic(broker, name, PARTITIONS)
    chance = random.Random(11)
    lines = [" ".join(chance.choices(WORDS, k=4)) for _ in range(LINES // 3)]
    expected = Counter(word for line in lines for word in line.split())
    total = sum(expected.values())
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number, line in enumerate(lines):
        producer.produce(topics[0], line.encode(), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    counts = Counts(broker, topics[1])
    counting = Counting(broker, topic, topics, tmp_path, OLD)
    try:
        counting.await_running()
        counts.read_until(lambda: sum(map(len, counts.of.values())) > total // 10, counting.process)
        counting.process.kill()
        # With an empty state directory, as on another machine: the state comes from the changelog alone.
        counting = Counting(broker, topic, topics, tmp_path / "other", OLD)
        counts.read_until(lambda: {word: of[-1] for word, of in counts.of.items()} == expected, counting.process)
    finally:
        counting.process.kill()
        counts.close()
    assert counts.of == {word: list(range(1, count + 1)) for word, count in expected.items()}
