"""Topics: list, describe, create, delete, add partitions (Kafka: Admin.createTopics and others)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.admin.client import AdminClient, error_of, outcome
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError

BROKER_DEFAULT: Final = -1
BY_NAME: Final = 5
"""The highest version of DeleteTopics with the names in a list of their own."""
NO_LEADER: Final = -1


class PartitionInfo(NamedTuple):
    """One partition; the leader is -1 where there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic and its partitions in their order."""

    name: str
    topic_id: str
    """As Kafka prints it (Uuid.toString); empty before Apache Kafka 2.8."""
    internal: bool
    partitions: tuple[PartitionInfo, ...]

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, as kafka-topics prints it."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class CreatableTopic(NamedTuple):
    """A topic to create: with numbers, or with `assignment`, the replicas of each partition. -1 is the default of the
    broker.
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: tuple[tuple[int, ...], ...] = ()
    configs: Mapping[str, str] = {}


class CreatedTopic(NamedTuple):
    """A topic that the controller has created, or would create; -1 where the broker does not return a number."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int


def list_topics(client: AdminClient, *, internal: bool = True) -> list[TopicDescription]:
    """Every topic, by name; `internal` includes those of Kafka itself."""
    return descriptions_of(client.call(client.metadata), internal=internal)


def descriptions_of(metadata: m.MetadataResponse, *, internal: bool = True) -> list[TopicDescription]:
    """The topics of a response, by name."""
    found = [_description(topic) for topic in metadata.topics if internal or not topic.is_internal]
    return sorted(found, key=lambda topic: topic.name)


def describe_topics(client: AdminClient, names: Sequence[str]) -> dict[str, TopicDescription | KafkaError]:
    """The topics of these names."""
    answer = client.call(lambda: client.metadata(names))
    return {
        topic.name or "": error_of(topic.error_code)
        if not topic.partitions and topic.error_code
        else _description(topic)
        for topic in answer.topics
    }


def create_topics(
    client: AdminClient, topics: Iterable[CreatableTopic], *, validate_only: bool = False
) -> dict[str, CreatedTopic | KafkaError]:
    """Create topics, or with `validate_only` check whether they can be created."""
    wanted = {topic.name: topic for topic in topics}

    def attempt(names: list[str]) -> dict[str, CreatedTopic | KafkaError]:
        request = m.CreateTopicsRequest(
            topics=[_creatable(wanted[name]) for name in names],
            timeout_ms=int(client.timeout_s * 1000),
            validate_only=validate_only,
        )
        return {
            each.name: outcome(
                CreatedTopic(each.name, uuid_text(each.topic_id), each.num_partitions, each.replication_factor),
                each.error_code,
                each.error_message,
            )
            for each in client.controller(request).topics
        }

    return client.each(wanted, attempt)


def delete_topics(client: AdminClient, names: Iterable[str]) -> dict[str, KafkaError | None]:
    """Delete topics with all of their records."""

    def attempt(pending: list[str]) -> dict[str, KafkaError | None]:
        request = m.DeleteTopicsRequest(topic_names=pending, timeout_ms=int(client.timeout_s * 1000))
        answer = client.controller(request, BY_NAME)
        return {each.name or "": outcome(None, each.error_code, each.error_message) for each in answer.responses}

    return client.each(names, attempt)


def create_partitions(
    client: AdminClient,
    counts: Mapping[str, int],
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    *,
    validate_only: bool = False,
) -> dict[str, KafkaError | None]:
    """Raise the number of partitions of topics to `counts`; `assignments` are the replicas of the new ones."""
    request, placed = m.CreatePartitionsRequest, assignments or {}

    def attempt(names: list[str]) -> dict[str, KafkaError | None]:
        topics = [
            request.CreatePartitionsTopic(
                name=name,
                count=counts[name],
                assignments=[request.CreatePartitionsAssignment(broker_ids=list(each)) for each in placed[name]]
                if name in placed
                else None,
            )
            for name in names
        ]
        answer = client.controller(
            request(topics=topics, timeout_ms=int(client.timeout_s * 1000), validate_only=validate_only)
        )
        return {each.name: outcome(None, each.error_code, each.error_message) for each in answer.results}

    return client.each(counts, attempt)


def uuid_text(value: bytes) -> str:
    """A uuid as Kafka prints it (Uuid.toString); empty for the zero uuid."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=") if any(value) else ""


def _description(topic: m.MetadataResponse.MetadataResponseTopic) -> TopicDescription:
    name = topic.name or ""
    partitions = [
        PartitionInfo(
            name,
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
        )
        for each in topic.partitions
    ]
    partitions.sort(key=lambda each: each.partition)
    return TopicDescription(name, uuid_text(topic.topic_id), topic.is_internal, tuple(partitions))


def _creatable(topic: CreatableTopic) -> m.CreateTopicsRequest.CreatableTopic:
    request = m.CreateTopicsRequest
    return request.CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if topic.assignment else topic.partitions,
        replication_factor=BROKER_DEFAULT if topic.assignment else topic.replication_factor,
        assignments=[
            request.CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(topic.assignment)
        ],
        configs=[request.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
