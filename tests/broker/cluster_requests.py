"""Requests of administrators and between brokers for the tables of `test_every_version`: one in every version.

Each has: how to make a request, where the error code stands in the response, what it has to be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

Entry = tuple[Callable[[int, bytes], Any], Callable[[Any, int], int], Callable[[int], ErrorCode]]
PAST = 0
"""A controller epoch, and a broker epoch, that is over."""
NONE, E = ErrorCode.NONE, ErrorCode


def alter_configs(version: int, topic_id: bytes) -> m.AlterConfigsRequest:
    config = m.AlterConfigsRequest.AlterableConfig(name="retention.ms", value="1000")
    resource = m.AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="there", configs=[config])
    return m.AlterConfigsRequest(resources=[resource])


def incremental_alter_configs(version: int, topic_id: bytes) -> m.IncrementalAlterConfigsRequest:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    return request(resources=[request.AlterConfigsResource(resource_type=2, resource_name="there", configs=[config])])


def create_partitions(version: int, topic_id: bytes) -> m.CreatePartitionsRequest:
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name="there", count=version + 2, assignments=None)
    return m.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)


def elect_leaders(version: int, topic_id: bytes) -> m.ElectLeadersRequest:
    topic = m.ElectLeadersRequest.TopicPartitions(topic="there", partitions=[0])
    return m.ElectLeadersRequest(topic_partitions=[topic], timeout_ms=10_000)


def reassign(version: int, topic_id: bytes) -> m.AlterPartitionReassignmentsRequest:
    request = m.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=[0])
    return request(timeout_ms=10_000, topics=[request.ReassignableTopic(name="there", partitions=[partition])])


CLUSTER_APIS: dict[int, Entry] = {
    4: (
        lambda v, i: m.LeaderAndIsrRequest(controller_id=9, controller_epoch=PAST),
        lambda r, v: r.error_code,
        lambda v: E.STALE_CONTROLLER_EPOCH,
    ),
    5: (
        lambda v, i: m.StopReplicaRequest(controller_id=9, controller_epoch=PAST),
        lambda r, v: r.error_code,
        lambda v: E.STALE_CONTROLLER_EPOCH,
    ),
    6: (
        lambda v, i: m.UpdateMetadataRequest(controller_id=9, controller_epoch=PAST),
        lambda r, v: r.error_code,
        lambda v: E.STALE_CONTROLLER_EPOCH,
    ),
    7: (
        lambda v, i: m.ControlledShutdownRequest(broker_id=9),
        lambda r, v: r.error_code,
        lambda v: E.BROKER_NOT_AVAILABLE,
    ),
    33: (alter_configs, lambda r, v: r.responses[0].error_code, lambda v: NONE),
    35: (lambda v, i: m.DescribeLogDirsRequest(topics=None), lambda r, v: r.results[0].error_code, lambda v: NONE),
    37: (create_partitions, lambda r, v: r.results[0].error_code, lambda v: NONE),
    43: (
        elect_leaders,
        lambda r, v: r.replica_election_results[0].partition_result[0].error_code,
        lambda v: E.ELECTION_NOT_NEEDED,
    ),
    44: (incremental_alter_configs, lambda r, v: r.responses[0].error_code, lambda v: NONE),
    45: (reassign, lambda r, v: r.responses[0].partitions[0].error_code, lambda v: NONE),
    46: (lambda v, i: m.ListPartitionReassignmentsRequest(), lambda r, v: r.error_code, lambda v: NONE),
    56: (
        lambda v, i: m.AlterPartitionRequest(broker_id=0, broker_epoch=PAST),
        lambda r, v: r.error_code,
        lambda v: E.STALE_BROKER_EPOCH,
    ),
    67: (
        lambda v, i: m.AllocateProducerIdsRequest(broker_id=0, broker_epoch=PAST),
        lambda r, v: r.error_code,
        lambda v: E.STALE_BROKER_EPOCH,
    ),
}
