"""DescribeLogDirs (key 35), versions 0 to 5: the data directories of this broker and their logs (KIP-113).

Version 4 adds the size and free space of the volume (KIP-827), 5 whether a directory is cordoned (KIP-1066), which no
directory of this broker is. Requested partitions that are not on this broker are omitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.log_dirs import DirectoryDescription, LogDirs
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Result = m.DescribeLogDirsResponse.DescribeLogDirsResult
Topic = m.DescribeLogDirsResponse.DescribeLogDirsTopic
Partition = m.DescribeLogDirsResponse.DescribeLogDirsPartition


class DescribeLogDirs:
    """Handles DescribeLogDirs."""

    KEY = 35
    VERSIONS = (0, 5)

    def __init__(self, log_dirs: LogDirs, auth: AuthHelper) -> None:
        self._log_dirs = log_dirs
        self._auth = auth

    def handle(self, call: Call, request: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
        if not self._auth.authorize_cluster(call, AclOperation.DESCRIBE):
            return m.DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        wanted = None
        if request.topics is not None:
            wanted = keep({(topic.topic, index) for topic in request.topics for index in items_of(topic.partitions)})
        return m.DescribeLogDirsResponse(results=[_result(each) for each in self._log_dirs.describe(wanted)])


def _result(directory: DirectoryDescription) -> m.DescribeLogDirsResponse.DescribeLogDirsResult:
    topics: dict[str, m.DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for log in items_of(directory.logs):
        topics.setdefault(log.topic, Topic(name=log.topic)).partitions.append(
            Partition(
                partition_index=log.partition, partition_size=log.size, offset_lag=log.lag, is_future_key=log.is_future
            )
        )
    return Result(
        error_code=ErrorCode.NONE if directory.failure is None else ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=directory.path,
        topics=list(topics.values()),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
