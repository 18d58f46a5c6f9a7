"""Word counts as applications: in this process, or in one of their own that can be killed.

    python -m tests.streams.counting '{"application.id": "counts", "bootstrap.servers": "localhost:9092", ...}'

Each line of topic WORDS is one word; COUNTS gets each word with its count so far. Without a cache every word gives one
output, so COUNTS shows exactly what was counted: 1, 2, 3, … for each word, none doubled, none missing.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import LONG, STRING
from odradek.streams.topology import Topology
from tests.jvm.process import BackgroundProcess

WORDS: Final = "words"
COUNTS: Final = "counts"
STORE: Final = "totals"
TIMEOUT_S: Final = 60.0
QUICK: Final[Mapping[str, Any]] = {
    "session.timeout.ms": 1_000,
    "heartbeat.interval.ms": 200,
    "commit.interval.ms": 100,
    "poll.ms": 20,
    "producer.linger.ms": 5,
    "statestore.cache.max.bytes": 0,
}
"""Settings with which an application writes its output soon; the broker has to allow so short a session."""
BROKER: Final[Mapping[str, str]] = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # Records whose times are of 1970 stay: records older than a week are deleted when a broker has run for half a
    # minute.
    "log.retention.ms": "-1",
}


def word_counts(words: str = WORDS, counts: str = COUNTS, in_memory: bool = False) -> Topology:
    """Count words; by another key than that of the records, so that they go through a repartition topic."""
    builder = StreamsBuilder()
    (
        builder.stream(words, Consumed(STRING, STRING))
        .group_by(lambda key, value: value, Grouped(STRING, STRING))
        .count(Materialized(STORE, store_type="in_memory" if in_memory else "rocksDB"))
        .to_stream()
        .to(counts, Produced(STRING, LONG))
    )
    return builder.build()


def make_topics(bootstrap: str, partitions: Mapping[str, int]) -> None:
    """Create topics. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, count, -1) for name, count in partitions.items()]
    for future in admin.create_topics(wanted).values():
        future.result(TIMEOUT_S)


def write_words(bootstrap: str, words: Iterable[str], topic: str = WORDS) -> None:
    """Write words with null keys, each to any partition, all acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "sticky.partitioning.linger.ms": 0,  # a partition chosen for a while could get all words
        }
    )
    for word in words:
        producer.produce(topic, word.encode())
    assert producer.flush(TIMEOUT_S) == 0


@contextmanager
def reading(bootstrap: str, topic: str, committed: bool = True) -> Iterator[tuple[Consumer, set[int]]]:
    """A consumer of a whole topic from its beginning, and the numbers of the topic's partitions."""
    level = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,  # a poll signals the end of a partition with the first response without records
            "reconnect.backoff.max.ms": 200,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
        consumer.assign([Position(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        yield consumer, partitions
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, committed: bool = True) -> list[tuple[bytes | None, bytes | None]]:
    """Every record that a topic has now, partition by partition."""
    found: list[tuple[bytes | None, bytes | None]] = []
    deadline = time.monotonic() + TIMEOUT_S
    with reading(bootstrap, topic, committed) as (consumer, partitions):
        while partitions:
            assert time.monotonic() < deadline, f"the end of {topic} does not come"
            for message in consumer.consume(10_000, 0.01):
                error = message.error()
                if error is None:
                    found.append((message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    partitions.discard(message.partition())
    return found


def counted(bootstrap: str, topic: str = COUNTS) -> dict[str, list[int]]:
    """The committed counts of each word, in their order."""
    found: dict[str, list[int]] = defaultdict(list)
    for key, value in read_all(bootstrap, topic):
        assert key is not None
        assert value is not None
        found[key.decode()].append(int.from_bytes(value, "big"))
    return dict(found)


def await_counts(
    bootstrap: str, enough: Callable[[dict[str, list[int]]], bool], topic: str = COUNTS, timeout_s: float = TIMEOUT_S
) -> dict[str, list[int]]:
    """Read on until there are enough, then all of them once more. Raises AssertionError after a while."""
    deadline = time.monotonic() + timeout_s
    found: dict[str, list[int]] = defaultdict(list)
    with reading(bootstrap, topic) as (consumer, _):
        while not enough(found):
            assert time.monotonic() < deadline, (
                f"after {timeout_s:g} s: { {word: max(counts) for word, counts in found.items()} }"
            )
            for message in consumer.consume(10_000, 0.02):
                key, value = message.key(), message.value()
                if message.error() is None and key is not None and value is not None:
                    found[key.decode()].append(int.from_bytes(value, "big"))
    return counted(bootstrap, topic)


def all_of(expected: Mapping[str, int]) -> Callable[[dict[str, list[int]]], bool]:
    """Whether each word has been counted as often."""
    return lambda found: all(max(found.get(word, [0])) >= count for word, count in expected.items())


def assert_exactly_once(bootstrap: str, words: Iterable[str], application_id: str, counts: str = COUNTS) -> None:
    """Output and changelog equal the batch count of the words: none doubled, none missing."""
    expected = Counter(words)
    found = counted(bootstrap, counts)
    assert found == {word: list(range(1, count + 1)) for word, count in expected.items()}
    changelog = dict(read_all(bootstrap, f"{application_id}-{STORE}-changelog"))
    assert {key.decode(): int.from_bytes(value, "big") for key, value in changelog.items() if key and value} == dict(
        expected
    )


def start_process(config: Mapping[str, Any]) -> BackgroundProcess:
    """The application as a process, running."""
    process = BackgroundProcess([sys.executable, "-m", "tests.streams.counting", json.dumps(dict(config))])
    process.stdout.wait_for("RUNNING", TIMEOUT_S)
    return process


def main(arguments: list[str]) -> int:
    """Run until standard input ends."""
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(name)s %(message)s")
    streams = KafkaStreams(
        word_counts(),
        json.loads(arguments[0]),
        state_listener=lambda state, before: print(state.name, flush=True),
    )
    streams.start()
    sys.stdin.read()
    streams.close(30, leave_group=True)
    return 0 if streams.state is State.NOT_RUNNING else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
