"""The relays of a test cluster: which data passes, which a cut holds back, and that it arrives after `heal`."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator

import pytest

from odradek.cluster_links import HOST, REGISTRY, Links

DEADLINE_S = 10
SILENCE_S = 0.1


@pytest.fixture
def links() -> Iterator[Links]:
    made = Links()
    yield made
    made.close()


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    """The listener in place of broker 2."""
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(DEADLINE_S)
        yield listener


def request(client_id: str, body: bytes = b"body") -> bytes:
    data = struct.pack(">hhih", 1, 17, 7, len(client_id)) + client_id.encode() + body
    return struct.pack(">i", len(data)) + data


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=DEADLINE_S)


def accept(listener: socket.socket) -> socket.socket:
    accepted, _ = listener.accept()
    accepted.settimeout(DEADLINE_S)
    return accepted


def receive(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = end.recv(size - len(data))
        assert chunk, f"closed after {data!r}"
        data += chunk
    return data


def is_silent(end: socket.socket) -> bool:
    """Whether no data arrives for a while; not even the end of the connection."""
    end.settimeout(SILENCE_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(DEADLINE_S)
    return False


def is_closed(end: socket.socket) -> bool:
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def meet(links: Links, broker: socket.socket, client_id: str) -> tuple[socket.socket, socket.socket]:
    """A peer with that client id, connected to broker 2 through its relay."""
    near = connect(links.to_broker(2, broker.getsockname()[1]))
    first = request(client_id)
    near.sendall(first)
    far = accept(broker)
    assert receive(far, len(first)) == first
    return near, far


@pytest.mark.parametrize("client_id", ["broker-1-fetcher-0", "broker-1-controller", "1"])
def test_a_cut_passes_no_data_until_it_heals(links: Links, broker: socket.socket, client_id: str) -> None:
    near, far = meet(links, broker, client_id)
    with near, far:
        links.cut(1, 2)
        near.sendall(b"out")
        far.sendall(b"back")
        assert is_silent(far)
        assert is_silent(near)
        links.heal()
        assert receive(far, 3) == b"out"
        assert receive(near, 4) == b"back"


def test_a_cut_holds_connections_of_both_sides(links: Links, broker: socket.socket) -> None:
    near, far = meet(links, broker, "broker-1-fetcher-0")
    with near, far:
        links.cut(2, 1)
        near.sendall(b"out")
        assert is_silent(far)


def test_a_one_way_cut_passes_the_other_direction(links: Links, broker: socket.socket) -> None:
    near, far = meet(links, broker, "broker-1-fetcher-0")
    with near, far:
        links.cut(1, 2, one_way=True)
        near.sendall(b"out")
        far.sendall(b"back")
        assert receive(near, 4) == b"back"
        assert is_silent(far)


@pytest.mark.parametrize("client_id", ["broker-3-fetcher-0", "rdkafka", ""])
def test_other_links_are_not_cut(links: Links, broker: socket.socket, client_id: str) -> None:
    near, far = meet(links, broker, client_id)
    with near, far:
        links.cut(1, 2)
        near.sendall(b"out")
        far.sendall(b"back")
        assert receive(far, 3) == b"out"
        assert receive(near, 4) == b"back"


def test_a_caller_is_identified_however_its_first_request_is_split_into_packets(
    links: Links, broker: socket.socket
) -> None:
    links.cut(1, 2)
    first = request("broker-1-fetcher-0")
    with connect(links.to_broker(2, broker.getsockname()[1])) as near:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(first)):
            near.sendall(first[position : position + 1])
        assert is_silent(near)
        links.heal()
        with accept(broker) as far:
            assert receive(far, len(first)) == first


def test_the_end_of_a_connection_passes_both_ways_but_not_through_a_cut(links: Links, broker: socket.socket) -> None:
    near, far = meet(links, broker, "broker-1-fetcher-0")
    with near, far:
        links.cut(1, 2)
        near.sendall(b"last words")
        near.close()
        assert is_silent(far)
        links.heal()
        assert receive(far, 10) == b"last words"
        assert far.recv(1) == b""
    near, far = meet(links, broker, "broker-1-fetcher-0")
    with near, far:
        far.close()
        assert near.recv(1) == b""


def test_a_connection_to_a_stopped_broker_is_closed(links: Links) -> None:
    with socket.create_server((HOST, 0)) as gone:
        port = gone.getsockname()[1]
    with connect(links.to_broker(2, port)) as near:
        near.sendall(request("broker-1-fetcher-0"))
        assert is_closed(near)


def test_much_data_passes_unchanged_and_is_not_buffered(links: Links, broker: socket.socket) -> None:
    near, far = meet(links, broker, "broker-1-fetcher-0")
    with near, far:
        piece = bytes(range(256)) * 4096
        sent = got = 0
        while select.select([], [near], [], 0.5)[1]:
            sent += near.send(piece[sent % len(piece) :][:4096])
            assert sent < 64 << 20, "more than the relay and all buffers of the system may hold"
        while got < sent:
            chunk = far.recv(1 << 20)
            expected = (piece + piece)[got % len(piece) :][: len(chunk)]
            assert chunk == expected
            got += len(chunk)


def test_the_registry_is_cut_for_one_broker_only(links: Links, broker: socket.socket) -> None:
    first, second = links.to_registry(1), links.to_registry(2)
    with connect(first) as one, connect(second) as two:
        one.sendall(b"1")
        two.sendall(b"2")
        links.registry_is_at(broker.getsockname()[1])  # a caller that connected before its id was known is passed on
        with accept(broker) as far_a, accept(broker) as far_b:
            by_broker = {receive(end, 1): end for end in (far_a, far_b)}
            links.cut(1, REGISTRY)
            one.sendall(b"x")
            two.sendall(b"y")
            assert receive(by_broker[b"2"], 1) == b"y"
            assert is_silent(by_broker[b"1"])
            links.heal()
            assert receive(by_broker[b"1"], 1) == b"x"


def test_close_ends_all_connections_and_can_be_called_twice(links: Links, broker: socket.socket) -> None:
    near, far = meet(links, broker, "broker-1-fetcher-0")
    with near, far:
        links.close()
        links.close()
        for end in (near, far):
            assert is_closed(end)
