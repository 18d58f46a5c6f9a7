"""A broker with TLS listeners, and what clients need to connect to them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from odradek.certificates import Certificate, CertificateAuthority
from odradek.ports import free_port

HOST = "127.0.0.1"


class Files:
    """The key stores and trust stores of a test, in PEM; all certificates are those of one authority."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.authority = CertificateAuthority.create()
        self.trusted = self._write("ca.pem", self.authority.pem)
        self.certificates: dict[str, Certificate] = {}

    def _write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def issue(self, name: str, *hosts: str, days: int = 30) -> Path:
        """The key store of a new certificate; it replaces the one of that name."""
        self.certificates[name] = certificate = self.authority.issue(name, hosts, days)
        return self._write(f"{name}.pem", certificate.keystore_pem)

    def stores(self, name: str, prefix: str = "") -> dict[str, str]:
        """The properties of a key store in a file, and of the trust store."""
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self.folder / f"{name}.pem"),
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(self.trusted),
        }

    def java(self, name: str | None = None) -> Path:
        """The properties of a Java client, with a certificate or without."""
        stores = self.stores(name or "")
        if name is None:
            stores = {key: value for key, value in stores.items() if "truststore" in key}
        lines = [f"{key}={value}" for key, value in {"security.protocol": "SSL", **stores}.items()]
        return self._write(f"{name or 'anonymous'}.properties", ("\n".join(lines) + "\n").encode())

    def librdkafka(self, name: str | None = None) -> dict[str, str | bool]:
        """The configuration of a client of librdkafka, with a certificate or without."""
        config: dict[str, str | bool] = {"security.protocol": "SSL", "ssl.ca.location": str(self.trusted)}
        if name is not None:
            certificate = self.certificates[name]
            config["ssl.key.pem"] = certificate.key_pem.decode()
            config["ssl.certificate.pem"] = certificate.certificate_pem.decode()
        return config

    def context(self, name: str | None = None) -> ssl.SSLContext:
        """The context of a client in Python, with a certificate or without."""
        context = ssl.create_default_context(cafile=str(self.trusted))
        if name is not None:
            context.load_cert_chain(self.folder / f"{name}.pem")
        return context


def listeners(names: Mapping[str, str]) -> tuple[dict[str, int], dict[str, str]]:
    """Ports of listeners, and the properties of these listeners: name -> security protocol."""
    ports = {name: free_port() for name in names}
    return ports, {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
        "inter.broker.listener.name": next(iter(names)),
    }
