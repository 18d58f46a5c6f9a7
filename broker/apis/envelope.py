"""Envelope (key 58), version 0: a broker forwards a client's request to the controller (KIP-590).

A controller with ZooKeeper takes none: the connection is ended, as by Kafka 3.9, which forwards only on its way to
KRaft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class Envelope:
    """Requests that nobody takes."""

    KEY = 58
    VERSIONS = (0, 0)

    def handle(self, call: Call, request: m.EnvelopeRequest) -> None:
        call.connection.refuse("unsupported request", "requests of clients are not forwarded with ZooKeeper")
