"""Copies records from one topic to another, exactly once: consume, transform, produce, offsets in the transaction.

    python copier.py confluent|confluent-consumer|aiokafka|kafka-python BOOTSTRAP GROUP FROM TO

The same as Copier.java, for Python's libraries. Each step of a transaction is a line on stdout, so that a test can end
this process, or the broker, between any two. After an error that allows an abort it aborts and reads again; after any
other the process ends with status 1, and the next one takes over its transactional id and its place in the group.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

MOST_RECORDS = 100
TRANSACTION_TIMEOUT_MS = 20_000
DEADLINE_S = 10.0
INSTANCE = "copier"
COPY = b"copy of "


def say(line: str) -> None:
    print(line, flush=True)


def copy_with_confluent(protocol: str, bootstrap: str, group: str, source: str, target: str) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    address = {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.max.ms": 200,
        "log_level": 2,
        # librdkafka 2.16 waits for a group's coordinator that died, past every timeout, if nothing else connects to it
        # or if it has forgotten its brokers; so it does with Apache Kafka.
        "enable.sparse.connections": False,
        "metadata.recovery.strategy": "none",
    }
    producer = Producer(
        {**address, "transactional.id": f"{group}-copier", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
    )
    consumer = Consumer(
        {
            **address,
            "group.id": group,
            "group.instance.id": INSTANCE,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer.init_transactions()
    say("ready")
    consumer.subscribe([source])
    while True:
        records = [each for each in consumer.consume(MOST_RECORDS, timeout=0.1) if each.error() is None]
        if not records:
            continue
        first: dict[int, int] = {}
        after: dict[int, int] = {}
        producer.begin_transaction()
        say("begun")
        try:
            for record in records:
                partition, offset, value = record.partition(), record.offset(), record.value()
                assert partition is not None
                assert offset is not None
                assert isinstance(value, bytes)
                first.setdefault(partition, offset)
                after[partition] = offset + 1
                producer.produce(target, COPY + value, record.key(), partition)
            say(f"sent {len(records)}")
            offsets = [TopicPartition(source, partition, offset) for partition, offset in after.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), DEADLINE_S)
            say("offsets")
            producer.commit_transaction(DEADLINE_S)
            say(f"committed {len(records)}")
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            producer.abort_transaction()
            say(f"aborted {failure}")
            for partition, offset in first.items():
                consumer.seek(TopicPartition(source, partition, offset))


async def copy_with_aiokafka(bootstrap: str, group: str, source: str, target: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=f"{group}-copier",
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    await producer.start()  # requests its producer id, too
    say("ready")
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=INSTANCE,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    while True:
        records = await consumer.getmany(timeout_ms=100, max_records=MOST_RECORDS)
        count = sum(map(len, records.values()))
        if not count:
            continue
        async with producer.transaction():  # aborts on an exception inside, and raises
            say("begun")
            deliveries = [
                await producer.send(target, COPY + record.value, record.key, record.partition)
                for batch in records.values()
                for record in batch
            ]
            say(f"sent {count}")
            after = {partition: batch[-1].offset + 1 for partition, batch in records.items()}
            await producer.send_offsets_to_transaction(after, group)
            say("offsets")
        for delivery in deliveries:
            await delivery
        say(f"committed {count}")


POLL_MS = 10_000
"""Longer than a rebalance: kafka-python throws away a join that ends between two polls (docs/compatibility.md)."""


def copy_with_kafka_python(bootstrap: str, group: str, source: str, target: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import OffsetAndMetadata

    address: dict[str, Any] = {"bootstrap_servers": bootstrap, "reconnect_backoff_max_ms": 200}
    producer = KafkaProducer(
        **address,
        transactional_id=f"{group}-copier",
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    producer.init_transactions()
    say("ready")
    consumer = KafkaConsumer(
        source,
        **address,
        group_id=group,
        group_instance_id=INSTANCE,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=MOST_RECORDS,
    )
    while True:
        records = consumer.poll(timeout_ms=POLL_MS)
        count = sum(map(len, records.values()))
        if not count:
            continue
        producer.begin_transaction()
        say("begun")
        for batch in records.values():
            for record in batch:
                producer.send(target, COPY + record.value, key=record.key, partition=record.partition)
        say(f"sent {count}")
        after = {partition: OffsetAndMetadata(batch[-1].offset + 1, "", -1) for partition, batch in records.items()}
        producer.send_offsets_to_transaction(after, consumer.group_metadata())
        say("offsets")
        producer.commit_transaction()
        say(f"committed {count}")


def main(library: str, *where: str) -> None:
    if library == "confluent":
        copy_with_confluent("classic", *where)
    elif library == "confluent-consumer":
        copy_with_confluent("consumer", *where)
    elif library == "aiokafka":
        asyncio.run(copy_with_aiokafka(*where))
    else:
        copy_with_kafka_python(*where)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as failure:
        say(f"fatal {failure!r}")
        os._exit(1)  # no LeaveGroup: the library's own close would wait for a broker that may be gone
