"""JSON Web Key Sets, RFC 7517: the public keys of a token issuer (Kafka: RefreshingHttpsJwks, jose4j JsonWebKeySet).

Only RSA keys of at least 2048 bits and the NIST curves are used. Symmetric keys are ignored: with them, a public key
could pass as a shared secret.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    SECP384R1,
    SECP521R1,
    EllipticCurve,
    EllipticCurvePublicKey,
    EllipticCurvePublicNumbers,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

LEAST_RSA_BITS: Final = 2048
_CURVES: Final[Mapping[str, type[EllipticCurve]]] = {"P-256": SECP256R1, "P-384": SECP384R1, "P-521": SECP521R1}

PublicKey = RSAPublicKey | EllipticCurvePublicKey


class JwksError(ValueError):
    """A key set that cannot be used."""


class JsonWebKey(NamedTuple):
    """One public key."""

    key: PublicKey
    kid: str | None
    algorithm: str | None
    """The only algorithm that the key is for; None where the set does not restrict it."""

    @property
    def type(self) -> str:
        """RSA, or the name of the curve."""
        return "RSA" if isinstance(self.key, RSAPublicKey) else self.key.curve.name


class JsonWebKeySet:
    """The keys of one issuer."""

    def __init__(self, keys: Iterable[JsonWebKey]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    @classmethod
    def parse(cls, data: bytes | str) -> JsonWebKeySet:
        """The usable keys of a set; others are ignored, as RFC 7517 requires. Raises JwksError if there are none."""
        try:
            keys = json.loads(data)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise JwksError("the key set is not a JSON object with a list of keys") from error
        if not isinstance(keys, list):
            raise JwksError("the key set has no list of keys")
        usable = [key for key in map(_parse_key, keys) if key is not None]
        if not usable:
            raise JwksError("the key set has no key that can verify signatures")
        return cls(usable)

    def find(self, kid: str | None, algorithm: str, key_type: str) -> PublicKey | None:
        """The key for a signature.

        A token without `kid` is accepted only if one key is possible. jose4j takes the first one.
        """
        found = [
            each.key
            for each in self._keys
            if each.type == key_type and each.algorithm in (None, algorithm) and kid in (None, each.kid)
        ]
        return found[0] if found and (kid is not None or len(found) == 1) else None


def _parse_key(item: Any) -> JsonWebKey | None:
    """The key of an entry; None if it is not a public key for signatures."""
    if not isinstance(item, dict) or item.get("use", "sig") != "sig":
        return None
    operations = item.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    kid, algorithm = item.get("kid"), item.get("alg")
    if not isinstance(kid, str | None) or not isinstance(algorithm, str | None):
        return None
    try:
        key = _public_key(item)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        return None
    return JsonWebKey(key, kid, algorithm) if key is not None else None


def _public_key(item: Mapping[str, Any]) -> PublicKey | None:
    if item["kty"] == "RSA":
        key = RSAPublicNumbers(_number(item["e"]), _number(item["n"])).public_key()
        return key if key.key_size >= LEAST_RSA_BITS else None
    if item["kty"] == "EC" and item["crv"] in _CURVES:
        return EllipticCurvePublicNumbers(_number(item["x"]), _number(item["y"]), _CURVES[item["crv"]]()).public_key()
    return None


def _number(text: str) -> int:
    return int.from_bytes(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True), "big")
