"""The connections of a client, without a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.protocol.client.security import PLAINTEXT
from odradek.streams.clients.metadata import ClientMetadata
from odradek.streams.clients.network import REQUESTS, ClientNetwork, NetworkSettings, _Link
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


class Answering:
    """A connection that returns one response."""

    must_renew = wants_to_write = False

    def __init__(self, response: object) -> None:
        self._responses = [response]

    def transfer(self) -> Iterator[object]:
        while self._responses:
            yield self._responses.pop()

    def close(self) -> None:
        """Nothing is open."""


def test_a_throttled_channel_takes_no_request_until_its_time_is_over() -> None:
    """The broker has sent the response at once (KIP-219)."""
    channel, received = (1, REQUESTS), []
    with closing(ClientNetwork(NetworkSettings([("127.0.0.1", free_port())], "client", PLAINTEXT))) as network:
        link = _Link(Answering(m.MetadataResponse(throttle_time_ms=60_000)))  # type: ignore[arg-type]
        link.callbacks.append((lambda response, error: received.append(response), time.monotonic() + 60))
        network._links[channel] = link
        assert network.ready(channel)
        network._transfer(channel, link)
        assert len(received) == 1
        assert not network.ready(channel)
        assert 59 < link.throttled_until_s - time.monotonic() <= 60
        link.throttled_until_s = time.monotonic() - 0.001
        assert network.ready(channel)
