"""LeaderAndIsr (key 4), versions 0 to 7: the controller says which partitions this broker leads or follows.

An order between brokers. Orders are carried out one after the other (`replica_manager.py`), and answered when they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

GROUPED_FROM = 5


class LeaderAndIsr:
    """Orders of the controller."""

    KEY = 4
    VERSIONS = (0, 7)

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(self, call: Call, request: m.LeaderAndIsrRequest) -> None:
        self._replica_manager.submit(request, lambda response: call.reply(_in_version(response, call.version)))


def _in_version(response: m.LeaderAndIsrResponse, version: int) -> m.LeaderAndIsrResponse:
    """The outcomes by topic id from version 5 on, before by name."""
    if version >= GROUPED_FROM:
        response.partition_errors = []
    else:
        response.topics = []
    return response
