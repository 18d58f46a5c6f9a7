"""Descriptor budget: checks before a topic is created that this broker has file descriptors for its new logs.

Every log keeps the file of each of its segments open. A topic whose logs cannot be opened would exist without leaders,
so the controller rejects it with POLICY_VIOLATION, which is not retriable and carries a message. Kafka has no such
check; it returns the same error for requests for too many partitions (KRaft's ReplicationControlManager). The
controller checks its own broker only: another broker without free descriptors creates its logs when it has some again
(see `replica_manager`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.descriptors import limit_and_left

FEW_LOGS: Final = 1000
"""So many reservations are kept without a look for those that are over."""
Descriptors = Callable[[], tuple[int, int]]


class DescriptorBudget:
    """Counts free descriptors against logs that are to be created; reserved descriptors count until the log exists."""

    def __init__(
        self, broker_id: int, has_log: Callable[[TopicPartition], bool], read_limits: Descriptors = limit_and_left
    ) -> None:
        """`has_log` returns whether the log of a partition is open on this broker; `read_limits` the limit of the
        process's descriptors, and how many of them are free.
        """
        self._broker_id = broker_id
        self._read_limits = read_limits
        self._promised: set[TopicPartition] = set()
        self._settle_at = FEW_LOGS
        self._has_log = has_log
        self._read: tuple[int, int] = (0, 0)
        self._valid_logs = 0

    def check(
        self, topic: str, assignment: Mapping[int, Sequence[int]], topics: Callable[[], Collection[str]] | None = None
    ) -> list[TopicPartition]:
        """The logs that this broker would get. Raises KafkaError POLICY_VIOLATION if it has too few descriptors.

        `topics` returns those that exist. Where it is given, reservations are settled before a topic is rejected.
        """
        logs = [(topic, index) for index, brokers in assignment.items() if self._broker_id in brokers]
        if topics is not None and len(self._promised) >= self._settle_at:
            self.settle(topics())
        limit, left = self._left(len(logs))
        if len(logs) > left and topics is not None:
            self.settle(topics())
            limit, left = self._left(len(logs))
        if len(logs) > left:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the partitions of topic {topic!r} need {len(logs)} file descriptors on broker {self._broker_id}, "
                f"where {left} of {limit} are left; raise the limit (ulimit -n, LimitNOFILE), or close connections",
            )
        return logs

    def _left(self, logs: int) -> tuple[int, int]:
        """The limit of descriptors, and how many are left beside the reservations.

        To count them takes time in proportion to their number, so the count is used for a hundredth of those that it
        found free: a request for thousands of topics counts them some hundred times.
        """
        self._valid_logs -= logs
        if self._valid_logs <= 0:
            self._read = self._read_limits()
            self._valid_logs = self._read[1] // 100 - logs
        limit, free = self._read
        return limit, max(0, free - len(self._promised))

    def settle(self, topics: Collection[str]) -> None:
        """Release reservations of topics other than these, and of logs that exist."""
        there = frozenset(topics)
        self._promised = {name for name in self._promised if name[0] in there and not self._has_log(name)}
        self._settle_at = max(FEW_LOGS, 2 * len(self._promised))
        self._valid_logs = 0

    def promise(self, logs: list[TopicPartition]) -> None:
        """Reserve descriptors for logs that are being created."""
        self._promised.update(logs)
