"""kafka-python: its admin client, every codec, offsets by time, a group of two, transactions and a fenced producer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from common import (
    CODECS,
    DEADLINE_S,
    PARTITIONS,
    PER_CODEC,
    SESSION_MS,
    Digest,
    Limit,
    Record,
    begun_ms,
    bootstrap,
    outcome,
    replication,
    say,
    settle,
    topic,
    until,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

CODECS_TOPIC, COPY = topic("codecs"), topic("copy")
# For snappy it needs a library that has to be compiled.
TAKEN = [codec for codec in CODECS if codec != "snappy"]
TOTAL = len(TAKEN) * PER_CODEC
POLL_MS: Final = 2_000
"""Longer than a rebalance. kafka-python 3.0.12 discards a join that ends between two polls and joins again; a member
that joins because its metadata have changed is then without partitions for good, on any broker.
"""


def attempt(what: str, ask: Callable[[], Any]) -> Any:
    try:
        result = ask()
    except KafkaError as error:
        say(what, outcome(error))
        return None
    say(what, "done")
    return result


def topics(admin: KafkaAdminClient) -> None:
    def new(name: str, partitions: int, replicas: int = replication, **more: Any) -> NewTopic:
        return NewTopic(topic(name), partitions, replicas, **more)

    codecs = new("codecs", 2, topic_configs={"retention.ms": "86400000"})
    attempt("created", lambda: admin.create_topics([codecs, new("copy", 1)]))
    attempt("created again", lambda: admin.create_topics([new("copy", 1)]))
    attempt("too wide", lambda: admin.create_topics([new("wide", 1, 99)]))
    attempt("nonsense", lambda: admin.create_topics([new("odd", 1, topic_configs={"retention.ms": "long"})]))
    attempt("validated", lambda: admin.create_topics([new("dry", 3)], validate_only=True))
    for count in (PARTITIONS, 3):
        grown = {CODECS_TOPIC: NewPartitions(count)}
        attempt(f"{count} partitions", lambda grown=grown: admin.create_partitions(grown))
    settle({CODECS_TOPIC: PARTITIONS, COPY: 1})
    change = ConfigResource(ConfigResourceType.TOPIC, COPY, {"segment.bytes": "1000000"})
    attempt("altered", lambda: admin.alter_configs([change]))
    (described,) = admin.describe_topics([CODECS_TOPIC])
    say("described", described["name"], described["error_code"], len(described["partitions"]))
    cluster = admin.describe_cluster()
    say("the controller is a broker", cluster["controller_id"] in {each["broker_id"] for each in cluster["brokers"]})


def produce() -> None:
    for index, codec in enumerate(TAKEN):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=codec != "none",
            linger_ms=50,
        )
        sent = [
            producer.send(
                CODECS_TOPIC,
                value=record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in map(Record, range(index * PER_CODEC, (index + 1) * PER_CODEC))
        ]
        producer.flush(DEADLINE_S)
        last = sent[-1].get(DEADLINE_S)
        say(codec, last.partition, last.offset, last.timestamp - begun_ms)
        producer.close()


def consumer_of(group: str | None, *topics: str, **more: Any) -> KafkaConsumer:
    return KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=None if group is None else topic(group),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=200,
        fetch_max_wait_ms=50,
        **more,
    )


def read(into: Digest, done: Callable[[], bool], *consumers: KafkaConsumer) -> None:
    """Each in a thread of its own, until all members have partitions."""

    def follow(consumer: KafkaConsumer) -> None:
        limit = Limit("reading")
        while not done():
            limit.check()
            for records in consumer.poll(timeout_ms=POLL_MS).values():
                for one in records:
                    into.add(one.partition, one.offset, one.timestamp, one.key, one.value, list(one.headers))

    with ThreadPoolExecutor(len(consumers)) as threads:
        list(threads.map(follow, consumers))


def places() -> list[TopicPartition]:
    return [TopicPartition(CODECS_TOPIC, partition) for partition in range(PARTITIONS)]


def offsets(admin: KafkaAdminClient) -> None:
    consumer = consumer_of(None)
    consumer.assign(places())
    everything = Digest()
    read(everything, lambda: everything.total == TOTAL, consumer)
    everything.say("read")
    for second in (0, 50, 99, 100):
        found = consumer.offsets_for_times(dict.fromkeys(places(), begun_ms + 1000 * second))
        say("at", second, sorted((place.partition, each and each.offset) for place, each in found.items()))
    consumer.pause(places()[0], places()[1], places()[3])
    consumer.seek(places()[2], 15)
    end = Digest()
    read(end, lambda: end.total == 5, consumer)
    end.say("from 15")
    attempt("deleted records", lambda: admin.delete_records({places()[1]: 3}))
    for what, ask in (("beginning", consumer.beginning_offsets), ("end", consumer.end_offsets)):
        say(what, sorted((place.partition, offset) for place, offset in ask(places()).items()))
    consumer.close()


def group(admin: KafkaAdminClient) -> None:
    name = topic("group")
    seen = Digest()
    first = consumer_of("group", CODECS_TOPIC)
    read(seen, lambda: seen.total == TOTAL - 3, first)
    seen.say("by group")
    first.commit({places()[0]: OffsetAndMetadata(7, "half way", -1), places()[1]: OffsetAndMetadata(25, "", -1)})
    second = consumer_of("group", CODECS_TOPIC)
    read(seen, lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    describe(admin, "two members", name)
    second.close()
    read(seen, lambda: len(first.assignment()) == PARTITIONS, first)
    first.close()
    describe(admin, "nobody", name)
    listed = admin.list_group_offsets([name])[name]
    say("offsets", sorted((place.partition, each.offset, each.metadata) for place, each in listed.items()))
    attempt("deleted", lambda: admin.delete_groups([name]))


def describe(admin: KafkaAdminClient, what: str, name: str) -> None:
    one = admin.describe_groups([name])[name]
    say(what, one["group_state"], one["protocol_type"], repr(one["protocol_data"]), len(one["members"]))


def transactions() -> None:
    def transactional() -> KafkaProducer:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=topic("transactional"), compression_type="zstd"
        )
        producer.init_transactions()
        return producer

    producer = transactional()
    consumer = consumer_of("copiers")
    for number, end in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        sent = producer.send(COPY, f"{end} {number}".encode(), partition=0)
        after = {places()[0]: OffsetAndMetadata(number + 3, "", -1)}
        producer.send_offsets_to_transaction(after, consumer.group_metadata())
        producer.flush(DEADLINE_S)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)()
        say(end, sent.get(DEADLINE_S).offset)
    for level in ("read_committed", "read_uncommitted"):
        read_copy(level)
    # The group has the offset of the first until its coordinator has received the marker of the last commit.
    committed = until("the last commit", lambda: consumer.committed(places()[0]), lambda offset: bool(offset != 3))
    say("offset in the transactions", committed)
    consumer.close()
    producer.begin_transaction()
    successor = transactional()
    try:
        producer.send(COPY, b"of a zombie", partition=0).get(DEADLINE_S)
        say("the zombie writes")
    except KafkaError as error:
        say("the zombie", outcome(error))
    successor.close()
    producer.close(0)


def read_copy(level: str) -> None:
    consumer = consumer_of(None, isolation_level=level)
    consumer.assign([TopicPartition(COPY, 0)])
    found: list[tuple[int, bytes | None]] = []
    limit = Limit(level)
    while not found or found[-1][1] != b"commit 2":
        limit.check()
        for records in consumer.poll(timeout_ms=50).values():
            found += [(one.offset, one.value) for one in records]
    consumer.close()
    say(level, found)


def main() -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    topics(admin)
    produce()
    offsets(admin)
    group(admin)
    transactions()
    attempt("deleted", lambda: admin.delete_topics([CODECS_TOPIC, COPY]))
    attempt("deleted again", lambda: admin.delete_topics([topic("missing")]))
    admin.close()


main()
