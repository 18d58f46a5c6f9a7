"""Key stores and trust stores that change while a broker runs: by AlterConfigs, and by a change of the file."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cryptography import x509

from odradek.broker_process import BrokerProcess
from odradek.certificates import CertificateAuthority
from odradek.ports import free_port
from tests.security.tls_broker import HOST, Files, listeners
from tests.support.eventually import eventually

API_VERSIONS = b"\0\0\0\x0c\0\x12\0\0\0\0\0\x01\xff\xff\0\0"


class Reloading(NamedTuple):
    """A broker with three TLS listeners, its files, and an admin client on its plain listener."""

    broker: BrokerProcess
    ports: dict[str, int]
    files: Files
    admin: AdminClient

    def serial(self, listener: str, client: str | None = None) -> int:
        """The serial number of the listener's certificate."""
        with self.connection(listener, client) as encrypted:
            return _serial(encrypted)

    @contextlib.contextmanager
    def connection(self, listener: str, client: str | None = None) -> Iterator[ssl.SSLSocket]:
        with (
            socket.create_connection((HOST, self.ports[listener]), timeout=20) as plain,
            self.files.context(client).wrap_socket(plain, server_hostname=HOST) as encrypted,
        ):
            yield encrypted

    def alter(self, listener: str, **values: Path | str) -> None:
        """Set properties of a listener: `keystore_location` is ssl.keystore.location."""
        entries = [
            _set(f"listener.name.{listener.lower()}.ssl.{name.replace('_', '.')}", str(value))
            for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def issued(self, name: str) -> int:
        """The serial number of the certificate that was issued last under a name."""
        return _serial_of(self.files.certificates[name].certificate_pem)


def _set(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)


def _serial(encrypted: ssl.SSLSocket) -> int:
    certificate: Any = encrypted.getpeercert()
    return int(certificate["serialNumber"], 16)


def _serial_of(pem: bytes) -> int:
    return x509.load_pem_x509_certificate(pem).serial_number


def _asks(encrypted: ssl.SSLSocket) -> bool:
    """Whether the broker answers a request on the connection."""
    encrypted.sendall(API_VERSIONS)
    return len(encrypted.recv(8)) == 8


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloading]:
    folder = tmp_path_factory.mktemp("reload")
    files = Files(folder)
    for name in ("file", "configured", "free", "alice"):
        files.issue(name, *([HOST] if name != "alice" else []))
    ports, properties = listeners({"INSIDE": "PLAINTEXT", "FILE": "SSL", "CONFIGURED": "SSL", "FREE": "SSL"})
    for name in ("file", "configured", "free"):
        properties |= files.stores(name, f"listener.name.{name}.")
    properties["listener.name.file.ssl.client.auth"] = "requested"
    shutil.copy(files.trusted, folder / "clients.pem")
    properties["listener.name.file.ssl.truststore.location"] = str(folder / "clients.pem")
    properties["listener.name.free.ssl.allow.dn.changes"] = "true"
    properties["listener.name.free.ssl.allow.san.changes"] = "true"
    with BrokerProcess(folder, {**properties}) as broker:
        yield Reloading(broker, ports, files, AdminClient({"bootstrap.servers": f"{HOST}:{ports['INSIDE']}"}))


@pytest.mark.slow
def test_a_changed_file_is_read_again_and_connections_stay(running: Reloading) -> None:
    with running.connection("FILE") as before:
        old = running.serial("FILE")
        running.files.issue("file", HOST)
        eventually(lambda: running.serial("FILE"), lambda serial: serial == running.issued("file") != old)
        assert _asks(before)
        assert _serial(before) == old


@pytest.mark.slow
def test_a_file_that_is_damaged_leaves_the_old_key_store(running: Reloading) -> None:
    old, path = running.serial("FILE"), running.files.folder / "file.pem"
    good = path.read_bytes()
    path.write_bytes(good[:300])
    eventually(lambda: "keeping the old key store and trust store listener=FILE" in running.broker.output)
    assert running.serial("FILE") == old
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[_set("log.retention.ms", "100000000")])
    running.admin.incremental_alter_configs([resource])[resource].result(30)  # other properties change nevertheless
    path.write_bytes(good)
    assert running.serial("FILE") == old


