"""Partition reassignments: start, list, cancel (Kafka: Admin.alterPartitionReassignments, listPartitionReassignments;
KIP-455), and the throttles that go with them (KIP-73).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from odradek.admin import configs
from odradek.admin.client import AdminClient, check, outcome
from odradek.admin.configs import ConfigChange, ConfigOperation, ConfigTarget, ResourceKind
from odradek.admin.offsets import by_topic
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition

Replicas = tuple[int, ...]
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Bytes a second, of brokers."""
THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Which replicas of a topic the rates are for: partition:broker, with commas."""


class OngoingReassignment(NamedTuple):
    """A partition whose replicas move."""

    replicas: Replicas
    adding: Replicas
    removing: Replicas

    @property
    def target(self) -> Replicas:
        """The replicas when the reassignment is complete."""
        return tuple(each for each in self.replicas if each not in self.removing)


def alter_reassignments(
    client: AdminClient, wanted: Mapping[TopicPartition, Replicas | None]
) -> dict[TopicPartition, KafkaError | None]:
    """Move partitions to these replicas; None cancels the reassignment of a partition."""
    requested = m.AlterPartitionReassignmentsRequest

    def attempt(pending: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        topics = [
            requested.ReassignableTopic(name=topic, partitions=[_reassignable(topic, number) for number in numbers])
            for topic, numbers in by_topic(pending).items()
        ]
        answer: m.AlterPartitionReassignmentsResponse = client.controller(
            requested(timeout_ms=int(client.timeout_s * 1000), topics=topics)
        )
        check(answer.error_code, answer.error_message)
        return {
            (topic.name, each.partition_index): outcome(None, each.error_code, each.error_message)
            for topic in answer.responses
            for each in topic.partitions
        }

    def _reassignable(topic: str, number: int) -> m.AlterPartitionReassignmentsRequest.ReassignablePartition:
        replicas = wanted[topic, number]
        return requested.ReassignablePartition(
            partition_index=number, replicas=None if replicas is None else list(replicas)
        )

    return client.each(wanted, attempt)


def list_reassignments(
    client: AdminClient, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, OngoingReassignment]:
    """The partitions whose replicas move, all or those of `partitions`. Raises KafkaError."""
    requested = m.ListPartitionReassignmentsRequest
    topics = None
    if partitions is not None:
        topics = [
            requested.ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]

    def attempt() -> dict[TopicPartition, OngoingReassignment]:
        answer: m.ListPartitionReassignmentsResponse = client.controller(
            requested(timeout_ms=int(client.timeout_s * 1000), topics=topics)
        )
        check(answer.error_code, answer.error_message)
        return {
            (topic.name, each.partition_index): OngoingReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    return client.call(attempt)


def set_throttles(
    client: AdminClient,
    current: Mapping[TopicPartition, Replicas],
    wanted: Mapping[TopicPartition, Replicas],
    bytes_per_s: int,
) -> dict[ConfigTarget, KafkaError | None]:
    """Bound the rate at which the replicas of a reassignment are copied, as kafka-reassign-partitions does it."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for (topic, number), replicas in wanted.items():
        moving = [each for each in replicas if each not in current[topic, number]]
        leaders.setdefault(topic, []).extend(f"{number}:{each}" for each in current[topic, number])
        followers.setdefault(topic, []).extend(f"{number}:{each}" for each in moving)
        brokers.update(current[topic, number], moving)
    rates = [ConfigChange(name, ConfigOperation.SET, str(bytes_per_s)) for name in RATES]
    changes = {ConfigTarget(ResourceKind.BROKER, str(each)): rates for each in sorted(brokers)}
    for topic in leaders:
        values = (",".join(leaders[topic]), ",".join(followers[topic]))
        changes[ConfigTarget(ResourceKind.TOPIC, topic)] = [
            ConfigChange(name, ConfigOperation.SET, value) for name, value in zip(THROTTLED, values, strict=True)
        ]
    return configs.alter_configs(client, changes)


def clear_throttles(
    client: AdminClient, topics: Collection[str], brokers: Collection[int]
) -> dict[ConfigTarget, KafkaError | None]:
    """Remove the throttles of topics and brokers."""
    changes = {
        ConfigTarget(ResourceKind.BROKER, str(each)): [ConfigChange(name, ConfigOperation.DELETE) for name in RATES]
        for each in sorted(brokers)
    }
    for topic in sorted(topics):
        changes[ConfigTarget(ResourceKind.TOPIC, topic)] = [
            ConfigChange(name, ConfigOperation.DELETE) for name in THROTTLED
        ]
    return configs.alter_configs(client, changes)
