"""The connections of a client, without a broker."""

from __future__ import annotations

from contextlib import closing

from odradek.ports import free_port
from odradek.protocol.client.security import PLAINTEXT
from odradek.streams.clients.metadata import ClientMetadata
from odradek.streams.clients.network import REQUESTS, ClientNetwork, NetworkSettings
from tests.support.eventually import eventually


def test_a_failed_attempt_requests_the_leaders_again() -> None:
    """A leader that was killed may still be the leader in the last response."""
    with closing(ClientNetwork(NetworkSettings([("127.0.0.1", free_port())], "client", PLAINTEXT))) as network:
        metadata = ClientMetadata(network, max_age_s=300.0, backoff_s=0.1, create_topics=False)
        assert not metadata._requested
        assert not network.ready((-1, REQUESTS))
        eventually(lambda: network.poll(0.05) or metadata._requested)
        assert not network.ready((-1, REQUESTS))
        assert not network._dialing  # the next attempt waits for the backoff
