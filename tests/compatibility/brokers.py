"""The interface that the compatibility tests need from a broker of either kind, and steps that all of them share."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


class Addressed(Protocol):
    """A broker that clients can reach."""

    @property
    def bootstrap(self) -> str: ...


class Broker(Addressed, Protocol):
    """A broker in a process of its own, with one port for its whole life."""

    @property
    def data_dir(self) -> Path: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def restart(self) -> None: ...


def create_topic(broker: Addressed, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    """Creates a topic and waits until the broker returns it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([new], operation_timeout=30)[name].result(30)


def log_end_offsets(broker: Broker, topic: str, partitions: int) -> list[int]:
    """The offset after the last record of each partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "offsets-only"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            for partition in range(partitions)
        ]
    finally:
        consumer.close()
