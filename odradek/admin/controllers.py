"""Which broker is the controller, where a broker can be it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.admin.client import AdminClient
    from odradek.protocol import messages as m

NO_CONTROLLER: Final = -1
KRAFT: Final = -2
"""A quorum of controllers (KIP-500): brokers then return any broker as the controller, to get its requests."""


class _DescribeQuorumRequest:
    """Only brokers of a cluster with KRaft have this API."""

    API_KEY = 55


def controller_of(client: AdminClient, metadata: m.MetadataResponse) -> int:
    """The broker id of the controller in a response of metadata; NO_CONTROLLER without one, KRAFT with a quorum."""
    return KRAFT if client.supports(_DescribeQuorumRequest) else metadata.controller_id