@pytest.mark.slow
def test_a_changed_trust_store_accepts_other_clients(running: Reloading) -> None:
    stranger = CertificateAuthority.create("stranger")
    certificate = stranger.issue("bob")
    (running.files.folder / "bob.pem").write_bytes(certificate.keystore_pem)
    with pytest.raises((ssl.SSLError, ConnectionError)), running.connection("FILE", "bob") as refused:
        _asks(refused)
    (running.files.folder / "clients.pem").write_bytes(running.files.authority.pem + stranger.pem)

    def accepted() -> bool:
        with running.connection("FILE", "bob") as encrypted:
            return _asks(encrypted)

    eventually(accepted, retry_on=(OSError,))


def test_alter_configs_changes_the_key_store_at_once(running: Reloading) -> None:
    running.files.issue("configured", HOST)
    shutil.copy(running.files.folder / "configured.pem", running.files.folder / "next.pem")
    running.alter("configured", keystore_location=running.files.folder / "next.pem")
    assert running.serial("CONFIGURED") == running.issued("configured")


def test_alter_configs_with_the_same_path_reads_the_file_again(running: Reloading) -> None:
    path = running.files.issue("configured", HOST)
    running.alter("configured", keystore_location=path)
    assert running.serial("CONFIGURED") == running.issued("configured")
    running.files.issue("configured", HOST)
    running.alter("configured", keystore_location=path)
    assert running.serial("CONFIGURED") == running.issued("configured")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("missing", "cannot be read"),
        ("damaged", "ssl.keystore.location"),
        ("other name", "Keystore DistinguishedName does not match"),
        ("fewer hosts", "Keystore SubjectAltNames do not match"),
    ],
)
def test_an_invalid_key_store_is_rejected_and_the_old_one_stays(running: Reloading, fault: str, message: str) -> None:
    old, path = running.serial("CONFIGURED"), running.files.folder / f"bad {fault}.pem"
    authority = running.files.authority
    if fault == "damaged":
        path.write_bytes(b"-----BEGIN CERTIFICATE-----")
    elif fault == "other name":
        path.write_bytes(authority.issue("another broker", [HOST]).keystore_pem)
    elif fault == "fewer hosts":
        path.write_bytes(authority.issue("configured", ["elsewhere.example"]).keystore_pem)
    with pytest.raises(KafkaException) as rejected:
        running.alter("configured", keystore_location=path)
    error = rejected.value.args[0]
    assert error.code() == KafkaError.INVALID_REQUEST
    assert message in error.str()
    assert running.serial("CONFIGURED") == old


def test_names_may_change_where_the_listener_allows_it(running: Reloading) -> None:
    certificate = running.files.authority.issue("another name", [HOST])
    (running.files.folder / "renamed.pem").write_bytes(certificate.keystore_pem)
    running.alter("free", keystore_location=running.files.folder / "renamed.pem")
    assert running.serial("FREE") == _serial_of(certificate.certificate_pem)


def test_a_trust_store_cannot_be_removed_from_use_by_a_damaged_file(running: Reloading) -> None:
    path = running.files.folder / "empty.pem"
    path.write_bytes(b"")
    with pytest.raises(KafkaException, match=r"ssl\.truststore\.location"):
        running.alter("configured", truststore_location=path)


def _alter_broker(running: Reloading, **values: str) -> None:
    """Set properties of the broker, with underscores in place of dots."""
    entries = [_set(name.replace("_", "."), value) for name, value in values.items()]
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=entries)
    running.admin.incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.slow
def test_a_tls_listener_is_added_at_run_time(running: Reloading) -> None:
    path, port = running.files.issue("added", HOST), free_port()
    listed = [f"{name}://{HOST}:{taken}" for name, taken in {**running.ports, "ADDED": port}.items()]
    protocols = {"listener_security_protocol_map": "INSIDE:PLAINTEXT,FILE:SSL,CONFIGURED:SSL,FREE:SSL,ADDED:SSL"}
    added = {"listeners": ",".join(listed), "advertised_listeners": ",".join(listed), **protocols}
    stores = {"listener_name_added_ssl_keystore_type": "PEM", "listener_name_added_ssl_keystore_location": str(path)}
    with pytest.raises(KafkaException, match=r"ssl\.keystore"):
        _alter_broker(running, **added)
    with pytest.raises(KafkaException, match=r"ssl\.keystore\.location"):
        _alter_broker(running, **added, **{**stores, "listener_name_added_ssl_keystore_location": "/nowhere.pem"})
    _alter_broker(running, **added, **stores)
    running.ports["ADDED"] = port
    eventually(lambda: running.serial("ADDED"), lambda serial: serial == running.issued("added"), retry_on=(OSError,))
