"""TLS to a real ZooKeeper that asks for certificates of its clients (secureClientPort)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.registry import znodes, zookeeper
from odradek.broker.registry.interface import ConnectionLossError
from odradek.broker.security.zookeeper_tls import zookeeper_context
from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from tests.registry.zookeeper_server import ZooKeeperServer
from tests.security.tls_broker import HOST, Files

pytestmark = pytest.mark.jvm
PASSWORD = "store-secret"
PREFIX = "zookeeper.ssl."


class SecureZooKeeper(NamedTuple):
    """A server with a plain and a secure port."""

    plain: str
    secure: str
    files: Files

    def config(self, **changes: str) -> BrokerConfig:
        return BrokerConfig(
            {**self.properties(), **{PREFIX + name.replace("_", "."): changes[name] for name in changes}}
        )

    def properties(self) -> dict[str, str]:
        """The properties of a broker with a key store in PKCS12 and a trust store in PEM."""
        return {
            "zookeeper.connect": self.secure,
            f"{PREFIX}client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            f"{PREFIX}keystore.location": str(self.files.folder / "broker.p12"),
            f"{PREFIX}keystore.password": PASSWORD,
            f"{PREFIX}truststore.location": str(self.files.trusted),
        }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    folder = tmp_path_factory.mktemp("zookeeper-tls")
    files = Files(folder)
    files.issue("zookeeper", HOST)
    files.issue("broker")
    (folder / "broker.p12").write_bytes(files.certificates["broker"].pkcs12("broker", PASSWORD))
    port = free_port()
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(port),
        "secureClientPortAddress": HOST,
        "ssl.keyStore.location": str(folder / "zookeeper.pem"),
        "ssl.trustStore.location": str(files.trusted),
    }
    made = ZooKeeperServer(folder, folder / "data", settings=settings)
    try:
        made.start()
        yield SecureZooKeeper(made.connect, f"{HOST}:{port}", files)
    finally:
        made.stop()


def test_a_broker_keeps_its_metadata_there(server: SecureZooKeeper, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {**server.properties(), "broker.id": "7"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", b"value")
        assert producer.flush(30) == 0
        client = KazooClient(server.plain)
        client.start(timeout=20)
        try:
            assert client.exists(znodes.broker_path(7)) is not None
            assert client.get_children("/brokers/topics") == ["orders"]
        finally:
            client.stop()
            client.close()
        assert PASSWORD not in broker.output


async def test_large_and_many_answers(server: SecureZooKeeper) -> None:
    session = await zookeeper.connect(
        server.secure,
        session_timeout_ms=10_000,
        connection_timeout_ms=20_000,
        tls=zookeeper_context(server.config()),
    )
    try:
        large = bytes(range(256)) * 3_500
        await session.create("/large", large)
        for data, _ in await asyncio.gather(*(session.get("/large") for _ in range(20))):
            assert data == large
        await asyncio.gather(*(session.create(f"/small-{number}", b"x" * 100) for number in range(500)))
        names, _ = await session.children("/")
        assert len([name for name in names if name.startswith("small-")]) == 500
    finally:
        await session.close()


async def _refused(server: SecureZooKeeper, hosts: str, **changes: str) -> str:
    with pytest.raises(ConnectionLossError) as lost:
        await zookeeper.connect(
            hosts,
            session_timeout_ms=2_000,
            connection_timeout_ms=1_000,
            tls=zookeeper_context(server.config(**changes)),
        )
    return str(lost.value)


async def test_a_server_of_another_authority_is_refused(server: SecureZooKeeper, tmp_path: Path) -> None:
    other = Files(tmp_path).trusted
    assert "CERTIFICATE_VERIFY_FAILED" in await _refused(server, server.secure, truststore_location=str(other))


async def test_the_name_of_the_server_is_checked(server: SecureZooKeeper) -> None:
    port = server.secure.rpartition(":")[2]
    assert "Hostname mismatch" in await _refused(server, f"localhost:{port}")
    names = server.config(endpoint_identification_algorithm="")
    assert zookeeper_context(names).check_hostname is False
    assert zookeeper_context(server.config()).check_hostname is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keystore_location": "/nowhere.p12"}, "ssl.keystore.location: the keystore /nowhere.p12 cannot be read"),
        ({"keystore_password": "wrong"}, "ssl.keystore.location"),
        ({"truststore_location": "/nowhere.pem"}, "ssl.truststore.location"),
        ({"protocol": "TLSv1.1"}, "ssl.enabled.protocols has TLSv1.1"),
    ],
)
def test_settings_that_cannot_work_are_named(server: SecureZooKeeper, change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        zookeeper_context(server.config(**change))
    assert message in str(refused.value)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize("name", ["crl.enable", "ocsp.enable"])
def test_a_check_that_is_not_made_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="allowed: false"):
        BrokerConfig({f"{PREFIX}{name}": "true"})
