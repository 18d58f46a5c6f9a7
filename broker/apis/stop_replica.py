"""StopReplica (key 5), versions 0 to 4: the controller stops replicas of this broker, or deletes them.

The controller sends it as a control request. The replica manager applies control requests one after the other
(`replica_manager.py`), and answers each when it is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class StopReplica:
    """Handles StopReplica."""

    KEY = 5
    VERSIONS = (0, 4)

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(self, call: Call, request: m.StopReplicaRequest) -> None:
        self._replica_manager.submit(request, call.reply)
