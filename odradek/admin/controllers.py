"""Which broker is the controller, where a broker can be it."""

from __future__ import annotations

from typing import Final

from odradek.admin.client import AdminClient
from odradek.protocol import messages as m

NO_CONTROLLER: Final = -1
KRAFT: Final = -2
"""A quorum of controllers (KIP-500), which `quorum` describes: brokers return any broker as the controller, to get its
requests.
"""


def controller_of(client: AdminClient, metadata: m.MetadataResponse) -> int:
    """The broker id of the controller in a response of metadata; NO_CONTROLLER without one, KRAFT with a quorum."""
    return KRAFT if client.supports(m.DescribeQuorumRequest) else metadata.controller_id
