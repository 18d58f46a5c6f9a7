"""UpdateMetadata (key 6), versions 0 to 8: the controller updates the metadata cache of this broker.

The controller sends it as a control request. The replica manager applies control requests one after the other
(`replica_manager.py`), and answers each when it is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class UpdateMetadata:
    """Handles UpdateMetadata."""

    KEY = 6
    VERSIONS = (0, 8)

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

    def handle(self, call: Call, request: m.UpdateMetadataRequest) -> None:
        self._replica_manager.submit(request, call.reply)
