"""A gate that is shut leaves no connection open: none that passes data, is accepted or is connected."""

from __future__ import annotations

import contextlib
import gc
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from odradek.ports import free_port
from tests.jvm.gate import HOST, Gate


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(1024):
                self.request.sendall(data)


class _Target(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 100


@pytest.fixture
def target() -> Iterator[int]:
    with _Target((HOST, 0), _Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_connection_passes_until_the_gate_is_shut(target: int) -> None:
    gate = Gate(free_port(), target)
    gate.open()
    with socket.create_connection((HOST, gate._port)) as client:
        client.sendall(b"through")
        assert client.recv(100) == b"through"
        gate.shut()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(100) == b""


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, 40])
def test_connections_that_have_just_begun_end_with_the_gate(target: int, count: int) -> None:
    for _ in range(10):
        gate = Gate(free_port(), target)
        gate.open()
        clients = [socket.create_connection((HOST, gate._port)) for _ in range(count)]
        gate.shut()
        for each in clients:
            each.close()
    gc.collect()  # a transport that is still open would warn, and warnings are errors
