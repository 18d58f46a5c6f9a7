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
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from odradek.broker.security.cipher_suites import CipherSuiteError, restrict

CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""Older protocols have known attacks, and Java has disabled them."""


_TURNS: Final = 10
"""Of a handshake: more than any has."""


class TlsError(ValueError):
    """Settings from which no TLS context can be made."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The settings of one listener. Key and certificates are PEM texts; a key has no password."""

    key_pem: bytes | None = field(repr=False)
    chain_pem: bytes
    trusted_pem: bytes | None
    """None trusts the authorities of the operating system."""
    client_auth: str = "none"
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """All that OpenSSL offers where it is empty."""
    verifies_host: bool = True
    """Whether a client checks the name of the host that it connects to (ssl.endpoint.identification.algorithm)."""


class HandshakeError(Protocol):
    """An SSLError of a handshake that failed here."""

    alert: bytes


class _AlertingObject(ssl.SSLObject):
    """The broker's end of a connection. The error of a failed handshake has its alert for the client as `alert`.

    The transport of the event loop drops these bytes, and the client would retry for ever, without a reason.
    """

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            cast("HandshakeError", error).alert = self.outgoing.read()
            raise


class _ListenerContext(ssl.SSLContext):
    """A context whose connections send alerts."""

    sslobject_class = _AlertingObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **options: Any) -> Any:
        made = super().wrap_bio(incoming, outgoing, *arguments, **options)
        cast("_AlertingObject", made).outgoing = outgoing
        return made


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of a listener. Raises TlsError."""
    if settings.key_pem is None:
        raise TlsError(
            "a TLS listener needs a private key with its certificate: ssl.keystore.location or ssl.keystore.key"
        )
    context = _context(_ListenerContext(ssl.PROTOCOL_TLS_SERVER), settings)
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    # The client chooses among suites of equal strength by what its processor is fast at.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of connections to other brokers. Raises TlsError."""
    context = _context(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), settings)
    context.check_hostname = settings.verifies_host
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def check_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Shake hands in memory. Raises TlsError where one end does not accept the other."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for _ in range(_TURNS):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                raise TlsError(f"the TLS handshake fails: {error.reason or error}") from error
            ends.remove(end)
        if not ends:
            return
    raise TlsError("the TLS handshake does not end")


def _context(context: ssl.SSLContext, settings: TlsSettings) -> ssl.SSLContext:
    unknown = [each for each in settings.protocols if each not in VERSIONS]
    if unknown or not settings.protocols:
        raise TlsError(
            f"ssl.enabled.protocols has {', '.join(unknown) or 'no protocol'}; allowed: {', '.join(VERSIONS)}"
        )
    # As in Java, every certificate of the trust store is trusted, also one that is not signed by itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
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
