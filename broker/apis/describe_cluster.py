"""DescribeCluster (key 60), versions 0 to 2: the brokers, the controller and the cluster's id (KIP-700).

Version 1 adds the endpoint type; controllers have no endpoints of their own with ZooKeeper, so only brokers can be
described (KIP-919). Version 2 can include fenced brokers, which exist only with KRaft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.security.auth_helper import AuthHelper
from odradek.broker.security.state.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

BROKERS = 1
CONTROLLERS = 2


class DescribeCluster:
    """Handles DescribeCluster."""

    KEY = 60
    VERSIONS = (0, 2)

    def __init__(self, metadata_cache: MetadataCache, auth: AuthHelper) -> None:
        self._metadata_cache = metadata_cache
        self._auth = auth

    def handle(self, call: Call, request: m.DescribeClusterRequest) -> m.DescribeClusterResponse:
        metadata_cache = self._metadata_cache
        if call.version >= 1 and request.endpoint_type == CONTROLLERS:
            return m.DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="this is an endpoint of a broker; controllers have none with ZooKeeper",
            )
        if call.version >= 1 and request.endpoint_type != BROKERS:
            return m.DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=f"endpoint type {request.endpoint_type} is not supported; 1 (brokers) is",
            )
        response = m.DescribeClusterResponse(
            cluster_id=metadata_cache.cluster_id,
            controller_id=metadata_cache.controller_id,
            brokers=[
                m.DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
                for broker, endpoint in metadata_cache.live_brokers(call.listener)
            ],
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = 0
            if self._auth.authorize_cluster(call, AclOperation.DESCRIBE):
                response.cluster_authorized_operations = self._auth.authorized_operations(
                    call, ResourceType.CLUSTER, CLUSTER_NAME
                )
        return response
