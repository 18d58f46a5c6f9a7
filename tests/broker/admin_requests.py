"""Requests of an administrator: partitions, leaders, replicas and configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client

TOPIC, BROKER, LOGGER = 2, 4, 8


SET, DELETE, APPEND, SUBTRACT = range(4)


PREFERRED, UNCLEAN = 0, 1


def create_partitions(
    *topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False
) -> m.CreatePartitionsRequest:
    request = m.CreatePartitionsRequest
    return request(
        topics=[
            request.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assigned is None
                else [request.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned],
            )
            for name, count, assigned in topics
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )


def elect(kind: int, partitions: Iterable[tuple[str, list[int]]] | None) -> m.ElectLeadersRequest:
    request = m.ElectLeadersRequest
    wanted = (
        None
        if partitions is None
        else [request.TopicPartitions(topic=name, partitions=numbers) for name, numbers in partitions]
    )
    return request(election_type=kind, topic_partitions=wanted, timeout_ms=10_000)


def reassign(*partitions: tuple[str, int, list[int] | None]) -> m.AlterPartitionReassignmentsRequest:
    request = m.AlterPartitionReassignmentsRequest
    topics: dict[str, Any] = {}
    for name, number, replicas in partitions:
        topic = topics.setdefault(name, request.ReassignableTopic(name=name))
        topic.partitions.append(request.ReassignablePartition(partition_index=number, replicas=replicas))
    return request(timeout_ms=10_000, topics=list(topics.values()))


def list_reassignments(*partitions: tuple[str, list[int]]) -> m.ListPartitionReassignmentsRequest:
    request = m.ListPartitionReassignmentsRequest
    wanted = [request.ListPartitionReassignmentsTopics(name=name, partition_indexes=ids) for name, ids in partitions]
    return request(timeout_ms=10_000, topics=wanted or None)


def alter(
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]], validate_only: bool = False
) -> m.IncrementalAlterConfigsRequest:
    request = m.IncrementalAlterConfigsRequest
    return request(
        resources=[
            request.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    request.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )


def replace_configs(
    *resources: tuple[int, str, Sequence[tuple[str, str | None]]], validate_only: bool = False
) -> m.AlterConfigsRequest:
    request = m.AlterConfigsRequest
    return request(
        resources=[
            request.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[request.AlterableConfig(name=key, value=value) for key, value in configs],
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )


def describe(kind: int, name: str, *keys: str) -> m.DescribeConfigsRequest:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return m.DescribeConfigsRequest(resources=[resource], include_synonyms=True)


async def set_config(client: Client, kind: int, name: str, *changes: tuple[str, int, str | None]) -> None:
    (result,) = (await client.ask(alter((kind, name, list(changes))), 1)).responses
    assert result.error_code == ErrorCode.NONE, result
