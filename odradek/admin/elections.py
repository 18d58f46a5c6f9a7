"""Leader elections (Kafka: Admin.electLeaders; KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.admin.client import AdminClient, check, outcome
from odradek.admin.offsets import by_topic
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

PREFERRED: Final = 0
UNCLEAN: Final = 1
"""Types of elections."""
NEW_LEADER, UNCHANGED = True, False


def elect_leaders(
    client: AdminClient, partitions: Iterable[TopicPartition] | None, election: int = PREFERRED
) -> dict[TopicPartition, bool | KafkaError]:
    """Elect leaders of partitions, None for all: whether a partition has a new leader, or its error."""
    requested = m.ElectLeadersRequest
    wanted = None
    if partitions is not None:
        wanted = [
            requested.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ]

    def attempt() -> dict[TopicPartition, bool | KafkaError]:
        request = requested(election_type=election, topic_partitions=wanted, timeout_ms=int(client.timeout_s * 1000))
        answer: m.ElectLeadersResponse = client.controller(request)
        check(answer.error_code)
        results: dict[TopicPartition, bool | KafkaError] = {}
        for topic in answer.replica_election_results:
            for each in topic.partition_result:
                if each.error_code == ErrorCode.NOT_CONTROLLER:
                    check(each.error_code, each.error_message)
                place = (topic.topic, each.partition_id)
                if each.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    results[place] = UNCHANGED
                else:
                    results[place] = outcome(NEW_LEADER, each.error_code, each.error_message)
        return results

    return client.call(attempt)
