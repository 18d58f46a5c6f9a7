"""LeaderAndIsr (key 4), versions 0 to 7: the controller makes this broker leader or follower of partitions.

The controller sends it as a control request. The replica manager applies control requests one after the other
(`replica_manager.py`), and answers each when it is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

GROUPED_FROM = 5


class LeaderAndIsr:
    """Handles LeaderAndIsr."""

    KEY = 4
    VERSIONS = (0, 7)

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(self, call: Call, request: m.LeaderAndIsrRequest) -> None:
        self._replica_manager.submit(request, lambda response: call.reply(_in_version(response, call.version)))


def _in_version(response: m.LeaderAndIsrResponse, version: int) -> m.LeaderAndIsrResponse:
    """The errors by topic id from version 5 on, before by name."""
    if version >= GROUPED_FROM:
        response.partition_errors = []
    else:
        response.topics = []
    return response
