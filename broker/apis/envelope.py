"""Envelope (key 58), version 0: a broker forwards a client's request to the controller (KIP-590).

A controller with ZooKeeper accepts none: it closes the connection, like Kafka 3.9, which forwards only during a
migration to KRaft.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class Envelope:
    """Handles Envelope, which is refused from every broker."""

    KEY = 58
    VERSIONS = (0, 0)

    def handle(self, call: Call, request: m.EnvelopeRequest) -> None:
        call.connection.refuse("unsupported request", "requests of clients are not forwarded with ZooKeeper")
