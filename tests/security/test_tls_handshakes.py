"""Handshakes of a TLS listener: unfinished ones end, count, and do not hold up others; what one costs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.security.tls import TlsSettings, client_context, server_context
from odradek.certificates import CertificateAuthority
from odradek.protocol import listening
from odradek.protocol.dial import connect
from odradek.protocol.in_flight import Exchange
from odradek.protocol.listening import HANDSHAKES_AT_ONCE, Limits, Listener
from odradek.protocol.net import Connection
from tests.support.eventually import eventually_async
from tests.support.handshake import shake_hands

AUTHORITY = CertificateAuthority.create()
BROKER = AUTHORITY.issue("broker", ["127.0.0.1"])
SETTINGS = TlsSettings(BROKER.key_pem, BROKER.certificate_pem, AUTHORITY.pem)
CLIENT = client_context(TlsSettings(None, b"", AUTHORITY.pem))


@contextlib.asynccontextmanager
async def tls_listener(limits: Limits | None = None, **others: Any) -> AsyncIterator[tuple[Listener, int, list[str]]]:
    reports: list[str] = []

    def echo(connection: Connection, frame: memoryview) -> None:
        connection.send(Exchange(connection), [len(frame).to_bytes(4, "big") + bytes(frame)])

    listener = Listener(
        "TLS",
        echo,
        limits=limits or Limits(),
        tls=server_context(SETTINGS),
        report=lambda _, text: reports.append(text),
        **others,
    )
    port = await listener.bind("127.0.0.1", 0)
    await listener.serve()
    try:
        yield listener, port, reports
    finally:
        listener.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as made:
        yield made


def test_an_unfinished_handshake_ends_after_the_idle_time(runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        async with tls_listener(Limits(idle_s=0.3)) as (listener, port, reports):
            with socket.create_connection(("127.0.0.1", port)) as silent:
                silent.setblocking(False)
                await eventually_async(lambda: len(listener.connections), lambda count: count == 1)
                await eventually_async(lambda: len(listener.connections), lambda count: count == 0)
                assert "TLS handshake failed" in reports[0]
                assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""

    runner.run(scenario())


def test_unfinished_handshakes_count_in_the_limit(runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        async with tls_listener(Limits(connections_per_address=2)) as (listener, port, reports):
            with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
                await eventually_async(lambda: len(listener.connections), lambda count: count == 2)
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await _connect(port)
                assert "max.connections.per.ip" in reports[0]
            await eventually_async(lambda: len(listener.connections), lambda count: count == 0)
            (await _connect(port)).close()

    runner.run(scenario())


def test_other_connections_are_served_between_a_few_handshakes(runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        async with tls_listener() as (listener, port, _):
            with contextlib.ExitStack() as stack:
                for _ in range(50):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                counts = [0]
                while counts[-1] < 50:
                    await asyncio.sleep(0)
                    counts.append(len(listener.connections))
                assert max(after - before for before, after in itertools.pairwise(counts)) <= HANDSHAKES_AT_ONCE
                listener.close()  # some handshakes have not begun
            await eventually_async(lambda: not listener.connections)

    runner.run(scenario())


def test_a_listener_that_closes_ends_unfinished_handshakes(runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        async with tls_listener() as (listener, port, _):
            with socket.create_connection(("127.0.0.1", port)) as silent:
                silent.setblocking(False)
                await eventually_async(lambda: len(listener.connections), lambda count: count == 1)
                listener.close()
                assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""
                assert not listener.connections

    runner.run(scenario())


async def _connect(port: int, tls: ssl.SSLContext = CLIENT) -> Any:
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    channel = await connect(
        "127.0.0.1",
        port,
        on_frame=lambda frame: answers.put_nowait(bytes(frame)),
        on_lost=lambda: answers.put_nowait(b""),
        frame_bytes=1 << 20,
        tls=tls,
    )
    channel.write(b"\0\0\0\x05hello")
    async with asyncio.timeout(20):
        assert await answers.get() == b"hello"
    return channel


def test_a_certificate_of_another_authority_is_an_error_of_the_connection(runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        others = client_context(TlsSettings(None, b"", CertificateAuthority.create().pem))
        async with tls_listener() as (_, port, reports):
            with pytest.raises(ssl.SSLCertVerificationError):
                await _connect(port, others)
            await eventually_async(lambda: reports)
            assert reports[0].endswith("TLS handshake failed: the client closed the connection")

    runner.run(scenario())


@settings(max_examples=40, deadline=None)
@given(chunks=st.lists(st.binary(min_size=1, max_size=300), max_size=4), begin=st.sampled_from([b"", b"\x16\x03\x01"]))
def test_any_bytes_before_the_handshake_only_end_their_connection(chunks: list[bytes], begin: bytes) -> None:
    async def scenario() -> None:
        opened: list[Connection] = []
        async with tls_listener(on_open=opened.append) as (listener, port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                for chunk in [begin, *chunks]:
                    writer.write(chunk)
                    await writer.drain()
                writer.write_eof()
                await reader.read()
            writer.close()
            await eventually_async(lambda: len(listener.connections), lambda count: count == 0)
            assert not opened

    with pytest.MonkeyPatch.context() as patch, asyncio.Runner(loop_factory=uvloop.new_event_loop) as made:
        patch.setattr(listening, "ALERT_S", 0.0)
        made.run(scenario())


def test_a_handshake_takes_the_loop_a_few_milliseconds_at_most() -> None:
    """The broker's part with a key on P-256; docs/security.md has the times for RSA, too."""
    server = server_context(SETTINGS)
    took = []
    for _ in range(20):
        begin = time.process_time()
        shake_hands(server, CLIENT, "127.0.0.1")
        took.append(time.process_time() - begin)
    assert min(took) < 0.02  # both ends together; about 1 ms on an idle machine


def test_settings_do_not_show_their_key() -> None:
    assert BROKER.key_pem.splitlines()[1].decode() not in repr(SETTINGS)
