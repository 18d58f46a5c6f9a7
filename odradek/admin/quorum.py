"""The quorum of controllers of a cluster with KRaft (Kafka: Admin.describeMetadataQuorum; KIP-595, KIP-836, KIP-853).

Brokers return any broker as the controller there, so only this request returns the node that leads.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from odradek.admin.client import AdminClient, check
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

METADATA_TOPIC: Final = "__cluster_metadata"
UNKNOWN: Final = -1


class QuorumReplica(NamedTuple):
    """A voter or an observer. Times are those of the leader's clock; None where the broker is older than KIP-836."""

    replica_id: int
    log_end_offset: int
    """-1 where the leader has received no fetch."""
    lag: int | None
    """Records behind the leader; None where its log end or that of the leader is unknown."""
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class MetadataQuorum(NamedTuple):
    """The quorum in the view of its leader."""

    leader_id: int
    """-1 without one."""
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "leader": None if self.leader_id == UNKNOWN else self.leader_id,
            "leader_epoch": self.leader_epoch,
            "high_watermark": self.high_watermark,
            "voters": [_json(each) for each in self.voters],
            "observers": [_json(each) for each in self.observers],
        }

    def role_of(self, each: QuorumReplica) -> str:
        """Leader, voter or observer."""
        if each.replica_id == self.leader_id:
            return "leader"
        return "voter" if each in self.voters else "observer"


def describe_quorum(client: AdminClient) -> MetadataQuorum:
    """The quorum as it is now. Raises KafkaError, and ClientError where the cluster has none (ZooKeeper, Odradek)."""
    part = m.DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = m.DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[part])
    answer = client.any_broker(m.DescribeQuorumRequest(topics=[topic]))
    check(answer.error_code, answer.error_message)
    found = next((each for topic in answer.topics for each in topic.partitions), None)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the response has no partition of the quorum")
    check(found.error_code, found.error_message)
    ends = {each.replica_id: each.log_end_offset for each in found.current_voters}
    end = ends.get(found.leader_id, UNKNOWN)
    return MetadataQuorum(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        tuple(sorted(_replica(each, end) for each in found.current_voters)),
        tuple(sorted(_replica(each, end) for each in found.observers)),
    )


def _replica(each: m.DescribeQuorumResponse.ReplicaState, leader_end: int) -> QuorumReplica:
    is_known = UNKNOWN not in (each.log_end_offset, leader_end)
    return QuorumReplica(
        each.replica_id,
        each.log_end_offset,
        max(0, leader_end - each.log_end_offset) if is_known else None,
        each.last_fetch_timestamp if each.last_fetch_timestamp >= 0 else None,
        each.last_caught_up_timestamp if each.last_caught_up_timestamp >= 0 else None,
    )


def _json(each: QuorumReplica) -> dict[str, Any]:
    return {"id": each.replica_id, "log_end_offset": each.log_end_offset, "lag": each.lag}
