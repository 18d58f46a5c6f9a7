"""Requests about log directories: which replica is where, and where it has to move."""

from __future__ import annotations

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client

Dir = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir


Topic = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic


async def alter(client: Client, version: int, *wanted: tuple[str, str, int]) -> list[tuple[str, int, ErrorCode]]:
    """Send AlterReplicaLogDirs for (path, topic, partition)."""
    dirs = [Dir(path=path, topics=[Topic(name=topic, partitions=[index])]) for path, topic, index in wanted]
    answer = await client.ask(m.AlterReplicaLogDirsRequest(dirs=dirs), version)
    return [
        (topic.topic_name, each.partition_index, ErrorCode(each.error_code))
        for topic in answer.results
        for each in topic.partitions
    ]


async def places(client: Client, version: int = 5) -> dict[str, dict[tuple[str, int, bool], tuple[int, int]]]:
    """By directory: (topic, partition, is future) -> size and lag."""
    answer = await client.ask(m.DescribeLogDirsRequest(topics=None), version)
    return {
        each.log_dir: {
            (topic.name, partition.partition_index, partition.is_future_key): (
                partition.partition_size,
                partition.offset_lag,
            )
            for topic in each.topics
            for partition in topic.partitions
        }
        for each in answer.results
    }
