"""Status of a cluster for `odradek cluster status`: brokers, leaders, ISR, and the lag of each follower.

Leaders and in-sync replicas come from one broker's Metadata response. Every broker receives a ListOffsets request for
the log ends of its replicas, with the replica id of Kafka's debugging consumer (-2), which a follower answers, too; a
follower's lag is the leader's log end less its own, in records. A broker that does not respond is reported as such; the
rest is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from odradek.admin.client import AdminClient
from odradek.admin.controllers import KRAFT, controller_of
from odradek.admin.offsets import LATEST
from odradek.admin.quorum import UNKNOWN, MetadataQuorum, describe_quorum
from odradek.protocol import messages as m
from odradek.protocol.client.connection import Address, shown
from odradek.protocol.client.errors import ClientError
from odradek.protocol.client.security import PLAINTEXT, ConnectionSecurity
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError
from odradek.protocol.topic_partition import TopicPartition

DEBUGGING_CONSUMER: Final = -2
NO_MEMBER: Final = -1

Ends = dict[TopicPartition, int]
"""The log ends of one broker's replicas, in offsets."""


class BrokerStatus(NamedTuple):
    """One broker; `error` is the reason for a missing response, and empty otherwise."""

    broker_id: int
    address: str
    rack: str | None
    controller: bool
    error: str


class PartitionStatus(NamedTuple):
    """One partition; the leader is -1 where there is none, and a lag None where it is unknown."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    lag: dict[int, int | None]
    """Of each follower: records between its log end and the leader's."""

    @property
    def remark(self) -> str:
        """Its problem, in one word, or nothing."""
        if self.leader == NO_MEMBER:
            return "offline"
        return "under-replicated" if len(self.isr) < len(self.replicas) else ""


class ClusterStatus(NamedTuple):
    """A cluster in the view of one of its brokers."""

    cluster_id: str
    controller_id: int
    """A broker, NO_CONTROLLER, or KRAFT."""
    brokers: tuple[BrokerStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    quorum: MetadataQuorum | None = None
    """Of a cluster with KRaft, where the user may describe it."""

    def as_json(self) -> dict[str, Any]:
        """For programs: names as in Kafka's tools, lag by broker."""
        return {
            "cluster_id": self.cluster_id,
            "controller": None if self.controller_id == KRAFT else self.controller_id,
            "kraft": self.controller_id == KRAFT,
            "quorum": None if self.quorum is None else self.quorum.as_json(),
            "brokers": [
                {
                    "id": each.broker_id,
                    "address": each.address,
                    "rack": each.rack,
                    "controller": each.controller,
                    "error": each.error or None,
                }
                for each in self.brokers
            ],
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "leader": each.leader,
                    "leader_epoch": each.leader_epoch,
                    "replicas": list(each.replicas),
                    "isr": list(each.isr),
                    "lag": {str(broker_id): lag for broker_id, lag in each.lag.items()},
                    "under_replicated": len(each.isr) < len(each.replicas),
                }
                for each in self.partitions
            ],
        }


def gather(client: AdminClient, topics: Sequence[str] = ()) -> ClusterStatus:
    """Query a broker for the metadata, and then every broker; about `topics` alone if there are any.

    Raises OSError where no broker answers, ClientError, ProtocolError, and LookupError for a topic that does not exist.
    """
    metadata = client.metadata(list(dict.fromkeys(topics)) or None)
    for topic in metadata.topics if topics else ():
        if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise LookupError(f"there is no topic {topic.name}")
    ends: dict[int, Ends] = {}
    errors: dict[int, str] = {}
    requests = {each.node_id: _request(each.node_id, metadata.topics) for each in metadata.brokers}
    for broker_id, answer in client.brokers(requests).items():
        if isinstance(answer, Exception):
            reason = "timed out" if isinstance(answer, TimeoutError) else str(answer)
            errors[broker_id] = f"no answer: {reason}"
        else:
            ends[broker_id] = _log_ends(answer)
    return _join(metadata, controller_of(client, metadata), ends, errors)._replace(quorum=_quorum(client))


def _quorum(client: AdminClient) -> MetadataQuorum | None:
    try:
        return describe_quorum(client) if client.supports(m.DescribeQuorumRequest) else None
    except (KafkaError, OSError, ClientError, ProtocolError):
        return None  # a user without the right DESCRIBE for the cluster, or a quorum without a leader


def is_healthy(address: Address, timeout_s: float, security: ConnectionSecurity = PLAINTEXT) -> str:
    """Nothing when the broker there serves as a part of a cluster with a controller; else the problem."""
    try:
        with AdminClient([address], security, timeout_s=timeout_s) as client:
            metadata = client.metadata([])
    except (OSError, ProtocolError, ClientError) as error:
        return f"no answer from {shown(address)}: {error}"
    if metadata.controller_id not in {each.node_id for each in metadata.brokers}:
        return f"{shown(address)} has no controller"
    return ""


