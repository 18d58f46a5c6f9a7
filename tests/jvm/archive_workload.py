"""Uses a broker of Apache Kafka as the tests do, so that the archive of its classes (`archives`) has those of requests,
groups, transactions and compressed batches, and not only those of a start: a thousand classes more.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
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

TIMEOUT_S: Final = 60.0
TOPIC: Final = "archived"
COMPACTED: Final = "archived-compacted"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS: Final = 100


def use(bootstrap: str, protocols: tuple[str, ...] = ("classic",)) -> None:
    """Create, write, read, describe, change and delete, with a group of each protocol.

    Raises KafkaException when the broker rejects a request, TimeoutError when a group reads too little.
    """
    admin = AdminClient(_config(bootstrap))
    topics = [
        NewTopic(TOPIC, 2, 1, config={"compression.type": "gzip"}),
        NewTopic(COMPACTED, 1, 1, config={"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}),
    ]
    _wait(admin.create_topics(topics))
    for codec in CODECS:
        _write(bootstrap, TOPIC, codec)
    _write(bootstrap, COMPACTED, "lz4")
    _write_transactions(bootstrap)
    for protocol in protocols:
        _read(bootstrap, protocol)
    _administer(admin, protocols)


def _config(bootstrap: str) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
    }  # that a coordinator loads for a moment is nothing to report


def _write(bootstrap: str, topic: str, codec: str) -> None:
    producer = Producer({**_config(bootstrap), "compression.type": codec, "enable.idempotence": codec == "lz4"})
    for number in range(RECORDS):
        producer.produce(topic, f"value {number}", f"key {number % 9}", headers={"h": b"1"})
    assert producer.flush(TIMEOUT_S) == 0


def _write_transactions(bootstrap: str) -> None:
    producer = Producer({**_config(bootstrap), "transactional.id": TOPIC})
    producer.init_transactions(TIMEOUT_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, "in a transaction")
        assert producer.flush(TIMEOUT_S) == 0
        end(TIMEOUT_S)


def _read(bootstrap: str, protocol: str) -> None:
    """As a member of the group that is named by its protocol, which commits."""
    config = {**_config(bootstrap), "group.id": protocol, "group.protocol": protocol}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([TOPIC])
    try:
        wanted = RECORDS * len(CODECS)
        if len(consumer.consume(wanted, TIMEOUT_S)) < wanted:
            raise TimeoutError(f"a group has not read {wanted} records of {TOPIC}")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _administer(admin: AdminClient, groups: tuple[str, ...]) -> None:
    partition = TopicPartition(TOPIC, 0)
    set_one = ConfigEntry("retention.ms", "100000", incremental_operation=AlterConfigOpType.SET)
    _wait(admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]))
    _wait(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[set_one])]))
    _wait(admin.create_partitions([NewPartitions(TOPIC, 3)]))
    _wait(admin.list_offsets({partition: OffsetSpec.latest()}))
    _wait(admin.delete_records([TopicPartition(TOPIC, 0, 3)]))
    admin.describe_cluster().result(TIMEOUT_S)
    admin.list_consumer_groups().result(TIMEOUT_S)
    _wait(admin.describe_consumer_groups(list(groups)))
    _wait(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(groups[0])]))
    _wait(admin.delete_consumer_groups(list(groups)))
    _wait(admin.delete_topics([TOPIC, COMPACTED]))


def _wait(futures: dict[Any, Future[Any]]) -> None:
    for each in futures.values():
        each.result(TIMEOUT_S)
