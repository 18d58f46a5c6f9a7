"""Reads and changes the state of a Kafka cluster for jobs, with Kafka's own Java client (Kafka: Admin).

The connector brings kafka-clients into Spark's JVM, so a job uses the same client, properties and security settings as
its executors. This is the only module that names Java's classes. A call takes a few ms; no call is made for a single
record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from odradek.spark_jobs.command import READ_COMMITTED, Offsets
from odradek.spark_jobs.errors import JobError, NotThereError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_MS: Final = 30_000
_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it; `id` is empty where the cluster has no topic ids (KIP-516)."""

    name: str
    id: str
    partitions: int


class KafkaAdmin:
    """An admin client with `properties` (Kafka's names, bootstrap.servers among them). Closed by `with`, or `close`."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str], isolation: str = READ_COMMITTED) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        admin = jvm.org.apache.kafka.clients.admin
        self._classes = admin
        self._isolation = jvm.org.apache.kafka.common.IsolationLevel.valueOf(isolation.upper())
        settings = jvm.java.util.HashMap()
        for key, value in {
            "default.api.timeout.ms": str(TIMEOUT_MS),
            "client.id": "odradek-jobs",
            **properties,
        }.items():
            settings.put(key, value)
        self._admin = _call("cannot use the brokers", lambda: admin.Admin.create(settings))

    def __enter__(self) -> KafkaAdmin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(5))

    def cluster_id(self) -> str:
        """Empty where the cluster has none. Raises JobError where no broker answers."""
        return str(_call("no broker answers", lambda: self._admin.describeCluster().clusterId().get()) or "")

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Each of `names`. Raises NotThereError, which names those that do not exist."""
        wanted = self._list(dict.fromkeys(names))
        futures = self._admin.describeTopics(wanted).topicNameValues()
        found: dict[str, Topic] = {}
        missing: list[str] = []
        for name in wanted:
            try:
                description = _call(f"cannot describe {name}", futures.get(name).get)
            except NotThereError:
                missing.append(name)
                continue
            topic_id = str(description.topicId().toString())
            found[name] = Topic(name, "" if topic_id == _NO_TOPIC_ID else topic_id, description.partitions().size())
        if missing:
            raise NotThereError(f"no such topic: {', '.join(missing)}")
        return found

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Creates a topic with the cluster's default replication. Raises JobError, also where it exists."""
        jvm = self._jvm
        topic = self._classes.NewTopic(
            name, jvm.java.util.Optional.of(partitions), jvm.java.util.Optional.empty()
        ).configs(dict(configs or {}))
        _call(f"cannot create {name}", lambda: self._admin.createTopics(self._list([topic])).all().get())

    def beginnings(self, topics: Mapping[str, int]) -> Offsets:
        """The first offset of every partition of `topics` (name -> number of partitions)."""
        return self._offsets(_every(topics), self._classes.OffsetSpec.earliest())

    def ends(self, topics: Mapping[str, int]) -> Offsets:
        """The end of every partition, at the isolation level: the last stable offset where it is read_committed."""
        return self._offsets(_every(topics), self._classes.OffsetSpec.latest())

    def at_time(self, topics: Mapping[str, int], time_ms: int) -> Offsets:
        """The first offset whose timestamp is `time_ms` or later; the end where no record is so late."""
        found = self._offsets(_every(topics), self._classes.OffsetSpec.forTimestamp(_long(self._jvm, time_ms)))
        ends = self.ends(topics)
        return {
            topic: {n: ends[topic][n] if at < 0 else at for n, at in places.items()} for topic, places in found.items()
        }

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commits `offsets` for a group without members, as `kafka-consumer-groups --reset-offsets` does."""
        wanted = self._jvm.java.util.HashMap()
        metadata = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        for topic, places in offsets.items():
            for partition, offset in places.items():
                wanted.put(self._place(topic, partition), metadata(_long(self._jvm, offset)))
        _call(
            f"cannot commit offsets to the group {group}",
            lambda: self._admin.alterConsumerGroupOffsets(group, wanted).all().get(),
        )

    def committed(self, group: str) -> Offsets:
        """The committed offsets of the group."""
        offsets = _call(
            f"cannot read the offsets of {group}",
            lambda: self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(),
        )
        found: Offsets = {}
        for entry in offsets.entrySet():
            if entry.getValue() is not None:
                place = entry.getKey()
                found.setdefault(place.topic(), {})[place.partition()] = entry.getValue().offset()
        return found

    def _offsets(self, places: list[tuple[str, int]], spec: Any) -> Offsets:
        asked = self._jvm.java.util.HashMap()
        for topic, partition in places:
            asked.put(self._place(topic, partition), spec)
        options = self._classes.ListOffsetsOptions(self._isolation)
        listed = _call("cannot list offsets", lambda: self._admin.listOffsets(asked, options).all().get())
        found: Offsets = {}
        for topic, partition in places:
            found.setdefault(topic, {})[partition] = listed.get(self._place(topic, partition)).offset()
        return found

    def _place(self, topic: str, partition: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)

    def _list(self, items: Iterable[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made


def _every(topics: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(topic, partition) for topic, count in topics.items() for partition in range(count)]


def _long(jvm: Any, number: int) -> Any:
    """py4j makes an Integer of a small int where an overloaded method takes a long."""
    return jvm.java.lang.Long.parseLong(str(number))


def _call(failure: str, call: Any) -> Any:
    """Calls Java; an exception becomes a JobError of one line, NotThereError for an unknown topic."""
    from py4j.protocol import Py4JJavaError

    try:
        return call()
    except Py4JJavaError as error:
        thrown = error.java_exception
        while thrown.getCause() is not None:
            thrown = thrown.getCause()
        kind = thrown.getClass().getSimpleName()
        message = (thrown.getMessage() or kind).splitlines()[0]
        if kind in ("UnknownTopicOrPartitionException", "InvalidTopicException"):
            raise NotThereError(f"{failure}: {message}") from None
        raise JobError(f"{failure}: {message}") from None
