"""Counters of authentications on the page for Prometheus, beside the metrics of Kafka's Selector and Processor."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from odradek.broker.metrics.exposition.page import connections
from odradek.broker.metrics.exposition.snapshot import take_snapshot
from odradek.broker.server import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.sasl.plain import client_message
from tests.broker.wire import Client, running_broker
from tests.security.sasl_broker import (
    METADATA,
    authenticate,
    handshake,
    log_in,
    port,
    secured,
)
from tests.security.tls_broker import HOST, Files
from tests.support.eventually import eventually_async

PREFIX = "kafka_server_socket_server_metrics_"


def counted(broker: Broker, listener: str) -> dict[str, float]:
    """The samples of a listener that are not zero, without the count of open connections."""
    return {
        sample.name.removeprefix(PREFIX): sample.value
        for metric in connections(take_snapshot(broker.running.sources))
        for sample in metric.samples
        if sample.labels == {"listener": listener, "networkProcessor": "0"}
        and sample.value
        and not sample.name.endswith("connection_count")
    }


@pytest.mark.slow
async def test_sasl_exchanges_are_counted_by_their_result(tmp_path: Path) -> None:
    async with secured(tmp_path, connections_max_reauth_ms="1500") as broker:
        sasl = port(broker, "SASL_PLAINTEXT")
        client = await Client.connect(sasl)
        await log_in(client)
        await client.ask(METADATA, 12)
        assert counted(broker, "SASL_PLAINTEXT") == {"successful_authentication_total": 1}
        await log_in(client)
        for wrong in ("alice", "bob"):
            other = await Client.connect(sasl)
            assert (await log_in(other, wrong, "x")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            other.close()
        stranger = await Client.connect(sasl)
        await stranger.send(METADATA, 12)
        assert await stranger.is_closed()
        gone = await Client.connect(sasl)
        await handshake(gone)
        gone.close()  # a client that leaves has not failed
        other = await Client.connect(sasl)
        await log_in(other)
        await handshake(other)
        await authenticate(other, client_message("bob", "bob-secret"))
        assert counted(broker, "SASL_PLAINTEXT") == {
            "successful_authentication_total": 2,
            "failed_authentication_total": 3,
            "successful_reauthentication_total": 1,
            "failed_reauthentication_total": 1,
        }

        async def is_killed() -> bool:
            try:
                await client.ask(METADATA, 12)
            except (asyncio.IncompleteReadError, ConnectionError):
                return True
            return False

        await eventually_async(is_killed)
        assert counted(broker, "SASL_PLAINTEXT")["expired_connections_killed_count"] == 1
        assert counted(broker, "PLAINTEXT") == {}


async def test_tls_handshakes_are_counted_by_their_result(tmp_path: Path) -> None:
    files = Files(tmp_path / "tls")
    files.issue("broker", HOST)
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        **files.stores("broker", "listener.name.ssl."),
    }

    def connect(context: ssl.SSLContext) -> None:
        with (
            socket.create_connection((HOST, tls), timeout=20) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as encrypted,
        ):
            encrypted.sendall(b"\0\0\0\x0c\0\x12\0\0\0\0\0\x01\xff\xff\0\0")
            assert encrypted.recv(8)

    async with running_broker(tmp_path / "data", properties) as broker:
        tls = port(broker, "SSL")
        await asyncio.to_thread(connect, files.context())
        assert counted(broker, "SSL") == {"successful_authentication_total": 1}
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(connect, ssl.create_default_context())  # it does not trust the broker
        await eventually_async(
            lambda: counted(broker, "SSL"),
            lambda found: found == {"successful_authentication_total": 1, "failed_authentication_total": 1},
        )
        with socket.create_connection((HOST, tls)):
            pass  # a client that leaves has not failed
        await eventually_async(lambda: broker.running.sources.listening.connections()["SSL"], lambda count: count == 0)
        assert counted(broker, "SSL")["failed_authentication_total"] == 1
