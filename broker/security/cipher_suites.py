"""Cipher suites by the names of `ssl.cipher.suites`, which are Java's and the IANA's, in OpenSSL's terms.

OpenSSL has its own names for the suites up to TLS 1.2, and a separate list for those of TLS 1.3.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Final

TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The suites of TLS 1.3 that OpenSSL offers by default."""
_SEPARATOR: Final = "_WITH_"


class CipherSuiteError(ValueError):
    """Cipher suites that cannot be used as configured."""


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2 or older. Raises CipherSuiteError for a name of another form.

    `TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256` is `ECDHE-RSA-AES128-SHA256`: the mode CBC, the key exchange RSA, and the
    hash of an AEAD cipher that has only one, are left out.
    """
    exchange, separator, cipher = suite.partition(_SEPARATOR)
    if not separator or not exchange.startswith(("TLS_", "SSL_")):
        raise CipherSuiteError(f"{suite} is not a name like TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    key_exchange = exchange[4:].split("_")
    parts = cipher.split("_")
    if parts[0] in ("AES", "CAMELLIA") and len(parts) > 1:
        parts[:2] = ["".join(parts[:2])]
    if parts[:2] == ["CHACHA20", "POLY1305"]:
        parts = parts[:2]
    elif "CCM" in parts:
        mode = parts.index("CCM")
        parts[mode:] = ["CCM8" if parts[mode + 1 : mode + 2] == ["8"] else "CCM"]
    parts = [part for part in parts if part != "CBC"]
    return "-".join([*([] if key_exchange == ["RSA"] else key_exchange), *parts])


def restrict(context: ssl.SSLContext, suites: Iterable[str]) -> None:
    """Allow only these suites. Raises CipherSuiteError where OpenSSL does not have one or cannot be restricted.

    Without a suite of TLS 1.3 that version is not offered, as in Java. Before Python 3.15 its suites cannot be chosen:
    all of them are allowed, or none.
    """
    wanted = list(dict.fromkeys(suites))
    newest = [suite for suite in wanted if suite in TLS_1_3_SUITES]
    older = [suite for suite in wanted if suite not in TLS_1_3_SUITES]
    choose = getattr(context, "set_ciphersuites", None)
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif choose is not None:
        choose(":".join(newest))
    elif len(newest) < len(TLS_1_3_SUITES):
        raise CipherSuiteError(
            f"Python's ssl module cannot choose among the suites of TLS 1.3; list all of {', '.join(TLS_1_3_SUITES)}, "
            "or none of them"
        )
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    names = {suite: openssl_name(suite) for suite in older}
    for suite, name in names.items():
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise CipherSuiteError(f"OpenSSL does not have the cipher suite {suite}") from None
    context.set_ciphers(":".join(names.values()))
