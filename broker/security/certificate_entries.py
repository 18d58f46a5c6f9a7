"""Which certificate may take the place of another one at run time (Kafka: SslFactory.CertificateEntries, KIP-978).

The new certificate of a listener has the distinguished name of the old one and all its alternative names, so that a
mistake does not give a broker another identity. `ssl.allow.dn.changes` and `ssl.allow.san.changes` allow it.
"""

from __future__ import annotations

from cryptography import x509

from odradek.broker.security.tls import TlsError


def ensure_compatible(new_chain: bytes, old_chain: bytes, *, allow_dn_changes: bool, allow_san_changes: bool) -> None:
    """Compare the first certificates of two chains in PEM. Raises TlsError."""
    new, old = (x509.load_pem_x509_certificates(chain)[0] for chain in (new_chain, old_chain))
    if not allow_dn_changes and _canonical(new.subject) != _canonical(old.subject):
        raise TlsError(
            f"Keystore DistinguishedName does not match: existing={old.subject.rfc4514_string()}, "
            f"new={new.subject.rfc4514_string()}; ssl.allow.dn.changes=true allows it"
        )
    missing = _alternative_names(old) - _alternative_names(new)
    if missing and not allow_san_changes:
        raise TlsError(
            f"Keystore SubjectAltNames do not match: the new certificate is without {', '.join(sorted(missing))}; "
            "ssl.allow.san.changes=true allows it"
        )


def _canonical(name: x509.Name) -> str:
    """As X500Principal compares names: without regard to case and repeated spaces."""
    return " ".join(name.rfc4514_string().lower().split())


def _alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(f"{type(each).__name__}:{each.value}" for each in extension.value)
