"""confluent-kafka: its admin client, every codec, offsets by time, a group of two, transactions, a fenced producer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from common import (
    DEADLINE_S,
    PARTITIONS,
    SESSION_MS,
    TOTAL,
    Digest,
    Limit,
    Record,
    begun_ms,
    bootstrap,
    replication,
    say,
    settle,
    topic,
)
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

ADDRESS = {"bootstrap.servers": bootstrap, "log_level": 2}
CODECS_TOPIC, COPY = topic("codecs"), topic("copy")


def outcome(what: str, future: Future[Any]) -> Any:
    try:
        result = future.result(DEADLINE_S)
    except KafkaException as error:
        say(what, error.args[0].name())
        return None
    say(what, "done")
    return result


def topics(admin: AdminClient) -> None:
    def new(name: str, partitions: int, replicas: int = replication, **more: Any) -> NewTopic:
        return NewTopic(topic(name), num_partitions=partitions, replication_factor=replicas, **more)

    for what, wanted in (
        ("created", new("codecs", 2, config={"retention.ms": "86400000"})),
        ("created", new("copy", 1)),
        ("created", new("moved", 1)),
        ("created again", new("copy", 1)),
        ("too wide", new("wide", 1, 99)),
        ("nonsense", new("odd", 1, config={"retention.ms": "long"})),
    ):
        outcome(what, admin.create_topics([wanted])[wanted.topic])
    outcome("validated", admin.create_topics([new("dry", 3)], validate_only=True)[topic("dry")])
    for count in (PARTITIONS, 3):
        outcome(f"{count} partitions", admin.create_partitions([NewPartitions(CODECS_TOPIC, count)])[CODECS_TOPIC])
    settle({CODECS_TOPIC: PARTITIONS, COPY: 1, topic("moved"): 1})
    changes = [
        ConfigEntry("segment.bytes", "1000000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic("moved"), incremental_configs=changes)
    outcome("altered", admin.incremental_alter_configs([resource])[resource])
    described = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic("moved"))])
    entries = next(iter(described.values())).result(DEADLINE_S)
    for name in ("cleanup.policy", "min.insync.replicas", "retention.ms", "segment.bytes"):
        entry = entries[name]
        say(name, entry.value, entry.source, entry.is_default, entry.is_read_only, sorted(entry.synonyms))
    metadata = admin.list_topics(timeout=DEADLINE_S)
    say("listed", sorted(name for name in metadata.topics if name in (CODECS_TOPIC, COPY)))
    cluster = admin.describe_cluster().result(DEADLINE_S)
    say("the controller is a broker", cluster.controller.id in {node.id for node in cluster.nodes})


def produce() -> None:
    number = 0
    offsets: list[int] = []
    while number < TOTAL:
        codec = Record(number).codec
        settings = {**ADDRESS, "compression.type": codec, "enable.idempotence": True, "linger.ms": 50}
        producer = Producer(settings)
        while number < TOTAL and Record(number).codec == codec:
            record = Record(number)
            producer.produce(
                CODECS_TOPIC,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp_ms,
                headers=record.headers,
                on_delivery=lambda error, message: offsets.append(-1 if error else message.offset() or 0),
            )
            number += 1
        assert producer.flush(DEADLINE_S) == 0
        say(codec, max(offsets))


def consumer_of(group: str, **more: Any) -> Consumer:
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": SESSION_MS}
    quick = {"heartbeat.interval.ms": 200, "fetch.wait.max.ms": 50, "topic.metadata.refresh.interval.ms": 1000}
    return Consumer({**ADDRESS, "group.id": topic(group), **settings, **quick, **more})


def read(into: Digest, done: Callable[[], bool], *consumers: Consumer) -> None:
    limit = Limit("reading")
    while not done():
        limit.check()
        for consumer in consumers:
            for message in consumer.consume(TOTAL, timeout=0.05):
                assert message.error() is None, message.error()
                into.add(
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    message.headers(),
                )


def places() -> list[TopicPartition]:
    return [TopicPartition(CODECS_TOPIC, partition) for partition in range(PARTITIONS)]


def offsets(admin: AdminClient) -> None:
    consumer = consumer_of("by-time")
    for second in (0, 50, 99, 100):
        asked = [TopicPartition(CODECS_TOPIC, each.partition, begun_ms + 1000 * second) for each in places()]
        found = consumer.offsets_for_times(asked, timeout=DEADLINE_S)
        say("at", second, sorted((each.partition, each.offset) for each in found))
    consumer.assign([TopicPartition(CODECS_TOPIC, 2, 20)])
    end = Digest()
    read(end, lambda: end.total == 5, consumer)
    end.say("from 20")
    consumer.close()
    deleted = admin.delete_records([TopicPartition(CODECS_TOPIC, 1, 3)])
    for future in deleted.values():
        say("deleted up to", future.result(DEADLINE_S).low_watermark)
    for what, spec in (
        ("earliest", OffsetSpec.earliest()),
        ("latest", OffsetSpec.latest()),
        ("newest", OffsetSpec.max_timestamp()),
    ):
        listed = admin.list_offsets(dict.fromkeys(places(), spec))
        say(what, sorted((place.partition, future.result(DEADLINE_S).offset) for place, future in listed.items()))


def group(admin: AdminClient, assignor: str) -> None:
    name = topic(assignor)
    first = consumer_of(assignor, **{"partition.assignment.strategy": assignor})
    first.subscribe([CODECS_TOPIC])
    seen = Digest()
    read(seen, lambda: seen.total == TOTAL - 3, first)
    seen.say(assignor)
    first.commit(asynchronous=False)
    second = consumer_of(assignor, **{"partition.assignment.strategy": assignor})
    second.subscribe([CODECS_TOPIC])
    read(seen, lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    describe(admin, "two members", name)
    second.close()
    read(seen, lambda: len(first.assignment()) == PARTITIONS, first)
    first.close()
    describe(admin, "nobody", name)
    altered = ConsumerGroupTopicPartitions(name, [TopicPartition(CODECS_TOPIC, 2, 11)])
    outcome("altered", admin.alter_consumer_group_offsets([altered])[name])
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(DEADLINE_S)
    say("offsets", sorted((each.partition, each.offset) for each in listed.topic_partitions))
    outcome("deleted", admin.delete_consumer_groups([name])[name])
    outcome("deleted again", admin.delete_consumer_groups([name])[name])


def describe(admin: AdminClient, what: str, name: str) -> None:
    one = admin.describe_consumer_groups([name])[name].result(DEADLINE_S)
    sizes = sorted(len(member.assignment.topic_partitions) for member in one.members)
    say(what, one.state.name, repr(one.partition_assignor), one.is_simple_consumer_group, sizes)


def transactions() -> None:
    settings = {**ADDRESS, "transactional.id": topic("transactional"), "compression.type": "zstd"}
    producer = Producer(settings)
    producer.init_transactions(DEADLINE_S)
    reader = consumer_of("copiers", **{"isolation.level": "read_committed"})
    for number, end in enumerate(("commit", "abort", "commit")):
        producer.begin_transaction()
        producer.produce(COPY, f"{end} {number}".encode(), partition=0)
        after = [TopicPartition(CODECS_TOPIC, 0, number + 3)]
        producer.send_offsets_to_transaction(after, reader.consumer_group_metadata(), DEADLINE_S)
        assert producer.flush(DEADLINE_S) == 0  # an abort drops records that wait for their batch
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(DEADLINE_S)
    (committed,) = reader.committed([TopicPartition(CODECS_TOPIC, 0)], timeout=DEADLINE_S)
    say("offset in the transactions", committed.offset)
    reader.close()
    for level in ("read_committed", "read_uncommitted"):
        read_copy(level)
    successor = Producer(settings)
    successor.init_transactions(DEADLINE_S)
    try:
        producer.begin_transaction()
        producer.produce(COPY, b"of a zombie", partition=0)
        producer.commit_transaction(DEADLINE_S)
        say("the zombie commits")
    except KafkaException as error:
        say("the zombie is fenced", error.args[0].fatal())


def read_copy(level: str) -> None:
    consumer = consumer_of("readers", **{"isolation.level": level})
    consumer.assign([TopicPartition(COPY, 0, 0)])
    found: list[tuple[int, bytes]] = []
    limit = Limit(level)
    while not found or found[-1][1] != b"commit 2":
        limit.check()
        found += [(message.offset() or 0, message.value() or b"") for message in consumer.consume(10, timeout=0.05)]
    consumer.close()
    say(level, found)


def main() -> None:
    admin = AdminClient(ADDRESS)
    topics(admin)
    produce()
    offsets(admin)
    for assignor in ("range", "cooperative-sticky"):
        group(admin, assignor)
    transactions()
    for name, future in sorted(admin.delete_topics([CODECS_TOPIC, COPY, topic("moved"), topic("missing")]).items()):
        outcome(f"deleted {name}", future)


main()
