"""Whether this broker has the file descriptors for the logs of new partitions, asked before a topic is made.

Every log keeps the file of each of its segments open. A topic whose logs cannot be opened would be there and have no
leaders, so the controller refuses it with POLICY_VIOLATION, which is final and carries a message. Kafka has no such
check; it says the same of requests for too many partitions (KRaft's ReplicationControlManager). The controller knows
its own broker only: another broker that has no descriptors left makes its logs when it has (see `replica_manager`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.descriptors import limit_and_left

Name = tuple[str, int]


class DescriptorBudget:
    """Counts descriptors against logs that are to be made; those that have been promised count until they are there."""

    def __init__(self, broker_id: int, look: Callable[[], tuple[int, int]] = limit_and_left) -> None:
        """`look` says how many descriptors the process may have, and how many of them are free."""
        self._broker_id = broker_id
        self._look = look
        self._promised: set[Name] = set()
        self.has_log: Callable[[Name], bool] = lambda name: True
        """Whether the log of a partition is open; to be set once there are logs."""

    def check(self, topic: str, assignment: Mapping[int, Sequence[int]]) -> list[Name]:
        """The logs that this broker would get. Raises KafkaError POLICY_VIOLATION where it has no room for them."""
        logs = [(topic, index) for index, brokers in assignment.items() if self._broker_id in brokers]
        limit, free = self._look()
        left = max(0, free - len(self._promised))
        if len(logs) > left:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the partitions of topic {topic!r} need {len(logs)} file descriptors on broker {self._broker_id}, "
                f"where {left} of {limit} are left; raise the limit (ulimit -n, LimitNOFILE), or close connections",
            )
        return logs

    def settle(self, topics: Collection[str]) -> None:
        """Forget what was promised to topics other than these, and logs that are there."""
        self._promised = {name for name in self._promised if name[0] in topics and not self.has_log(name)}

    def promise(self, logs: list[Name]) -> None:
        """These are being made."""
        self._promised.update(logs)
