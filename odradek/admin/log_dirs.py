"""Log directories of brokers, and the replicas in them (Kafka: Admin.describeLogDirs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.admin.client import AdminClient, error_of
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError


class ReplicaInfo(NamedTuple):
    """A replica in a log directory."""

    topic: str
    partition: int
    size: int
    """In bytes."""
    offset_lag: int
    """How far the log end offset is behind: the high watermark, or for a future replica the current one."""
    is_future: bool
    """Whether it replaces the replica of another directory when it has caught up."""


class LogDir(NamedTuple):
    """One log directory; bytes are None where the broker is older than KIP-827."""

    path: str
    error: KafkaError | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[ReplicaInfo, ...]


def describe_log_dirs(
    client: AdminClient, broker_ids: Sequence[int], topics: Sequence[str] | None = None
) -> dict[int, list[LogDir] | Exception]:
    """The log directories of brokers, with the replicas of `topics` (None for all); or the broker's error."""
    wanted = None
    if topics is not None:
        described = client.call(lambda: client.metadata(topics)).topics
        wanted = [
            m.DescribeLogDirsRequest.DescribableLogDirTopic(
                topic=each.name or "", partitions=[part.partition_index for part in each.partitions]
            )
            for each in described
        ]
    request = m.DescribeLogDirsRequest(topics=wanted)
    results: dict[int, list[LogDir] | Exception] = {}
    for broker_id, answer in client.brokers(dict.fromkeys(broker_ids, request)).items():
        if isinstance(answer, Exception):
            results[broker_id] = answer
        elif answer.error_code:
            results[broker_id] = error_of(answer.error_code)
        else:
            results[broker_id] = [_log_dir(each) for each in answer.results]
    return results


def _log_dir(each: m.DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDir:
    replicas = [
        ReplicaInfo(topic.name, part.partition_index, part.partition_size, part.offset_lag, part.is_future_key)
        for topic in each.topics
        for part in topic.partitions
    ]
    return LogDir(
        each.log_dir,
        error_of(each.error_code) if each.error_code else None,
        each.total_bytes if each.total_bytes >= 0 else None,
        each.usable_bytes if each.usable_bytes >= 0 else None,
        tuple(sorted(replicas)),
    )
