"""aiokafka: its admin client, every codec, offsets by time, a group of two, transactions and a fenced producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError
from common import (
    CODECS,
    PARTITIONS,
    SESSION_MS,
    TOTAL,
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
)

CODECS_TOPIC, COPY = topic("codecs"), topic("copy")


def errors(response: Any) -> list[tuple[str, int]]:
    """The codes for each topic, without the further fields of a version."""
    return sorted((each[0], each[1]) for each in response.topic_errors)


async def topics(admin: AIOKafkaAdminClient) -> None:
    def new(name: str, partitions: int, replicas: int = replication, **more: Any) -> NewTopic:
        return NewTopic(topic(name), partitions, replicas, **more)

    codecs = new("codecs", 2, topic_configs={"retention.ms": "86400000"})
    say("created", errors(await admin.create_topics([codecs, new("copy", 1)])))
    say("created again", errors(await admin.create_topics([new("copy", 1), new("wide", 1, 99)])))
    say("validated", errors(await admin.create_topics([new("dry", 3)], validate_only=True)))
    for count in (PARTITIONS, 3):
        try:
            await admin.create_partitions({CODECS_TOPIC: NewPartitions(count)})
            say(count, "done")
        except KafkaError as error:
            say(count, outcome(error))
    change = ConfigResource(ConfigResourceType.TOPIC, COPY, {"segment.bytes": "1000000"})
    settle({CODECS_TOPIC: PARTITIONS, COPY: 1})
    (response,) = await admin.alter_configs([change])
    say("altered", [each[0] for each in response.resources])
    asked = ConfigResource(ConfigResourceType.TOPIC, COPY, {"segment.bytes": None, "retention.ms": None})
    for response in await admin.describe_configs([asked], include_synonyms=True):
        for resource in response.resources:
            say("configs", sorted((entry[0], entry[1], entry[2]) for entry in resource[4]))
    (described,) = await admin.describe_topics([CODECS_TOPIC])
    say("described", described["topic"], described["error_code"], len(described["partitions"]))
    cluster = await admin.describe_cluster()
    say("the controller is a broker", cluster["controller_id"] in {each["node_id"] for each in cluster["brokers"]})


async def produce() -> None:
    for index, codec in enumerate(CODECS):
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=codec != "none",
            linger_ms=50,
        )
        async with producer:
            sent = [
                await producer.send(
                    CODECS_TOPIC,
                    record.value,
                    record.key,
                    record.partition,
                    record.timestamp_ms,
                    record.headers,
                )
                for record in map(Record, range(index * TOTAL // len(CODECS), (index + 1) * TOTAL // len(CODECS)))
            ]
            last = [await each for each in sent][-1]
        say(codec, last.partition, last.offset, last.timestamp - begun_ms, last.timestamp_type)


def consumer_of(group: str | None, *topics: str, **more: Any) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
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


async def read(into: Digest, done: Callable[[], bool], *consumers: AIOKafkaConsumer) -> None:
    limit = Limit("reading")
    while not done():
        limit.check()
        for consumer in consumers:
            for records in (await consumer.getmany(timeout_ms=50)).values():
                for one in records:
                    into.add(one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)


def places() -> list[TopicPartition]:
    return [TopicPartition(CODECS_TOPIC, partition) for partition in range(PARTITIONS)]


async def offsets(admin: AIOKafkaAdminClient) -> None:
    async with consumer_of(None) as consumer:
        consumer.assign(places())
        everything = Digest()
        await read(everything, lambda: everything.total == TOTAL, consumer)
        everything.say("read")
        for second in (0, 50, 99, 100):
            found = await consumer.offsets_for_times(dict.fromkeys(places(), begun_ms + 1000 * second))
            say("at", second, sorted((place.partition, each and each.offset) for place, each in found.items()))
        consumer.pause(places()[0], places()[1], places()[3])
        consumer.seek(places()[2], 20)
        end = Digest()
        await read(end, lambda: end.total == 5, consumer)
        end.say("from 20")
        deleted = await admin.delete_records({places()[1]: RecordsToDelete(3)})
        say("deleted up to", list(deleted.values()))
        for what, ask in (("beginning", consumer.beginning_offsets), ("end", consumer.end_offsets)):
            say(what, sorted((place.partition, offset) for place, offset in (await ask(places())).items()))


async def group(admin: AIOKafkaAdminClient) -> None:
    name = topic("group")
    seen = Digest()
    async with consumer_of("group", CODECS_TOPIC) as first:
        await read(seen, lambda: seen.total == TOTAL - 3, first)
        seen.say("by group")
        await first.commit({places()[0]: (7, "half way"), places()[1]: (25, "")})
        async with consumer_of("group", CODECS_TOPIC) as second:
            await read(seen, lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
            await describe(admin, "two members", name)
        await read(seen, lambda: len(first.assignment()) == PARTITIONS, first)
    await describe(admin, "nobody", name)
    listed = await admin.list_consumer_group_offsets(name)
    say("offsets", sorted((place.partition, each.offset, each.metadata) for place, each in listed.items()))
    groups = {each[0]: each[1] for each in await admin.list_consumer_groups()}
    say("listed", groups[name])


async def describe(admin: AIOKafkaAdminClient, what: str, name: str) -> None:
    (response,) = await admin.describe_consumer_groups([name])
    (one,) = response.groups
    say(what, one[0], one[2], one[3], repr(one[4]), len(one[5]))


async def transactions() -> None:
    def transactional() -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=topic("transactional"), compression_type="lz4"
        )

    producer = transactional()
    await producer.start()
    for number, end in enumerate(("commit", "abort", "commit")):
        await producer.begin_transaction()
        sent = await producer.send_and_wait(COPY, f"{end} {number}".encode(), partition=0)
        await producer.send_offsets_to_transaction({places()[0]: number + 3}, topic("copiers"))
        await (producer.commit_transaction() if end == "commit" else producer.abort_transaction())
        say(end, sent.offset)
    for level in ("read_committed", "read_uncommitted"):
        await read_copy(level)
    async with consumer_of("copiers") as consumer:
        limit = Limit("the last commit")
        while (committed := await consumer.committed(places()[0])) == 3:
            limit.check()  # the group has the first offset until its coordinator has received the last marker
        say("offset in the transactions", committed)
    await producer.begin_transaction()
    successor = transactional()
    await successor.start()
    try:
        await producer.send_and_wait(COPY, b"of a zombie", partition=0)
        say("the zombie writes")
    except KafkaError as error:
        say("the zombie", outcome(error))
    await successor.stop()
    await producer.stop()


async def read_copy(level: str) -> None:
    async with consumer_of(None, isolation_level=level) as consumer:
        place = TopicPartition(COPY, 0)
        consumer.assign([place])
        found: list[tuple[int, bytes | None]] = []
        limit = Limit(level)
        while not found or found[-1][1] != b"commit 2":
            limit.check()
            for records in (await consumer.getmany(timeout_ms=50)).values():
                found += [(one.offset, one.value) for one in records]
    say(level, found)


async def main() -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await topics(admin)
    await produce()
    await offsets(admin)
    await group(admin)
    await transactions()
    deleted = await admin.delete_topics([CODECS_TOPIC, COPY])
    say("deleted", sorted((each[0], each[1]) for each in deleted.topic_error_codes))
    await admin.close()


asyncio.run(main())
