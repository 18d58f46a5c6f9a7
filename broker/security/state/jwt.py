"""Validation of JSON Web Tokens (Kafka: ValidatorAccessTokenValidator, BrokerJwtValidator; RFC 7515, 7519, 8725).

Every check fails closed: a token is rejected unless an algorithm of the list below, a key of the issuer, the signature,
and all claims are right. `none` and the symmetric algorithms are not in the list (CVE-2026-33557, CVE-2026-110985).

Kafka's rules are kept where they are stricter than the RFC: a token for an audience is rejected by a broker that has
no audience configured. Two rules are stricter than Kafka's: a token that was issued in the future is rejected, and a
token without `kid` is accepted only if one key of the set is possible.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, AsymmetricPadding, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm

from odradek.broker.security.state.jwks import JsonWebKeySet, PublicKey
from odradek.protocol.sasl.oauthbearer import OAuthBearerToken, TokenRejectedError

DEFAULT_CLOCK_SKEW_S: Final = 30
_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_JAVA_WHITESPACE: Final = "".join(map(chr, range(33)))
_LATEST_S: Final = (1 << 63) // 1000


class UnknownKeyError(TokenRejectedError):
    """The issuer's keys, as the broker has them, do not contain the key of the token."""


class Algorithm(NamedTuple):
    """How a signature is verified."""

    key_type: str
    hash: HashAlgorithm
    padding: AsymmetricPadding | None = None


def _pss(algorithm: HashAlgorithm) -> PSS:
    return PSS(MGF1(algorithm), algorithm.digest_size)


ALGORITHMS: Final[Mapping[str, Algorithm]] = {
    "RS256": Algorithm("RSA", SHA256(), PKCS1v15()),
    "RS384": Algorithm("RSA", SHA384(), PKCS1v15()),
    "RS512": Algorithm("RSA", SHA512(), PKCS1v15()),
    "PS256": Algorithm("RSA", SHA256(), _pss(SHA256())),
    "PS384": Algorithm("RSA", SHA384(), _pss(SHA384())),
    "PS512": Algorithm("RSA", SHA512(), _pss(SHA512())),
    "ES256": Algorithm("secp256r1", SHA256()),
    "ES384": Algorithm("secp384r1", SHA384()),
    "ES512": Algorithm("secp521r1", SHA512()),
}


class ExpectedClaims(NamedTuple):
    """What a listener requires of tokens (sasl.oauthbearer.*)."""

    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    clock_skew_s: int = DEFAULT_CLOCK_SKEW_S
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"


class TokenValidator:
    """Validates the tokens of one issuer."""

    def __init__(self, keys: Callable[[], JsonWebKeySet], expected: ExpectedClaims) -> None:
        """`keys()` returns the issuer's current keys."""
        self._keys = keys
        self._expected = expected

    def validate(self, token: str, now_s: int) -> OAuthBearerToken:
        """The contents of a valid token. Raises TokenRejectedError, without any part of the token."""
        form = _FORM.fullmatch(token)
        if form is None:
            _reject("the token does not have the form header.claims.signature")
        header, payload, signature = (_decode(each) for each in form.groups())
        self._verify(_parse(header, "header"), token.rpartition(".")[0].encode(), signature)
        claims = _parse(payload, "claims")
        expires_s = self._check_times(claims, now_s)
        self._check_issuer(claims)
        self._check_audience(claims)
        for name in ("sub", "jti"):
            _string(claims, name)
        subject = (_string(claims, self._expected.sub_claim_name) or "").strip(_JAVA_WHITESPACE)
        if not subject:
            _reject(f"the claim {self._expected.sub_claim_name} is missing or empty")
        scope = _scope(claims, self._expected.scope_claim_name)
        return OAuthBearerToken(subject, expires_s * 1000, int(claims["iat"]) * 1000, scope)

    def _verify(self, header: Mapping[str, Any], signed: bytes, signature: bytes) -> None:
        name, kid = header.get("alg"), header.get("kid")
        algorithm = ALGORITHMS.get(name) if isinstance(name, str) else None
        if not isinstance(name, str) or algorithm is None:
            _reject("the algorithm of the signature is not allowed")
        if not header.keys().isdisjoint(("crit", "b64")):
            _reject("the header has extensions that change the meaning of the token")
        if str(header.get("cty")).lower().endswith("jwt"):
            _reject("the token contains another token")
        if not isinstance(kid, str | None):
            _reject("the kid of the header is not a string")
        key = self._keys().find(kid, name, algorithm.key_type)
        if key is None:
            raise UnknownKeyError("the issuer has no key for the signature")
        if not _is_signature(algorithm, key, signed, signature):
            _reject("the signature is not valid")

    def _check_times(self, claims: Mapping[str, Any], now_s: int) -> int:
        """The time of expiration in seconds."""
        skew = self._expected.clock_skew_s
        expires, issued, starts = (_time(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None or issued is None:
            _reject("the claim exp or iat is missing")
        if now_s - skew >= expires:
            _reject("the token has expired")
        if issued > now_s + skew:
            _reject("the token was issued in the future")
        if starts is not None and starts > now_s + skew:
            _reject("the token is not yet valid")
        if expires < max(issued, starts or 0):
            _reject("the token expires before it is valid")
        return expires

    def _check_issuer(self, claims: Mapping[str, Any]) -> None:
        issuer = _string(claims, "iss")
        if self._expected.issuer is not None and issuer != self._expected.issuer:
            _reject("the token has another issuer, or none")

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        audience = claims.get("aud")
        audiences = [audience] if isinstance(audience, str) else audience
        if audiences is None and not self._expected.audiences:
            return
        if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
            _reject("the token has no audience")
        if self._expected.audiences.isdisjoint(audiences):
            _reject("the token has another audience")


def _is_signature(algorithm: Algorithm, key: PublicKey, signed: bytes, signature: bytes) -> bool:
    try:
        if isinstance(key, RSAPublicKey) and algorithm.padding is not None:
            key.verify(signature, signed, algorithm.padding, algorithm.hash)
            return True
        if isinstance(key, EllipticCurvePublicKey) and algorithm.padding is None:
            size = (key.key_size + 7) // 8
            if len(signature) != 2 * size:
                return False
            numbers = (int.from_bytes(signature[:size], "big"), int.from_bytes(signature[size:], "big"))
            key.verify(encode_dss_signature(*numbers), signed, ECDSA(algorithm.hash))
            return True
    except (InvalidSignature, ValueError):
        return False
    return False


def _reject(reason: str) -> NoReturn:
    raise TokenRejectedError(reason)


def _decode(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        _reject("a part of the token is not in Base64")


def _parse(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object. Two values of one name are rejected: readers differ on which of them counts."""
    try:
        parsed = json.loads(data, object_pairs_hook=_unique, parse_constant=_reject)
    except (ValueError, RecursionError):
        _reject(f"the {what} of the token are not in JSON")
    if not isinstance(parsed, dict):
        _reject(f"the {what} of the token are no JSON object")
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _reject("a JSON object of the token has a name twice")
    return found


def _string(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not isinstance(value, str):
        _reject(f"the claim {name} is not a string")
    return value


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_S:
        _reject(f"the claim {name} is no time")
    return int(value)


def _scope(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """A text is one scope, as in Kafka, also with spaces; the items of a list must differ."""
    value = claims.get(name)
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(each, str) for each in items):
        _reject(f"the claim {name} has an item that is not a string")
    scopes = [each.strip(_JAVA_WHITESPACE) for each in items]
    if "" in scopes or len(set(scopes)) != len(scopes):
        _reject(f"the claim {name} has an empty item or an item twice")
    return frozenset(scopes)
