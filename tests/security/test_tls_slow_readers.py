"""A client that reads slowly over TLS: its answers wait in files and in a queue that counts, not in the transport."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import uvloop

from odradek.broker.security.tls import TlsSettings, client_context, server_context
from odradek.certificates import CertificateAuthority
from odradek.protocol.in_flight import Exchange
from odradek.protocol.listening import Limits, Listener
from odradek.protocol.net import Connection
from tests.support.eventually import eventually_async

AUTHORITY = CertificateAuthority.create()
BROKER = AUTHORITY.issue("broker", ["127.0.0.1"])
FILE_BYTES = 32 << 20
IN_TRANSPORT_BYTES = 1 << 20


class FileRange:
    """The whole of a file, as a part of an answer."""

    position = 0

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __len__(self) -> int:
        return FILE_BYTES

    def fileno(self) -> int:
        return self._descriptor


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_file_is_read_as_fast_as_the_client_takes_it(tmp_path: Path, loop: str) -> None:
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
    descriptor = os.open(path, os.O_RDONLY)

    async def scenario() -> None:
        accepted: list[Connection] = []

        def answer(connection: Connection, frame: memoryview) -> None:
            connection.send(Exchange(connection), [FILE_BYTES.to_bytes(4, "big"), FileRange(descriptor)])

        tls = server_context(TlsSettings(BROKER.key_pem, BROKER.certificate_pem, None))
        listener = Listener("TLS", answer, limits=Limits(), on_open=accepted.append, tls=tls)
        port = await listener.bind("127.0.0.1", 0)
        await listener.serve()
        context = client_context(TlsSettings(None, b"", AUTHORITY.pem))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 16)
        writer.write(b"\0\0\0\x01x")
        await eventually_async(lambda: accepted and accepted[0].unfinished)
        transport = accepted[0]._transport
        assert transport is not None
        assert transport.get_write_buffer_size() < IN_TRANSPORT_BYTES
        assert listener.held_bytes < IN_TRANSPORT_BYTES
        assert await reader.readexactly(4) == FILE_BYTES.to_bytes(4, "big")
        with path.open("rb") as file:
            for _ in range(FILE_BYTES >> 20):
                assert await reader.readexactly(1 << 20) == file.read(1 << 20)
                assert transport.get_write_buffer_size() < IN_TRANSPORT_BYTES
        assert not accepted[0].unfinished
        writer.close()
        listener.close()
        await eventually_async(lambda: not listener.connections)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
            runner.run(scenario())
    finally:
        os.close(descriptor)
