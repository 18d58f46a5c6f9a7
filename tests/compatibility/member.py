"""A consumer of a group in a process of its own, so that a test can end it as a crash does.

    python member.py confluent|aiokafka BOOTSTRAP GROUP TOPIC
    python member.py confluent BOOTSTRAP GROUP TOPIC consumer

The second form uses the consumer protocol of KIP-848. It prints each record as the console consumer does with
print.partition and print.offset, commits automatically as its library does, and leaves the group when it gets SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading


def follow_with_confluent(bootstrap: str, group: str, topic: str, protocol: str = "classic") -> None:
    from confluent_kafka import Consumer

    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    times = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500} if protocol == "classic" else {}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            **times,
        }
    )
    consumer.subscribe([topic])
    while not stopping.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            _print(message.partition(), message.offset(), message.value())
    consumer.close()


async def follow_with_aiokafka(bootstrap: str, group: str, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=1000,
        partition_assignment_strategy=(RangePartitionAssignor,),  # the assignor that Java and librdkafka have, too
    )
    await consumer.start()
    try:
        while not stopping.is_set():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    _print(record.partition, record.offset, record.value)
    finally:
        await consumer.stop()


def _print(partition: int | None, offset: int | None, value: bytes | None) -> None:
    print(f"Partition:{partition}\tOffset:{offset}\t{(value or b'').decode()}", flush=True)


if __name__ == "__main__":
    library, *where = sys.argv[1:]
    if library == "confluent":
        follow_with_confluent(*where)
    else:
        asyncio.run(follow_with_aiokafka(*where))
