"""JSON Web Tokens for tests, signed with keys of the test or not at all."""

from __future__ import annotations

import base64
import functools
import hmac
import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from odradek.broker.security.state.jwt import ALGORITHMS

CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}


def encode(data: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int, size: int | None = None) -> str:
    return encode(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


class SigningKey:
    """A private key with its public form as a JSON Web Key."""

    def __init__(self, kind: str, kid: str | None, **more: Any) -> None:
        self.private: Any
        if kind in CURVES:
            self.private = ec.generate_private_key(CURVES[kind])
            numbers = self.private.public_key().public_numbers()
            size = (self.private.key_size + 7) // 8
            self.jwk = {"kty": "EC", "crv": kind, "x": _number(numbers.x, size), "y": _number(numbers.y, size)}
        else:
            self.private = rsa.generate_private_key(65537, int(kind.removeprefix("RSA")))
            public = self.private.public_key().public_numbers()
            self.jwk = {"kty": "RSA", "n": _number(public.n), "e": _number(public.e)}
        self.jwk |= ({"kid": kid} if kid is not None else {}) | more

    def sign(self, algorithm: str, data: bytes) -> bytes:
        """A signature; an empty one for an algorithm that does not suit the key."""
        if algorithm.startswith("HS"):
            public = self.private.public_key()
            form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            return hmac.digest(public.public_bytes(*form), data, f"sha{algorithm[2:]}")
        how = ALGORITHMS.get(algorithm)
        if how is None or (how.key_type == "RSA") != isinstance(self.private, rsa.RSAPrivateKey):
            return b""
        if how.padding is not None:
            return bytes(self.private.sign(data, how.padding, how.hash))
        r, s = decode_dss_signature(self.private.sign(data, ec.ECDSA(how.hash)))
        size = (self.private.key_size + 7) // 8
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")

    def token(self, header: Mapping[str, Any], claims: Mapping[str, Any] | str) -> str:
        """A token with these contents, signed by the algorithm in the header."""
        text = claims if isinstance(claims, str) else json.dumps(claims)
        signed = f"{encode(json.dumps(header).encode())}.{encode(text.encode())}"
        return f"{signed}.{encode(self.sign(str(header.get('alg')), signed.encode()))}"


@functools.cache
def signing_key(kind: str, kid: str | None) -> SigningKey:
    """One key for each kind and kid in a process: generating RSA keys takes long."""
    return SigningKey(kind, kid)


def key_set(*keys: SigningKey) -> str:
    """The public keys as the text of a JSON Web Key Set."""
    return json.dumps({"keys": [each.jwk for each in keys]})
