"""StopReplica (key 5), versions 0 to 4: the controller says which replicas this broker gives up, or deletes.

An order between brokers. Orders are carried out one after the other (`replica_manager.py`), and answered when they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class StopReplica:
    """Orders of the controller."""

    KEY = 5
    VERSIONS = (0, 4)

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(self, call: Call, request: m.StopReplicaRequest) -> None:
        self._replica_manager.submit(request, call.reply)
