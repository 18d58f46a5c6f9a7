"""Lets a Java that came from PyPI trust the certificate authorities of this Python.

Such a runtime has only the public authorities of the day it was packaged, while behind a company's proxy the machine's
own bundle has one more. Python's `ssl` reads that bundle; here it is written as a JKS key store, Java's oldest and
plainest format: a header, one entry for each certificate, a keyed SHA-1 at the end.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

_MAGIC, _FORMAT_VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
_PASSWORD = "changeit"  # Java's customary one: it keeps nothing secret, as all the content is public
_DIGEST_SALT = b"Mighty Aphrodite"  # fixed by the format


def trust_options(folder: Path) -> list[str]:
    """`java` options that name a trust store, written into `folder`; none where Python itself has no authority."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    store = folder / "trusted.jks"
    store.write_bytes(key_store(certificates))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def key_store(certificates: list[bytes]) -> bytes:
    """A JKS key store of trusted certificates, each in DER."""
    body = struct.pack(">III", _MAGIC, _FORMAT_VERSION, len(certificates))
    body += b"".join(
        struct.pack(">I", _TRUSTED_CERTIFICATE)
        + _text(f"authority-{position}")
        + struct.pack(">q", 0)  # the date it was added; no code reads it
        + _text("X.509")
        + struct.pack(">I", len(certificate))
        + certificate
        for position, certificate in enumerate(certificates)
    )
    return body + hashlib.sha1(_PASSWORD.encode("utf-16-be") + _DIGEST_SALT + body).digest()


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode("ascii")