def _request(broker_id: int, topics: Iterable[m.MetadataResponse.MetadataResponseTopic]) -> m.ListOffsetsRequest:
    request = m.ListOffsetsRequest.ListOffsetsPartition
    wanted = []
    for topic in topics:
        here = [
            request(partition_index=each.partition_index, timestamp=LATEST)
            for each in topic.partitions
            if broker_id in each.replica_nodes
        ]
        if here:
            wanted.append(m.ListOffsetsRequest.ListOffsetsTopic(name=topic.name or "", partitions=here))
    return m.ListOffsetsRequest(replica_id=DEBUGGING_CONSUMER, topics=wanted)


def _log_ends(answer: m.ListOffsetsResponse) -> Ends:
    return {
        (topic.name, each.partition_index): each.offset
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


def _join(
    metadata: m.MetadataResponse, controller_id: int, ends: dict[int, Ends], errors: dict[int, str]
) -> ClusterStatus:
    brokers = [
        BrokerStatus(
            each.node_id,
            shown((each.host, each.port)),
            each.rack,
            each.node_id == controller_id,
            errors.get(each.node_id, ""),
        )
        for each in metadata.brokers
    ]
    live = {each.broker_id for each in brokers}
    holders = {number for topic in metadata.topics for each in topic.partitions for number in each.replica_nodes}
    brokers += [BrokerStatus(number, "-", None, False, "not in the cluster") for number in holders - live]
    partitions = tuple(
        PartitionStatus(
            topic.name or "",
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            _lags((topic.name or "", each.partition_index), each.leader_id, each.replica_nodes, ends),
        )
        for topic in sorted(metadata.topics, key=lambda topic: (topic.is_internal, topic.name or ""))
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    )
    return ClusterStatus(metadata.cluster_id or "", controller_id, tuple(sorted(brokers)), partitions)


def _lags(
    partition: TopicPartition, leader: int, replicas: Iterable[int], ends: dict[int, Ends]
) -> dict[int, int | None]:
    leader_end = ends.get(leader, {}).get(partition)
    lags: dict[int, int | None] = {}
    for broker_id in replicas:
        if broker_id != leader:
            end = ends.get(broker_id, {}).get(partition)
            # The two responses are from slightly different times: a follower is never ahead.
            lags[broker_id] = None if end is None or leader_end is None else max(0, leader_end - end)
    return lags


# ---- as a table


def render(status: ClusterStatus) -> str:
    """The status for a reader, lines that end without a newline."""
    quorum = ", controllers in a quorum (KRaft)" if status.controller_id == KRAFT else ""
    lines = [f"cluster {status.cluster_id}, {_count(len(status.brokers), 'broker')}{quorum}", ""]
    lines += _table(
        ("BROKER", "ADDRESS", "RACK", "LEADS", "HOLDS", ""),
        [
            (
                str(each.broker_id),
                each.address,
                each.rack or "-",
                str(sum(partition.leader == each.broker_id for partition in status.partitions)),
                str(sum(each.broker_id in partition.replicas for partition in status.partitions)),
                ", ".join(["controller"] * each.controller + [each.error] * bool(each.error)),
            )
            for each in status.brokers
        ],
    )
    if status.quorum is not None:
        lines += ["", *_quorum_lines(status.quorum)]
    if status.partitions:
        lines.append("")
        lines += _table(
            ("TOPIC", "PARTITION", "LEADER", "ISR", "REPLICAS", "LAG", ""),
            [_row(each) for each in status.partitions],
        )
    lines += ["", _summary(status)]
    return "\n".join(lines)


def _quorum_lines(quorum: MetadataQuorum) -> list[str]:
    leader = "has no leader" if quorum.leader_id == UNKNOWN else f"leader {quorum.leader_id}"
    return [
        f"quorum: {leader}, epoch {quorum.leader_epoch}, high watermark {quorum.high_watermark}",
        *_table(
            ("NODE", "ROLE", "LOG END", "LAG"),
            [
                (
                    str(each.replica_id),
                    quorum.role_of(each),
                    "?" if each.log_end_offset == UNKNOWN else str(each.log_end_offset),
                    "?" if each.lag is None else str(each.lag),
                )
                for each in (*quorum.voters, *quorum.observers)
            ],
        ),
    ]


def _row(partition: PartitionStatus) -> tuple[str, ...]:
    return (
        partition.topic,
        str(partition.partition),
        "none" if partition.leader == NO_MEMBER else str(partition.leader),
        ",".join(map(str, partition.isr)) or "-",
        ",".join(map(str, partition.replicas)),
        " ".join(f"{each}:{'?' if lag is None else lag}" for each, lag in partition.lag.items()) or "-",
        partition.remark,
    )


def _summary(status: ClusterStatus) -> str:
    remarks = [partition.remark for partition in status.partitions]
    silent = sum(bool(each.error) for each in status.brokers)
    findings = [f"{remarks.count(remark)} {remark}" for remark in ("offline", "under-replicated") if remark in remarks]
    findings += [f"{_count(silent, 'broker')} without an answer"] if silent else []
    has_controller = status.controller_id == KRAFT or any(each.controller for each in status.brokers)
    findings += [] if has_controller else ["no controller"]
    return f"{_count(len(remarks), 'partition')}, {', '.join(findings) or 'all replicas in sync'}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    ]
