"""LeaderAndIsr (key 4), versions 0 to 7: the controller makes this broker leader or follower of partitions.

The controller sends it as a control request, which takes CLUSTER_ACTION. The replica manager applies control requests
one after the other (`replica_manager.py`), and answers each when it is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.replication.replica_manager import ReplicaManager, refused_leader_and_isr
from odradek.broker.runtime.turns import keep
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import AclOperation
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

GROUPED_FROM = 5


class LeaderAndIsr:
    """Handles LeaderAndIsr."""

    KEY = 4
    VERSIONS = (0, 7)

    def __init__(self, replica_manager: ReplicaManager, auth: AuthHelper) -> None:
        self._replica_manager = replica_manager
        self._auth = auth

    def handle(self, call: Call, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse | None:
        if not self._auth.authorize_cluster(call, AclOperation.CLUSTER_ACTION):
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return _in_version(refused_leader_and_isr(request, denied), call.version)
        self._replica_manager.submit(request, lambda response: call.reply(_in_version(response, call.version)))
        return None


def _in_version(response: m.LeaderAndIsrResponse, version: int) -> m.LeaderAndIsrResponse:
    """The errors by topic id from version 5 on, before by name."""
    if version >= GROUPED_FROM:
        keep(response.partition_errors)
        response.partition_errors = []
    else:
        keep(response.topics)
        response.topics = []
    return response
