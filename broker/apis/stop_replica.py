"""StopReplica (key 5), versions 0 to 4: the controller stops replicas of this broker, or deletes them.

The controller sends it as a control request, which takes CLUSTER_ACTION. The replica manager applies control requests
one after the other (`replica_manager.py`), and answers each when it is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.replica_manager import ReplicaManager, refused_stop_replica
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class StopReplica:
    """Handles StopReplica."""

    KEY = 5
    VERSIONS = (0, 4)

    def __init__(self, replica_manager: ReplicaManager, auth: AuthHelper) -> None:
        self._replica_manager = replica_manager
        self._auth = auth

    def handle(self, call: Call, request: m.StopReplicaRequest) -> m.StopReplicaResponse | None:
        if not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return refused_stop_replica(request, denied)
        self._replica_manager.submit(request, call.reply)
        return None
