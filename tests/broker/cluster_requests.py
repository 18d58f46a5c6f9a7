"""Requests of admin clients and of brokers for the tables of `test_every_version`: one in every version.

Each has a way to make the request, the place of the error code in the response, and the expected error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

Entry = tuple[Callable[[int, bytes], Any], Callable[[Any, int], int], Callable[[int], ErrorCode]]
PAST = 0
"""A controller epoch, and a broker epoch, that have ended."""
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


NO_TOKENS = E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def create_acls(version: int, topic_id: bytes) -> m.CreateAclsRequest:
    rule = m.CreateAclsRequest.AclCreation(resource_type=2, operation=3, permission_type=3)
    return m.CreateAclsRequest(creations=[rule])


def delete_acls(version: int, topic_id: bytes) -> m.DeleteAclsRequest:
    rule = m.DeleteAclsRequest.DeleteAclsFilter(resource_type_filter=2, operation=3, permission_type=3)
    return m.DeleteAclsRequest(filters=[rule])


def alter_client_quotas(version: int, topic_id: bytes) -> m.AlterClientQuotasRequest:
    request = m.AlterClientQuotasRequest
    entity = request.EntityData(entity_type="user", entity_name="u")
    op = request.OpData(key="producer_byte_rate", value=1000.0)
    return request(entries=[request.EntryData(entity=[entity], ops=[op])])


def alter_user_scram_credentials(version: int, topic_id: bytes) -> m.AlterUserScramCredentialsRequest:
    requested = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="u", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"secret"
    )
    return m.AlterUserScramCredentialsRequest(upsertions=[requested])


def update_features(version: int, topic_id: bytes) -> m.UpdateFeaturesRequest:
    update = m.UpdateFeaturesRequest.FeatureUpdateKey(feature="no.such.feature", max_version_level=1)
    return m.UpdateFeaturesRequest(feature_updates=[update])


def refused_update(version: int) -> ErrorCode:
    return E.INVALID_REQUEST if version < 2 else E.INVALID_UPDATE_VERSION


def describe_topic_partitions(version: int, topic_id: bytes) -> m.DescribeTopicPartitionsRequest:
    topic = m.DescribeTopicPartitionsRequest.TopicRequest(name="there")
    return m.DescribeTopicPartitionsRequest(topics=[topic])


def alter_log_dir(version: int, topic_id: bytes) -> m.AlterReplicaLogDirsRequest:
    topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=[0])
    nowhere = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/nowhere", topics=[topic])
    return m.AlterReplicaLogDirsRequest(dirs=[nowhere])


CLIENT_APIS: dict[int, Entry] = {
    17: (
        lambda v, i: m.SaslHandshakeRequest(mechanism="PLAIN"),
        lambda r, v: r.error_code,
        lambda v: E.ILLEGAL_SASL_STATE,
    ),
    29: (
        lambda v, i: m.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1),
        lambda r, v: r.error_code,
        lambda v: E.SECURITY_DISABLED,
    ),
    30: (create_acls, lambda r, v: r.results[0].error_code, lambda v: E.SECURITY_DISABLED),
    31: (delete_acls, lambda r, v: r.filter_results[0].error_code, lambda v: E.SECURITY_DISABLED),
    36: (lambda v, i: m.SaslAuthenticateRequest(), lambda r, v: r.error_code, lambda v: E.ILLEGAL_SASL_STATE),
    38: (lambda v, i: m.CreateDelegationTokenRequest(), lambda r, v: r.error_code, lambda v: NO_TOKENS),
    39: (lambda v, i: m.RenewDelegationTokenRequest(), lambda r, v: r.error_code, lambda v: NO_TOKENS),
    40: (lambda v, i: m.ExpireDelegationTokenRequest(), lambda r, v: r.error_code, lambda v: NO_TOKENS),
    41: (lambda v, i: m.DescribeDelegationTokenRequest(), lambda r, v: r.error_code, lambda v: NO_TOKENS),
    48: (lambda v, i: m.DescribeClientQuotasRequest(), lambda r, v: r.error_code, lambda v: NONE),
    49: (alter_client_quotas, lambda r, v: r.entries[0].error_code, lambda v: NONE),
    50: (
        lambda v, i: m.DescribeUserScramCredentialsRequest(users=None),
        lambda r, v: r.error_code,
        lambda v: NONE,
    ),
    51: (alter_user_scram_credentials, lambda r, v: r.results[0].error_code, lambda v: NONE),
    57: (update_features, lambda r, v: r.error_code or r.results[0].error_code, refused_update),
    75: (describe_topic_partitions, lambda r, v: r.topics[0].error_code, lambda v: NONE),
}
"""Requests about clients and their ACLs, of which there are none; and APIs that are newer than ZooKeeper mode."""

CLUSTER_APIS: dict[int, Entry] = {
    **CLIENT_APIS,
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
    34: (alter_log_dir, lambda r, v: r.results[0].partitions[0].error_code, lambda v: E.LOG_DIR_NOT_FOUND),
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
