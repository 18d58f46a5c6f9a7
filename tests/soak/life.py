"""One round of clients on a cluster: all but one topic end with it, and a broker must keep no state of them.

Topics are created, written, read and deleted; groups of both protocols form, commit and end; transactional producers
come under new names, commit and abort; invalid clients connect, send little or malformed data, and leave. All state
that a broker has to keep for a while (offsets, transactional ids, producer ids, records) is set to expire within
seconds (SHORT_MEMORY).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from typing import Final

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

SHORT_MEMORY: Final[Mapping[str, str]] = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "offsets.topic.segment.bytes": "200000",
    "transactional.id.expiration.ms": "10000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
    "transaction.state.log.segment.bytes": "200000",
    "transaction.state.log.num.partitions": "5",
    "producer.id.expiration.ms": "10000",
    "producer.id.expiration.check.interval.ms": "5000",
    "log.retention.ms": "20000",
    "log.retention.check.interval.ms": "5000",
    "log.segment.bytes": "1000000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "2000",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}
LASTING: Final = "lasting"
"""A topic that stays, with retention; the others go with their round."""
_DEADLINE_S: Final = 60.0
_RECORDS: Final = 500
_STRANGERS: Final = 20


class Life:
    """Rounds on one cluster. The requests are drawn from `seed`."""

    def __init__(self, bootstrap: str, replicas: int, seed: int) -> None:
        """`bootstrap` is host:port,host:port; the invalid clients connect to each of them."""
        self._bootstrap = bootstrap
        self._replicas = replicas
        self._chance = random.Random(seed)
        self._admin = AdminClient(self._common())
        self._number = 0
        self.records = 0
        """Records written and read so far."""

    def begin(self) -> None:
        """Create the topic that stays."""
        self._make_topic(LASTING)

    def round(self) -> None:
        """A round. Raises KafkaException, TimeoutError or AssertionError where an operation fails."""
        self._number += 1
        passing = f"passing-{self._number}"
        self._make_topic(passing)
        for topic in (LASTING, passing):
            self._write(topic)
        for protocol in ("classic", "consumer"):
            self._read(passing, f"readers-{protocol}-{self._number}", protocol)
        self._transact(passing)
        self._administer(passing, f"readers-classic-{self._number}")
        self._visit_as_strangers()
        self._admin.delete_consumer_groups([f"readers-consumer-{self._number}"])  # the other one's offsets expire
        self._admin.delete_topics([passing])[passing].result(_DEADLINE_S)

    def _common(self) -> dict[str, str | int | float | bool]:
        return {"bootstrap.servers": self._bootstrap, "log_level": 3}

    def _make_topic(self, name: str) -> None:
        self._admin.create_topics([NewTopic(name, 3, self._replicas)])[name].result(_DEADLINE_S)

    def _write(self, topic: str) -> None:
        failures: list[object] = []

        def note(error: object, _: object) -> None:
            if error:
                failures.append(error)

        producer = Producer({**self._common(), "enable.idempotence": True, "linger.ms": 5})
        for number in range(_RECORDS):
            value = self._chance.randbytes(self._chance.randrange(400))
            producer.produce(topic, value, str(number), on_delivery=note)
        left = producer.flush(_DEADLINE_S)
        assert not left, f"{left} records are not acknowledged"
        assert not failures, failures[0]
        producer.close()
        self.records += _RECORDS

    def _read(self, topic: str, group: str, protocol: str) -> None:
        """A group reads all of a topic, commits, and leaves."""
        consumer = Consumer(
            {
                **self._common(),
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        seen = 0
        while seen < _RECORDS:
            messages = consumer.consume(_RECORDS, _DEADLINE_S)
            assert messages, f"{group}: {seen} of {_RECORDS} records arrived"
            seen += sum(1 for message in messages if message.error() is None)
        consumer.commit(asynchronous=False)
        consumer.close()
        self.records += seen

    def _transact(self, topic: str) -> None:
        producer = Producer({**self._common(), "transactional.id": f"writer-{self._number}"})
        producer.init_transactions(_DEADLINE_S)
        for commits in (True, False, True):
            producer.begin_transaction()
            for partition in range(3):
                producer.produce(topic, b"in a transaction", partition=partition)
            if commits:
                producer.commit_transaction(_DEADLINE_S)
            else:
                producer.abort_transaction(_DEADLINE_S)
        producer.close()

    def _administer(self, topic: str, group: str) -> None:
        """Requests and changes of operators' tools, some of them rejected."""
        admin = self._admin
        resource = ConfigResource(ResourceType.TOPIC, topic)
        admin.describe_configs([resource])[resource].result(_DEADLINE_S)
        entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([change])[change].result(_DEADLINE_S)
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(_DEADLINE_S)
        place = TopicPartition(topic, 0, 1)
        admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})[place].result(_DEADLINE_S)
        admin.delete_records([place])[place].result(_DEADLINE_S)
        admin.list_consumer_groups().result(_DEADLINE_S)
        admin.describe_consumer_groups([group])[group].result(_DEADLINE_S)
        moved = ConsumerGroupTopicPartitions(group, [place])
        admin.alter_consumer_group_offsets([moved])[group].result(_DEADLINE_S)
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(_DEADLINE_S)
        admin.describe_cluster().result(_DEADLINE_S)
        refused = [
            admin.create_topics([NewTopic(topic, 1, 1)])[topic],
            admin.create_topics([NewTopic("no/topic", 1, 1)])["no/topic"],
            admin.delete_topics(["nobodys"])["nobodys"],
            admin.create_partitions([NewPartitions(topic, 2)])[topic],
            admin.delete_consumer_groups(["nobodys"])["nobodys"],
        ]
        for each in refused:
            assert each.exception(_DEADLINE_S) is not None

    def _visit_as_strangers(self) -> None:
        """Connections without a request, with a part of one, or with bytes that are none."""
        for _ in range(_STRANGERS):
            host, _, port = self._chance.choice(self._bootstrap.split(",")).partition(":")
            with socket.create_connection((host, int(port)), _DEADLINE_S) as stranger:
                stranger.sendall(
                    self._chance.choice((b"", b"\0\0\1\0", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\4\0\x12\0\3"))
                )
