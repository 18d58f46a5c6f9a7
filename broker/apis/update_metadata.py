"""UpdateMetadata (key 6), versions 0 to 8: the controller updates the metadata cache of this broker.

The controller sends it as a control request, which takes CLUSTER_ACTION. The replica manager applies control requests
one after the other (`replica_manager.py`), and answers each when it is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class UpdateMetadata:
    """Handles UpdateMetadata."""

    KEY = 6
    VERSIONS = (0, 8)

    def __init__(self, replica_manager: ReplicaManager, auth: AuthHelper) -> None:
        self._replica_manager = replica_manager
        self._auth = auth

    def handle(self, call: Call, request: m.UpdateMetadataRequest) -> m.UpdateMetadataResponse | None:
        if not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
            return m.UpdateMetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        self._replica_manager.submit(request, call.reply)
        return None
