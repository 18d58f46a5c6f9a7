"""TLS contexts of listeners and of connections to other brokers (Kafka: DefaultSslEngineFactory).

`TlsSettings` are the `ssl.*` properties of one listener with their key stores read. The same settings make the context
of the listener and the context with which this broker connects to the others.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from odradek.broker.security.cipher_suites import CipherSuiteError, restrict

CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""Older protocols have known attacks, and Java has disabled them."""


class TlsError(ValueError):
    """Settings from which no TLS context can be made."""


class TlsSettings(NamedTuple):
    """The settings of one listener. Key and certificates are PEM texts; a key has no password."""

    key_pem: bytes | None
    chain_pem: bytes
    trusted_pem: bytes | None
    """None trusts the authorities of the operating system."""
    client_auth: str = "none"
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """All that OpenSSL offers where it is empty."""
    verifies_host: bool = True
    """Whether a client checks the name of the host that it connects to (ssl.endpoint.identification.algorithm)."""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a listener. Raises TlsError."""
    if settings.key_pem is None:
        raise TlsError(
            "a TLS listener needs a private key with its certificate: ssl.keystore.location or ssl.keystore.key"
        )
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    # The client chooses among suites of equal strength by what its processor is fast at.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of connections to other brokers. Raises TlsError."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.verifies_host
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _context(kind: int, settings: TlsSettings) -> ssl.SSLContext:
    unknown = [each for each in settings.protocols if each not in VERSIONS]
    if unknown or not settings.protocols:
        raise TlsError(
            f"ssl.enabled.protocols has {', '.join(unknown) or 'no protocol'}; allowed: {', '.join(VERSIONS)}"
        )
    context = ssl.SSLContext(kind)
    context.minimum_version = min(VERSIONS[each] for each in settings.protocols)
    context.maximum_version = max(VERSIONS[each] for each in settings.protocols)
    try:
        if settings.cipher_suites:
            restrict(context, settings.cipher_suites)
        if settings.trusted_pem is None:
            context.load_default_certs()
        elif settings.trusted_pem:
            context.load_verify_locations(cadata=settings.trusted_pem.decode("ascii"))
        if settings.key_pem is not None:
            with _readable(settings.key_pem + b"\n" + settings.chain_pem) as path:
                context.load_cert_chain(path)
    except (CipherSuiteError, UnicodeDecodeError) as error:
        raise TlsError(str(error)) from error
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        raise TlsError(f"OpenSSL does not accept the key store or trust store: {reason}") from None
    if context.minimum_version > context.maximum_version:
        raise TlsError("ssl.cipher.suites has no suite of the versions in ssl.enabled.protocols")
    return context


@contextmanager
def _readable(secret: bytes) -> Iterator[str]:
    """A path from which OpenSSL can read a secret: Python passes a private key by the name of a file only.

    On Linux the file is in memory and has no name in any folder.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("keystore", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, secret)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # mode 0600
            file.write(secret)
            file.flush()
            yield file.name
